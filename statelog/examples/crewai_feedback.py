"""A CrewAI flow asks a person. Its process is killed, and another process passes the answer on and continues.

`python -m statelog.examples.crewai_feedback` needs no key, because no model is called.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from crewai.flow.async_feedback.types import PendingFeedbackContext

from statelog.adapters.crewai import StatelogFlowPersistence


def ask(path: Path) -> None:
    """Save a waiting flow. Then this process is killed."""
    persistence = StatelogFlowPersistence(path)
    state = {"id": "flow-7", "draft": "Dear Ann, ..."}
    persistence.save_state("flow-7", "write", state)
    context = PendingFeedbackContext(
        flow_id="flow-7",
        flow_class="letters.Letter",
        method_name="review",
        method_output="Dear Ann, ...",
        message="Send?",
    )
    persistence.save_pending_feedback("flow-7", context, state)
    print(f"asks: {context.message}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def answer(path: Path) -> None:
    """Find the waiting flow in another process, and continue it."""
    persistence = StatelogFlowPersistence(path)
    waiting = persistence.load_pending_feedback("flow-7")
    assert waiting is not None, "nothing waits"
    state, context = waiting
    persistence.save_state("flow-7", "send", {**state, "sent": True})
    persistence.clear_pending_feedback("flow-7")
    print(f"{context.message} yes: {persistence.load_state('flow-7')}")


def main() -> None:
    """Ask for feedback in a process that is then killed, and give the answer in this process."""
    if len(sys.argv) > 1:
        ask(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.state"
        command = [sys.executable, "-m", "statelog.examples.crewai_feedback", str(path)]
        subprocess.run(command, check=False)  # noqa: S603 - this program
        answer(path)


if __name__ == "__main__":
    main()
