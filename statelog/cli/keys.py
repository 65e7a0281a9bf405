"""Reads keys of stores for the shell: from environment variables and files, never from the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from statelog.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE_DEFAULT = "STATELOG_KEY"
_NAME = f"{__name__}.variable"


def remember_variable(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    """Remember the variable's name from --key-env until this command opens a store."""
    context.meta[_NAME] = name


def key_variable() -> str:
    """Return the name of the variable that has the store's key, or an empty string if the command has no key."""
    context = click.get_current_context(silent=True)
    named: str | None = None if context is None else context.meta.get(_NAME)
    if named is None and VARIABLE_DEFAULT in os.environ:
        return VARIABLE_DEFAULT
    return named or ""


def read_variable(name: str) -> str | None:
    """Return the key in an environment variable, or None if the name is empty.

    Raises:
        UsageError: the environment does not have the variable. Facts: variable.
    """
    if not name:
        return None
    key = os.environ.get(name)
    if key is None:
        message = f"the environment has no variable {name!r}"
        raise UsageError(message, variable=name)
    return key


def read_key_file(path: Path) -> bytes:
    """Return the key in a file, without trailing line breaks."""
    return path.read_bytes().rstrip(b"\r\n")
