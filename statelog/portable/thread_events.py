"""Events and nodes of an export of threads, numbered in the order of the stream. EXPORT.md section 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.fields import (
    BOOLEAN,
    CHECKPOINT_LSN,
    DIGEST,
    LSN,
    METADATA,
    NAME,
    NAMES,
    RAW,
    RECORD_LSN,
    ROOT,
    VERSION,
    Field,
    optional,
    read_fields,
    split_array,
)
from statelog.format.record import TYPE_CHECKPOINT, TYPE_THREAD, varint
from statelog.log.kinds.table import KINDS
from statelog.tree.node import read_varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from statelog.log.events import Event
    from statelog.log.kinds.kind import Kind

TYPE_CARRIER = 0
"""The type of an event that only carries nodes."""


class Exported(NamedTuple):
    """An event of a stream.

    Attributes:
        type: type of the record, or `TYPE_CARRIER`.
        thread: number of its thread. Threads are numbered in the order of their first events.
        lsn: LSN of the record in the source store.
        time_us: time of that record.
        continues: whether the next event of the stream belongs to the same transaction.
        fields: the other fields, which depend on `type`.
    """

    type: int
    thread: int
    lsn: int
    time_us: int
    continues: bool
    fields: list[Any]


class ExportedCheckpoint(NamedTuple):
    """Fields of a checkpoint or rollback. `parent`, `root` and `target` are numbers in the stream.

    `parent` is None if the checkpoint has no parent, or if the parent has expired. In the second case the other parent
    fields are set.
    """

    branch: int
    version: int
    parent: int | None
    parent_branch: int | None
    parent_version: int | None
    parent_digest: bytes | None
    jump_branch: int | None
    jump_version: int | None
    depth: int
    jump_depth: int
    root: int
    id: str | None
    metadata: bytes
    written: bytes
    target: int | None = None


_CHECKPOINT: tuple[Field, ...] = (
    VERSION,
    VERSION,
    optional(LSN),
    optional(VERSION),
    optional(VERSION),
    optional(DIGEST),
    optional(VERSION),
    optional(VERSION),
    VERSION,
    VERSION,
    LSN,
    optional(NAME),
    METADATA,
    NAMES,
)
_ROOT_FIELD = ExportedCheckpoint._fields.index("root")
_NUMBER = optional(LSN)
"""A field with the number of an event or node of the stream, or null."""

_REFERRING = (RECORD_LSN, CHECKPOINT_LSN, ROOT[0])
_HEAD: tuple[Field, ...] = (VERSION, VERSION, LSN, LSN, BOOLEAN)


def stream_fields(type_: int) -> tuple[Field, ...] | None:
    """Return the fields that follow the head of an event, or None if the type is not exported with threads.

    A version has its own list of fields. Other events have the fields of their body, except owner and borrowed digests.
    The number of a node or event replaces its location.
    """
    kind = KINDS.get(type_)
    if kind is None or kind.outlives:
        return () if type_ == TYPE_CARRIER else None
    if kind.is_version:
        return _CHECKPOINT if type_ == TYPE_CHECKPOINT else (*_CHECKPOINT, _NUMBER)
    return tuple(_NUMBER if field in _REFERRING else field for _index, field in _carried(kind))


def _carried(kind: Kind[Any]) -> Iterator[tuple[int, Field]]:
    """Yield the fields of an event's body that are exported, each after its position in the event."""
    left_out = {kind.borrowed_field} if kind.type == TYPE_THREAD else {0, kind.borrowed_field}
    if kind.root_field is not None:
        left_out |= {kind.root_field + 1, kind.root_field + 2}
    return ((index, field) for index, field in enumerate(kind.bodies[0]) if index not in left_out)


def take_out(kind: Kind[Any], event: Event, number_of: Callable[[Field, int, int], int | None]) -> list[Any]:
    """Return the exported fields of an event that is not a version.

    Args:
        kind: kind of the event.
        event: the event.
        number_of: returns the number in the stream for the LSN (and node number) that a field
            refers to.
    """
    values: list[Any] = []
    for index, field in _carried(kind):
        value = event[index]
        if field is ROOT[0] and value is not None:
            value = number_of(field, event[index + 1], event[index + 2])
        elif field in _REFERRING:
            value = number_of(field, value, 0) if value else None
        values.append(value)
    return values


def take_in(kind: Kind[Any], exported: Exported, thread: int, refer: Callable[[Field, int], tuple[Any, ...]]) -> Event:
    """Return the event with these exported fields, without borrowed digests. The inverse of `take_out`.

    Args:
        kind: kind of the event.
        exported: the exported event.
        thread: LSN of the thread in this store.
        refer: returns the fields of the event that replace a number in the stream.
    """
    values: list[Any] = [None] * len(kind.event._fields)
    values[0] = thread
    if kind.borrowed_field is not None:
        values[kind.borrowed_field] = []
    for (index, field), value in zip(_carried(kind), exported.fields, strict=True):
        if field in _REFERRING:
            found = (None, 0, 0) if field is ROOT[0] else (0,)
            found = found if value is None else refer(field, value)
            values[index : index + len(found)] = found
        else:
            values[index] = value
    made: Event = kind.event(*values)
    return made


def root_number(exported: Exported) -> int | None:
    """Return the number in the stream of the event's root, or None."""
    kind = KINDS.get(exported.type)
    if kind is None or kind.root_field is None:
        return None
    at = [index for index, _field in _carried(kind)].index(kind.root_field)
    number: int | None = exported.fields[_ROOT_FIELD if kind.is_version else at]
    return number


def encode_event(event: Exported) -> bytes:
    """Return the payload of an event's frame. Raw fields are embedded unchanged (`format.fields.RAW`)."""
    fields = (*_HEAD, *(stream_fields(event.type) or ()))
    values = (*event[:5], *event.fields)
    parts = [part if field in RAW else cbor.encode(part) for part, field in zip(values, fields, strict=True)]
    return cbor.head(4, len(parts)) + b"".join(parts)


def decode_event(payload: bytes) -> Exported:
    """Decode the payload of an event's frame. The inverse of `encode_event`.

    Raises:
        CorruptionError: EXPORT.md does not allow the payload.
    """
    items = split_array(payload)
    fields = stream_fields(read_fields(items[:1], _HEAD[:1])[0]) if items else None
    if fields is None:
        message = "an event of unknown type"
        raise CorruptionError(message)
    values = read_fields(items, (*_HEAD, *fields))
    return Exported._make([*values[: len(_HEAD)], values[len(_HEAD) :]])


def encode_node(type_: int, content: bytes, children: Iterable[int]) -> bytes:
    """Return the payload of a node's frame.

    Args:
        type_: type of the node.
        content: content of the node, which determines its digest.
        children: number of each child in the stream, in the order of the refs.
    """
    return bytes((type_,)) + varint(len(content)) + content + b"".join([b"\0" + varint(child) for child in children])


def decode_node(payload: bytes) -> tuple[int, bytes, int]:
    """Return (type, node, content size). Each locator in the node has LSN 0 and the child's number in the stream.

    The caller checks the type and the content of the node.

    Raises:
        CorruptionError: the payload is shorter than the content size it states.
    """
    if len(payload) < 2:
        message = "a node without content"
        raise CorruptionError(message)
    size, at = read_varint(payload, 1)
    if not 0 < size <= len(payload) - at:
        message = f"a node cannot have the stated {size} bytes of content"
        raise CorruptionError(message)
    return payload[0], payload[at:], size
