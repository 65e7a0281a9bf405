"""An ADK conversation. Its process is killed, and another process continues it, also from an earlier event.

`python -m statelog.examples.google_adk_resume` needs no key, because no model is called.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from statelog.adapters.google_adk import StatelogSessionService

HERE = {"app_name": "trips", "user_id": "ann"}


def said(text: str, **state: str) -> Event:
    """Return an event from the user."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(id=text, author="user", content=content, actions=EventActions(state_delta=state))


async def begin(path: Path) -> None:
    """Add events. Then this process is killed."""
    service = StatelogSessionService.open(path)
    session = await service.create_session(**HERE, session_id="trip", state={"city": ""})
    await service.append_event(session, said("to Rome", city="Rome"))
    await service.append_event(session, said("no, to Oslo", city="Oslo"))
    print("two events", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def go_on(path: Path) -> None:
    """Continue the conversation, and also a copy from before its last event."""
    service = StatelogSessionService.open(path)
    session = await service.get_session(**HERE, session_id="trip")
    assert session is not None, "nothing was left"
    print(session.state["city"])
    forked = await service.fork_session(**HERE, session_id="trip", at="to Rome", new_session_id="trip to Rome")
    print(forked.state["city"])
    await service.close()


def main() -> None:
    """Begin in a process that is killed, and continue in this one."""
    if len(sys.argv) > 1:
        asyncio.run(begin(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.state"
        command = [sys.executable, "-m", "statelog.examples.google_adk_resume", str(path)]
        subprocess.run(command, check=False)  # noqa: S603 - this program
        asyncio.run(go_on(path))


if __name__ == "__main__":
    main()
