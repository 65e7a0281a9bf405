"""`statelog threads` and `statelog history`: list threads and checkpoints."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from statelog.cli.documents import checkpoint_document, thread_document
from statelog.cli.opened_stores import open_for_reading
from statelog.cli.options import ABSOLUTE, AS_JSON, BRANCH, IDS, INNER, STORE, THREAD
from statelog.cli.output import Output
from statelog.cli.targets import find_thread
from statelog.cli.text import escape, format_policy, shorten
from statelog.cli.values import render_pairs
from statelog.display.graphs import GRAPH_COLUMNS, graph_cells, is_checkpoint, is_graph

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Checkpoint, Thread

_CHANNELS_CHARACTERS_MAX = 120
_METADATA_CHARACTERS_MAX = 120
_SAID_CHARACTERS_MAX = 200
_THREADS_SHOWN = 1000
_WIDE = 100
"""The minimum width of a terminal that shows policies and channels."""


@click.command(short_help="List the threads.")
@STORE
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of threads, in order of creation.")
@ABSOLUTE
@AS_JSON
def threads(*, store: Path, limit: int | None, absolute: bool | None, as_json: bool) -> None:
    """List the threads of STORE."""
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        if as_json:
            for info in islice(opened.threads(), limit):
                output.emit(thread_document(info))
            return
        shown = _THREADS_SHOWN if limit is None else limit
        infos = list(islice(opened.threads(), shown + 1))
    kept = "kept" if any(info.policy for info in infos) else ""
    channels = "channels" if not kept or output.width >= _WIDE else ""
    rows = [
        (
            info.id,
            output.time(info.created),
            f"{info.branches:,}",
            f"{info.versions:,}",
            format_policy(info.policy),
            (", ".join(info.channels) or "any") if channels else "",
        )
        for info in infos[:shown]
    ]
    if not infos:
        output.line("no threads")
        return
    columns = ("thread", "created", "branches", "versions", kept, channels)
    output.table(columns, rows, right=("branches", "versions"), whole=("created",), name="thread")
    if len(infos) > shown:
        output.hint("there are more: use --limit to show them")


@click.command(short_help="List a thread's checkpoints.")
@STORE
@THREAD
@BRANCH
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Maximum number of versions.")
@click.option("--all", "show_all", is_flag=True, help="Show all versions, without a limit.")
@click.option("--before", type=int, metavar="VERSION", help="Only versions below this one.")
@IDS
@INNER
@ABSOLUTE
@AS_JSON
def history(
    *,
    store: Path,
    thread: str,
    branch: str | None,
    limit: int,
    show_all: bool,
    before: int | None,
    ids: bool,
    inner: bool,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """List the checkpoints of THREAD in STORE, newest first.

    For a LangGraph thread, show the node that ran, its message, the step and the source. --inner shows the metadata.
    """
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = find_thread(opened, thread, branch)
        checkpoints = found.history(None if show_all else limit, before=before)
        if as_json:
            for checkpoint in checkpoints:
                output.emit(checkpoint_document(checkpoint))
            return
        shown = list(checkpoints)
        print_history(output, found, shown, ids=ids, inner=inner)
        if shown and shown[-1].version > 0:
            output.hint(f"versions below {shown[-1].version}: --before {shown[-1].version}, or --all")
        for line in other_lines(found, shown[0] if shown else None):
            output.hint(f"another branch ends at {line}: show it with --branch {line}")


def other_lines(thread: Thread, shown: Checkpoint | None) -> list[str]:
    """Return the ids of the last checkpoints on the other branches, if this is a LangGraph thread's root graph."""
    if shown is None or not is_graph(shown.state):
        return []
    heads = [thread.checkout(each.name).head for each in thread.branches() if each.name.partition("@")[0] == "main"]
    ends = [each for each in heads if each is not None and each.branch != shown.branch and is_checkpoint(each.state)]
    return [each.id for each in ends]


def print_history(
    output: Output, thread: Thread, checkpoints: list[Checkpoint], *, ids: bool = False, inner: bool = False
) -> None:
    """Write a table of checkpoints. For LangGraph checkpoints, show their messages, unless `inner`."""
    is_of_graph = not inner and any(is_graph(each.state) for each in checkpoints)
    tags: dict[int, list[str]] = {}
    for name, tagged in thread.tags().items():
        tags.setdefault(tagged.lsn, []).append(name)
    rows = []
    for checkpoint in checkpoints:
        if is_of_graph and not is_graph(checkpoint.state):  # Skip the empty version that begins a branch.
            continue
        branch = checkpoint.branch
        what = [checkpoint.kind] if checkpoint.kind != "commit" else []
        what += [f"on {branch}"] if branch != thread.branch and not is_of_graph else []
        what += [f"tag {name}" for name in tags.get(checkpoint.lsn, ())]
        what += [f"schema {checkpoint.schema_version}"] if checkpoint.schema_version > 1 else []
        cells: tuple[str, ...] = (
            render_pairs(checkpoint.metadata, _METADATA_CHARACTERS_MAX),
            shorten(", ".join(checkpoint.channels_written), _CHANNELS_CHARACTERS_MAX),
        )
        if is_of_graph:
            cells = tuple(
                shorten(escape(cell), _SAID_CHARACTERS_MAX) for cell in graph_cells(checkpoint, checkpoint.parent)
            )
        start = (str(checkpoint.version), output.time(checkpoint.time), checkpoint.id if ids else "")
        rows.append((*start, ", ".join(what), *cells))
    names = GRAPH_COLUMNS if is_of_graph else ("metadata", "channels written")
    columns = ("version", "time", "id" if ids else "", "", *names)
    output.table(columns, rows, right=("version",), whole=("time", "id"))
