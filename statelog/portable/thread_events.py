"""Events and nodes as an export of threads has them: numbered in the order of the stream. EXPORT.md section 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import (
    TYPE_CHECKPOINT,
    TYPE_FORK,
    TYPE_POLICY,
    TYPE_ROLLBACK,
    TYPE_SCHEMA,
    TYPE_TAG,
    TYPE_THREAD,
    varint,
)
from statelog.portable.bodies import (
    BOOLEAN,
    DIGEST,
    LSN,
    METADATA,
    NAME,
    NAMES,
    POLICY,
    SPECS,
    THREAD_ID,
    VERSION,
    optional,
    read_fields,
    split_array,
)
from statelog.tree.node import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.portable.bodies import Field

TYPE_CARRIER = 0
"""An event that brings nothing but nodes."""


class Exported(NamedTuple):
    """An event of a stream.

    Attributes:
        type: of the record, or `TYPE_CARRIER`.
        thread: number of its thread: the threads of a stream are numbered as they begin.
        lsn: of the record in the store it came from.
        time_us: of that record.
        continues: whether the next event of the stream belongs to the same transaction.
        fields: by type.

    """

    type: int
    thread: int
    lsn: int
    time_us: int
    continues: bool
    fields: list[Any]


class ExportedCheckpoint(NamedTuple):
    """Fields of a checkpoint or rollback. `parent`, `root`, `target` are numbers in the stream.

    `parent` is None where there is none, and where it has expired: then the other parent fields tell of it.
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
ROOT_FIELD = ExportedCheckpoint._fields.index("root")
_RAW: tuple[int, ...] = (12, 13)
"""Metadata and channels written, which stay encoded."""

_HEAD: tuple[Field, ...] = (VERSION, VERSION, LSN, LSN, BOOLEAN)
_FIELDS: dict[int, tuple[Field, ...]] = {
    TYPE_CARRIER: (),
    TYPE_THREAD: (THREAD_ID, SPECS),
    TYPE_CHECKPOINT: _CHECKPOINT,
    TYPE_ROLLBACK: (*_CHECKPOINT, optional(LSN)),
    TYPE_FORK: (VERSION, NAME, VERSION, VERSION),
    TYPE_SCHEMA: (SPECS,),
    TYPE_TAG: (NAME, optional(LSN)),
    TYPE_POLICY: (POLICY,),
}


def encode_event(event: Exported) -> bytes:
    """Return the payload of an event's frame; metadata and channel names stand in it as they are."""
    raw = _RAW if event.type in (TYPE_CHECKPOINT, TYPE_ROLLBACK) else ()
    parts = [cbor.encode(part) for part in event[:5]]
    parts += [part if index in raw else cbor.encode(part) for index, part in enumerate(event.fields)]
    return cbor.head(4, len(parts)) + b"".join(parts)


def decode_event(payload: bytes) -> Exported:
    """Inverse of `encode_event`.

    Raises:
        CorruptionError: it is not such as EXPORT.md allows.

    """
    items = split_array(payload)
    fields = _FIELDS.get(items[0][0]) if items else None
    if fields is None:
        message = "an event of unknown type"
        raise CorruptionError(message)
    values = read_fields(items, (*_HEAD, *fields))
    return Exported._make([*values[: len(_HEAD)], values[len(_HEAD) :]])


def encode_node(type_: int, content: bytes, children: Iterable[int]) -> bytes:
    """Return the payload of a node's frame.

    Args:
        type_: of the node.
        content: of it; its digest follows from it.
        children: number of each child in the stream, in the order of the refs.

    """
    return bytes((type_,)) + varint(len(content)) + content + b"".join([b"\0" + varint(child) for child in children])


def decode_node(payload: bytes) -> tuple[int, bytes, int]:
    """Return (type, node, content size): each locator of the node is 0 and the number of the child in the stream.

    Type and inside of the node are not looked at here.

    Raises:
        CorruptionError: it has not the content it says.

    """
    if len(payload) < 2:
        message = "a node without content"
        raise CorruptionError(message)
    size, at = read_varint(payload, 1)
    if not 0 < size <= len(payload) - at:
        message = f"a node that says it has {size} bytes of content"
        raise CorruptionError(message)
    return payload[0], payload[at:], size
