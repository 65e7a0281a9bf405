"""Events out of encoded bodies that nobody vouches for.

`log.events` decodes bodies of our own records. Here they may come from a stranger: before a body
is decoded its shape is checked on the encoded bytes, so that no count or nesting in it makes
memory grow beyond its own size, and every field is of its type and within its bounds. Metadata
stays encoded: it may hold values whose codec is not known here, and is not ours to interpret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import (
    DIGEST_SIZE_BYTES,
    FLAG_CHAINED,
    FLAG_CONTINUES,
    FLAG_REDACTED,
    FLAG_VACUUMED,
    TYPE_CHECKPOINT,
    TYPE_DELETE,
    TYPE_FORK,
    TYPE_LOAN,
    TYPE_NAMES,
    TYPE_POLICY,
    TYPE_ROLLBACK,
    TYPE_SCHEMA,
    TYPE_TAG,
    TYPE_THREAD,
    Record,
    Redacted,
)
from statelog.limits import (
    CHANNELS_MAX,
    METADATA_SIZE_BYTES_MAX,
    NAME_SIZE_BYTES_MAX,
    THREAD_ID_SIZE_BYTES_MAX,
    VERSIONS_MAX,
)
from statelog.log.events import (
    CheckpointEvent,
    Event,
    decode_event,
)
from statelog.tree.value import split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Field = Callable[[bytes], Any]
    """Returns the value of an encoded field; raises `_WrongFieldError` if it is of another type or out of bounds."""

BYTES, LIST, DICT = 2, 4, 5
"""Major types."""

METADATA_PAIRS_MAX = METADATA_SIZE_BYTES_MAX
_FIELDS_MAX = 32
_SPEC_SIZE_BYTES_MAX = 4096
_BORROWED_MAX = 1 << 20
_BRANCHES_MAX = 1 << 20
_LSN_MAX = 1 << 62
_POLICY_KEYS = frozenset(("keep_last", "max_age_s", "keep_tags"))
_NULL = b"\xf6"
_FLAGS = FLAG_CONTINUES | FLAG_VACUUMED | FLAG_REDACTED | FLAG_CHAINED


class _WrongFieldError(Exception):
    """A field that is not what it has to be; never leaves this module."""


# --- fields -----------------------------------------------------------------------


def _head(item: bytes) -> tuple[int, int]:
    """Return (major type, argument) of an item that was checked."""
    info = item[0] & 31
    argument = info if info < 24 else int.from_bytes(item[1 : 1 + (1 << (info - 24))])
    return item[0] >> 5, argument


def children(item: bytes, major: int, count_max: int) -> list[bytes]:
    """Return the children of a list or dict (its keys and values in turn), if they are not too many.

    Args:
        item: checked CBOR.
        major: `LIST` or `DICT`, which it has to be.
        count_max: of elements, or of pairs.

    """
    if _head(item)[0] != major or _head(item)[1] > count_max:
        raise _WrongFieldError
    return split(item)


def _number(maximum: int) -> Field:
    def read(item: bytes) -> int:
        major, argument = _head(item)
        if major != 0 or argument > maximum:
            raise _WrongFieldError
        return argument

    return read


def _text(size_bytes_max: int, *, size_bytes_min: int = 1) -> Field:
    def read(item: bytes) -> str:
        major, argument = _head(item)
        if major != 3 or not size_bytes_min <= argument <= size_bytes_max:
            raise _WrongFieldError
        return item[len(item) - argument :].decode()

    return read


def _digest(item: bytes) -> bytes:
    if item[0] != 0x40 | DIGEST_SIZE_BYTES:
        raise _WrongFieldError
    return item[1:]


def optional(field: Field) -> Field:
    """Return a field that may also be null."""

    def read(item: bytes) -> Any:
        return None if item == _NULL else field(item)

    return read


def _boolean(item: bytes) -> bool:
    if item not in (b"\xf4", b"\xf5"):
        raise _WrongFieldError
    return item == b"\xf5"


def _true(item: bytes) -> bool:
    if item != b"\xf5":
        raise _WrongFieldError
    return True


def _metadata(item: bytes) -> bytes:
    if item[0] >> 5 != DICT or len(item) > METADATA_SIZE_BYTES_MAX:
        raise _WrongFieldError
    return item


def _names(item: bytes) -> bytes:
    """Channel names, as they stand."""
    for child in children(item, LIST, CHANNELS_MAX):
        NAME(child)
    return item


def _digests(item: bytes) -> bytes:
    for child in children(item, LIST, _BORROWED_MAX):
        _digest(child)
    return item


def _versions(item: bytes) -> list[int]:
    return [VERSION(child) for child in children(item, LIST, _BRANCHES_MAX)]


def _specs(item: bytes) -> dict[str, str]:
    parts = children(item, DICT, CHANNELS_MAX)
    return {NAME(parts[at]): _SPEC(parts[at + 1]) for at in range(0, len(parts), 2)}


def _policy(item: bytes) -> dict[str, Any]:
    policy = {}
    parts = children(item, DICT, len(_POLICY_KEYS))
    for at in range(0, len(parts), 2):
        key, value = NAME(parts[at]), parts[at + 1]
        if key not in _POLICY_KEYS or (value[0] not in (0xF4, 0xF5, 0xF6) and value[0] >> 5 != 0):
            raise _WrongFieldError
        policy[key] = cbor.decode(value)
    return policy


def _pattern(item: bytes) -> object:
    return DIGEST(item) if item[0] >> 5 == BYTES else THREAD_ID(item)


LSN = _number(_LSN_MAX)
VERSION = _number(VERSIONS_MAX)
NODE = _number((1 << 32) - 1)
NAME = _text(NAME_SIZE_BYTES_MAX)
THREAD_ID = _text(THREAD_ID_SIZE_BYTES_MAX)
SPECS: Field = _specs
METADATA: Field = _metadata
NAMES: Field = _names
DIGEST: Field = _digest
POLICY: Field = _policy
BOOLEAN: Field = _boolean
_SPEC = _text(_SPEC_SIZE_BYTES_MAX, size_bytes_min=0)

_CHECKPOINT: tuple[Field, ...] = (
    LSN,  # thread
    VERSION,  # branch
    VERSION,
    optional(VERSION),  # parent branch
    optional(VERSION),  # parent version
    optional(DIGEST),
    optional(VERSION),  # jump branch
    optional(VERSION),  # jump version
    VERSION,  # depth
    VERSION,  # jump depth
    DIGEST,  # root
    LSN,
    NODE,
    optional(NAME),  # id
    METADATA,
    NAMES,
    _digests,
)

_BODIES: dict[int, tuple[Field, ...]] = {
    TYPE_THREAD: (THREAD_ID, SPECS),
    TYPE_CHECKPOINT: _CHECKPOINT,
    TYPE_ROLLBACK: (*_CHECKPOINT, LSN),
    TYPE_FORK: (LSN, VERSION, NAME, VERSION, VERSION),
    TYPE_SCHEMA: (LSN, SPECS),
    TYPE_TAG: (LSN, NAME, LSN),
    TYPE_DELETE: (LSN, DIGEST),
    TYPE_POLICY: (LSN, POLICY),
    TYPE_LOAN: (LSN, LSN, _versions),
}
_NO_THREAD = b"\0"
_RETURNING = (*_BODIES[TYPE_DELETE], _true)
_STORE_POLICY: tuple[Field, ...] = (LSN, POLICY, _pattern)
_REDACTED: tuple[Field, ...] = (LSN, DIGEST, _digests)


# --- bodies -----------------------------------------------------------------------


def split_array(item: bytes) -> list[bytes]:
    """Return the encoded fields of an array.

    Raises:
        CorruptionError: the bytes are malformed, or something else.

    """
    kernels.cbor_check(item)
    try:
        return children(item, LIST, _FIELDS_MAX)
    except _WrongFieldError:
        message = "it is no array of fields"
        raise CorruptionError(message) from None


def read_fields(parts: Sequence[bytes], fields: Sequence[Field]) -> list[Any]:
    """Return the values of encoded fields, each of its type.

    Raises:
        CorruptionError: they are more or fewer, or one is not what it has to be.

    """
    if len(parts) != len(fields):
        message = f"{len(parts)} fields instead of {len(fields)}"
        raise CorruptionError(message)
    values = []
    for index, (part, field) in enumerate(zip(parts, fields, strict=True)):
        try:
            values.append(field(part))
        except _WrongFieldError:
            message = f"field {index} is not what it has to be"
            raise CorruptionError(message) from None
    return values


def read_event(record: Record) -> Event | Redacted:
    """Return the event of a record whose checksum holds, or what is left of a redacted one.

    Raises:
        CorruptionError: type, flags or body are not such as FORMAT.md allows. Facts: lsn.

    """
    if record.type not in TYPE_NAMES:
        _refuse(record, f"it has the unknown type {record.type}")
    if record.flags & ~_FLAGS or (record.flags & FLAG_VACUUMED and not record.flags & FLAG_REDACTED):
        _refuse(record, f"it has flags {record.flags:#x}")
    try:
        if record.flags & FLAG_REDACTED:
            thread, digest, borrowed = read_fields(split_array(record.body), _REDACTED)
            return Redacted(thread, digest, cbor.decode(borrowed))
        parts = split_array(record.body)
        fields = _BODIES[record.type]
        if record.type == TYPE_POLICY and parts[:1] == [_NO_THREAD]:
            fields = _STORE_POLICY
        elif record.type == TYPE_DELETE and len(parts) > len(fields):
            fields = _RETURNING
        read_fields(parts, fields)
    except CorruptionError as error:
        if "lsn" in error.facts:
            raise
        _refuse(record, error.message)
    event = decode_event(record)
    if record.type == TYPE_ROLLBACK and isinstance(event, CheckpointEvent) and not event.target:
        _refuse(record, "it rolls back to nothing")
    return event


def _refuse(record: Record, what: str) -> NoReturn:
    message = f"record {record.lsn}: {what}"
    raise CorruptionError(message, lsn=record.lsn)
