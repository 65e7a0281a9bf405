"""Checks and encodes the arguments of a commit before it acquires the lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from statelog import kernels
from statelog.errors import LimitError, UsageError, ValueTypeError
from statelog.format import cbor
from statelog.format.everyday import full_name
from statelog.limits import METADATA_SIZE_BYTES_MAX, THREAD_ID_SIZE_BYTES_MAX
from statelog.log.events import SCHEMA_KEY
from statelog.log.names import channel_key, channel_keys, check_name
from statelog.reducers import DROP, Removal, extend, replace
from statelog.schema import STEPS_CHANNEL, normalise_update
from statelog.tree.node import LEAF

if TYPE_CHECKING:
    from statelog.log.batch import Batch
    from statelog.log.step import PreparedWrite
    from statelog.schema import Schema


_TEXT_ONLY = frozenset((str,))

NO_METADATA = b"\xa0"
"""The encoded item of empty metadata."""


def check_thread_id(thread_id: str) -> None:
    """Raise an error for a thread id that cannot be part of a key."""
    check_name("thread id", thread_id, size_bytes_max=THREAD_ID_SIZE_BYTES_MAX)


def encode_metadata(metadata: Mapping[str, Any] | None) -> bytes:
    """Return the encoded item of metadata."""
    if metadata is None:
        return NO_METADATA
    if not isinstance(metadata, Mapping):
        message = f"metadata must be a dict, not {type(metadata).__name__}"
        raise UsageError(message, argument="metadata", value=metadata)
    for key in metadata:
        if type(key) is not str:
            kind = full_name(type(key))
            message = f"metadata: its keys must be str, not {kind}: {key!r:.80}"
            raise ValueTypeError(message, path="metadata", type=kind)
        if key == SCHEMA_KEY:
            message = f"metadata: {key!r} is reserved: the schema of the thread sets it"
            raise UsageError(message, argument="metadata", value=key)
    item = cbor.encode(dict(metadata), path="metadata", around=1)  # The record adds one level of nesting.
    if len(item) > METADATA_SIZE_BYTES_MAX:
        message = f"metadata has {len(item)} bytes; at most {METADATA_SIZE_BYTES_MAX} are allowed"
        raise LimitError(message, path="metadata", actual=len(item), limit=METADATA_SIZE_BYTES_MAX)
    return item


def prepare_writes(schema: Schema, writes: Sequence[Any]) -> list[PreparedWrite]:
    """Validate and encode the updates of one commit. Return one write for each channel of each update."""
    prepared: list[PreparedWrite] = []
    channels = schema.channels
    for update in writes:
        is_plain = type(update) is dict and _TEXT_ONLY.issuperset(map(type, update))
        named = dict(update) if is_plain else normalise_update(update)
        for channel, value in (schema.by_channel(named) if schema.aliases else named).items():
            if channel not in channel_keys:
                channel_key(channel)
            if value is DROP:
                schema.reducer(channel)  # This raises an error if the channel is not declared.
                prepared.append(Removal(channel))
                continue
            declared = channels.get(channel)
            if declared is not None:
                check, reducer = schema.write_checks.get(channel, schema.check_of_others), declared.reducer
            else:
                check, reducer = schema.check_of_others, replace if channel != STEPS_CHANNEL else extend
            write = reducer.prepare(channel, value if check is None else check(channel, value), path=channel)
            prepared.append(write if reducer.function is None else write.checked_by(schema.validate_result))
    return prepared


def written_item(prepared: Sequence[PreparedWrite]) -> bytes:
    """Return the encoded, sorted list of the written channels."""
    names = tuple(map(_channel_of, prepared))
    return _names.get(names) or encode_names(names)


_channel_of = attrgetter("channel")


_NAMES_MAX = 1024

_names: dict[tuple[str, ...], bytes] = {}
"""A cache of the encoded lists, keyed by the channels in the order of their writes. It is cleared if too large."""


def encode_names(names: tuple[str, ...]) -> bytes:
    """Return the encoded, sorted list of the given channel names."""
    item = _names.get(names)
    if item is None:
        item = cbor.encode(sorted(set(names)))
        if len(_names) >= _NAMES_MAX:
            _names.clear()
        _names[names] = item
    return item


def leaves_beside(batch: Batch, thread: int, branch: int) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, node number) of leaves that the next version of a branch may reuse.

    These are the leaves that the parent branch has stored at the same version. A fork that repeats the steps of its
    parent writes equal values.
    """
    head = batch.head(thread, branch)
    parent = None if head is None else batch.view.branch(thread, branch).parent
    if head is None or parent is None:
        return []
    beside = batch.view.checkpoint_of(thread, parent, head.event.version + 1)
    record = None if beside is None else batch.get_log(beside[0].lsn)
    if beside is None or record is None:
        return []
    rows = kernels.record_rows(record)
    return [(row[1], beside[0].lsn, number) for number, row in rows.items() if row[0] == LEAF]
