"""Kernels that take and return Python objects: `native/python/`, a second module in the kernels' library.

cffi passes only bytes and numbers. Where half of the time was spent converting Python objects, C
does the conversion, too.
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
"""Returns the encoded item of a value at a depth. Returns None if Python must encode or reject it."""

freeze_items: Callable[[list[Any], dict[type, bool], Callable[[type], bool]], tuple[Any, ...]] = objects.freeze_items
"""Returns the frozen items of a list.

The dict caches which types are plain models; the function decides for a new type.
"""

still_items: Callable[[tuple[Any, ...], list[Any]], tuple[int, int]] = objects.still_items
"""Returns how many items of a list still equal the frozen ones, counted from the beginning and from the end."""

join_texts: Callable[[list[bytes], bytes], str] = objects.join_texts
"""Returns a JSON array of the texts after a prefix in each item.

Raises ValueError if an item does not have this form.
"""

copy_plain: Callable[[Any], Any] = objects.copy_plain
"""Returns a value with copied lists and dicts. Others are shared. A depth over 200 raises RecursionError."""
