"""A row in the table of kinds. It contains the facts and functions of one kind of event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

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
"""The type, digest, LSN and number of a node."""

Recent = dict[int, CheckpointEvent]
"""Recently read checkpoints, keyed by LSN. A check adds the checkpoints that it reads."""


def thread_of(event: Any, _lsn: int) -> int:
    """Return the owner of an event, which is the event's first field."""
    return int(event.thread)


def _is_possible(_view: View, _event: Event, _lsn: int, _recent: Recent) -> None:
    """Accept every event."""


def _any_owner(_view: View, _owner: int) -> bool:
    return True


def _no_records(_view: View, _owner: int, _after: int = 0) -> Iterable[int]:
    return ()


class Kind(NamedTuple, Generic[E]):
    """A kind of event.

    The *owner* of a record is the LSN of a thread, or 0 for nobody. It is the first field of the body. When an owner is
    deleted, its keys are removed from the index and its records are erased. The nodes that a record's root leads to
    exist until the record is redacted, some time after it was *released* (`index.release_records`). So each unredacted
    record with a root is either among `records` or released. No function of a kind depends on a clock or on other
    processes. The index is derived from the log alone (L4), and the keys of an event from its own record.
    """

    type: int
    """The type of the kind's records. See FORMAT.md section 5."""
    name: str
    """The name of the kind in `store.log`."""
    event: builtins.type[E]
    """A named tuple class with the fields of the body, in the same order."""
    bodies: tuple[tuple[Field, ...], ...]
    """The possible bodies of a record, of different lengths, the shortest first. An event of a shorter body has None
    for the missing fields.
    """
    apply: Callable[[IndexWriter, E, int], None]
    """Update the index for an event at an LSN. Retention may have redacted earlier records, so the function must not
    rely on the index keys of those records (R3).
    """
    describe: Callable[[View, E], dict[str, Any]]
    """Return the fields that `store.log` shows of an event."""
    decode: Callable[[Record], E] | None = None
    """Return the event of a record. None if the event consists of the decoded fields alone."""
    owner: Callable[[E, int], int] = thread_of
    """Return the owner of an event at an LSN."""
    check: Callable[[View, E, int, Recent], None] = _is_possible
    """Call `refuse` if an event cannot follow the records in the view. Before an import calls this function, it checks
    only that the event is well-formed and its owner exists. Accept any event about an earlier redacted record (R3).
    """
    records: Callable[[View, int, int], Iterable[int]] = _no_records
    """Return the LSNs of an owner's records to which the index refers, at least those above a given LSN. LSNs under key
    `e` may be omitted.
    """
    remove: Callable[[IndexWriter, E, int], None] | None = None
    """Remove the index keys of the event at an LSN, except keys that a later record has replaced. None if retention
    removes such records only together with their owner.
    """
    is_owner: Callable[[View, int], bool] = _any_owner
    """Return False if an owner has no records of this kind."""
    prefixes: tuple[bytes, ...] = ()
    """The first bytes of the kind's index keys that continue with the owner's LSN. No other kind uses these bytes."""
    other_prefixes: tuple[bytes, ...] = ()
    """The prefixes of the kind's other keys."""
    root_field: int | None = None
    """The index of the first of the three fields that name the root of a value: digest, LSN, node (`fields.ROOT`)."""
    borrowed_field: int | None = None
    """The index of the field with digests of widely shared nodes of other owners. The event is the first of its owner
    to refer to these nodes.
    """
    is_version: bool = False
    """True if the event is a version of a thread: its time is later than the previous version's time (L2), and its
    root is the root of a dict."""
    outlives: bool = False
    """True if the event keeps its meaning after the deletion of its owner. An export of threads omits it."""
    has_raw: bool = False
    """True if some field stays encoded in an event (a field type in `fields.RAW`)."""

    def read(self, record: Record) -> E:
        """Return the event of a record. Raise TypeError, ValueError or CorruptionError if the body does not fit."""
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
        """Return the body of a record for an event. The kinds of versions have an encoder of their own."""
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
        """Yield the nodes that an event refers to. The retention of their owner keeps these nodes."""
        if self.root_field is not None:
            digest, lsn, number = event[self.root_field : self.root_field + 3]
            if digest is not None:
                yield ROOT, digest, lsn, number


def refuse(lsn: int, what: str, **facts: int) -> NoReturn:
    """Raise CorruptionError for an impossible record. `what` says why it is impossible. Facts: lsn, and `facts`."""
    message = f"record {lsn}: {what}"
    raise CorruptionError(message, lsn=lsn, **facts)
