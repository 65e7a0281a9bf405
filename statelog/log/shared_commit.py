"""Commits to a log that many hosts write. The log is authoritative; this file is a replica.

A group runs during this host's turn, on the latest state. Its records go into the log first, and then into the file. So
no file has a record that is missing in the log. If a process dies between the two, its next turn imports the missing
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from statelog.errors import CommitOutcomeUnknownError, StatelogError
from statelog.log.commit import Committer
from statelog.log.commit_failures import is_failure
from statelog.log.commit_queue import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from statelog.storage.write_transaction import StoreWriter, WriteTransaction

T = TypeVar("T")


class SharedLog(Protocol):
    """A log that many hosts write. Its methods are called under `write_lock`."""

    def turn(self) -> AbstractContextManager[object]:
        """Keep other hosts from appending during the `with` block. Their earlier records are imported first.

        Raises:
            StatelogError: the turn is not available now. The block did not run.
        """

    def append(self, transaction: WriteTransaction) -> BaseException | None:
        """Append the records of a transaction to the log, before they go into the file.

        On return, the records are durable in the log.

        Returns:
            The interrupt that came during the append, or None. The caller raises it after the file has the records.

        Raises:
            CommitOutcomeUnknownError: the outcome is unknown. After any other error, the records
                are not in the log.
        """


class SharedCommitter(Committer):
    """Commits to a log that many hosts write. A fence of the file does not apply to this committer."""

    def __init__(self, writer: StoreWriter, log: SharedLog) -> None:
        super().__init__(writer)
        writer.is_shared = True
        self._log = log
        self._has_turn = False
        self._sent: WriteTransaction | None = None
        """The last transaction that was sent to the log."""
        self._is_logged = False
        """Whether the log contains the transaction `_sent`."""

    def take_in(self, work: Callable[[WriteTransaction], T]) -> T:
        """Run `work`, which writes records of the log into the file. The caller holds `write_lock`.

        Raises the errors of `commit`.
        """
        request, has_turn = Request(work, is_flushed=False), self._has_turn
        self._has_turn = False
        try:
            self.execute([request])
        finally:
            self._has_turn = has_turn
        self.flush([request])
        if request.error is not None:
            raise request.error
        result: T = request.result
        return result

    def execute_in_turn(self, group: list[Request], *_attempts: Any) -> None:
        """Run and commit a group while no other host appends."""
        try:
            with self._log.turn():
                self._has_turn = True
                try:
                    self.execute(group)
                finally:
                    self._has_turn = False
        except StatelogError as error:
            for request in group:
                request.error = self.failures.refusal(error)
                request.settled = True

    def append_elsewhere(self, transaction: WriteTransaction) -> BaseException | None:
        """Append the pending commit to the log, unless its records come from the log."""
        if not (self._has_turn and transaction.appended):
            return None
        self._sent, self._is_logged = transaction, False
        interrupt = self._log.append(transaction)
        self._is_logged = True
        return interrupt

    def settle(self, transaction: WriteTransaction, group: list[Request], error: BaseException, attempts: int) -> None:
        """Settle a failed group.

        A request whose records were sent to the log does not run again: the next turn imports the records.
        """
        if self._sent is not transaction:
            super().settle(transaction, group, error, attempts)
            return
        may_be_here, has_failed = transaction.may_be_committed, is_failure(transaction, error)
        transaction.abort()
        if not (self._is_logged or has_failed):
            return
        is_here = may_be_here and self.failures.look(transaction, reopen=has_failed)
        for request in group:
            if request.error is None and has_failed and not is_here:
                request.error = self._is_logged_error(error) if self._is_logged else self.failures.refusal(error)
            request.settled = True

    def _is_logged_error(self, error: BaseException) -> CommitOutcomeUnknownError:
        path = self.writer.file.path
        message = f"{path}: a commit is in the shared log, but failed in this copy: {error}"
        made = CommitOutcomeUnknownError(message, path=str(path))
        made.__cause__ = error
        return made
