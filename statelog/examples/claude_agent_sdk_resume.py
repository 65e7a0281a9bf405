"""A transcript of the Claude Agent SDK. Its process is killed, and another process reads and continues it.

`python -m statelog.examples.claude_agent_sdk_resume` needs no key, because no model is called.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from statelog.adapters.claude_agent_sdk import StatelogSessionStore

KEY: Any = {"project_key": "shop", "session_id": "ticket-42"}


def said(number: int, text: str) -> Any:
    """Return an entry of a transcript."""
    return {"type": "user", "uuid": f"u{number}", "message": {"role": "user", "content": text}}


async def begin(path: Path) -> None:
    """Append a batch. Then this process is killed."""
    sessions = StatelogSessionStore.open(path)
    await sessions.append(KEY, [said(1, "Refund order 7"), said(2, "quickly")])
    print("two entries", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def go_on(path: Path) -> None:
    """Append the batch of `begin` again, as a sender does that got no reply, and then one more entry."""
    sessions = StatelogSessionStore.open(path)
    await sessions.append(KEY, [said(1, "Refund order 7"), said(2, "quickly")])
    await sessions.append(KEY, [said(3, "please")])
    entries: Any = await sessions.load(KEY)
    print([entry["message"]["content"] for entry in entries])
    sessions.store.close()


def main() -> None:
    """Begin in a process that is killed, and continue in this one."""
    if len(sys.argv) > 1:
        asyncio.run(begin(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.state"
        command = [sys.executable, "-m", "statelog.examples.claude_agent_sdk_resume", str(path)]
        subprocess.run(command, check=False)  # noqa: S603 - this program
        asyncio.run(go_on(path))


if __name__ == "__main__":
    main()
