"""A session of Strands Agents. Its process is killed while it writes, and another process reads it.

`python -m statelog.examples.strands_session` needs no key, because no model is called.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from statelog.adapters.strands import StatelogStorage

LATEST = "session/ticket-42/scopes/agent/a/snapshots/snapshot_latest.json"


async def begin(path: Path) -> None:
    """Write two snapshots. Then this process is killed."""
    storage = StatelogStorage.open(path)
    messages = []
    for text in ("Refund order 7", "quickly"):
        messages.append({"role": "user", "content": [{"text": text}]})
        await storage.write(LATEST, json.dumps({"messages": messages}).encode())
    print("two snapshots", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def go_on(path: Path) -> None:
    """Read the snapshots of the other process."""
    storage = StatelogStorage.open(path)
    data = await storage.read(LATEST)
    assert data is not None, "nothing was left"
    print([message["content"][0]["text"] for message in json.loads(data)["messages"]])
    storage.store.close()


def main() -> None:
    """Begin in a process that is killed, and continue in this one."""
    if len(sys.argv) > 1:
        asyncio.run(begin(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.state"
        command = [sys.executable, "-m", "statelog.examples.strands_session", str(path)]
        subprocess.run(command, check=False)  # noqa: S603 - this program
        asyncio.run(go_on(path))


if __name__ == "__main__":
    main()
