"""The example goes through, its first process killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("strands", exc_type=ImportError)


def test_the_example_reads_the_results_of_a_killed_process():
    command = [sys.executable, "-W", "ignore", "-m", "statelog.examples.strands_session"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["two snapshots", "['Refund order 7', 'quickly']"]
