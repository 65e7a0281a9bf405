"""Copy references (loans): a copied thread uses the nodes in the records of the thread it was copied from (V2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.format import keys
from statelog.format.record import TYPE_LOAN
from statelog.log.events import LoanEvent, decode_as
from statelog.log.kinds.loans import LOAN_KIND
from statelog.log.kinds.table import stage_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.log.batch import Batch
    from statelog.log.view import View

ANYONE = 0
"""The borrower of a loan that names no thread. The index lists it under thread 0."""


def lend(batch: Batch, thread: int, lender: int, next_versions: Sequence[int]) -> None:
    """Stage a loan: `thread` uses nodes in the records of `lender`. Stage the records that refer to the nodes first."""
    stage_event(batch, LoanEvent(thread, lender, list(next_versions)))


def lenders_of(view: View, thread: int) -> list[int]:
    """Return the threads that have lent nodes to a thread."""
    scan = view.transaction.scan_index(keys.encode_debt_prefix(thread))
    return [keys.decode_debt_lender(key) for key, _payload in scan]


def sources_of(view: View, thread: int) -> list[int]:
    """Return the threads from which a thread was copied. Ignore loans that an import made, which list no versions."""
    scan = view.transaction.scan_index(keys.encode_debt_prefix(thread))
    loans = [_read_loan(view, keys.decode_lsn(payload)) for _key, payload in scan]
    return [loan.lender for loan in loans if loan.next_versions]


def lent_to_anyone_below(view: View, lender: int) -> int:
    """Return the LSN below which a loan to thread 0 keeps the nodes of a thread's records, or 0.

    Unlike a loan to a copy, such a loan is never returned.
    """
    payload = view.transaction.get_index(keys.encode_debt_key(ANYONE, lender))
    return 0 if payload is None else keys.decode_lsn(payload)


def gives_back(view: View, thread: int) -> bool:
    """Return True if nothing reaches a thread's borrowed nodes after the thread is deleted.

    Another thread may reach them in two ways. It may be a copy of this thread. Or it may have reused a string in this
    thread's records that continues a borrowed string. The index shows the second case while the string exists. The
    string exists as long as all versions of this thread exist, because until then no node of the thread is removed.
    """
    debts = [payload for _key, payload in view.transaction.scan_index(keys.encode_debt_prefix(thread))]
    if not debts or view.lent_below(thread):
        return False
    if next(view.transaction.scan_index(keys.encode_borrowed_prefix(thread)), None) is not None:
        return False
    return all(_has_all_since(view, thread, _read_loan(view, keys.decode_lsn(payload))) for payload in debts)


def _read_loan(view: View, lsn: int) -> LoanEvent:
    record = view.record(lsn)
    if record.type != TYPE_LOAN:
        message = f"record {lsn} is not a loan, but the index lists it as one"
        raise CorruptionError(message, lsn=lsn)
    return decode_as(record, LOAN_KIND.read)


def _has_all_since(view: View, thread: int, loan: LoanEvent) -> bool:
    """Return True if all versions that a copy has added since it was made still exist."""
    if not loan.next_versions:
        return False
    for row in view.branches(thread):
        is_copied = row.number < len(loan.next_versions)
        first = loan.next_versions[row.number] if is_copied else row.base_version + 1
        count = sum(1 for version, _entry in view.entries(thread, row.number) if version >= first)
        if count != view.head_version(thread, row.number) - first + 1:
            return False
    return True
