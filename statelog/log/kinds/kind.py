"""What the store has to know of a kind of event: a row of the table of kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.fields import LIST, RAW, split_array
from statelog.log.events import CheckpointEvent, Event
from statelog.tree.node import ROOT

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator

    from statelog.format.fields import Field
    from statelog.format.record import Record
    from statelog.log.index import IndexWriter
    from statelog.log.view import View

E = TypeVar("E", bound=Event)

NodeRef = tuple[int, bytes, int, int]
"""Type, digest, LSN, number."""

Recent = dict[int, CheckpointEvent]
"""Checkpoints read before, by LSN, to which those read now are added."""


def thread_of(event: Any, _lsn: int) -> int:
    """Return the owner of an event whose first field it is."""
    return int(event.thread)


def _is_possible(_view: View, _event: Event, _lsn: int, _recent: Recent) -> None:
    """Check nothing."""


def _any_owner(_view: View, _owner: int) -> bool:
    return True


def _no_records(_view: View, _owner: int, _after: int = 0) -> Iterable[int]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[E]):
    """A kind of event.

    The *owner* of a record is a thread's LSN, or 0 for nobody, and the first field of its body. What an owner has goes
    with it: its keys leave the index, its records are erased. A record keeps what its root leads to until it is
    redacted, which happens some time after it was *released* (`index.release_records`); so each record with a root
    that was not redacted is either among `records` or released. Nothing here asks a clock, or what other processes
    do: the index follows from the log alone (L4), and what an event enters, from its own record.
    """

    type: int
    """Of its records; FORMAT.md section 5."""
    name: str
    """In `store.log`."""
    event: builtins.type[E]
    """A named tuple of the fields of the body, in this order."""
    bodies: tuple[tuple[Field, ...], ...]
    """What may stand in a body: one of these, of different lengths, the shortest first. An event of that one has None
    where others have more."""
    apply: Callable[[IndexWriter, E, int], None]
    """Bring the index up to date; takes the LSN. What it looks for there and does not find may have been redacted."""
    describe: Callable[[View, E], dict[str, Any]]
    """Return what `store.log` tells."""
    decode: Callable[[Record], E] | None = None
    """Where the event is not simply made of the decoded fields (those in `fields.RAW` stay encoded)."""
    owner: Callable[[E, int], int] = thread_of
    """Takes the LSN."""
    check: Callable[[View, E, int, Recent], None] = _is_possible
    """Refuse (see `refuse`) what cannot be behind what is in the view. The event is a stranger's, but well-formed, and
    its owner is there."""
    records: Callable[[View, int, int], Iterable[int]] = _no_records
    """Return LSNs of an owner's records that the index refers to; but for those under key `e`, and at least those above
    an LSN."""
    remove: Callable[[IndexWriter, E, int], None] | None = None
    """Take out of the index what a record has entered, as far as no later record has replaced it; takes the LSN. None
    if retention never removes such records by themselves, but only together with their owner."""
    is_owner: Callable[[View, int], bool] = _any_owner
    """Whether an owner may have records of it."""
    prefixes: tuple[bytes, ...] = ()
    """Beginnings of its keys that go on with the owner's LSN: a byte each, no other kind's."""
    other_prefixes: tuple[bytes, ...] = ()
    """Beginnings of its other keys."""
    root_field: int | None = None
    """Where a root of a value stands in the body (`fields.ROOT`): digest, LSN, node."""
    borrowed_field: int | None = None
    """Where the digests of widely shared nodes of other owners stand that it is the first to refer to."""
    is_version: bool = False
    """Whether it is a version of a thread: it is later than those before it (L2), and its root is that of a dict."""
    outlives: bool = False
    """Whether it stays, and says the same, when its owner is gone; it does not go into an export of threads either."""

    has_raw: bool = field(init=False)
    """Whether some field stays encoded in an event."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_raw", any(each in RAW for body in self.bodies for each in body))

    def read(self, record: Record) -> E:
        """Return the event of a record. Raises TypeError, ValueError, CorruptionError: the body does not fit."""
        if self.decode is not None:
            return self.decode(record)
        if self.has_raw:
            parts = split_array(record.body)
            body = next((body for body in self.bodies if len(body) == len(parts)), ())
            values = [part if each in RAW else cbor.decode(part) for part, each in zip(parts, body, strict=True)]
        else:
            values = cbor.decode(record.body)
        if self.root_field is not None:
            has_root = values[self.root_field] is not None
            values[self.root_field + 1] = values[self.root_field + 1] or (record.lsn if has_root else 0)
        return self.event(*values)

    def encode(self, event: E, lsn: int) -> bytes:
        """Return the body for an event of a record; not of versions."""
        values = list(event)
        while len(values) > len(self.bodies[0]) and values[-1] is None:
            values.pop()
        body = next(body for body in self.bodies if len(body) == len(values))
        if self.root_field is not None and values[self.root_field + 1] == lsn:
            values[self.root_field + 1] = 0
        if not self.has_raw:
            return cbor.encode(values)
        parts = [value if each in RAW else cbor.encode(value) for value, each in zip(values, body, strict=True)]
        return cbor.head(LIST, len(parts)) + b"".join(parts)

    def roots(self, event: E) -> Iterator[NodeRef]:
        """Yield what an event refers to of nodes: their owner's retention keeps it."""
        if self.root_field is not None:
            digest, lsn, number = event[self.root_field : self.root_field + 3]
            if digest is not None:
                yield ROOT, digest, lsn, number


def refuse(lsn: int, what: str, **facts: int) -> NoReturn:
    """Refuse a record."""
    message = f"record {lsn}: {what}"
    raise CorruptionError(message, lsn=lsn, **facts)
