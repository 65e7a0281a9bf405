"""Computes which facts of one key were true, and which were known, at a time. This module is pure.

An entry of the board has a list of facts in the order in which they were recorded. A fact begins at its `from`, and
ends where the next fact begins. So a recorded fact never changes: later facts determine when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from statelog.errors import UsageError
from statelog.log.times import to_datetime, to_time_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Stored = dict[str, Any]
"""A fact in the form that an entry stores. DESIGN.md here has the fields."""

FAR_US = 1 << 62
"""A time that is later than all others."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a scope. A fact is recorded once, and is true for a period."""

    key: str
    """The key of the fact. A fact that was remembered without a key has its id as its key."""
    text: Any
    """The text, or `guard.Quarantined` if a check has quarantined the text."""
    id: str
    source: str | None
    """The origin of the fact, such as the id of a conversation."""
    metadata: dict[str, Any]
    pinned: bool
    valid_from: datetime
    """The time from which the fact is true."""
    valid_until: datetime | None
    """The time from which the fact is no longer true; None if no end is known."""
    known_from: datetime
    """The time at which the fact was recorded."""
    score: float | None = field(default=None, compare=False)
    """The rank of a fact that `recall` has found; greater is better. None for a pinned fact that no search has found.
    """


def check_moment(argument: str, moment: object) -> int:
    """Convert a time to microseconds. A date means the beginning of the day in UTC.

    Raises:
        UsageError: the argument is not a date or an aware datetime. A naive datetime would mean
            different times on different machines.
    """
    if type(moment) is date:
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if not isinstance(moment, datetime):
        message = f"{argument} must be a datetime or a date, not {moment!r}"
        raise UsageError(message, argument=argument, value=moment)
    if moment.utcoffset() is None:
        message = f"{argument} {moment!r} has no time zone: use datetime(..., tzinfo=UTC), or a date"
        raise UsageError(message, argument=argument, value=moment)
    return to_time_us(moment)


def read_facts(value: object) -> list[Stored]:
    """Return the facts of an entry, each with the times at which it begins and was recorded.

    A process reads the clock before the commit, so two processes can commit in the opposite order. The order of the
    list counts: each fact was recorded after the previous one. Facts that a check of a guard has hidden are left out.
    """
    facts: list[Stored] = []
    known_us = 0
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and {*each} >= _FIELDS:
            known_us = max(each["known"], known_us + 1)
            facts.append({**each, "known": known_us, "from": each.get("from", known_us)})
    return facts


_FIELDS = {"id", "text", "known"}


def known_at(facts: Sequence[Stored], known_us: int | None) -> Sequence[Stored]:
    """Return the facts that were known at a time."""
    return facts if known_us is None else [each for each in facts if each["known"] <= known_us]


def spans(facts: Sequence[Stored]) -> Iterator[tuple[Stored, int]]:
    """Yield each fact with the time at which it ends, sorted by the time at which it begins.

    If several facts begin at the same time, the last recorded one is true. The others end as they begin.
    """
    ordered = sorted(facts, key=_begin)  # The sort is stable, so facts with equal times stay in the order of recording.
    for at, each in enumerate(ordered):
        next_us = ordered[at + 1]["from"] if at + 1 < len(ordered) else FAR_US
        until_us = each.get("until")
        yield each, next_us if until_us is None else max(min(next_us, until_us), each["from"])


def true_at(facts: Sequence[Stored], at_us: int) -> tuple[Stored, int] | None:
    """Return the fact that is true at a time and the time at which it ends; None if no fact is true."""
    found: Stored | None = None
    next_us = FAR_US
    for each in facts:
        begins_us = each["from"]
        if begins_us > at_us:
            next_us = min(next_us, begins_us)
        elif found is None or begins_us >= found["from"]:
            found = each
    if found is None:
        return None
    end_us = min(next_us, found.get("until", FAR_US))
    return (found, end_us) if at_us < end_us else None


def _begin(fact: Stored) -> int:
    begins_us: int = fact["from"]
    return begins_us


def fact_of(key: str, stored: Stored, end_us: int, score: float | None = None) -> Fact:
    """Convert a stored fact to a `Fact` for users."""
    return Fact(
        key,
        stored["text"],
        stored["id"],
        stored.get("source"),
        dict(stored.get("metadata") or {}),
        bool(stored.get("pinned")),
        to_datetime(stored["from"]),
        None if end_us == FAR_US else to_datetime(end_us),
        to_datetime(stored["known"]),
        score,
    )


def _fits_any(_stored: Stored) -> bool:
    return True


def check_filter(source: object, metadata: object) -> Callable[[Stored], bool]:
    """Return a function that returns True for facts with this source and this metadata. Raises UsageError."""
    if source is not None and not isinstance(source, str):
        message = f"source must be a str, not {source!r}"
        raise UsageError(message, argument="source", value=source)
    if metadata is not None and not isinstance(metadata, dict):
        message = f"metadata must be a dict, not {metadata!r}"
        raise UsageError(message, argument="metadata", value=metadata)
    wanted = dict(metadata or {})
    if source is None and not wanted:
        return _fits_any

    def fits(stored: Stored) -> bool:
        held = stored.get("metadata") or {}
        has_source = source is None or stored.get("source") == source
        return has_source and all(name in held and held[name] == value for name, value in wanted.items())

    return fits
