"""Examples go through: their first process is killed, and a second one goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("framework", "example", "printed"),
    [
        ("agents", "openai_agents_refund", ["waits for 1 approval", "Order 7 is refunded."]),
        ("claude_agent_sdk", "claude_agent_sdk_resume", ["two entries", "['Refund order 7', 'quickly', 'please']"]),
        (
            "crewai",
            "crewai_feedback",
            ["asks: Send?", "Send? yes: {'id': 'flow-7', 'draft': 'Dear Ann, ...', 'sent': True}"],
        ),
        ("google.adk", "google_adk_resume", ["two events", "Oslo", "Rome"]),
        (
            "pydantic_ai",
            "pydantic_ai_killed",
            [
                *("the model is asked, bookings so far: 0", "booking night 0"),
                *("the model is asked, bookings so far: 1", "booking night 1", "killed: -9"),
                *("booking night 1", "the model is asked, bookings so far: 2", "booked"),
            ],
        ),
        ("strands", "strands_session", ["two snapshots", "['Refund order 7', 'quickly']"]),
    ],
)
def test_an_example_continues_the_work_of_a_killed_process(framework, example, printed):
    pytest.importorskip(framework, exc_type=ImportError)
    command = [sys.executable, "-W", "ignore", "-m", f"statelog.examples.{example}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == printed
