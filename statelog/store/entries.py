"""The public class of the board's entries, and the conversion of records to entries."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from statelog.board import holders
from statelog.display.lines import written
from statelog.display.packed import quarantined_text
from statelog.errors import UsageError
from statelog.format import cbor
from statelog.format.quarantined import revealed
from statelog.kernels.board import NO_AGENT, EntryFacts
from statelog.log.kinds.entries import RANK, EntryAct
from statelog.log.times import to_datetime

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from statelog.board.reads import EntryRecord, Records
    from statelog.guard.checks import Checks
    from statelog.log.kinds.entries import EntryEvent
    from statelog.store.session import AnySession


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """The public description of an entry's claim, which every reader may see."""

    token: int
    holder: str | None
    expires: datetime
    """The deadline as a wall-clock time."""


class _Facts:
    """The stored facts from which `Entry` computes attributes on first access, because most readers use only a few."""

    __slots__ = ("_facts",)

    _facts: tuple[int, ...]
    """The `EntryFacts` of the record, as a plain tuple."""


@dataclass(frozen=True, slots=True)
class Entry(_Facts):
    """The state of an entry of the board after one of its records.

    An entry that was listed with `values=False` has no value, and its attribute `value` raises UsageError. Such an
    entry never equals an entry with a value. It can be pickled, but `dataclasses.asdict` raises UsageError.
    """

    key: str
    value: Any
    """The value; None if the record has ended the entry (see `kind`)."""
    version: int
    """The LSN of the record. It grows with each write of the key, even if the entry was deleted in between."""
    created: datetime
    """The time at which the entry was created."""
    agent: str | None
    """The agent that wrote the record, or None."""
    time: datetime
    """The time of the record."""
    expires: datetime | None = None
    claim: ClaimInfo | None = None
    """The claim of the entry, or None if nobody has claimed the entry."""
    priority: int = 0
    attempts: int = 0
    """The number of times the entry was claimed."""
    kind: str = field(default="set", compare=False)
    """The kind of the record: `set`, `claim`, ...; in a history also `delete`, `expire`, `complete` or `dead`."""
    error: str | None = None
    """The reason for a `fail` or `dead`; otherwise None."""
    ready: datetime | None = None
    """The time from which the entry may be claimed, even if it is past; None if the entry was set without a delay."""
    schema_version: int = 1
    """The version of the schema with which the value was written."""

    def _get_missing(self, name: str) -> Any:
        """Compute an attribute on first access, store it, and return it."""
        make = _FROM_FACTS.get(name)
        if make is None and name == "value":
            message = f"the value of {self.key!r} was not read: the entry was listed with values=False"
            raise UsageError(message, key=self.key)
        if make is None:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)
        found = make(EntryFacts._make(self._facts))
        object.__setattr__(self, name, found)
        return found

    if not TYPE_CHECKING:  # Hide `__getattr__`, with which type checkers accept every name.
        __getattr__ = _get_missing

    @property
    def _has_value(self) -> bool:
        """Whether the value was read."""
        try:
            _VALUE.__get__(self)
        except AttributeError:
            return False
        return True

    def _compared(self) -> tuple[Any, ...]:
        has_value = self._has_value
        return tuple(getattr(self, name) if name != "value" or has_value else _NO_VALUE for name in _COMPARED)

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, Entry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def __getstate__(self) -> list[Any]:
        """Return the attributes in order. Leave out the value if it was not read."""
        has_value = self._has_value
        return [getattr(self, name) for name in _NAMES if name != "value" or has_value]

    def __setstate__(self, state: list[Any]) -> None:
        names = _NAMES if len(state) == len(_NAMES) else [name for name in _NAMES if name != "value"]
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        if not self._has_value:
            return f"<Entry {self.key!r} {self.version}>"
        shown = written(self.value, 60)
        return f"<Entry {self.key!r} {self.version} {shown if len(shown) <= 60 else shown[:57] + '...'}>"


_NAMES = tuple(each.name for each in fields(Entry))
_COMPARED = tuple(each.name for each in fields(Entry) if each.compare)
_KINDS = {int(act): act.name.lower() for act in EntryAct}
_FROM_FACTS: dict[str, Callable[[EntryFacts], Any]] = {
    "created": lambda fact: to_datetime(fact.created_us or fact.time_us),
    "time": lambda fact: to_datetime(fact.time_us),
    "expires": lambda fact: to_datetime(fact.expires_us) if fact.expires_us else None,
    "claim": lambda _fact: None,
    "priority": lambda fact: RANK - fact.rank,
    "attempts": lambda fact: fact.attempts,
    "kind": lambda fact: _KINDS[fact.act],
    "error": lambda _fact: None,
    "schema_version": lambda _fact: 1,
    "ready": lambda fact: to_datetime(fact.ready_us) if fact.ready_us else None,
}
_VALUE: Any = Entry.__dict__["value"]
_NO_VALUE = object()

_new_entry = object.__new__
_set_facts, _set_key, _set_value, _set_version, _set_agent = (
    slot.__set__
    for slot in (_Facts.__dict__["_facts"], *(Entry.__dict__[name] for name in ("key", "value", "version", "agent")))
)
"""Functions that set an attribute of a new entry without a call of `__setattr__` in Python."""


