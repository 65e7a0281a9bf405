"""Kernels that take and make objects of Python's: `native/python/`, a second module in the kernels' library.

What cffi passes are bytes and numbers. Where half of the time went into taking these out of Python's objects, and
putting what came back into others, C does that, too.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

from statelog._kernels import __file__ as _library

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.kernels.step import Change


def _load() -> Any:
    loader = ExtensionFileLoader("statelog._objects", _library)
    module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
    loader.exec_module(module)
    return module


objects = _load()

bind_event: Callable[[type], None] = objects.bind_event
bind_checkpoint: Callable[..., None] = objects.bind_checkpoint
bind_writes: Callable[[type, dict[str, int], tuple[bytes, int, int], type], None] = objects.bind_writes
checkpoint: Callable[..., Any] = objects.checkpoint
"""Makes a checkpoint, and remembers it; None, and nothing was done, where a batch must.

Where the changes bring leaves of 4,096 bytes and up it returns their digests, joined, and has done nothing. If the
store has none of them, it is called again with the same changes and these as the last argument but one, which else is
None. The last is the checkpoint's id, None for one of the store's making.
"""

HELD_SIZE_BYTES_MAX = 16 * 1024
"""What is larger is not worked on under the interpreter's lock."""

write_held: Callable[[int, bytes, int], int] = objects.write_held
"""Writes (descriptor, bytes, offset), and returns how many bytes. Other threads of Python wait. Raises OSError."""

commit_alone: Callable[[tuple[object, ...], object, tuple[object, ...]], Any] = objects.commit_alone
"""Commits writes behind what waits, without a flush, and returns the checkpoint; None where Python must.

It returns all that `checkpoint` does where its nodes are still to be remembered. Arguments: what an environment is made
of (`storage.fast_path`), key items by channel, the cache; who commits; a `log.direct.DirectCommit`. Of None
nothing was done. It runs from begin to end without another thread or signal handler in between.
"""

commit_flushed: Callable[[tuple[object, ...], object, tuple[object, ...], object], Any] = objects.commit_flushed
"""Does the same of a commit that is to be durable. The last argument is its `storage.requests.Request`.

Raises:
    StorageError, CommitOutcomeUnknownError: as `Committer.submit`.
"""

encode_plain: Callable[[object, int], bytes | None] = objects.encode_plain
"""Returns the item of a value, which stands so deep in another; None where Python must encode it, or refuse it."""

plain_changes: Callable[..., list[Change] | None] = objects.plain_changes
"""Returns what writes change, ascending by key; None where `log.step.changes_of` must find that out.

Arguments: the writes; lists in memory by key item (`log.batch.Held`); key items by channel.
"""

prepare_plain: Callable[[object, dict[str, Any], dict[str, bytes], Any, type], list[Any] | None] = objects.prepare_plain
"""Returns the writes of an update of plain values; None where Python must make them, or refuse it.

Arguments: the update; (one of `SHAPE_*`, reducer) by channel; the channels whose names were checked; the same as the
second for any other channel, None if they are refused; the type of a write, a named tuple (`reducers.Prepared`).
"""

plain_commit: Callable[..., Any] = objects.plain_commit
"""Returns the commit (`log.direct.DirectCommit`) of such an update; None where it must be made by `writes`.

Arguments: the channels whose names were checked; the item of the channels written, by their names; (thread, branch,
whether it has no schema, second and fourth argument of `prepare_plain`, type of the commit); the update; metadata's
item; the version expected; the checkpoint's id.
"""

SHAPE_ITEM, SHAPE_ITEMS, SHAPE_ONE_ITEM, SHAPE_ITEMS_OR_ITEM = range(4)
"""What is made of a value: its item; a list's or tuple's items; a list of its item; a list's items, or its item."""

group_of_one: Callable[[bytes, int, int, int, bytes], bytes] = objects.group_of_one
"""Returns one record as a group of the journal: (session, epoch, LSN, flushed, record). FORMAT.md section 8."""

found_checkpoint: Callable[[bytes], Any] = objects.found_checkpoint
"""Returns what `version_find` has found as an event, and the checkpoint's digest; None if its id is none."""

version_checkpoint: Callable[[int, int, int, int, int, int], Any] = objects.version_checkpoint
"""Returns the same of what it looks up itself; None where it must be looked up by keys. Arguments as `version_find`."""

version_found: Callable[[int, int, int, int, int, int], bytes | None] = objects.version_found
"""Returns what it has found as `checkpoint` takes it for a parent."""
