from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import oracles
import pytest

FUZZ = Path(__file__).parents[2] / "native" / "fuzz"
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.c"))
FINDING = 3


def has_sanitizers() -> bool:
    """Whether the compiler that native/fuzz/run.py takes can link a sanitized program."""
    if shutil.which("gcc") is None:
        return False
    probe = ["gcc", "-fsanitize=address,undefined", "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(probe, input=b"int main(void){return 0;}", capture_output=True, check=False).returncode == 0


needs_sanitizers = pytest.mark.skipif(not has_sanitizers(), reason="no gcc with ASan and UBSan")


def seeds() -> dict[str, bytes]:
    spec = importlib.util.spec_from_file_location("seed_corpus", FUZZ / "seed_corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.corpus()


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, FUZZ / "run.py", *options], capture_output=True, text=True, check=False, timeout=300
    )


def test_committed_corpus_holds_every_seed():
    assert {name: (FUZZ / "corpus" / name).read_bytes() for name in seeds()} == seeds()


def test_every_target_has_a_corpus():
    assert sorted(path.name for path in (FUZZ / "corpus").iterdir()) == TARGETS


@pytest.mark.parametrize("name", [name for name in seeds() if name.startswith("cbor/")])
def test_seed_is_an_item_of_the_profile(name):
    oracles.cbor_check(seeds()[name])


@needs_sanitizers
def test_corpus_replays_without_a_finding():
    replay = run("--seconds", "1")
    assert (replay.returncode, replay.stderr) == (0, "")
    assert replay.stdout.count("nothing found") == len(TARGETS)


@needs_sanitizers
def test_planted_overread_is_found():
    replay = run("--seconds", "1", "--plant")
    assert replay.returncode == FINDING
    assert "heap-buffer-overflow" in replay.stderr
