"""Pending writes copied from one saver to another: each by its task, its place among the task's, and its path.

A path orders a write among those of other tasks, and is not the same for all writes of a task: where a task waits for
an answer, or failed, ``update_state(as_node=...)`` writes for it by another.
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

    from statelog.adapters.langgraph.move.endpoints import Endpoint, Place

_SERIALIZER = UntouchedSerializer()
_MISSING_MAX = len(WRITES_IDX_MAP)
"""More numbers in a row are not missing where a graph has written."""


class _Write(NamedTuple):
    number: int
    path: str
    pair: tuple[str, Any]
    """Channel and value."""


def digests(found: CheckpointTuple | None) -> list[bytes]:
    """Return what tells the pending writes of a checkpoint from others, in their order."""
    return [_digest(write) for write in found.pending_writes or ()] if found else []


def _digest(write: PendingWrite) -> bytes:
    task_id, channel, value = write
    kind, data = _SERIALIZER.dumps_typed(value)
    return xxhash.xxh3_128_digest(repr((task_id, channel, kind)).encode() + data)


def is_part(some: Sequence[bytes], others: Sequence[bytes]) -> bool:
    """Whether the writes of one checkpoint are among those of another, in the same order: by their `digests`."""
    rest = iter(others)
    return all(digest in rest for digest in some)


def is_begun(some: CheckpointTuple | None, of: CheckpointTuple) -> bool:
    """Whether the writes of one checkpoint are some of another's, errors, interrupts and answers in whatever order.

    Where copying was cut off these may stand by another path, until they are put again.
    """
    (fixed, numbered), (fixed_of, numbered_of) = map(_parted, (some, of))
    return fixed <= fixed_of and is_part(numbered, numbered_of)


def _parted(found: CheckpointTuple | None) -> tuple[Counter[bytes], list[bytes]]:
    writes = found.pending_writes or [] if found else []
    fixed = Counter(_digest(write) for write in writes if write[1] in WRITES_IDX_MAP)
    return fixed, [_digest(write) for write in writes if write[1] not in WRITES_IDX_MAP]


def copy_writes(
    source: Endpoint, target: Endpoint, place: Place, found: CheckpointTuple, there: CheckpointTuple | None
) -> None:
    """Put the pending writes of the tasks of which the target has not all, or may have some by another path.

    Args:
        source: which tells where they stand.
        target: has none that the source has not.
        place: the checkpoint they are to.
        found: it, as the source has it.
        there: it, as the target had it before.

    Raises:
        ConflictError: the source lost some of them meanwhile. FormatError: the target takes no such value.
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
    """Yield what is to be put, with its path, so that every write of a task gets the number it has.

    A saver numbers what it is given from 0, but for channels that have a number of their own, and leaves what is there:
    so those before the writes of a path are given once more. Where a number is missing stood one of such a channel.
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
    if fixed and fixed[0].pair in pairs:  # which some savers have by another path now
        yield from of_fixed


def _path(write: _Write) -> str:
    return write.path


def _number(write: _Write) -> int:
    return write.number


def _where(source: Endpoint, place: Place, writes: Sequence[PendingWrite]) -> Iterator[tuple[int, str]]:
    """Yield number and path of each write; where the source does not tell, such as keep the order."""
    rows = source.written(place)
    if not rows:
        yield from _numbered(writes)
        return
    rest = iter(rows)  # in the same order; there may be more by now
    for task_id, channel, _value in writes:
        for row in rest:
            if row.task_id == task_id and row.channel == channel:
                yield row.number, row.path
                break
        else:
            message = (
                f"pending writes of checkpoint {place.checkpoint_id} of thread {place.thread_id!r} went away from"
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
