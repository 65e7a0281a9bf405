from __future__ import annotations

import subprocess
import sys

import forks
import pytest

from statelog.cli import child_report
from statelog.cli.exits import INTERNAL, ChildError
from statelog.cli.verification import verify_in_child
from statelog.errors import StoreNotFoundError


@pytest.mark.slow
def test_progress_reaches_the_parent(state):
    steps = []
    assert verify_in_child(state, deep=True, progress=lambda done, whole: steps.append((done, whole))).ok
    assert steps
    assert all(0 <= done <= whole for done, whole in steps)


@pytest.mark.slow
def test_an_error_of_the_child_keeps_its_exit_code(tmp_path):
    with pytest.raises(ChildError, match="no store at") as raised:
        verify_in_child(tmp_path / "none.state", deep=True, progress=lambda _done, _whole: None)
    assert raised.value.exit_code == StoreNotFoundError.exit_code


def test_a_child_that_ends_without_a_word_is_an_internal_error(state, monkeypatch):
    def start(_module, *_arguments, errors):
        code = "import sys; sys.exit('out of luck')"
        return forks.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=errors, text=True)

    monkeypatch.setattr(child_report, "start_module", start)
    with pytest.raises(ChildError, match="the verifying process exited with status 1: out of luck") as raised:
        verify_in_child(state, deep=True, progress=lambda _done, _whole: None)
    assert raised.value.exit_code == INTERNAL


@pytest.mark.slow
def test_a_child_takes_no_module_from_the_working_directory(run, state, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('taken from the working directory')")
    monkeypatch.chdir(tmp_path)
    assert run("verify", state).code == 0
