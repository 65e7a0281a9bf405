"""What of a store's objects may go: what no head names, now or in the time that is kept (F4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.fleet import bases, names
from statelog.fleet.head import decode
from statelog.fleet.restoring import listed_of, now_us, segments_of

if TYPE_CHECKING:
    from statelog.fleet.bases import Listed
    from statelog.fleet.head import Head
    from statelog.fleet.performing import Performer

KEEP_S = 7 * 86_400.0
GRACE_S = 86_400.0
BATCH = 1000
"""Objects removed at once."""

OFTEN = 24
"""So often in a grace an owner collects, at most: it lists all that the store has."""


def named_by(performer: Performer, head: Head, *, keep_s: float, lists: dict[str, Listed]) -> set[str]:
    """Return the names that a head leads to, and those before it that lead to what was there within a time."""
    found = {names.HEAD, *segments_of(head)}
    read, known = {}, dict(lists)
    while head.base is not None:
        list_name = bases.list_name(head.base)
        try:
            listed = known.get(list_name) or listed_of(performer, head.base)
        except CorruptionError:  # of a head before, which is not kept any more
            break
        read[list_name] = listed
        found |= {list_name, *(piece.name for piece in listed.pieces), *(log.name for log in listed.logs)}
        if now_us() - listed.time_us > keep_s * 1_000_000:
            break
        head = decode(names.HEAD, listed.before)
        found.update(segments_of(head))
    lists.clear()
    lists.update(read)
    return found


def collect(
    performer: Performer,
    head: Head,
    *,
    keep_s: float = KEEP_S,
    grace_s: float = GRACE_S,
    lists: dict[str, Listed] | None = None,
) -> list[str]:
    """Remove what no head names and is older than a grace; return the names, without the store's folder.

    Args:
        performer: of the store.
        head: read at any time.
        keep_s: see `Fleet.open`.
        grace_s: see `Fleet.open`.
        lists: of the bases that are known by then, by name, which are not read again; they are kept there for the next
            time.

    """
    named = named_by(performer, head, keep_s=keep_s, lists={} if lists is None else lists)
    ages = performer.ages()
    gone = [
        name for name, age_s in ages.items() if name not in named and age_s >= grace_s and not _is_to_come(name, head)
    ]
    for start in range(0, len(gone), BATCH):
        performer.remove(gone[start : start + BATCH])
    return gone


def _is_to_come(name: str, head: Head) -> bool:
    """Whether a later head may name an object: one of a later epoch, of an opening one, or put ahead."""
    kind, _, rest = name.partition("/")
    if kind == "log":
        epoch, number = (int(part) for part in rest.split("/"))
        last = head.tail[-1] if head.tail else None
        is_ahead = last is not None and last.last is None and last.epoch == epoch and number >= last.first
        is_opening = epoch == head.epoch and head.state == "opening"
        return epoch > head.epoch or is_opening or is_ahead
    if kind == "base":
        epoch = int(rest.partition("/")[0].partition("-")[2])
        # Of many hosts one may begin an epoch while another makes the base of the one before.
        since = head.tail[0].epoch if head.is_shared else head.epoch
        latest = names.base(0 if head.base is None else head.base.lsn, since)
        return epoch > head.epoch or (epoch >= since and head.state != "free" and name > latest)
    return False
