"""Mounts: a thread's state as a dict that the user changes in place and commits once.

A channel's value is read on first access as a plain value: a list is a `list` of any size. At the end, the values that
were read are encoded again, and differing channels are written. For a large value, only new nodes are written. A lazy
mount returns `MountList` and `MountMap` in place of large lists and dicts (`mutable.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from statelog import kernels
from statelog.errors import CheckError, ConflictError, UsageError, ValidationError
from statelog.format import cbor
from statelog.reducers import Overwrite, Removal
from statelog.store.encoded import plain
from statelog.store.mutable import Loaded, MountMap
from statelog.store.typed_views import typed_value
from statelog.tree import reduce
from statelog.tree.mapping import empty_root
from statelog.tree.node import ValueSlot, Workspace
from statelog.tree.tree import Tree
from statelog.tree.value import read_item

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from statelog.log.batch import Head
    from statelog.log.step import PreparedWrite, Redact
    from statelog.schema import Schema
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.fences import Fence
    from statelog.store.session import AnySession


T = TypeVar("T")


class _CommitWrites(Protocol):
    def __call__(
        self,
        prepared: list[PreparedWrite] | Callable[[Workspace, Head | None], list[PreparedWrite]],
        metadata: Mapping[str, Any] | None,
        *,
        expected_version: int | Checkpoint | None = None,
        checkpoint_id: str | None = None,
    ) -> Checkpoint:
        """Commit prepared writes, or writes that a function makes from the head within the commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mountable:
    """The parts of a thread that a mount uses: its head, the schema of its channels, and its commit."""

    id: str
    session: AnySession
    read_head: Callable[[], Checkpoint | None]
    read_version: Callable[[], int]
    read_tree: Callable[[Workspace, Head | None], Tree]
    """A function that returns the state of a head, within the commit that reads the head."""
    read_schema: Callable[[], Schema]
    """A function that returns the schema. After the head was read, this is the schema that the thread has stored."""
    commit_writes: _CommitWrites

    def empty_value(self, channel: str) -> object:
        """Return the initial empty value of a declared channel, or None."""
        return self.read_schema().empty_value(channel)

    def is_declared(self, channel: str) -> bool:
        """Return True if the schema declares a channel."""
        return channel in self.read_schema().channels

    def is_checked(self, channel: str) -> bool:
        """Return True if the schema checks a channel's values."""
        return self.read_schema().is_checked(channel)

    def is_typed(self, channel: str) -> bool:
        """Return True if a channel's stored values must be converted to their declared type when they are read."""
        return channel in self.read_schema().readings

    def check(self, channel: str, loaded: Loaded) -> Loaded:
        """Return a channel's value in the form that the schema accepts."""
        schema, mounted = self.read_schema(), loaded.mounted
        if mounted is not None:
            parts = mounted.parts(channel)
            if all(schema.validate_part(channel, path, plain(value)) for path, value in parts):
                return loaded
        checked = schema.validate_write(channel, Overwrite(plain(loaded.value)))
        assert isinstance(checked, Overwrite)
        return Loaded(checked.value)

    def load_typed(self, channel: str, stored: object) -> object:
        """Convert a stored value to its declared type, if storing the result would give the same value.

        Otherwise return it unchanged.

        This prevents the loss of a field that the type does not have. It also skips pydantic types that accept only
        text, but produce values that they do not accept.
        """
        typed = typed_value(channel, self.read_schema().readings.get(channel), stored)
        if typed is stored:
            return stored
        try:
            checked = self.read_schema().validate_write(channel, Overwrite(typed))
        except ValidationError:
            return stored
        assert isinstance(checked, Overwrite)
        return typed if cbor.encode(checked.value) == cbor.encode(stored) else stored

    def upsert_key(self, channel: str) -> bytes:
        """Return the item key of an upsert channel, or empty bytes for other channels."""
        return self.read_schema().reducer(channel).parameter.encode()


class _Holder(Protocol):
    def _mountable(self, fence: Fence | None = None) -> Mountable: ...


def mountable(thread: _Holder, fence: Fence | None = None) -> Mountable:
    """Return the parts of a user's thread that mounts use."""
    return thread._mountable(fence)  # noqa: SLF001 - the only access


_NO_SLOT = ValueSlot(b"\xf6")


