"""Entries of the board as users see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from statelog.board import claiming, reading
from statelog.display.lines import written
from statelog.format import cbor
from statelog.log.kinds.entries import RANK, Act
from statelog.log.times import to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from statelog.board.reading import Found
    from statelog.store.session import Session


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """The claim of an entry, as all see it."""

    token: int
    holder: str | None
    expires: datetime
    """By the wall clock."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the board, as one record of it says."""

    key: str
    value: Any
    """None where `kind` says that it went."""
    version: int
    """LSN of the record: it grows with each write of the key, also where the entry went in between."""
    created: datetime
    """When the entry came to be."""
    agent: str | None
    """Who wrote it."""
    time: datetime
    """When."""
    expires: datetime | None = None
    claim: ClaimInfo | None = None
    """Who has claimed it, None if nobody has."""
    priority: int = 0
    attempts: int = 0
    """How often it was claimed."""
    kind: str = field(default="set", compare=False)
    """What the record says was done: `set`, `claim`, ...; in a history also `delete`, `expire`, `complete`, `dead`."""
    error: str | None = None
    """Of `fail` and `dead`: why."""
    ready: datetime | None = None
    """From when it may be claimed, also where that is over; None: from the beginning."""

    def __repr__(self) -> str:
        shown = written(self.value, 60)
        return f"<Entry {self.key!r} {self.version} {shown if len(shown) <= 60 else shown[:57] + '...'}>"


def entry_of(session: Session, found: Found, item: bytes | None = None) -> Entry:
    """Return an entry as a record says. If the encoded value is at hand, `item` is that."""
    event, claim = found.event, found.claim
    rank = event.order[0] if event.order else RANK
    info = None if claim is None else ClaimInfo(claim.token, _claimer(session, found), to_datetime(claim.until_us))
    return Entry(
        event.key,
        reading.read_value(session.workspace(), event) if item is None else cbor.decode(item),
        found.lsn,
        to_datetime(event.created_us or found.time_us),
        event.agent,
        to_datetime(found.time_us),
        to_datetime(event.expires_us) if event.expires_us else None,
        info,
        RANK - rank,
        found.attempts,
        Act(event.act).name.lower(),
        event.error,
        to_datetime(found.ready_us) if found.ready_us else None,
    )


def _claimer(session: Session, found: Found) -> str | None:
    """Return the agent that holds the claim of an entry. Another agent may have set the entry since."""
    if found.event.act in (Act.CLAIM, Act.RENEW):
        return found.event.agent
    with session.read() as view:
        record = claiming.claimer_record(view, found)
    return None if record is None else record.event.agent
