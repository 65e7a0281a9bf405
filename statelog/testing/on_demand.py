"""Imports the names of `statelog.testing` that need Hypothesis when they are first used.

The crash harness does not need Hypothesis, so `statelog crashtest` runs wherever statelog is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def on_demand(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that imports names when they are first used.

    Args:
        package: the package that gets the `__getattr__`.
        modules: for each module of the package, the names to import from it.

    Returns:
        A function that returns the object with a name. It raises AttributeError for other names. Without Hypothesis,
        it raises ModuleNotFoundError, which names the extra to install.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        try:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "hypothesis":
                raise
            message = f"{package}.{name} needs Hypothesis: pip install 'statelog[test]'"
            raise ModuleNotFoundError(message, name="hypothesis") from error

    return get
