"""The tree is tidy: names, and nothing that belongs elsewhere."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOP_LEVEL = {"pyproject.toml", "statelog", "native", "tests", "benchmarks", "findings", "README.md", "LICENSE"}
BUILT = {".so", ".pyc", "__pycache__"}
"""What a build or a run leaves beside the sources: git ignores it, and so is it left out where there is no git."""

LEFTOVERS = ("TODO", "FIXME", "XXX", "breakpoint()", "<<<<<<<", ">>>>>>>")
"""What work in progress leaves in a file. This file names them, and is the only one that may."""

MACHINE_PATHS = re.compile(r"/(?:work|root|home|Users)/\w")
SUFFIXES = {".py", ".c", ".h", ".md", ".toml", ""}


def files_of(root):
    """Return the files of a checkout that git tracks; of a copy without git, those of the trees that belong to it.

    So it does not matter what else lies there: virtual environments of whatever name, notes, output of builds.
    """
    git = ["git", "-C", str(root), "ls-files", "--cached", "-z"]
    try:
        listed = subprocess.run(git, capture_output=True, text=True, check=False).stdout.rstrip("\0").split("\0")
    except FileNotFoundError:
        listed = [""]
    if listed == [""]:  # no git, no checkout, or a copy inside of somebody else's
        trees = [path for name in TOP_LEVEL for path in (root / name, *(root / name).rglob("*"))]
        listed = [str(path.relative_to(root)) for path in trees if not BUILT.intersection((path.suffix, *path.parts))]
    return sorted(name for name in listed if (root / name).is_file())


FILES = files_of(ROOT)
TEXTS = [name for name in FILES if Path(name).suffix in SUFFIXES and "corpus" not in name and "compat" not in name]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_top_level_is_fixed():
    assert {name.split("/")[0] for name in FILES if not name.startswith(".")} <= TOP_LEVEL


@pytest.mark.slow
def test_a_file_has_no_leftovers():
    for name in TEXTS:
        if name == "tests/test_tidy.py":
            continue
        text = text_of(name)
        assert [mark for mark in LEFTOVERS if mark in text] == [], name
        assert not MACHINE_PATHS.search(text), name
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), f"{name}: white space at the end of a line"
        assert text == "" or text.endswith("\n"), name
        assert "\r" not in text, name
        assert name.startswith("native/") or "\t" not in text, name


def test_no_module_is_called_utils():
    assert [name for name in FILES if re.search(r"(utils?|helpers?|misc|common)\.(py|c|h)$", name)] == []


def test_every_module_has_a_docstring():
    for name in TEXTS:
        if name.startswith(("statelog/", "benchmarks/")) and name.endswith(".py"):
            assert text_of(name).lstrip().startswith('"""'), name


def test_tests_are_named_by_claims():
    for name in TEXTS:
        if re.match(r"tests/.*test_\w+\.py$", name):
            names = re.findall(r"^def (test_\w+)\(", text_of(name), re.MULTILINE)
            assert len(names) == len(set(names)), f"{name}: two tests of one name, one of which never runs"
            assert not [each for each in names if re.search(r"issue_?\d|test_\d", each)], name


def test_no_file_is_large():
    sizes = {name: (ROOT / name).stat().st_size for name in FILES}
    assert {name: size for name, size in sizes.items() if size > 300_000} == {}


def test_warnings_of_the_c_compiler_have_no_exceptions():
    for name in FILES:
        if name.endswith((".c", ".h")):
            assert "#pragma" not in text_of(name).replace("#pragma once", ""), name


def lay_out(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


OURS = ["README.md", "statelog/store/store.py", "tests/test_tidy.py"]
NOT_OURS = [".venv2/lib/odd.py", "env/lib/odd.py", "notes.txt", "build/lib/odd.py"]


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@needs_git
def test_files_that_git_does_not_track_are_not_read(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    lay_out(tmp_path, *OURS)
    subprocess.run([*git, "add", "."], check=True)
    lay_out(tmp_path, *NOT_OURS, "statelog/untracked.py")
    assert files_of(tmp_path) == OURS


def test_without_git_the_trees_that_belong_to_it_are_read(tmp_path):
    lay_out(tmp_path, *OURS, *NOT_OURS, "statelog/_kernels.abi3.so", "tests/__pycache__/test_tidy.pyc")
    assert files_of(tmp_path) == OURS


@needs_git
def test_a_copy_in_the_checkout_of_something_else_is_read(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    lay_out(tmp_path / "copy", *OURS, *NOT_OURS)
    assert files_of(tmp_path / "copy") == OURS


FACES = {"EnteredRun", "Handle", "Run", "Session", "StepContext", "StateOf", "Threads", "Turn", "_Worker"} | {
    *("Board", "Claim", "Fleet", "Memory", "Store", "Thread", "Transaction"),
}
"""Classes of `statelog.aio` that are called as the synchronous classes that they face."""

PUBLIC_TWICE = {"Problem", "StatelogSessionStore"}
"""Two public names each: `statelog.Problem` and `statelog.fleet.Problem`; one class in each of two adapters."""


def class_files(root):
    """Return the files that define a class, by its name. Examples are left out: users read each one alone."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        if "examples" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, set()).add(path.relative_to(root).as_posix())
    return found


def names_used_twice(root):
    """Return the class names that two files use, except for a face in `aio` of one synchronous class."""
    found = {}
    for name, files in class_files(root).items():
        sync = {file for file in files if not file.startswith("aio/")}
        is_face = name in FACES and len(sync) == 1 and len(files) == 2
        if len(files) > 1 and not is_face:
            found[name] = files
    return found


def test_a_class_name_is_used_once():
    assert names_used_twice(ROOT / "statelog").keys() == PUBLIC_TWICE


def test_a_class_name_that_two_files_use_is_found(tmp_path):
    for file, name in (("a.py", "Place"), ("b.py", "Place"), ("c.py", "Store"), ("aio/c.py", "Store")):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(f"class {name}:\n    pass\n")
    assert names_used_twice(tmp_path) == {"Place": {"a.py", "b.py"}}
