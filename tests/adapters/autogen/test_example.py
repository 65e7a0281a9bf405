"""The example continues from the last saved turn."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("autogen_agentchat")


def told(path, task, **environment):
    program = [sys.executable, "-W", "ignore", "-m", "statelog.examples.autogen_kitchen", str(path), task]
    child = subprocess.run(
        program, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    return child.stdout.strip()


def test_another_process_continues(path):
    assert told(path, "a") == "heard ['a']"
    assert told(path, "b") == "heard ['a', 'b']"


def test_a_turn_killed_before_its_commit_begins_again(path):
    assert told(path, "a") == "heard ['a']"
    assert told(path, "b", STATELOG_FAULT="commit.before_lmdb_commit:1:kill") in {"", "heard ['a', 'b']"}
    assert told(path, "c") in {"heard ['a', 'c']", "heard ['a', 'b', 'c']"}
