"""`statelog show`: the state at a version, or one value in it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.documents import checkpoint_document
from statelog.cli.opened_stores import open_for_reading
from statelog.cli.options import ABSOLUTE, AS_JSON, AT, BRANCH, INCLUDE_QUARANTINED, INNER, STORE, THREAD
from statelog.cli.output import Output
from statelog.cli.paths import follow_path, format_path
from statelog.cli.targets import find_checkpoint, find_thread
from statelog.cli.values import describe, render, to_json
from statelog.display.graphs import is_graph, shown_names
from statelog.display.packed import Constructed, unpacked
from statelog.format.cbor import reading_unregistered
from statelog.store.views import ListView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PREVIEW_CHARACTERS_MAX = 100
_FULL_CHARACTERS_MAX = 2**40
_TEXT_CHARACTERS_MAX = 8000


@click.command(short_help="Show the state at a version, or one value in it.")
@STORE
@THREAD
@BRANCH
@AT
@click.option("--path", metavar="PATH", help='One value: messages[3].content, notes["a.b"], messages[-5:].')
@click.option(
    "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Maximum number of members shown."
)
@click.option("--full", is_flag=True, help="Shorten nothing.")
@INNER
@INCLUDE_QUARANTINED
@ABSOLUTE
@AS_JSON
def show(
    *,
    store: Path,
    thread: str,
    branch: str | None,
    at: str | None,
    path: str | None,
    limit: int,
    full: bool,
    inner: bool,
    include_quarantined: bool,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """Show the state of THREAD in STORE, or the value at PATH in it.

    With --path, only values on the path are read, which is fast in a large state.
    --json writes the whole value.
    """
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        checkpoint = find_checkpoint(find_thread(opened, thread, branch, include_quarantined=include_quarantined), at)
        with reading_unregistered() as unknown:
            value = checkpoint.state.lazy if path is None else follow_path(checkpoint.state.lazy, path)
            if as_json:
                output.emit({"checkpoint": checkpoint_document(checkpoint), "path": path, "value": to_json(value)})
            else:
                if path is None:
                    if not inner and is_graph(value):
                        value = {name: value[name] for name in shown_names(value)}
                    schema = checkpoint.schema_version
                    output.hint(
                        f"thread {thread}, branch {checkpoint.branch}, version {checkpoint.version},"
                        f" {output.time(checkpoint.time)}" + (f", schema version {schema}" if schema > 1 else "")
                    )
                _print_value(output, value, path, limit=limit, full=full)
        for name in sorted(unknown):  # Only the agent's process has registered the codec.
            output.note(f"values of codec {name!r} are shown as stored: the codec is not registered here")


def _print_value(output: Output, value: Any, path: str | None, *, limit: int, full: bool) -> None:
    value = unpacked(value)
    if isinstance(value, Constructed) and isinstance(value.fields, dict):
        output.hint(value.name)
        value = value.fields
    if isinstance(value, Mapping | ListView | list | tuple):
        _print_members(output, value, _first_position(path), limit=None if full else limit, full=full)
    else:
        _print_scalar(output, value, full=full)


def _first_position(path: str | None) -> int:
    """Return the index of the first item shown, which is the start of a slice at the end of the path."""
    start = path.rpartition("[")[2].partition(":")[0] if path is not None and path.endswith("]") and ":" in path else ""
    return int(start) if start.isascii() and start.isdigit() else 0


def _print_members(output: Output, value: Any, first: int, *, limit: int | None, full: bool) -> None:
    if not value:
        output.line(f"{describe(value)}")
        return
    characters_max = _FULL_CHARACTERS_MAX if full else _PREVIEW_CHARACTERS_MAX
    rows = [
        (name, describe(member), render(member, characters_max))
        for name, member in islice(_members(value, first), limit)
    ]
    if full:
        for name, kind, text in rows:
            output.line(f"{name}  {kind}  {text}")
    else:
        output.table(("key" if isinstance(value, Mapping) else "position", "type", "value"), rows)
    if limit is not None and len(value) > limit:
        output.hint(f"{len(value) - limit:,} more of {describe(value)}: --limit, --full, or --path")


def _members(value: Any, first: int) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each member. Items of a sequence are numbered from `first`."""
    if not isinstance(value, Mapping):
        for position, item in enumerate(value, first):
            yield str(position), item
        return
    for key in value:
        yield format_path((key,)), value[key]


def _print_scalar(output: Output, value: object, *, full: bool) -> None:
    if not isinstance(value, str):
        output.line(render(value, _FULL_CHARACTERS_MAX if full else _TEXT_CHARACTERS_MAX))
    else:
        output.block(value if full else value[:_TEXT_CHARACTERS_MAX])
    size = len(value) if isinstance(value, str | bytes | set | frozenset) else 0
    if not full and size > _TEXT_CHARACTERS_MAX:
        output.hint(f"the first {_TEXT_CHARACTERS_MAX:,} of {describe(value)}: --full, or --path '...[8000:16000]'")
