"""Kernels that take and make objects of Python's: `native/python/`, a second module in the kernels' library.

What cffi passes are bytes and numbers. Where half of the time went into taking these out of Python's objects, and
putting what came back into others, C does that, too.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import TYPE_CHECKING, Any

from statelog._kernels import __file__ as _library

if TYPE_CHECKING:
    from collections.abc import Callable


def _load() -> Any:
    loader = ExtensionFileLoader("statelog._objects", _library)
    module = loader.create_module(ModuleSpec(loader.name, loader, origin=loader.path))
    loader.exec_module(module)
    return module


objects = _load()

encode_plain: Callable[[object, int], bytes | None] = objects.encode_plain
"""Returns the item of a value, which stands so deep in another; None where Python must encode it, or refuse it."""

freeze_items: Callable[[list[Any], dict[type, bool], Callable[[type], bool]], tuple[Any, ...]] = objects.freeze_items
"""Returns the items of a list, frozen, given which types are plain models, and what tells it of another."""

still_items: Callable[[tuple[Any, ...], list[Any]], tuple[int, int]] = objects.still_items
"""Returns how many items of a list freeze to the same from the beginning, and how many more from the end."""

join_texts: Callable[[list[bytes], bytes], str] = objects.join_texts
"""Returns a JSON array of the texts that stand behind a prefix in each item. Raises ValueError: one is no such item."""

copy_plain: Callable[[Any], Any] = objects.copy_plain
"""Returns a value with its lists and dicts made anew, all else shared. Raises RecursionError: deeper than 200."""
