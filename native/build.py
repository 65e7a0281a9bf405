"""Build ``statelog._kernels``. The cffi declarations come from the one public header.

setuptools finds the two commands through ``[tool.setuptools.cmdclass]`` in pyproject.toml, which
also lists the extension and its C files. Run as a script, this file prints the extracted
declarations.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cffi import FFI
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

if TYPE_CHECKING:
    from setuptools import Extension

NATIVE = Path(__file__).resolve().parent
HEADER = NATIVE / "statelog_kernels.h"
CDEF_BEGIN = "/* >>> cdef"
CDEF_END = "/* <<< cdef */"

SOURCE_TREES = ("native", "tests", "benchmarks")
SOURCE_SUFFIXES_LEFT_OUT = (".pyc", ".o", ".so")


def extract_declarations() -> str:
    """Return the text between the two markers of the header."""
    after = HEADER.read_text(encoding="utf-8").split(CDEF_BEGIN, 1)[1]
    return after.split("*/", 1)[1].split(CDEF_END, 1)[0]


def write_bindings(module_name: str, target: Path) -> None:
    """Write the C source of the extension module to ``target``."""
    ffi = FFI()
    ffi.cdef(extract_declarations())
    ffi.set_source(module_name, f'#include "{HEADER.name}"')
    target.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(target))


class BuildKernels(build_ext):  # type: ignore[misc]  # setuptools' commands have no types
    """Generates the bindings into the build directory, then compiles them with the kernels."""

    def build_extension(self, ext: Extension) -> None:
        """Add the generated source and this compiler's options, and build."""
        bindings = Path(self.build_temp) / f"{ext.name}.c"
        write_bindings(ext.name, bindings)
        ext.sources = [str(bindings), *(source for source in ext.sources if source != str(bindings))]
        if self.compiler.compiler_type == "msvc":
            ext.extra_compile_args = ["/O2", "/std:c11"]
        else:
            # No warning flags here, because they would also apply to cffi's generated code. native/fuzz/run.py
            # compiles the kernels alone with all warnings and -Werror.
            ext.extra_compile_args = ["-std=c11", "-O2", "-fvisibility=hidden"]
        super().build_extension(ext)


class WholeSource(sdist):  # type: ignore[misc]  # setuptools' commands have no types
    """Makes a source distribution with all files needed for tests and fuzzing, without a MANIFEST.in."""

    def make_distribution(self) -> None:
        """Add the directories that setuptools does not find, and make the distribution."""
        self.filelist.extend(
            str(path)
            for tree in SOURCE_TREES
            for path in sorted(Path(tree).rglob("*"))
            if path.is_file() and path.suffix not in SOURCE_SUFFIXES_LEFT_OUT
        )
        self.filelist.remove_duplicates()
        super().make_distribution()


if __name__ == "__main__":
    sys.stdout.write(extract_declarations())
