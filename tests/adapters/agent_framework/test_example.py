"""The example stops at a question, and another process answers it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

pytest.importorskip("agent_framework")
if tuple(map(int, version("agent-framework-core").split(".")[:2])) < (1, 23):
    pytest.skip(
        "the example needs agent-framework-core 1.23, whose workflows ask questions in a new way",
        allow_module_level=True,
    )


def told(path, *answer, **environment):
    program = [sys.executable, "-W", "ignore", "-m", "statelog.examples.agent_framework_review", str(path), *answer]
    child = subprocess.run(
        program, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )
    return child.stdout.strip()


def test_another_process_answers_the_question(path):
    assert told(path) == "publish draft 3?"
    assert told(path, "yes") == "read [1, 2, 3], publish: yes"


@pytest.mark.parametrize("times", range(1, 5))
def test_the_example_continues_after_a_kill_at_a_commit(path, times):
    told(path, STATELOG_FAULT=f"commit.before_delivery:{times}:kill")
    assert told(path) == "publish draft 3?"
    assert told(path, "no") == "read [1, 2, 3], publish: no"
