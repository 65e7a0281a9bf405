"""Copies pending writes from one saver to another, each with its task, its number in the task, and its path.

A path orders a write among the writes of other tasks. One task may have several paths: if the task waits for an answer
or has failed, ``update_state(as_node=...)`` writes for it with a different path.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash
from langgraph.checkpoint.base import WRITES_IDX_MAP

from statelog.adapters.langgraph.move.checked import taken
from statelog.adapters.langgraph.move.untouched import UntouchedSerializer
from statelog.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.checkpoint.base import CheckpointTuple, PendingWrite

    from statelog.adapters.langgraph.move.endpoints import CheckpointKey, Endpoint

_SERIALIZER = UntouchedSerializer()
_MISSING_MAX = len(WRITES_IDX_MAP)
"""The maximum number of consecutive write numbers that a task may leave out."""


class _Write(NamedTuple):
    number: int
    path: str
    pair: tuple[str, Any]
    """The channel and the value."""


def digests(found: CheckpointTuple | None) -> list[bytes]:
    """Return a digest of each pending write of a checkpoint, in their order."""
    return [_digest(write) for write in found.pending_writes or ()] if found else []


def _digest(write: PendingWrite) -> bytes:
    task_id, channel, value = write
    kind, data = _SERIALIZER.dumps_typed(value)
    return xxhash.xxh3_128_digest(repr((task_id, channel, kind)).encode() + data)


def is_part(some: Sequence[bytes], others: Sequence[bytes]) -> bool:
    """Return True if the digests `some` occur among `others` in the same order."""
    rest = iter(others)
    return all(digest in rest for digest in some)


def is_begun(some: CheckpointTuple | None, of: CheckpointTuple) -> bool:
    """Return True if the writes of `some`, a copy, are a part of the writes of `of`, so the copy can continue.

    Errors, interrupts and answers may be in any order, because an interrupted copy may leave them with a different path
    until they are put again. Other writes must be in order.
    """
    (fixed, numbered), (fixed_of, numbered_of) = map(_parted, (some, of))
    return fixed <= fixed_of and is_part(numbered, numbered_of)


def _parted(found: CheckpointTuple | None) -> tuple[Counter[bytes], list[bytes]]:
    writes = found.pending_writes or [] if found else []
    fixed = Counter(_digest(write) for write in writes if write[1] in WRITES_IDX_MAP)
    return fixed, [_digest(write) for write in writes if write[1] not in WRITES_IDX_MAP]


def copy_writes(
    source: Endpoint, target: Endpoint, place: CheckpointKey, found: CheckpointTuple, there: CheckpointTuple | None
) -> None:
    """Put all pending writes of a task if the target lacks one of them, or may have one with a different path.

    Args:
        source: the endpoint that knows the positions of the writes.
        target: an endpoint that has no write that the source lacks.
        place: the place of the checkpoint that has the writes.
        found: the checkpoint in the source.
        there: the checkpoint in the target before the copy.

    Raises:
        ConflictError: the source has lost some of the writes since `found` was read. FormatError: the target cannot
            store a value.
    """
    tasks: dict[str, list[_Write]] = {}
    missing: set[str] = set()
    have = Counter(digests(there))
    writes = found.pending_writes or []
    for write, (number, path) in zip(writes, _where(source, place, writes), strict=True):
        task_id, channel, value = write
        tasks.setdefault(task_id, []).append(_Write(number, path, (channel, value)))
        digest = _digest(write)
        if not have[digest] or channel in WRITES_IDX_MAP:
            missing.add(task_id)
        have[digest] -= 1
    with taken(target, place):
        for task_id, own in tasks.items():
            for pairs, path in _calls(own) if task_id in missing else ():
                target.saver.put_writes(place.config(), pairs, task_id, path)


def _calls(own: list[_Write]) -> Iterator[tuple[list[tuple[str, Any]], str]]:
    """Yield the writes and the path of each `put_writes` call, so that each write of a task keeps its number.

    A saver numbers the writes in a call from 0, except writes to channels with fixed numbers, and does not replace
    writes that it already has. So each call repeats the writes of earlier paths. A missing number belonged to a write
    to a channel with a fixed number.
    """
    fixed = [write for write in own if write.pair[0] in WRITES_IDX_MAP]
    of_fixed = [([write.pair for write in those], path) for path, those in groupby(fixed, key=_path)]
    yield from of_fixed
    numbered = sorted((write for write in own if write.pair[0] not in WRITES_IDX_MAP), key=_number)
    pairs: list[tuple[str, Any]] = []
    for path, those in groupby(numbered, key=_path):
        for write in those:
            missing = write.number - len(pairs)
            pairs += [fixed[0].pair] * missing if fixed and missing <= _MISSING_MAX else []
            pairs.append(write.pair)
        yield [*pairs], path
    if fixed and fixed[0].pair in pairs:  # Some savers now have this write with a different path.
        yield from of_fixed


def _path(write: _Write) -> str:
    return write.path


def _number(write: _Write) -> int:
    return write.number


def _where(source: Endpoint, place: CheckpointKey, writes: Sequence[PendingWrite]) -> Iterator[tuple[int, str]]:
    """Yield the number and path of each write. If the source does not know them, invent some that keep the order."""
    rows = source.written(place)
    if not rows:
        yield from _numbered(writes)
        return
    rest = iter(rows)  # `rows` has the same order as `writes`, and may have new writes in between.
    for task_id, channel, _value in writes:
        for row in rest:
            if row.task_id == task_id and row.channel == channel:
                yield row.number, row.path
                break
        else:
            message = (
                f"pending writes of checkpoint {place.checkpoint_id} of thread {place.thread_id!r} disappeared from"
                f" {source.name}"
            )
            raise ConflictError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)


def _numbered(writes: Sequence[PendingWrite]) -> Iterator[tuple[int, str]]:
    counts: dict[str, int] = {}
    runs = groupby(writes, key=lambda write: (write[0], write[1] in WRITES_IDX_MAP))
    for at, ((task_id, is_fixed), those) in enumerate(runs):
        for _write in those:
            number = counts.get(task_id, 0)
            counts[task_id] = number + (not is_fixed)
            yield number, f"{at:08d}"
