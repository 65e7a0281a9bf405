"""Kernels that take and return Python objects. `native/python/` is a second module in the kernels' shared library.

cffi passes only bytes and numbers. Where Python spent half of the time on converting objects, C also converts them.
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
"""A function that encodes a value nested at a depth. It returns None if Python must encode or reject the value."""

freeze_items: Callable[[list[Any], dict[type, bool], Callable[[type], bool]], tuple[Any, ...]] = objects.freeze_items
"""A function that returns the frozen items of a list.

The dict caches whether a type is a plain model. The function argument decides this for a new type.
"""

still_items: Callable[[tuple[Any, ...], list[Any]], tuple[int, int]] = objects.still_items
"""A function that counts the items of a list that still equal the frozen items, at the beginning and at the end."""

join_texts: Callable[[list[bytes], bytes], str] = objects.join_texts
"""A function that returns a JSON array of the texts that follow a prefix in each item.

Raises ValueError if an item does not have this form.
"""

copy_plain: Callable[[Any], Any] = objects.copy_plain
"""A function that copies the lists and dicts in a value, and shares all other objects. It raises RecursionError if the
value has more than 200 levels.
"""
