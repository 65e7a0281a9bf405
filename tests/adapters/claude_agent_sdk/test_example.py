"""The example completes although its first process is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)


def test_the_example_continues_the_work_of_a_killed_process():
    command = [sys.executable, "-W", "ignore", "-m", "statelog.examples.claude_agent_sdk_resume"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["two entries", "['Refund order 7', 'quickly', 'please']"]
