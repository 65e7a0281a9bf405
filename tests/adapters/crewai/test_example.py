"""The example completes although its first process is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("crewai", exc_type=ImportError)


def test_the_example_answers_a_question_of_a_killed_process():
    command = [sys.executable, "-W", "ignore", "-m", "statelog.examples.crewai_feedback"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = ["asks: Send?", "Send? yes: {'id': 'flow-7', 'draft': 'Dear Ann, ...', 'sent': True}"]
    assert done.stdout.splitlines() == told
