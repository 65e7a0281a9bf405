"""Modules of adapters that extend `observe` and the crossings. They are imported by name when they are needed.

Adapters are in a layer above this package, so it cannot import them directly (DESIGN.md). Each such module has

    observe(store)      a function that returns what the adapter's own API shows of a store, as plain data
    FAMILIES            the adapter's families of acts (see `statelog.testing.crossings.acts`)
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MODULES = {"langgraph": ("statelog.adapters.langgraph.crossings", "langgraph")}
"""For each adapter, its module and the package that the module needs.

The names of an adapter's own threads and channels begin with its name and a colon.
"""


@cache
def extensions() -> dict[str, Any]:
    """Import the modules whose packages are installed. Return them, keyed by the names of their adapters."""
    return {name: module for name in _MODULES if (module := extension(name)) is not None}


@cache
def extension(name: str) -> Any | None:
    """Import and return the module of an adapter. Return None if its package is not installed."""
    module, package = _MODULES[name]
    return None if find_spec(package) is None else import_module(module)


def extension_names() -> tuple[str, ...]:
    """Return the names of all adapters with an extension module, whether or not their packages are installed."""
    return tuple(_MODULES)
