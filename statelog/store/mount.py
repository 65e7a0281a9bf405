"""Mounts: a thread's state as a dict that is changed in place and committed once.

A channel's value is read when it is first asked for, and comes plain and whole: a list is a `list` at any size. At the
end what was read is encoded again, and channels that differ are written; of a large value only the nodes that are new.
A lazy mount hands out `MountList` and `MountMap` in place of large lists and dicts (`mutable.py`).
"""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from statelog import kernels
from statelog.errors import ConflictError, UsageError
from statelog.format import cbor
from statelog.reducers import Removal
from statelog.store.mutable import Loaded, MountMap
from statelog.tree import reduce
from statelog.tree.mapping import empty_root
from statelog.tree.node import ROOT, Slot, Workspace
from statelog.tree.tree import Tree
from statelog.tree.value import read_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from statelog.log.batch import Head
    from statelog.log.step import Write
    from statelog.store.checkpoint import Checkpoint


T = TypeVar("T")


class Mountable(Protocol):
    """What a mount asks of a thread: its head, its schema's word on a channel, and a way to commit."""

    @property
    def id(self) -> str:
        """The caller's stable id."""

    @property
    def head(self) -> Checkpoint | None:
        """The branch's last checkpoint, None before the first commit."""

    @property
    def version(self) -> int:
        """The head's version, -1 before the first commit."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether its commits happen at the end of a transaction."""

    def workspace(self) -> Workspace:
        """Return a reader of nodes."""

    def empty_value(self, channel: str) -> object:
        """Return the empty value that a declared channel begins with, None if none."""

    def is_declared(self, channel: str) -> bool:
        """Whether the schema names a channel."""

    def is_checked(self, channel: str) -> bool:
        """Whether the schema looks at a channel's values."""

    def check_mounted(self, channel: str, loaded: Loaded) -> Loaded:
        """Return a channel's value as the schema takes it."""

    def upsert_key(self, channel: str) -> bytes:
        """Return the key of an upsert channel, empty for any other."""

    def commit_writes(
        self,
        prepared: list[Write] | Callable[[Workspace, Head | None], list[Write]],
        metadata: Mapping[str, Any] | None,
        *,
        expected_version: int | None = None,
        checkpoint_id: str | None = None,
    ) -> Checkpoint:
        """Commit writes that are prepared already, or are made in the commit from the head."""


_NO_SLOT = Slot(b"\xf6")


class Mount(MountMap):
    """The state of a thread as a dict to work on.

    Values are plain: a list is a `list`, a dict a `dict`. Changes count at any depth, also to a list or dict that was
    only read from it. A lazy mount has `MountList` and `MountMap` for large ones, which read what is asked for.
    """

    __slots__ = ("_empty_value", "_is_lazy", "base_version")

    def __init__(
        self, tree: Tree, empty_value: Callable[[str], object], version: int = -1, *, is_lazy: bool = False
    ) -> None:
        super().__init__(tree, _NO_SLOT, Loaded(None))
        self.base_version = version
        self.origin.value = self
        self._empty_value = empty_value
        self._is_lazy = is_lazy

    def _load(self, slot: Slot) -> Loaded:
        if self._is_lazy:
            return super()._load(slot)
        item = read_item(self._tree.workspace, slot)
        return Loaded(cbor.decode(item), item)

    def __getitem__(self, channel: str) -> Any:
        """Return a channel's value; of a declared list, dict or set channel never written, an empty one to fill."""
        try:
            return super().__getitem__(channel)
        except KeyError:
            empty = None if channel in self._removed else self._empty_value(channel)
            if empty is None:
                raise
            self._loaded[channel] = Loaded(empty, cbor.encode(empty))
            return empty


@dataclass(frozen=True, slots=True)
class _SetChannel:
    """A write that sets a channel to what a mount made of it, if nobody else wrote the channel."""

    channel: str
    base: bytes | None
    loaded: Loaded
    key: bytes
    spec: str = "mount"
    step: None = None

    def merge(self, workspace: Workspace, current: Slot | None, _identities: dict[bytes, bytes]) -> Slot:
        """Return the new slot."""
        _check_base(self.channel, self.base, current)
        mounted = self.loaded.mounted
        if mounted is not None:
            return mounted.store(workspace, top=True)
        assert self.loaded.final is not None
        return reduce.replace(workspace, current, self.loaded.final, key=self.key)


