"""Collects garbage: removes objects that neither the present head nor a head within the kept time names (F4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.fleet import bases, names
from statelog.fleet.head import decode
from statelog.fleet.restores import listed_of, now_us, segments_of

if TYPE_CHECKING:
    from statelog.fleet.bases import Listed
    from statelog.fleet.head import HeadContents
    from statelog.fleet.requests import Performer

KEEP_S = 7 * 86_400.0
GRACE_S = 86_400.0
BATCH = 1000
"""The maximum number of objects that are removed at once."""

OFTEN = 24
"""The maximum number of collections in a grace period, because each one lists all objects of the store."""


def named_by(performer: Performer, head: HeadContents, *, keep_s: float, lists: dict[str, Listed]) -> set[str]:
    """Return the names of the objects that are needed to restore the head's state, or any state within `keep_s`."""
    found = {names.HEAD, *segments_of(head)}
    read, known = {}, dict(lists)
    while head.base is not None:
        list_name = bases.list_name(head.base)
        try:
            listed = known.get(list_name) or listed_of(performer, head.base)
        except CorruptionError:  # An earlier head's list is no longer kept.
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
    head: HeadContents,
    *,
    keep_s: float = KEEP_S,
    grace_s: float = GRACE_S,
    lists: dict[str, Listed] | None = None,
) -> list[str]:
    """Remove unnamed objects that are older than the grace period. Return their names in the store's folder.

    Args:
        performer: performer of the store.
        head: a head of the store, which may be stale.
        keep_s: see `Fleet.open`.
        grace_s: see `Fleet.open`.
        lists: known lists of bases by name, which are not read again. New ones are added.
    """
    named = named_by(performer, head, keep_s=keep_s, lists={} if lists is None else lists)
    ages = performer.ages()
    gone = [
        name for name, age_s in ages.items() if name not in named and age_s >= grace_s and not _is_to_come(name, head)
    ]
    for start in range(0, len(gone), BATCH):
        performer.remove(gone[start : start + BATCH])
    return gone


def _is_to_come(name: str, head: HeadContents) -> bool:
    """Return True if a later head may name the object.

    This holds if the epoch of the object is later than the head's or is still opening, or if the owner
    may not have named the object in the head yet.
    """
    kind, _, rest = name.partition("/")
    if kind == "log":
        epoch, number = (int(part) for part in rest.split("/"))
        last = head.tail[-1] if head.tail else None
        is_ahead = last is not None and last.last is None and last.epoch == epoch and number >= last.first
        is_opening = epoch == head.epoch and head.state == "opening"
        return epoch > head.epoch or is_opening or is_ahead
    if kind == "base":
        epoch = int(rest.partition("/")[0].partition("-")[2])
        # If many hosts share the store, one host may begin an epoch while another makes a base in an earlier epoch. So
        # keep the bases of all epochs in the tail.
        since = head.tail[0].epoch if head.is_shared else head.epoch
        latest = names.base(0 if head.base is None else head.base.lsn, since)
        return epoch > head.epoch or (epoch >= since and head.state != "free" and name > latest)
    return False
