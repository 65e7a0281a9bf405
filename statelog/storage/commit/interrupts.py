"""What a commit tells apart: failures, and interrupts that a signal handler raises wherever it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import StatelogError
from statelog.storage.file.failures import is_of_system
from statelog.storage.file.headroom import NoHeadroomError

if TYPE_CHECKING:
    from statelog.storage.commit.transaction import WriteTransaction

_FAILURES = (StatelogError, MemoryError, NoHeadroomError)
"""Of a commit, besides the system's and LMDB's."""


def is_failure(transaction: WriteTransaction, error: BaseException) -> bool:
    """Tell whether a transaction failed. Works may raise what they like; behind them all else is an interrupt."""
    if not transaction.may_be_committed:
        return isinstance(error, Exception)
    return isinstance(error, _FAILURES) or is_of_system(error)