def entries_of(session: AnySession, records: Records, *, with_values: bool = True, raises: bool = False) -> list[Entry]:
    """Convert records to entries, with or without values.

    If a check of a guard refuses the read of a value, raise CheckError if `raises`, or else use a placeholder. A value
    whose key has a declared schema is converted to the declared version; see `EntrySchemas.shown` for the errors.
    """
    rows, facts, data, others, read = records
    items = [data[fact[2] : fact[3]] for fact in facts if fact[0] and not fact[12]] if with_values else []
    values = iter((cbor.decode(items[0]),) if len(items) == 1 else cbor.decode_all(items) if items else ())
    entries: list[Entry] = []
    guard, schemas = session.owner.guard, session.owner.entry_schemas
    checks = None if guard is None or not with_values else guard.on_read
    for (key, _place), fact in zip(rows, facts, strict=True):
        if fact[0]:
            entry = _new_entry(Entry)
            _set_facts(entry, fact)
            _set_key(entry, key)
            _set_version(entry, fact[11])
            _set_agent(entry, None if fact[1] == NO_AGENT else data[fact[1] : fact[2]].decode())
            if with_values:
                value = read[len(entries)] if fact[12] else next(values)
                _set_value(entry, value if schemas is None else schemas.shown(key, None, value))
                if checks is not None:
                    _check(checks, entry, raises=raises)
        else:
            at = len(entries)
            entry = entry_of(session, others[at], read.get(at), with_value=with_values, raises=raises)
            if not with_values:
                _VALUE.__delete__(entry)
        entries.append(entry)
    return entries


def _check(checks: Checks, entry: Entry, *, raises: bool) -> Entry:
    """Apply the read checks to a new entry in place, and return the entry."""
    from statelog.store.checked_views import entry_seen

    set_attribute = object.__setattr__
    set_attribute(entry, "value", entry_seen(checks, entry.value, entry.key, entry.agent, raises=raises))
    if entry.error is not None:
        shown = entry_seen(checks, entry.error, entry.key, entry.agent, raises=raises)
        set_attribute(entry, "error", shown if isinstance(shown, str) else quarantined_text(shown.check, shown.reason))
    return entry


def value_of(session: AnySession, event: EntryEvent, value: Any) -> Any:
    """Return the value of a record in the declared version, after the read checks. `value` is the stored value.

    If a check refuses the read, return a placeholder. See `EntrySchemas.shown` for the errors of a schema.
    """
    schemas = session.owner.entry_schemas
    if schemas is not None:
        value = schemas.shown_of(event, value)
    guard = session.owner.guard
    if guard is None or guard.on_read is None:
        return value
    from statelog.store.checked_views import entry_seen

    return entry_seen(guard.on_read, value, event.key, event.agent, raises=False)


def with_quarantined(entry: Entry) -> Entry:
    """Return an entry in which quarantined values replace their placeholders."""
    value = revealed(entry.value)
    return entry if value is entry.value else replace(entry, value=value)


def entry_of(
    session: AnySession, found: EntryRecord, value: Any, *, with_value: bool = True, raises: bool = False
) -> Entry:
    """Convert a record to an entry. `value` is the stored value.

    Without `with_value`, the value is None. `raises` is as for `entries_of`.
    """
    guard, schemas = session.owner.guard, session.owner.entry_schemas
    checks = None if guard is None or not with_value else guard.on_read
    event = found.event
    if not with_value:
        value = None
    elif schemas is not None:
        value = schemas.shown_of(event, value)
    if event.claim is None and event.error is None:
        rank, ready_us, attempts = event.order or (RANK, 0, 0)
        entry = _new_entry(Entry)
        times_us = (found.time_us, event.created_us, event.expires_us)
        _set_facts(entry, (1, NO_AGENT, 0, 0, event.act, *times_us, rank, ready_us, attempts, found.lsn, 0, 0))
        _set_key(entry, event.key)
        _set_version(entry, found.lsn)
        _set_agent(entry, event.agent)
        _set_value(entry, value)
        if event.schema is not None:
            object.__setattr__(entry, "schema_version", event.schema[1])
        return entry if checks is None else _check(checks, entry, raises=raises)
    claim = found.claim
    rank = event.order[0] if event.order else RANK
    info = None if claim is None else ClaimInfo(claim.token, _claimer(session, found), to_datetime(claim.until_us))
    entry = Entry(
        event.key,
        value,
        found.lsn,
        to_datetime(event.created_us or found.time_us),
        event.agent,
        to_datetime(found.time_us),
        to_datetime(event.expires_us) if event.expires_us else None,
        info,
        RANK - rank,
        found.attempts,
        _KINDS[event.act],
        event.error,
        to_datetime(found.ready_us) if found.ready_us else None,
        1 if event.schema is None else event.schema[1],
    )
    return entry if checks is None else _check(checks, entry, raises=raises)


def _claimer(session: AnySession, found: EntryRecord) -> str | None:
    """Return the agent that claimed an entry.

    The entry's last record may name a different agent, which has set the entry since the claim.
    """
    if found.event.act in (EntryAct.CLAIM, EntryAct.RENEW):
        return found.event.agent
    with session.read() as view:
        record = holders.claimer_record(view, found)
    return None if record is None else record.event.agent
