"""The deletion of a thread, which removes the keys of all its events from the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format import keys
from statelog.format.fields import DIGEST, THREAD, TRUE
from statelog.format.record import TYPE_DELETE, part_digest
from statelog.log.events import DeleteEvent
from statelog.log.index import release_records
from statelog.log.kinds.kind import Kind, Recent, refuse
from statelog.log.kinds.policies import forget_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statelog.log.index import IndexWriter
    from statelog.log.view import View

_EVENTS = b"e"


def records_of(view: View, owner: int, kinds: Mapping[int, Kind[Any]]) -> list[int]:
    """Return the ascending LSNs of the records of `owner` to which the index refers."""
    lsns = {lsn for kind in kinds.values() for lsn in kind.records(view, owner, 0)}
    scan = view.transaction.scan_index(keys.encode_thread_prefix(_EVENTS, owner))
    lsns.update(keys.decode_event_lsn(key) for key, _payload in scan)
    return sorted(lsns)


def deletion_kind(kinds: Mapping[int, Kind[Any]]) -> Kind[DeleteEvent]:
    """Return the kind of deletion events. `kinds` is the table of all kinds. More kinds may be added to it later."""

    def apply(index: IndexWriter, event: DeleteEvent, lsn: int) -> None:
        """Remove all index keys of a thread, and release its records.

        In a rebuild, the records may already be erased, so some keys may be missing. An erased first record does not
        remove the store's policy for this thread id, so this function removes it.
        """
        thread, view = event.thread, index.view
        release_records(index, thread, records_of(view, thread, kinds))
        if view.is_alive(thread):
            index.delete_index(keys.encode_thread_id_key(view.thread(thread).id))
        for prefix in (_EVENTS, *(prefix for kind in kinds.values() for prefix in kind.prefixes)):
            for key, _payload in list(view.transaction.scan_index(keys.encode_thread_prefix(prefix, thread))):
                index.delete_index(key)
        if event.returns:
            for key, payload in list(view.transaction.scan_index(keys.encode_debt_prefix(thread))):
                index.delete_index(keys.encode_loan_key(keys.decode_debt_lender(key), keys.decode_lsn(payload)))
                index.delete_index(key)
        forget_policy(index, event.id_digest)
        key = keys.encode_tombstone_key(event.id_digest)
        index.put_index(key, (index.get_index(key) or b"") + keys.encode_lsn(lsn))

    return Kind(
        type=TYPE_DELETE,
        name="delete",
        event=DeleteEvent,
        bodies=((THREAD, DIGEST), (THREAD, DIGEST, TRUE)),
        apply=apply,
        describe=lambda _view, _event: {},
        check=_check,
        other_prefixes=(b"x",),
        outlives=True,
    )


def _check(view: View, event: DeleteEvent, lsn: int, _recent: Recent) -> None:
    """Check a deletion event. The records of the thread may already be redacted, so the thread may be missing."""
    if view.is_alive(event.thread) and part_digest(view.thread(event.thread).id.encode()) != event.id_digest:
        refuse(lsn, f"it deletes thread {event.thread} with the id of another thread")
    notes = view.transaction.scan_index(keys.encode_borrowed_prefix(event.thread))
    if event.returns and (view.lent_below(event.thread) or next(notes, None) is not None):
        refuse(lsn, f"nodes that thread {event.thread} has borrowed are still in use")
