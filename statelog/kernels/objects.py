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

encode_plain: Callable[[object, int], bytes | None] = objects.encode_plain
"""Returns the item of a value, which stands so deep in another; None where Python must encode it, or refuse it."""

prepare_plain: Callable[[object, dict[str, Any], dict[str, bytes], Any, type], list[Any] | None] = objects.prepare_plain
"""Returns the writes of an update of plain values; None where Python must make them, or refuse it.

Arguments: the update; (one of `SHAPE_*`, reducer) by channel; the channels whose names were checked; the same as the
second for any other channel, None if they are refused; the type of a write, a named tuple (`reducers.Prepared`).
"""

SHAPE_ITEM, SHAPE_ITEMS, SHAPE_ONE_ITEM, SHAPE_ITEMS_OR_ITEM = range(4)
"""What is made of a value: its item; a list's or tuple's items; a list of its item; a list's items, or its item."""
