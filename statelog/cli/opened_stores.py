"""Opens stores for commands, with --max-size or the size that the address space allows."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import click

import statelog
from statelog.cli.keys import key_variable, read_variable
from statelog.cli.text import parse_size
from statelog.errors import GuardError, StorageError, StoreFullError
from statelog.limits import MAX_SIZE_BYTES_DEFAULT, MAX_SIZE_BYTES_MIN

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Store

_STORES_MAX = 4
"""The number of stores that must fit into the address space. `compact` and `recover` open two at a time."""

_SIZE = f"{__name__}.size"


def remember_size(context: click.Context, _parameter: click.Parameter, text: str | None) -> None:
    """Remember --max-size until this command opens a store."""
    size_bytes = None if text is None else parse_size(text)
    if text is not None and size_bytes is None:
        message = f"{text!r} is not a size such as 64M, 2G or 1048576"
        raise click.BadParameter(message)
    if size_bytes is not None and size_bytes < MAX_SIZE_BYTES_MIN:
        message = f"{text!r} is less than a store needs, {MAX_SIZE_BYTES_MIN:,} bytes"
        raise click.BadParameter(message)
    context.meta[_SIZE] = size_bytes


def size_asked_for() -> int | None:
    """Return the --max-size of the running command, or None."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_SIZE)


def _addresses_max() -> int:
    """Return the limit of this process's address space in bytes."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return MAX_SIZE_BYTES_DEFAULT if limit == resource.RLIM_INFINITY else limit


def open_for_reading(
    path: Path, *, max_size_bytes: int | None = None, expect: bytes | None = None, **options: Any
) -> Store:
    """Open an existing store read-only."""
    return open_store(path, max_size_bytes=max_size_bytes, read_only=True, expect=expect, **options)


def open_for_writing(path: Path) -> Store:
    """Open an existing store for writing."""
    return open_store(path, create=False)


def open_store(path: Path, *, max_size_bytes: int | None = None, **options: Any) -> Store:
    """Open a store, as `statelog.open`.

    Args:
        path: the file.
        max_size_bytes: the quota. By default, --max-size. Without --max-size, the library's default, reduced if the
            address space is smaller (`ulimit -v`, a small container).
        options: options of `statelog.open`. By default, `key` is the key of the command.

    Raises:
        StatelogError: as `statelog.open`.
    """
    if "key" not in options:
        options["key"] = read_variable(key_variable())
    if "guard" not in options and not options.get("read_only"):
        try:
            return open_store(path, max_size_bytes=max_size_bytes, guard=None, **options)
        except (
            GuardError
        ):  # The store has a guard. Its rules belong to the program, so a command uses the library's rules.
            return open_store(path, max_size_bytes=max_size_bytes, guard=statelog.Guard(), **options)
    asked = size_asked_for() if max_size_bytes is None else max_size_bytes
    if asked is not None:
        return statelog.open(path, max_size_bytes=asked, **options)
    size_bytes = MAX_SIZE_BYTES_DEFAULT
    while True:
        try:
            return statelog.open(path, max_size_bytes=size_bytes, **options)
        except StorageError as error:
            size_bytes = min(size_bytes // 2, _addresses_max() // _STORES_MAX)
            is_for_want_of_addresses = "max_size_bytes" in error.facts and not isinstance(error, StoreFullError)
            if not is_for_want_of_addresses or size_bytes < MAX_SIZE_BYTES_MIN:
                raise
