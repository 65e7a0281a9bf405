"""Limits on the sizes of channels and states, which commits enforce."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import SizeLimitError, UsageError
from statelog.store.checkpoint import read_head
from statelog.store.state_sizes import count_items, open_part, part_of, root_of, slots_of
from statelog.tree.node import LEAF

if TYPE_CHECKING:
    from statelog.log.batch import Batch, Head
    from statelog.log.events import CheckpointEvent
    from statelog.store.state_sizes import NodePart, Read

_SIZES_REMEMBERED_MAX = 100_000
"""The maximum number of cached node sizes, about 100 bytes each. If there are more, the cache is cleared."""


class SizeWarning(UserWarning):
    """Warns that a channel or a state exceeds a limit that `Store.limit` has set with `warns=True`."""


class Limit(NamedTuple):
    """A limit on a channel, or on the whole state, of some threads."""

    threads: str
    channel: str | None
    warns: bool
    size_bytes_max: int | None
    items_max: int | None

    def fits(self, thread_id: str) -> bool:
        """Return True if the limit applies to a thread."""
        return fnmatchcase(thread_id, self.threads)


class _Size(NamedTuple):
    bytes: int
    items: int


class _Passed(NamedTuple):
    """A limit that a checkpoint exceeds, in one of the limit's two units."""

    limit: Limit
    unit: str


class SizeLimits:
    """The limits of an open store. Each commit checks them. They are not stored."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str | None, bool], Limit] = {}
        self._sizes: dict[bytes, int] = {}
        """A cache of the sizes of roots and chunks, keyed by digest."""
        self._pending: dict[str, dict[_Passed, str]] = {}
        """The warnings to issue after the commit, keyed by thread."""
        self._warned: dict[str, set[_Passed]] = {}
        """The exceeded limits for which a warning was already issued, keyed by thread."""

    def set(self, limit: Limit) -> bool:
        """Set a limit, or remove it if it has neither maximum. Return whether any limit is left.

        Raises:
            UsageError: an argument is not valid.
        """
        for name, value in (("size_bytes_max", limit.size_bytes_max), ("items_max", limit.items_max)):
            if value is not None and (type(value) is not int or value < 0):
                raise UsageError(f"{name} must be a non-negative int, not {value!r}", argument=name, value=value)
        for name, text in (("threads", limit.threads), ("channel", limit.channel)):
            if not (isinstance(text, str) and text) and not (name == "channel" and text is None):
                raise UsageError(f"{name} must be a non-empty str, not {text!r}", argument=name, value=text)
        if type(limit.warns) is not bool:
            raise UsageError(f"warns must be a bool, not {limit.warns!r}", argument="warns", value=limit.warns)
        key = limit[:3]
        limits = {known: each for known, each in self._limits.items() if known != key}
        if limit.size_bytes_max is not None or limit.items_max is not None:
            limits[key] = limit
        self._limits = limits
        return bool(limits)

    def check(self, batch: Batch, thread_id: str, head: Head) -> None:
        """Check a staged checkpoint.

        Raises:
            SizeLimitError: the checkpoint exceeds a limit, and is larger than its parent.
        """
        limits = [each for each in self._limits.values() if each.fits(thread_id)]
        if not limits:
            return
        sizes = self._measure(batch.read_node, head.event)
        pending: dict[_Passed, str] = {}
        for limit in limits:
            size = sizes.get(limit.channel, _Size(0, 0))
            for unit, actual in zip(("bytes", "items"), size, strict=True):
                passed = _Passed(limit, unit)
                most = limit.size_bytes_max if unit == "bytes" else limit.items_max
                if most is None or actual <= most:
                    continue
                what = "the state" if limit.channel is None else f"channel {limit.channel!r}"
                message = f"thread {thread_id!r}: {what} has {actual:,} {_ITEMS[unit, limit.channel is None]}"
                if limit.warns:
                    pending[passed] = f"{message}, more than {most:,}"
                elif actual > getattr(self._size_before(batch, head, limit.channel), unit):
                    raise SizeLimitError(
                        f"{message} with this commit, and at most {most:,} are allowed",
                        thread=thread_id,
                        path=limit.channel,
                        unit=unit,
                        limit=most,
                        actual=actual,
                    )
        self._pending[thread_id] = pending

    def warn(self, thread_id: str) -> None:
        """Issue the warnings for a thread's committed checkpoint.

        A warning is not repeated until a checkpoint within its limit has been committed.
        """
        pending = self._pending.pop(thread_id, None)
        if pending is None:
            return
        warned = self._warned.get(thread_id, set())
        if pending:
            self._warned[thread_id] = set(pending)
        else:
            self._warned.pop(thread_id, None)
        for passed, message in pending.items():
            if passed not in warned:
                warnings.warn(message, SizeWarning, stacklevel=5)

    def _size_before(self, batch: Batch, head: Head, channel: str | None) -> _Size:
        event = head.event
        parent = None
        if event.parent_branch is not None and event.parent_version is not None:
            parent = read_head(batch.view, event.thread, event.parent_branch, event.parent_version)
        before = {} if parent is None else self._measure(batch.read_node, parent.event)
        return before.get(channel, _Size(0, 0))

    def _measure(self, read: Read, event: CheckpointEvent) -> dict[str | None, _Size]:
        """Return the sizes of the channels, keyed by name, and the size of the state under None."""
        if len(self._sizes) > _SIZES_REMEMBERED_MAX:
            self._sizes = {}
        sizes: dict[str | None, _Size] = {}
        for name, slot, _lsn in slots_of(event, read):
            part = part_of(slot)
            sizes[name] = _Size(len(slot.data) if part is None else self._size_of(part, read), count_items(slot, read))
        sizes[None] = _Size(self._size_of(root_of(event), read), len(sizes))
        return sizes

    def _size_of(self, whole: NodePart, read: Read) -> int:
        """Return the size of a value that is stored as a node. Each node is read only once while the store is open."""
        known = self._sizes
        pending = [whole]  # Measure children first, without recursion, because a value may have any depth.
        while pending:
            part = pending.pop()
            if part.digest in known:
                continue
            if part.type == LEAF:
                known[part.digest] = read(*part).content_size
                continue
            opened = open_part(part, read)
            children = (*opened.children, *opened.leaves)
            if missing := [child for child in children if child.digest not in known]:
                pending += [part, *missing]
            else:
                known[part.digest] = opened.size_bytes + sum(known[child.digest] for child in children)
        return known[whole.digest]


_ITEMS = {("bytes", True): "bytes", ("bytes", False): "bytes", ("items", True): "channels", ("items", False): "items"}
"""The word for the counted things in messages, by unit and by whether the limit is on the whole state."""
