"""The example goes through, its first process killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("agents")


def test_the_example_resumes_a_question_of_a_killed_process():
    command = [sys.executable, "-m", "statelog.examples.openai_agents_refund"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["waits for 1 approval", "Order 7 is refunded."]
