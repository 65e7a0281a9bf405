"""mypy and pyright refuse the wrong programs of `programs.py`, and no other line.

They run in a folder of their own, and so find statelog as it is installed, be it by `pip install -e`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = (Path(__file__).parent / "programs.py").read_text()
MARK = re.compile(r"# error(?:: (\w+))?$")


def marked(programs, checker):
    """Return the lines that a checker must refuse."""
    lines = ((number, MARK.search(line)) for number, line in enumerate(programs.splitlines(), 1))
    return {number for number, mark in lines if mark and mark.group(1) in {None, checker}}


def refused_by_mypy(folder):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", "programs.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}


def refused_by_pyright(folder):
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "programs.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


def is_pyright_here():
    if shutil.which("node") is None or importlib.util.find_spec("pyright") is None:
        return False
    command = [sys.executable, "-m", "pyright", "--version"]  # the first call may have to fetch it
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


CHECKERS = {"mypy": refused_by_mypy, "pyright": refused_by_pyright}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all tests: mypy keeps there what it has read."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(params=CHECKERS)
def checker(request):
    if request.param == "pyright" and not is_pyright_here():
        pytest.skip("pyright needs Node")
    return request.param


@pytest.mark.slow
def test_a_checker_refuses_the_wrong_programs_alone(checker, folder):
    (folder / "programs.py").write_text(PROGRAMS)
    assert CHECKERS[checker](folder) == marked(PROGRAMS, checker)


@pytest.mark.slow
def test_a_program_with_an_error_that_is_not_marked_is_found(checker, folder):
    """The control: were nothing known of statelog, all would be Any and right."""
    wrong = PROGRAMS + '\n\nvalue: int = statelog.open("x").thread("t").version.upper()\n'
    (folder / "programs.py").write_text(wrong)
    assert CHECKERS[checker](folder) - marked(wrong, checker) == {len(wrong.splitlines())}


def test_marks_are_read():
    assert marked("a  # error\nb\nc  # error: mypy\nd  # error: pyright\n", "mypy") == {1, 3}
