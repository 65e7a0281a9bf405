"""Executes a run on its own event loop, as `statelog.aio.durable` does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from statelog.aio.bridge import Runner
from statelog.aio.durable.starts import drive_here
from statelog.aio.store import Store as AsyncStore

if TYPE_CHECKING:
    from statelog.durable import Workflow
    from statelog.store.store import Store


def drive_on_loop(store: Store, workflow: Workflow, run: str) -> None:
    """Execute a run until it ends or waits."""
    runner = Runner(str(store.path))
    try:
        asyncio.run(drive_here(AsyncStore(runner, store), workflow, run, wait_s=0.0, is_patient=False))
    finally:
        runner.close(lambda: None).result()
