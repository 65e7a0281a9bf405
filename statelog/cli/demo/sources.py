"""The sources that the demo's agent reads: packages of the running Python's standard library."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from pathlib import Path

from statelog.errors import StorageError

STEPS = 20
"""The number of steps. Each step reviews one package."""

_SIZE_BYTES_MAX = 800_000
_SKIPPED = frozenset({"test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "site-packages"})
"""Directories with tests, data or programs instead of library modules."""


_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """One finding of the review in a file."""

    file: str
    line: int
    kind: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One parsed file."""

    file: str
    lines: int
    functions: int
    classes: int
    longest_function_lines: int
    summary: str
    findings: tuple[ReviewFinding, ...]


def library() -> Path:
    """Return the directory of the library's sources."""
    return Path(ast.__file__).parent


def choose_packages() -> list[str]:
    """Return the names of the packages to review, one for each step, in order.

    Raises:
        StorageError: this Python is installed without its sources.
    """
    root = library()
    sizes = {
        entry.name: sum(path.stat().st_size for path in package_files(entry.name))
        for entry in sorted(root.iterdir())
        if entry.name not in _SKIPPED and (entry / "__init__.py").is_file()
    }
    fitting = [name for name, size in sizes.items() if 0 < size <= _SIZE_BYTES_MAX]
    if len(fitting) < STEPS:  # A reduced Python has few packages, so also use single modules.
        modules = [path.stem for path in sorted(root.glob("*.py")) if not path.stem.startswith("_")]
        fitting += modules[: STEPS - len(fitting)]
    if len(fitting) < STEPS:
        message = f"the demo reviews the sources of Python's library, but {root} has no sources"
        raise StorageError(message, path=str(root))
    largest = sorted(fitting, key=lambda name: -sizes.get(name, 0))[:STEPS]
    return sorted(largest)


def package_files(name: str) -> list[Path]:
    """Return the files of the package or module `name`."""
    folder = library() / name
    if not folder.is_dir():
        return [folder.with_suffix(".py")]
    return [path for path in sorted(folder.rglob("*.py")) if _SKIPPED.isdisjoint(path.relative_to(library()).parts)]


def parse(path: Path, *, long_function_lines: int) -> SourceFile:
    """Parse a file and return its findings.

    Args:
        path: the file.
        long_function_lines: a function with at least this many lines is a finding.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    file = path.relative_to(library()).as_posix()
    try:
        with warnings.catch_warnings(action="ignore"):  # The compiler's warnings about the file are irrelevant here.
            tree = ast.parse(text)
    except SyntaxError as error:
        broken = ReviewFinding(file, error.lineno or 0, "does not parse", error.msg, 0)
        return SourceFile(file, text.count("\n"), 0, 0, 0, f"{file}: does not parse", (broken,))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    findings = [
        ReviewFinding(file, node.lineno, "long function", node.name, length)
        for node, length in zip(functions, lengths, strict=True)
        if length >= long_function_lines
    ]
    findings += [
        ReviewFinding(file, node.lineno, "bare except", "except:", 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    return SourceFile(
        file,
        text.count("\n"),
        len(functions),
        sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree)),
        max(lengths, default=0),
        _summarize(file, tree),
        tuple(findings),
    )


def _summarize(file: str, tree: ast.Module) -> str:
    """Return a summary of a file: its purpose and its public names."""
    public = [node for node in tree.body if isinstance(node, _DEFINITIONS) and not node.name.startswith("_")]
    offers = [f"- {node.name}, line {node.lineno}: {_purpose(node)}" for node in public]
    return "\n".join([f"{file}: {_purpose(tree)}", *offers])


def _purpose(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    docstring = ast.get_docstring(node) or "without a docstring"
    return docstring.split("\n\n")[0].replace("\n", " ")
