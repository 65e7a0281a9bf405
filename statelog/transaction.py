"""Transactions over several threads: all or nothing.

What is done inside is rehearsed at once, on the state as it is then, so that errors and
results appear where the code is; and done at the end, on the state as it is then, in one
commit. No lock is held in between.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.errors import UsageError
from statelog.format.record import NO_DIGEST
from statelog.log.batch import Batch, Head, LogEnd
from statelog.log.nodes import NodeCache
from statelog.session import Outcome, abandoned_error
from statelog.thread import Thread
from statelog.tree.node import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.view import View

T = TypeVar("T")

_PROVISIONAL_LSN = 1 << 62
"""Rehearsed records are numbered from here, so that none is taken for a record others commit meanwhile."""


class _Snapshots:
    """Reads for a rehearsal: each in a transaction of its own, so that none lasts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get_index(self, key: bytes) -> bytes | None:
        with self._engine.read() as view:
            return view.transaction.get_index(key)

    def get_log(self, lsn: int) -> memoryview | None:
        with self._engine.read() as view:
            record = view.transaction.get_log(lsn)
            return None if record is None else memoryview(bytes(record))

    def last_lsn(self) -> int:
        with self._engine.read() as view:
            return view.transaction.last_lsn()

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        with self._engine.read() as view:
            return view.transaction.last_index(prefix)

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        with self._engine.read() as view:
            found = list(view.transaction.scan_index(prefix, start=start, reverse=reverse))
        yield from found


class Transaction:
    """Commits to several threads that happen together at the end of the `with` block.

    Checkpoints made inside have provisional LSN, time and id until then.
    """

    is_final = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._operations: list[tuple[Callable[[Batch], Any], Outcome | None]] = []
        self._is_open = True
        self._is_abandoned = False
        end = LogEnd(_PROVISIONAL_LSN, NO_DIGEST, 0)
        self._rehearsal = Batch(_Snapshots(engine), NodeCache(), end, {})

    def thread(self, id: str, *, schema: object = None, branch: str = "main") -> Thread:
        """Return a thread whose writes belong to this transaction."""
        self._check_open()
        return Thread(self, id, schema, branch)

    def _check_open(self) -> None:
        if not self._is_open:
            message = "the transaction has ended"
            raise UsageError(message)

    # --- as a session -----------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[View]:
        """View the state as the transaction has it so far; after its end, the store."""
        self._check_kept()
        if self._is_open:
            yield self._rehearsal.view
        else:
            with self._engine.read() as view:
                yield view

    def workspace(self) -> Workspace:
        """Return a reader of nodes, those made here included."""
        return Workspace(self._read_node)

    def _read_node(self, type_: int, digest: bytes, lsn: int, number: int) -> Any:
        self._check_kept()
        if self._is_open:
            return self._rehearsal.read_node(type_, digest, lsn, number)
        return self._engine.read_node(type_, digest, lsn, number)

    def write(self, work: Callable[[Batch], Head]) -> Outcome:
        """Rehearse, and do it again at the end."""
        self._check_open()
        outcome = Outcome(work(self._rehearsal))
        self._operations.append((work, outcome))
        return outcome

    def after_commit(self, head: Head) -> None:
        """Nothing: the thread's next commit outside of a transaction takes its turn."""

    def act(self, work: Callable[[Batch], T]) -> T:
        """Rehearse, and do it again at the end."""
        self._check_open()
        result = work(self._rehearsal)
        self._operations.append((work, None))
        return result

    # --- the end ------------------------------------------------------------------

    def finish(self) -> None:
        """Do all of it in one commit."""
        self._is_open = False
        if not self._operations:
            return

        def work(batch: Batch) -> list[Any]:
            return [operation(batch) for operation, _outcome in self._operations]

        results = self._engine.write(work)
        for (_operation, outcome), result in zip(self._operations, results, strict=True):
            if outcome is not None:
                outcome.settle(result)

    def abandon(self) -> None:
        """Do nothing of it."""
        self._is_open = False
        self._is_abandoned = True
        for _operation, outcome in self._operations:
            if outcome is not None:
                outcome.abandon()

    def _check_kept(self) -> None:
        if self._is_abandoned:
            raise abandoned_error()


@contextmanager
def transaction(engine: Engine) -> Iterator[Transaction]:
    """Run a `with` block as one transaction."""
    opened = Transaction(engine)
    try:
        yield opened
    except BaseException:
        opened.abandon()
        raise
    try:
        opened.finish()
    except BaseException:
        opened.abandon()
        raise
