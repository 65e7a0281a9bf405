"""What rooms above this one add to `observe` and to the crossings: modules that are found by name when they are needed.

Adapters stand on stores, and so above this room: it cannot import them (DESIGN.md). Each module here has

    observe(store)      what the adapter's own API shows of a store, as plain data
    FAMILIES            its families of acts, as in `statelog.testing.crossings.acts`
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MODULES = {"langgraph": ("statelog.adapters.langgraph.crossings", "langgraph")}
"""Module, and the package that it needs. Names of an adapter's own threads and channels begin with its name, `:`."""


@cache
def extensions() -> dict[str, Any]:
    """Return the modules whose packages are installed, by the name of their adapter. They are imported."""
    return {name: module for name in _MODULES if (module := extension(name)) is not None}


@cache
def extension(name: str) -> Any | None:
    """Return the module of an adapter, None if its package is not installed. It is imported."""
    module, package = _MODULES[name]
    return None if find_spec(package) is None else import_module(module)


def extension_names() -> tuple[str, ...]:
    """Return the names of all adapters that have such a module."""
    return tuple(_MODULES)
