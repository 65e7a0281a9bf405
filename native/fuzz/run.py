"""Compile the kernels with every warning as an error, then run the fuzz targets under ASan and UBSan.

    python native/fuzz/run.py [--seconds N] [--seed S] [--plant]

Each target replays its corpus and then mutations of it for N seconds. Exits 0 if nothing was found,
3 otherwise. --plant compiles a bound that is one byte off, which the harness must find.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
NATIVE = FUZZ.parent
KERNELS = sorted(NATIVE.glob("*.c"))
OF_OBJECTS = sorted((NATIVE / "python").glob("*.c"))
"""C files that take Python objects. They are not fuzzed: .ci/run runs their tests with sanitizers."""
TARGETS = sorted(FUZZ.glob("fuzz_*.c"))
COMPILER = os.environ.get("CC", "gcc")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]
FINDING = 3
"""Exit code of a finding. Code 1 means that the targets could not be built."""


def compile_to(output: Path, *arguments: str) -> str:
    """Compile with all warnings as errors. Return the path of the output."""
    command = [COMPILER, "-std=c11", *WARNINGS, f"-I{NATIVE}", *arguments, "-o", str(output)]
    subprocess.run(command, check=True)  # noqa: S603 - our own sources
    return str(output)


def build(target: Path, objects: list[str], directory: Path) -> str:
    """Link one target with the kernels and the driver."""
    return compile_to(directory / target.stem, *SANITIZERS, "-O1", str(target), *objects)


def run(program: str, *, seconds: int, seed: int) -> bool:
    """Run one target. Return True if it found nothing."""
    corpus = FUZZ / "corpus" / Path(program).name.removeprefix("fuzz_")
    # Turn leak detection off: the kernels do not allocate, and leak detection needs ptrace.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [program, str(corpus), str(seconds), str(seed)]
    return subprocess.run(command, check=False, env=environment).returncode == 0  # noqa: S603 - built above


def main() -> int:
    """Build, run, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="of mutations, per target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", action="store_true", help="negative control")
    options = parser.parse_args()
    planted = ["-DSL_PLANT_OVERREAD"] if options.plant else []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        directory = Path(name)
        sources = [*KERNELS, FUZZ / "replay_main.c"]
        objects = list(
            pool.map(
                lambda source: compile_to(
                    directory / f"{source.stem}.o", *SANITIZERS, *planted, "-O1", "-c", str(source)
                ),
                sources,
            )
        )
        # Compile once more with the flags of a release, because some warnings need the optimizer.
        list(pool.map(lambda source: compile_to(directory / f"{source.stem}.O2.o", "-O2", "-c", str(source)), KERNELS))
        headers = f"-isystem{sysconfig.get_paths()['include']}"
        slots = "-Wno-pedantic"  # Python's tables store functions as object pointers.
        list(
            pool.map(
                lambda source: compile_to(directory / f"{source.stem}.py.o", "-O2", slots, headers, "-c", str(source)),
                OF_OBJECTS,
            )
        )
        programs = list(pool.map(lambda target: build(target, objects, directory), TARGETS))
        found = list(pool.map(lambda program: run(program, seconds=options.seconds, seed=options.seed), programs))
    return 0 if all(found) else FINDING


if __name__ == "__main__":
    sys.exit(main())
