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


def _load() -> Any:
    loader = ExtensionFileLoader("statelog._objects", _library)
    module = module_from_spec(ModuleSpec(loader.name, loader, origin=loader.path))
    loader.exec_module(module)
    return module


objects = _load()

bind_writes: Callable[[type, dict[str, int], tuple[bytes, int, int], type], None] = objects.bind_writes
HELD_SIZE_BYTES_MAX = 16 * 1024
"""What is larger is not worked on under the interpreter's lock."""

check_item: Callable[[bytes], int | None] = objects.check_item
"""Returns None of one item of the CBOR profile, else where the innermost item that is wrong begins."""

split_small: Callable[[bytes], list[bytes] | bool | None] = objects.split_small
"""Returns what `msgpack.split_array` does; False where there are too many items for this."""

pack_array: Callable[[bytes, list[Any]], bytes | None] = objects.pack_array
"""Returns the item of a codec's value (its prefix) whose payload is a msgpack array: of texts, None as nil, bytes that
are msgpack already, and dicts as of `plain_item`. None of texts that are no UTF-8, of other types, and of more than
some 100 KB."""

plain_item: Callable[[bytes, object, int], bytes | None] = objects.plain_item
"""Returns the item of a codec's value whose payload is a value in msgpack: (prefix, value, how many bytes on average
the items of a list have that is split). Of a text, a bool, a number of 64 bits, of a list or a dict with texts for keys
of such and None, up to some depth and 16 KB; None of anything else, and of a list to be split, as an empty one is."""

plain_values: Callable[..., tuple[list[Any], dict[str, Any], list[str]] | None] = objects.plain_values
"""Returns the writes of a checkpoint's values, what channels hold then, and which are held no more; None where one is
not plain, or was changed elsewhere (`adapters.langgraph.putting.value_writes` says it for all cases).

Arguments: prefix; the item of None; as the last of `plain_item`; names in the store by channel, reducer of a write;
versions of all channels and of those that are new, values; versions and what is held of the checkpoint before, by name.
"""

plain_writes: Callable[
    [str, str, list[Any], dict[str, int], tuple[str, bytes], int], list[str | bytes | None] | None
] = objects.plain_writes
"""Returns the header of what a task has written (`adapters.langgraph.bundles`): (its id, its path, pairs of a channel
and a value, channels with numbers of their own, what stands for None, the last argument of `plain_item`). None where
there is one of these channels, or a value that `plain_item` does not take."""

spell_digest: Callable[[bytes, bytes, tuple[str, ...]], str | None] = objects.spell_digest
"""Returns bytes, and 64 bits of a digest of texts, in digits that sort: (16 bytes that set the digest apart, bytes,
texts). Bytes and digest together are a multiple of three. None of a text that is no UTF-8."""

uuid_time: Callable[[str], bytes] = objects.uuid_time
"""Returns the first 48 bits of a UUID in small letters: zeros of a text that does not begin as one."""

encode_plain: Callable[[object, int], bytes | None] = objects.encode_plain
"""Returns the item of a value, which stands so deep in another; None where Python must encode it, or refuse it."""

prepare_plain: Callable[[object, dict[str, Any], dict[str, bytes], Any, type], list[Any] | None] = objects.prepare_plain
"""Returns the writes of an update of plain values; None where Python must make them, or refuse it.

Arguments: the update; (one of `SHAPE_*`, reducer) by channel; the channels whose names were checked; the same as the
second for any other channel, None if they are refused; the type of a write, a named tuple (`reducers.Prepared`).
"""

SHAPE_ITEM, SHAPE_ITEMS, SHAPE_ONE_ITEM, SHAPE_ITEMS_OR_ITEM = range(4)
"""What is made of a value: its item; a list's or tuple's items; a list of its item; a list's items, or its item."""