class Mount(MountMap):
    """The state of a thread as a mutable dict.

    Values are plain: a list is a `list`, a dict is a `dict`. Changes at any depth are committed, including changes to
    lists and dicts that were read from the mount. A lazy mount has `MountList` and `MountMap` for large values.
    """

    __slots__ = ("_has_ended", "_is_lazy", "_thread", "base_version")

    def __init__(self, tree: Tree, thread: Mountable, version: int = -1, *, is_lazy: bool = False) -> None:
        super().__init__(tree, _NO_SLOT, Loaded(None))
        self.base_version = version
        self.origin.value = self
        self._thread = thread
        self._is_lazy = is_lazy
        self._has_ended = False

    def end(self) -> None:
        """End the mount. Later changes raise an error, because they would be lost."""
        self._has_ended = True

    def __setitem__(self, channel: str, value: Any) -> None:
        self._check_open(channel)
        super().__setitem__(channel, value)

    def __delitem__(self, channel: str) -> None:
        self._check_open(channel)
        super().__delitem__(channel)

    def _check_open(self, channel: str) -> None:
        if self._has_ended:
            message = f"channel {channel!r}: the mount or edit has ended, so this change would be lost"
            raise UsageError(message, channel=channel)

    def _load(self, slot: ValueSlot) -> Loaded:
        # The nodes of a migration's result are not stored yet, so read such a value whole.
        if self._is_lazy and (slot.lsn or not slot.is_ref):
            return super()._load(slot)
        item = read_item(self._tree.workspace, slot)
        return Loaded(cbor.decode(item), item)

    def _check_read(self, channel: str, value: Any) -> None:
        """Raise CheckError if a check hides a value, because a hidden value cannot be changed."""
        guard = self._thread.session.owner.guard
        if guard is None or guard.on_read is None:
            return
        from statelog.store.checked_views import check_mounted

        try:
            check_mounted(guard.on_read, plain(value), channel, self._thread.id)
        except CheckError:
            del self._loaded[channel]  # The next read must run the checks again.
            raise

    def __getitem__(self, channel: str) -> Any:
        """Return a channel's value. For a declared list, dict or set channel without a value, return an empty one."""
        is_first = channel not in self._loaded
        try:
            value = super().__getitem__(channel)
        except KeyError:
            empty = None if channel in self._removed else self._thread.empty_value(channel)
            if empty is None:
                raise
            self._loaded[channel] = Loaded(empty, cbor.encode(empty))
            return empty
        if is_first:
            self._check_read(channel, value)
        if is_first and self._thread.is_typed(channel):
            stored = plain(value)
            typed = self._thread.load_typed(channel, stored)
            if typed is not stored:
                self._loaded[channel] = Loaded(typed)
                return typed
        return value


@dataclass(frozen=True, slots=True)
class _SetChannel:
    """A write that sets a channel to the value from a mount.

    It raises ConflictError if another commit has written the channel since the mount began.
    """

    channel: str
    base: bytes | None
    loaded: Loaded
    key: bytes
    spec: str = "mount"
    operation: None = None
    payload: None = None
    parameter: str = ""

    def merge(self, workspace: Workspace, current: ValueSlot | None, _identities: dict[bytes, bytes]) -> ValueSlot:
        """Return the new slot."""
        _check_base(self.channel, self.base, current)
        mounted = self.loaded.mounted
        if mounted is not None:
            return mounted.store(workspace, top=True)
        assert self.loaded.final is not None
        return reduce.replace(workspace, current, self.loaded.final, key=self.key)

    def redacted(self, redact: Redact) -> _SetChannel:
        """Return the write with its secrets redacted. This reads a lazy list or dict completely."""
        item = self.loaded.final
        if item is None or self.loaded.mounted is not None:
            item = cbor.encode(plain(self.loaded.value), path=self.channel)
        made = redact(item, self.channel, self.loaded.stored_item())
        return self if made is item else replace(self, loaded=Loaded(None, final=made))


class _RemoveChannel(Removal):
    """A write that removes a channel, unless another commit has written the channel."""

    __slots__ = ("base",)

    def __init__(self, channel: str, base: bytes | None) -> None:
        super().__init__(channel)
        self.base = base

    def merge(self, workspace: Workspace, current: ValueSlot | None, identities: dict[bytes, bytes]) -> None:
        """Remove the channel."""
        _check_base(self.channel, self.base, current)
        Removal.merge(self, workspace, current, identities)


def _check_base(channel: str, base: bytes | None, current: ValueSlot | None) -> None:
    # A slot contains the value or its digest, so equal slots mean equal values.
    if base != (None if current is None else current.data):
        message = f"channel {channel!r} was written by another commit since the mount began"
        raise ConflictError(message, channel=channel)


