"""Imports modules of the user's program for commands."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

from statelog.errors import UsageError


def import_here(name: str) -> Any:
    """Import a module, from the current directory if it is there. Send its output to stderr. Raises UsageError."""
    if not all(part.isidentifier() for part in name.split(".")):
        message = f"{name!r} is not the name of a module, such as flows or agents.flows"
        raise UsageError(message, argument="module", value=name)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        is_absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        if is_absent:
            ending = ": leave .py out" if name.endswith(".py") else ""
            message = f"no module {name!r} in {here} or among the installed modules{ending}"
        else:
            message = f"module {name!r} cannot be imported: {type(error).__name__}: {error}"
        raise UsageError(message, argument="module", value=name) from error
