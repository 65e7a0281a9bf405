"""Loans: a thread that is a copy has nodes of the thread it was copied from, in whose records they stay (V2)."""

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


def lend(batch: Batch, thread: int, lender: int, next_versions: Sequence[int]) -> None:
    """Stage that a thread has nodes of another thread's records; behind the records that lead there."""
    stage_event(batch, LoanEvent(thread, lender, list(next_versions)))


def lenders_of(view: View, thread: int) -> list[int]:
    """Return the threads whose nodes a thread has on loan."""
    scan = view.transaction.scan_index(keys.encode_debt_prefix(thread))
    return [keys.decode_debt_lender(key) for key, _payload in scan]


def gives_back(view: View, thread: int) -> bool:
    """Whether nothing reaches what a thread has on loan once the thread is gone.

    Others can have come by it in two ways: as copies of this thread, or by a string that they found in its records and
    that goes on from one on loan. The second is noted as long as the string is there. It is while all versions are
    that this thread has made, for then none of its nodes has ever been taken.
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
        message = f"record {lsn} is no loan, as the index says"
        raise CorruptionError(message, lsn=lsn)
    return decode_as(record, LOAN_KIND.read)


def _has_all_since(view: View, thread: int, loan: LoanEvent) -> bool:
    """Whether all versions of a copy are there that were not copied."""
    if not loan.next_versions:
        return False
    for row in view.branches(thread):
        is_copied = row.number < len(loan.next_versions)
        first = loan.next_versions[row.number] if is_copied else row.base_version + 1
        count = sum(1 for version, _entry in view.entries(thread, row.number) if version >= first)
        if count != view.head_version(thread, row.number) - first + 1:
            return False
    return True
