"""The fields of untrusted encoded bodies, and checks of the values that each field may have.

The encoded bytes of a body are checked before they are decoded. So no count or nesting makes memory grow beyond the
body's size, and every field has the right type and is within its bounds. Metadata stays encoded, because it may contain
values of codecs that are not registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.limits import (
    CHANNELS_MAX,
    ENTRY_ERROR_SIZE_BYTES_MAX,
    ENTRY_KEY_SIZE_BYTES_MAX,
    METADATA_SIZE_BYTES_MAX,
    NAME_SIZE_BYTES_MAX,
    SCHEMA_NAME_SIZE_BYTES_MAX,
    SCHEMA_VERSION_MAX,
    THREAD_ID_SIZE_BYTES_MAX,
    VERSIONS_MAX,
)

Field = Callable[[bytes], Any]
"""A function that returns the value of an encoded field, or raises `WrongFieldError` for a wrong type or value."""

BYTES, LIST, DICT = 2, 4, 5
"""The major types of CBOR for byte strings, arrays and maps."""

METADATA_PAIRS_MAX = METADATA_SIZE_BYTES_MAX
_FIELDS_MAX = 32
_SPEC_SIZE_BYTES_MAX = 4096
_BORROWED_MAX = 1 << 20
_BRANCHES_MAX = 1 << 20
REMOVED_MAX = 1024
"""The maximum number of records that one removal event lists."""
_LSN_MAX = 1 << 62
_POLICY_KEYS = frozenset(("keep_last", "max_age_s", "keep_tags"))
_NULL = b"\xf6"


class WrongFieldError(Exception):
    """The error that a `Field` raises for a wrong type or value. `read_fields` reports it as damage."""


def _head(item: bytes) -> tuple[int, int]:
    """Return the (major type, argument) of a checked item."""
    info = item[0] & 31
    argument = info if info < 24 else int.from_bytes(item[1 : 1 + (1 << (info - 24))])
    return item[0] >> 5, argument


def children(item: bytes, major: int, count_max: int) -> list[bytes]:
    """Return the children of a list or dict, unless there are too many. For a dict, keys and values alternate.

    Args:
        item: checked CBOR.
        major: the required type, `LIST` or `DICT`.
        count_max: the maximum number of elements or pairs.
    """
    if _head(item)[0] != major or _head(item)[1] > count_max:
        raise WrongFieldError
    _kind, at, ends = kernels.cbor_split(item)
    return [item[start:end] for start, end in pairwise([at, *ends])]


def _number(maximum: int, minimum: int = 0) -> Field:
    def read(item: bytes) -> int:
        major, argument = _head(item)
        if major != 0 or not minimum <= argument <= maximum:
            raise WrongFieldError
        return argument

    return read


def _text(size_bytes_max: int, *, size_bytes_min: int = 1) -> Field:
    def read(item: bytes) -> str:
        major, argument = _head(item)
        if major != 3 or not size_bytes_min <= argument <= size_bytes_max:
            raise WrongFieldError
        return item[len(item) - argument :].decode()

    return read


def _digest(item: bytes) -> bytes:
    if item[0] != 0x40 | DIGEST_SIZE_BYTES:
        raise WrongFieldError
    return item[1:]


def optional(field: Field) -> Field:
    """Return a field that accepts null, and otherwise what `field` accepts."""

    def read(item: bytes) -> Any:
        return None if item == _NULL else field(item)

    return read


def _boolean(item: bytes) -> bool:
    if item not in (b"\xf4", b"\xf5"):
        raise WrongFieldError
    return item == b"\xf5"


def _true(item: bytes) -> bool:
    if item != b"\xf5":
        raise WrongFieldError
    return True


def _metadata(item: bytes) -> bytes:
    if item[0] >> 5 != DICT or len(item) > METADATA_SIZE_BYTES_MAX:
        raise WrongFieldError
    return item


def _names(item: bytes) -> bytes:
    """Check an encoded list of channel names, and return it unchanged."""
    for child in children(item, LIST, CHANNELS_MAX):
        NAME(child)
    return item


def _digests(item: bytes) -> bytes:
    for child in children(item, LIST, _BORROWED_MAX):
        _digest(child)
    return item


def _versions(item: bytes) -> list[int]:
    return [VERSION(child) for child in children(item, LIST, _BRANCHES_MAX)]


def _gaps(item: bytes) -> list[int]:
    found = [THREAD(child) for child in children(item, LIST, REMOVED_MAX)]
    if sum(found) > _LSN_MAX:
        raise WrongFieldError
    return found


def _specs(item: bytes) -> dict[str, str]:
    parts = children(item, DICT, CHANNELS_MAX)
    return {NAME(parts[at]): _SPEC(parts[at + 1]) for at in range(0, len(parts), 2)}


def _policy(item: bytes) -> dict[str, Any]:
    policy = {}
    parts = children(item, DICT, len(_POLICY_KEYS))
    for at in range(0, len(parts), 2):
        key, value = NAME(parts[at]), parts[at + 1]
        if key not in _POLICY_KEYS or (value[0] not in (0xF4, 0xF5, 0xF6) and value[0] >> 5 != 0):
            raise WrongFieldError
        policy[key] = cbor.decode(value)
    return policy


def _order(item: bytes) -> list[int]:
    rank, ready_us, attempts = children(item, LIST, 3)
    return [_BYTE(rank), TIME_US(ready_us), VERSION(attempts)]


def _claim(item: bytes) -> list[Any]:
    token, tag, deadline_us, until_us, lease_us = children(item, LIST, 5)
    if tag[0] != 0x48:
        raise WrongFieldError
    return [LSN(token), tag[1:], LSN(deadline_us), TIME_US(until_us), LSN(lease_us)]


def _schema(item: bytes) -> list[Any]:
    name, version = children(item, LIST, 2)
    return [_SCHEMA_NAME(name), _SCHEMA_VERSION(version)]


def _pattern(item: bytes) -> object:
    return DIGEST(item) if item[0] >> 5 == BYTES else THREAD_ID(item)


ACT = _number(15)
_BYTE = _number(255)
ENTRY_KEY = _text(ENTRY_KEY_SIZE_BYTES_MAX + 1)
"""The key of an entry, or a slash followed by the name of a lease."""
ERROR = _text(ENTRY_ERROR_SIZE_BYTES_MAX, size_bytes_min=0)
ORDER: Field = _order
"""The order of a claimable entry: its rank, the time from which it may be claimed, and the number of claims."""
CLAIM: Field = _claim
"""A claim: LSN of the first record (0 for this one), clock tag, deadlines by that clock and the wall clock, duration
(us).
"""
_SCHEMA_NAME = _text(SCHEMA_NAME_SIZE_BYTES_MAX)
_SCHEMA_VERSION = _number(SCHEMA_VERSION_MAX, 2)
ENTRY_SCHEMA: Field = _schema
"""The name and version of the schema of an entry's value, if the version is above 1."""
TIME_US = _number(253_402_300_799_999_999)
LSN = _number(_LSN_MAX)
THREAD = _number(_LSN_MAX, 1)
NO_THREAD = _number(0)
RECORD_LSN = _number(_LSN_MAX)
"""The LSN of an earlier record of the same owner, or 0. In an export of threads, it is the number of the record's
event.
"""
CHECKPOINT_LSN = _number(_LSN_MAX)
"""The LSN of a checkpoint, or 0. In an export of threads, it is the number of the checkpoint's event."""
VERSION = _number(VERSIONS_MAX)
NODE = _number((1 << 32) - 1)
NAME = _text(NAME_SIZE_BYTES_MAX)
THREAD_ID = _text(THREAD_ID_SIZE_BYTES_MAX)
SPECS: Field = _specs
METADATA: Field = _metadata
NAMES: Field = _names
DIGEST: Field = _digest
DIGESTS: Field = _digests
POLICY: Field = _policy
PATTERN: Field = _pattern
VERSIONS: Field = _versions
GAPS: Field = _gaps
"""Ascending LSNs. Each is stored as the distance from the previous LSN, and the first as the distance from 0."""
ITEM: Field = bytes
"""Any value. It stays encoded, because its codec may not be registered."""
RAW: frozenset[Field] = frozenset((METADATA, NAMES, ITEM))
"""The fields that stay encoded in an event."""
BOOLEAN: Field = _boolean
TRUE: Field = _true
_SPEC = _text(_SPEC_SIZE_BYTES_MAX, size_bytes_min=0)
ROOT: tuple[Field, ...] = (optional(DIGEST), LSN, NODE)
"""A value's root: digest, LSN of its record (0 for this record), node number there. A missing root is null, 0, 0."""


def first_number(item: bytes) -> int:
    """Return the first number in a body. Return 0 if the body is not an array, or has 24 fields or more."""
    return _head(item[1:])[1] if item[0] >> 5 == LIST and item[0] & 31 < 24 else 0


def split_array(item: bytes) -> list[bytes]:
    """Return the encoded fields of an array.

    Raises:
        CorruptionError: the bytes are malformed or not an array.
    """
    kernels.cbor_check(item)
    try:
        return children(item, LIST, _FIELDS_MAX)
    except WrongFieldError:
        message = "it is not an array of fields"
        raise CorruptionError(message) from None


def read_fields(parts: Sequence[bytes], fields: Sequence[Field]) -> list[Any]:
    """Return the values of encoded fields.

    Raises:
        CorruptionError: the number of fields is wrong, or a field has a wrong type or value.
    """
    if len(parts) != len(fields):
        message = f"{len(parts)} fields instead of {len(fields)}"
        raise CorruptionError(message)
    values = []
    for index, (part, field) in enumerate(zip(parts, fields, strict=True)):
        try:
            values.append(field(part))
        except WrongFieldError:
            message = f"field {index} has a wrong type or value"
            raise CorruptionError(message) from None
    return values