@dataclass(frozen=True, slots=True)
class _RemoveChannel(Removal):
    """A removal of a channel that nobody else wrote."""

    base: bytes | None = None

    def merge(self, workspace: Workspace, current: Slot | None, identities: dict[bytes, bytes]) -> None:
        """Remove it."""
        _check_base(self.channel, self.base, current)
        Removal.merge(self, workspace, current, identities)


def _check_base(channel: str, base: bytes | None, current: Slot | None) -> None:
    # A slot is the value itself or its digest: equal bytes, equal value.
    if base != (None if current is None else current.data):
        message = f"channel {channel!r} was written by another commit since the mount began"
        raise ConflictError(message, channel=channel)


@contextmanager
def mounted(thread: Mountable, metadata: Mapping[str, Any] | None, *, is_lazy: bool) -> Iterator[Mount]:
    """Run a `with` block on a thread's state; see `Thread.mount`."""
    mount = open_mount(thread, is_lazy=is_lazy)
    yield mount
    commit_mount(thread, mount, metadata)


def open_mount(thread: Mountable, *, is_lazy: bool = False) -> Mount:
    """Return the head's state for changing."""
    head = thread.head
    tree = None if head is None else head.state.tree
    empty = empty_root(kernels.KIND_DICT)
    version = -1 if head is None else head.version
    tree = Tree(thread.workspace(), empty) if tree is None else tree
    return Mount(tree, thread.empty_value, version, is_lazy=is_lazy)


def commit_mount(thread: Mountable, mount: Mount, metadata: Mapping[str, Any] | None) -> Checkpoint | None:
    """Commit what changed in a mount as one checkpoint; None if nothing did.

    Raises:
        ConflictError: a changed channel was written by another commit since. Facts: thread, channel,
            expected_version (at which the mount began), actual_version.

    """
    writes = _writes(thread, mount)
    try:
        return thread.commit_writes(writes, metadata) if writes else None
    except ConflictError as error:
        facts = {"thread": thread.id, "expected_version": mount.base_version, "actual_version": thread.version}
        raise type(error)(error.message, **{**facts, **error.facts}) from error


def _writes(thread: Mountable, mount: Mount) -> list[Write]:
    """Return what changed in a mount as writes, encoded."""
    writes: list[Write] = []
    for channel, slot, loaded in mount.touched():
        base = None if slot is None else slot.data
        if loaded is None:
            writes.append(_RemoveChannel(channel, base=base))
            continue
        if thread.is_checked(channel):
            if not mount.is_other(loaded, slot):
                continue
            value = thread.check_mounted(channel, loaded)
            value.encode(channel)
        else:
            value = loaded
            if not mount.is_other(loaded, slot, channel):
                continue
        writes.append(_SetChannel(channel, base, value, thread.upsert_key(channel)))
    return writes


class _NothingChangedError(Exception):
    """Ends a commit that has nothing to say."""


def edit(
    thread: Mountable,
    change: Callable[[Mount], T],
    metadata: Mapping[str, Any] | None,
    *,
    expected_version: int | None,
    checkpoint_id: str | None,
    is_lazy: bool,
) -> T:
    """Change the head's state inside a commit; see `Thread.edit`."""
    if not callable(change):
        message = f"what edits a state is a function of it, not {change!r}"
        raise UsageError(message, argument="change", value=change)
    results: list[T] = []

    def writes_on(workspace: Workspace, head: Head | None) -> list[Write]:
        event = None if head is None else head.event
        root = (
            empty_root(kernels.KIND_DICT)
            if event is None
            else workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node)
        )
        mount = Mount(Tree(workspace, root), thread.empty_value, is_lazy=is_lazy)
        result = change(mount)
        writes = _writes(thread, mount)
        _refuse_update(thread, mount, result, is_changed=bool(writes))
        results[:] = [result]
        if not writes and not thread.is_in_transaction:  # there its place is kept: the real run may change something
            raise _NothingChangedError
        return writes

    with contextlib.suppress(_NothingChangedError):
        thread.commit_writes(writes_on, metadata, expected_version=expected_version, checkpoint_id=checkpoint_id)
    return results[0]


def _refuse_update(thread: Mountable, mount: Mount, result: object, *, is_changed: bool) -> None:
    """Refuse what looks like an update: what a function returns is not written."""
    if not isinstance(result, dict) or not result or not all(isinstance(key, str) for key in result):
        return
    if is_changed and not all(key in mount or thread.is_declared(key) for key in result):
        return
    keys = ", ".join(map(repr, list(result)[:3]))
    message = f"what edits a state changes it in place, and returned a dict of {keys}: write state.update(...) instead"
    raise UsageError(message, argument="change", value=result)
