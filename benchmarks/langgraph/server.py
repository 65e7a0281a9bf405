"""A process that serves turns of conversations until it is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.langgraph import savers
from benchmarks.langgraph.short import agent, question

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class ServerTurn(NamedTuple):
    """One turn: the request, which is sent back as the answer."""

    thread_id: str
    number: int
    error: str = ""


def serve(connection: Connection, name: str, directory: str) -> None:
    """Report that the process is ready. Then serve turns concurrently, and send each back when it is done."""
    asyncio.run(_serve(connection, name, Path(directory)))


async def _serve(connection: Connection, name: str, directory: Path) -> None:
    tasks: set[asyncio.Task[None]] = set()
    async with savers.opened_async(name, directory, "served") as saver:
        graph = agent(saver)

        async def answer(turn: ServerTurn) -> None:
            error = ""
            try:
                await graph.ainvoke(question(turn.number), {"configurable": {"thread_id": turn.thread_id}})
            except Exception as raised:  # noqa: BLE001 - who asked is told, and asks again
                error = repr(raised)
            connection.send(turn._replace(error=error))

        def take() -> None:
            task = asyncio.ensure_future(answer(connection.recv()))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        asyncio.get_running_loop().add_reader(connection.fileno(), take)
        connection.send(None)
        await asyncio.Event().wait()
