"""The same API for asyncio. Nothing here blocks the event loop on disk.

Every call that may read or write the file runs on a small pool of OS threads. Commits of many tasks at once share a
flush, like commits of OS threads. The fields of a checkpoint or record are in memory. State is read with `await`.

    async with statelog.aio.open("agent.state") as store:
        thread = store.thread("ticket-42", schema=Research)
        cp = await thread.commit({"findings": ["a"]})
        findings = await thread.state["findings"]
        async for c in thread.history(limit=10): ...
        async with thread.mount() as state: ...
        async with store.transaction() as tx:
            await tx.thread("a").commit({...})
        async for record in store.log(after=cp.lsn): ...
"""

from statelog.aio.board import Board, Claim
from statelog.aio.memory import Memory
from statelog.aio.state import State
from statelog.aio.store import Store, diff, open
from statelog.aio.thread import Thread
from statelog.aio.transaction import Transaction
from statelog.late import listing

__all__ = ["Board", "Claim", "Memory", "State", "Store", "Thread", "Transaction", "diff", "open"]

__dir__ = listing(__name__)
