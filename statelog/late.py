"""Names of a package that are imported when a program first asks for them (PEP 562).

A short process, such as a hook or a cron job, pays for every module that it loads. So this package loads what every
program needs at once, and the rest when it is used: inside a function by an import in that function, and in the face
of a package by `late_names`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def late_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: its name.
        modules: by module, the names that it defines; by the package itself, modules of the package.

    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        found = import_module(f"{package}.{name}") if module == package else getattr(import_module(module), name)
        setattr(sys.modules[package], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, list_names
