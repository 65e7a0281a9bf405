"""Loads a package's public names on first use (PEP 562).

A short process, such as a hook or a cron job, pays for every module that it loads. So `import statelog` loads only the
modules that a commit needs. Functions import other modules where they use them. `late_names` creates the `__getattr__`
of a package whose remaining public names load on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def late_names(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package.

    Args:
        package: the name of the package.
        names: the names that the package exports, by their module. An empty tuple exports the module itself.
    """
    module_of = {name: module for module, defined in names.items() for name in defined}
    modules = {module.rpartition(".")[2]: module for module, defined in names.items() if not defined}
    module_of |= modules

    def find(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        loaded = import_module(module)
        found = loaded if name in modules else getattr(loaded, name)
        setattr(sys.modules[package], name, found)
        return found

    return find, listing(package)


def listing(module: str) -> Callable[[], list[str]]:
    """Return the function `__dir__` of a public module: it lists the names in `__all__`, and no others."""

    def list_names() -> list[str]:
        names = vars(sys.modules[module])
        return sorted([*names["__all__"], *(name for name in names if name.startswith("__"))])

    return list_names
