"""Converts the bodies of records to Python values (events) and back. FORMAT.md section 5."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from xxhash import xxh3_64_digest

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES, TYPE_CHECKPOINT, TYPE_ROLLBACK, Record, checkpoint_digest
from statelog.kernels import NO_NUMBER
from statelog.limits import COPIED_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINT_TYPES = (TYPE_CHECKPOINT, TYPE_ROLLBACK)
E = TypeVar("E")

MAIN = "main"
NOTHING_BORROWED = b"\x80"
NOTHING_WRITTEN = b"\x80"


NEEDS_KEY = "statelog:needs"
"""The key in a version's metadata for the channels that are computed from its ancestors (see `care.needs`)."""

SERVES_KEY = "statelog:serves"
"""The key in a version's metadata for the id of the version that its branch serves (see `care.serves`)."""


SCHEMA_KEY = "statelog:schema"
"""The key in a version's metadata for the schema version of its state, if that is above 1."""

SCHEMA_KEY_ITEM = cbor.encode(SCHEMA_KEY)


def schema_version(metadata: bytes) -> int:
    """Return the schema version that a version's encoded metadata names, or 1 if it names none above 1."""
    if SCHEMA_KEY_ITEM not in metadata:
        return 1
    span = kernels.cbor_map_get(metadata, SCHEMA_KEY_ITEM)
    version = None if span is None else cbor.decode(metadata[span[0] : span[1]], loosely=True)
    return version if type(version) is int and version > 1 else 1


class ThreadEvent(NamedTuple):
    """The event that begins a thread and its branch `main`."""

    thread_id: str
    specs: dict[str, str]
    is_anew: bool | None = None
    """True if a thread with the same id was deleted before."""


class SchemaEvent(NamedTuple):
    """The event that adds channels to a thread's schema, or changes reducers with a newer schema version."""

    thread: int
    specs: dict[str, str]


class ForkEvent(NamedTuple):
    """The event that begins a branch with versions 0..base of its parent."""

    thread: int
    branch: int
    name: str
    parent_branch: int
    base_version: int


class TagEvent(NamedTuple):
    """The event that sets a tag, or removes it if the target is 0."""

    thread: int
    name: str
    target: int


class DeleteEvent(NamedTuple):
    """The event that deletes a thread. Its id stays marked as deleted."""

    thread: int
    id_digest: bytes
    returns: bool | None = None
    """True if nothing reaches the thread's borrowed nodes."""


class LoanEvent(NamedTuple):
    """The event of a thread that uses nodes in another thread's earlier records, because it is a copy.

    The event contains only numbers, so it outlives both threads.
    """

    thread: int
    """The thread that uses the nodes, or 0: records without an owner, and threads that nobody knows."""
    lender: int
    next_versions: list[int]
    """For each branch of a copy, the first version that was not copied. Empty for a loan that is not of a copy."""


class RemovalEvent(NamedTuple):
    """The event that lists records that retention or a deletion has removed. The index has no entries for them.

    The event does not have an owner, so it outlives the owners of the records.
    """

    thread: int
    """Always 0, because the event does not have an owner."""
    gaps: list[int]
    """The LSNs in ascending order, each stored as the distance from the previous LSN. The first distance is from 0."""

    @property
    def lsns(self) -> list[int]:
        """The LSNs of the removed records, ascending."""
        return list(accumulate(self.gaps))


class PolicyEvent(NamedTuple):
    """The event that sets a thread's retention policy. An empty policy removes it.

    If the thread is 0 and there is a pattern (`log.care.policies`), the policy is for future threads with matching ids.
    """

    thread: int
    policy: dict[str, Any]
    pattern: str | bytes | None = None


class CheckpointEvent(NamedTuple):
    """A checkpoint. If target is above 0, it is a rollback, which refers to an earlier root."""

    thread: int
    branch: int
    version: int
    parent_branch: int | None
    parent_version: int | None
    parent_digest: bytes | None
    jump_branch: int | None
    jump_version: int | None
    depth: int
    jump_depth: int
    root_digest: bytes
    root_lsn: int
    root_node: int
    id: str | None
    metadata: bytes
    written: bytes
    borrowed: bytes
    target: int
    lsn: int
    time_us: int

    @property
    def digest(self) -> bytes:
        """The checkpoint's digest."""
        return checkpoint_digest(self.parent_digest, self.root_digest, self.time_us, self.id, self.metadata)

    def metadata_field(self, key: str) -> Any:
        """Return the metadata value under `key`, or None. Decode the metadata only if it contains the key."""
        return cbor.decode(self.metadata).get(key) if cbor.encode(key) in self.metadata else None


Digested = tuple[CheckpointEvent, bytes]
"""A checkpoint and its digest."""

