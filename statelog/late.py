"""Names of a package that are imported when a program first asks for them (PEP 562).

A short process, such as a hook or a cron job, pays for every module that it loads. This package therefore loads at once
what a commit needs. A function imports the rest where it uses it, and a package whose names are used rarely gets its
`__getattr__` from `late_names`.
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
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: its name.
        names: by module, the names that the package takes from it.

    """
    module_of = {name: module for module, defined in names.items() for name in defined}

    def find(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        found = getattr(import_module(module), name)
        setattr(sys.modules[package], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, list_names
