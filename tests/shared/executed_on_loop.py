"""What tests of runs on the event loop share."""

from __future__ import annotations

import asyncio
import threading

from executed import CALLS

from statelog import aio
from statelog import durable as threaded
from statelog.aio import durable


def on_loop(path, body):
    """Run a body on a loop with a store, which must verify clean."""

    async def main():
        async with aio.open(path) as store:
            result = await asyncio.wait_for(body(store), 120)
            assert (await store.verify()).problems == []
            return result

    return asyncio.run(main())


async def note(value):
    CALLS.append(value)
    await asyncio.sleep(0)
    return value


def note_in_thread(value):
    CALLS.append((value, threading.current_thread() is threading.main_thread()))
    return value


@durable.workflow
async def three(run, first):
    return [await run.step(note, (first, number)) for number in range(3)]


@threaded.workflow
def plain(run, first):
    return [run.step(note_in_thread, first), run.recv()]


@durable.workflow
async def chat(run, name):
    said = await run.recv("chat")
    await run.commit({"messages": {name: said}})
    return said


async def execute(store, body, *args, id="evt-1", raises=(), **how):
    """Run a body as a workflow."""
    return await durable.run(store, durable.workflow(name="w", raises=raises)(body), *args, id=id, **how)