Event = tuple[Any, ...]
"""An event of any kind: one of the tuples above, or another tuple that a kind in `kinds.table` decodes."""

_NULL = -1
NULL_ITEM = b"\xf6"


def encode_checkpoint(event: CheckpointEvent, own_lsn: int) -> tuple[bytes, bytes]:
    """Return the encoded body of a checkpoint, and the checkpoint's digest."""
    (
        thread,
        branch,
        version,
        parent_branch,
        parent_version,
        parent_digest,
        jump_branch,
        jump_version,
        depth,
        jump_depth,
        root_digest,
        root_lsn,
        root_node,
        id_,
        metadata,
        written,
        borrowed,
        target,
        _lsn,
        time_us,
    ) = event
    numbers = kernels.pack_numbers(
        thread,
        branch,
        version,
        _NULL if parent_branch is None else parent_branch,
        _NULL if parent_version is None else parent_version,
        _NULL if jump_branch is None else jump_branch,
        _NULL if jump_version is None else jump_version,
        depth,
        jump_depth,
        0 if root_lsn == own_lsn else root_lsn,
        root_node,
        target,
        time_us,
    )
    id_item = NULL_ITEM if id_ is None else cbor.encode(id_)
    return kernels.checkpoint_encode(numbers, parent_digest, root_digest, id_item, metadata, written, borrowed)


def decode_as(record: Record, decode: Callable[[Record], E]) -> E:
    """Return the result of `decode` for a record with a valid checksum.

    Raises:
        CorruptionError: `decode` cannot decode the body.
    """
    try:
        return decode(record)
    except (TypeError, ValueError, IndexError, CorruptionError) as error:
        message = f"record {record.lsn}: the body does not match type {record.type}"
        raise CorruptionError(message, lsn=record.lsn) from error


def decode_checkpoint(record: Record) -> CheckpointEvent:
    """Return the checkpoint or rollback that a record contains.

    Metadata, channels and borrowed digests stay encoded, because decoding metadata may need a codec.
    """
    body = record.body
    places = kernels.checkpoint_decode(body, is_rollback=record.type == TYPE_ROLLBACK)
    return _event_at(body, places, record.lsn, record.time_us)


def read_checkpoint(data: memoryview | bytes, lsn: int) -> Digested | None:
    """Return the checkpoint or rollback in a record. This is faster than `decode_record` and `decode_checkpoint`.

    Return None for a damaged record or a record of a different type.
    """
    record = data if len(data) > COPIED_SIZE_BYTES_MAX else bytes(data)
    if xxh3_64_digest(record[8:]) != record[:8]:
        return None
    found = kernels.checkpoint_read(record, lsn)
    if found is None:
        return None
    places, digest = found
    time_us = places.pop()
    body = record if type(record) is bytes else bytes(record[: places[-1]])
    try:
        return _event_at(body, places, lsn, time_us), digest
    except (ValueError, CorruptionError):
        return None  # The id in the record is not valid.


def _event_at(data: bytes, places: list[int], lsn: int, time_us: int) -> CheckpointEvent:
    """Return the checkpoint whose fields are at the given offsets of `data`."""
    (
        thread, branch, version, parent_branch, parent_version, jump_branch, jump_version, depth, jump_depth,
        root_lsn, root_node, target, parent_at, root_at, id_at, metadata_at, written_at, borrowed_at, end,
    ) = places  # fmt: skip
    id_item = data[id_at:metadata_at]
    fields = (
        thread,
        branch,
        version,
        None if parent_branch == NO_NUMBER else parent_branch,
        None if parent_version == NO_NUMBER else parent_version,
        data[parent_at : parent_at + DIGEST_SIZE_BYTES] if parent_at else None,
        None if jump_branch == NO_NUMBER else jump_branch,
        None if jump_version == NO_NUMBER else jump_version,
        depth,
        jump_depth,
        data[root_at : root_at + DIGEST_SIZE_BYTES],
        root_lsn or lsn,
        root_node,
        None if id_item == NULL_ITEM else cbor.decode(id_item),
        data[metadata_at:written_at],
        data[written_at:borrowed_at],
        data[borrowed_at:end],
        target,
        lsn,
        time_us,
    )
    return tuple.__new__(CheckpointEvent, fields)


def default_id(lsn: int, digest: bytes) -> str:
    """Return the default id of a checkpoint, which contains the LSN and the digest."""
    return f"{lsn}~{digest.hex()[:16]}"


def parse_default_id(text: str) -> int | None:
    """Return the LSN in a default id, or None if the string is not a default id."""
    lsn, mark, digest = text.partition("~")
    is_default = mark and lsn.isascii() and lsn.isdigit() and len(digest) == 16
    return int(lsn) if is_default and len(lsn) < 20 else None
