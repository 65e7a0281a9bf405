"""The event of a copy reference (loan): a thread uses nodes of another thread. See `log.care.loans`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format import keys
from statelog.format.fields import LSN, VERSIONS
from statelog.format.record import TYPE_LOAN
from statelog.log.events import LoanEvent
from statelog.log.kinds.kind import Kind, Recent, refuse

if TYPE_CHECKING:
    from statelog.log.index import IndexWriter
    from statelog.log.view import View


def _apply(index: IndexWriter, event: LoanEvent, lsn: int) -> None:
    """Enter a loan into the index, in place of an earlier loan between the same threads."""
    key = keys.encode_debt_key(event.thread, event.lender)
    before = index.get_index(key)
    if before is not None:
        index.delete_index(keys.encode_loan_key(event.lender, keys.decode_lsn(before)))
    index.put_index(key, keys.encode_lsn(lsn))
    index.put_index(keys.encode_loan_key(event.lender, lsn), keys.encode_lsn(event.thread))


def _describe(view: View, event: LoanEvent) -> dict[str, Any]:
    return {"of": view.thread(event.lender).id if view.is_alive(event.lender) else None}


def _check(_view: View, event: LoanEvent, lsn: int, _recent: Recent) -> None:
    if event.thread == event.lender or not (0 <= event.thread < lsn and 0 < event.lender < lsn):
        refuse(lsn, f"thread {event.lender} cannot lend nodes to thread {event.thread}")


LOAN_KIND = Kind(
    type=TYPE_LOAN,
    name="loan",
    event=LoanEvent,
    bodies=((LSN, LSN, VERSIONS),),
    apply=_apply,
    describe=_describe,
    check=_check,
    other_prefixes=(b"l", b"L"),
    outlives=True,
)