class Mounted:
    """Runs a `with` block on a thread's state; see `Thread.mount`."""

    __slots__ = ("_is_lazy", "_metadata", "_mount", "_thread")

    def __init__(self, thread: Mountable, metadata: Mapping[str, Any] | None, *, is_lazy: bool) -> None:
        self._thread = thread
        self._metadata = metadata
        self._is_lazy = is_lazy
        self._mount: Mount | None = None

    def __enter__(self) -> Mount:
        self._mount = open_mount(self._thread, is_lazy=self._is_lazy)
        return self._mount

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._mount is not None
        try:
            if kind is None:
                commit_mount(self._thread, self._mount, self._metadata)
        finally:
            self._mount.end()

    def __getitem__(self, channel: str) -> NoReturn:
        raise _no_block(channel)

    def __setitem__(self, channel: str, _value: object) -> NoReturn:
        raise _no_block(channel)


def _no_block(channel: str) -> UsageError:
    message = f"channel {channel!r}: use a mount as a block: with thread.mount() as state: ..."
    return UsageError(message, channel=channel)


def open_mount(thread: Mountable, *, is_lazy: bool = False) -> Mount:
    """Return the head's state as a mount."""
    head = thread.read_head()
    tree = None if head is None else head.state.tree
    empty = empty_root(kernels.KIND_DICT)
    version = -1 if head is None else head.version
    tree = Tree(thread.session.workspace(), empty) if tree is None else tree
    return Mount(tree, thread, version, is_lazy=is_lazy)


def commit_mount(thread: Mountable, mount: Mount, metadata: Mapping[str, Any] | None) -> Checkpoint | None:
    """Commit the changes of a mount as one checkpoint. Return None if nothing changed.

    Raises:
        ConflictError: another commit has written a changed channel. Facts: thread, channel, expected_version
            (at which the mount began), actual_version.
    """
    writes = writes_of(thread, mount)
    try:
        return thread.commit_writes(writes, metadata) if writes else None
    except ConflictError as error:
        facts = {"thread": thread.id, "expected_version": mount.base_version, "actual_version": thread.read_version()}
        raise type(error)(error.message, **{**facts, **error.facts}) from error


def writes_of(thread: Mountable, mount: Mount) -> list[PreparedWrite]:
    """Return the changes of a mount as encoded writes."""
    writes: list[PreparedWrite] = []
    for channel, slot, loaded in mount.touched():
        base = None if slot is None else slot.data
        if loaded is None:
            writes.append(_RemoveChannel(channel, base=base))
            continue
        value = loaded
        if thread.is_checked(channel):
            if not mount.is_other(loaded, slot):
                continue
            value = thread.check(channel, loaded)
        if not mount.is_other(value, slot, channel):
            continue
        writes.append(_SetChannel(channel, base, value, thread.upsert_key(channel)))
    return writes


class _NothingChangedError(Exception):
    """Raised inside a commit that changes nothing, to end the commit."""


def edit(
    thread: Mountable,
    change: Callable[[Mount], T],
    metadata: Mapping[str, Any] | None,
    *,
    expected_version: int | Checkpoint | None,
    checkpoint_id: str | None,
    is_lazy: bool,
) -> T:
    """Change the head's state inside a commit; see `Thread.edit`."""
    if not callable(change):
        message = f"edit needs a function that changes the state, not {change!r}"
        raise UsageError(message, argument="change", value=change)
    results: list[T] = []

    def writes_on(workspace: Workspace, head: Head | None) -> list[PreparedWrite]:
        mount = Mount(thread.read_tree(workspace, head), thread, is_lazy=is_lazy)
        result = change(mount)
        if isinstance(result, Coroutine):
            result.close()
            message = (
                "edit needs a function that is not async, because it runs inside the commit: await values before"
                " calling edit"
            )
            raise UsageError(message, argument="change", value=change)
        writes = writes_of(thread, mount)
        mount.end()
        _refuse_update(thread, mount, result, is_changed=bool(writes))
        results[:] = [result]
        if not writes and thread.session.is_final:  # In a transaction, a later run may make changes.
            raise _NothingChangedError
        return writes

    with contextlib.suppress(_NothingChangedError):
        thread.commit_writes(writes_on, metadata, expected_version=expected_version, checkpoint_id=checkpoint_id)
    return results[0]


def _refuse_update(thread: Mountable, mount: Mount, result: object, *, is_changed: bool) -> None:
    """Raise UsageError if a function returned a dict that looks like an update, because the update would be lost."""
    if not isinstance(result, dict) or not result or not all(isinstance(key, str) for key in result):
        return
    if is_changed and not all(key in mount or key in thread.read_schema().channels for key in result):
        return
    keys = ", ".join(map(repr, list(result)[:3]))
    message = f"edit changes the state in place, but the function returned a dict of {keys}: write state.update(...)"
    raise UsageError(message, argument="change", value=result)
