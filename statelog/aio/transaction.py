"""Transactions over several threads, on the event loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from statelog.aio.board import Board
from statelog.aio.generated import TransactionCalls
from statelog.aio.thread import Thread
from statelog.aio.threads import Threads
from statelog.deprecated import renamed_keyword

if TYPE_CHECKING:
    from statelog.aio.bridge import Runner
    from statelog.board.rules import Rules
    from statelog.store.transaction import Transaction as SyncTransaction


class Transaction(TransactionCalls, Threads):
    """A transaction with the methods of `statelog.store.transaction.Transaction`, which are awaited."""

    def __init__(self, runner: Runner, transaction: SyncTransaction) -> None:
        self._runner = runner
        self._transaction = transaction

    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        make = partial(self._transaction.thread, id, schema=schema, branch=branch, recreate=recreate)
        return Thread(self._runner, make, id, branch)

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """Return the board. Writes to it are committed at the end. See `statelog.Transaction.board`."""
        return Board(
            self._runner, self._transaction.board(agent=agent, rules=rules, include_quarantined=include_quarantined)
        )

    @renamed_keyword("reborn", "recreate")
    async def copy_thread(self, source: str, target: str, *, recreate: bool = False) -> Thread:
        """Copy a thread, which this transaction may have created or changed. See `statelog.Transaction.copy_thread`."""
        copied = await self._runner.run(self._transaction.copy_thread, source, target, recreate=recreate)
        return Thread(self._runner, lambda: copied, target, copied.branch)
