from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import statelog
from statelog.cli import main

STATELOG = Path(sys.executable).with_name("statelog")

pytestmark = pytest.mark.skipif(not STATELOG.exists(), reason="the script is not installed")


def asking(line):
    """Return the environment variables with which bash requests completions for the end of a line."""
    words = line.split(" ")
    return {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_STATELOG_COMPLETE": "bash_complete"}


def names_in(answer):
    return [each.partition(",")[2] for each in answer.splitlines() if each]


@pytest.fixture
def offered(monkeypatch):
    """Return the completions that bash gets at the end of a line, without a process for each call."""

    def offered_in(line, directory):
        monkeypatch.chdir(directory)
        result = CliRunner().invoke(main, [], env=asking(line))
        assert (result.exit_code, result.stderr) == (0, "")
        return names_in(result.stdout)

    return offered_in


@pytest.mark.slow
def test_the_script_offers_matching_completions(state):
    environment = {**os.environ, **asking("statelog history agent.state ")}
    done = subprocess.run([STATELOG], env=environment, cwd=state.parent, capture_output=True, text=True, check=True)
    assert names_in(done.stdout) == ["ticket-42", "other"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("statelog thr", ["threads"]),
        ("statelog history agent.state ", ["ticket-42", "other"]),
        ("statelog history agent.state t", ["ticket-42"]),
        ("statelog tree agent.state o", ["other"]),
        ("statelog show agent.state ticket-42 --branch w", ["what-if"]),
        ("statelog show agent.state ticket-42 --at ", ["good"]),
        ("statelog rollback agent.state ticket-42 g", ["good"]),
        ("statelog diff agent.state ticket-42 ", ["good", "main", "what-if"]),
        ("statelog log agent.state --thread ", ["ticket-42", "other"]),
        ("statelog show agent.state nobody --at ", []),
        ("statelog history none.state ", []),
    ],
)
def test_the_shell_gets_matching_completions(offered, state, line, names):
    assert state.name == "agent.state"
    assert offered(line, state.parent) == names


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("statelog board get agent.state ", ["notes", "tasks/1", "tasks/done/2"]),
        ("statelog board history agent.state ta", ["tasks/1", "tasks/done/2"]),
        ("statelog board complete agent.state tasks/d", ["tasks/done/2"]),
        ("statelog board set agent.state a//", []),
    ],
)
def test_the_shell_gets_keys_of_the_board(offered, path, line, keys):
    with statelog.open(path) as store:
        for key in ("tasks/1", "tasks/done/2", "notes"):
            store.board().set(key, 1)
    assert offered(line, path.parent) == keys


@pytest.mark.slow
def test_the_activation_line_prints_a_script(tmp_path):
    done = subprocess.run(
        ["bash", "-c", f'eval "$(_STATELOG_COMPLETE=bash_source {STATELOG})" && complete -p statelog'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "statelog" in done.stdout
