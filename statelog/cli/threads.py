"""`statelog threads` and `statelog history`: what there is."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from statelog.cli.documents import checkpoint_document, thread_document
from statelog.cli.opening import open_for_reading
from statelog.cli.options import ABSOLUTE, AS_JSON, BRANCH, IDS, STORE, THREAD
from statelog.cli.output import Output
from statelog.cli.targets import find_thread
from statelog.cli.text import format_policy, shorten
from statelog.cli.values import render_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Checkpoint, Thread

_CHANNELS_CHARACTERS_MAX = 120
_METADATA_CHARACTERS_MAX = 120
_THREADS_SHOWN = 1000
_WIDE = 100
"""Columns of text that have room for policies and channels."""


@click.command(short_help="List the threads.")
@STORE
@click.option("--limit", type=click.IntRange(min=0), help="At most so many, in order of creation.")
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
        output.hint("there are more: --limit says how many are shown")


@click.command(short_help="List a thread's checkpoints.")
@STORE
@THREAD
@BRANCH
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many.")
@click.option("--all", "show_all", is_flag=True, help="Back to version 0, whatever the limit.")
@click.option("--before", type=int, metavar="VERSION", help="Only versions below this one.")
@IDS
@ABSOLUTE
@AS_JSON
def history(
    *,
    store: Path,
    thread: str,
    branch: str,
    limit: int,
    show_all: bool,
    before: int | None,
    ids: bool,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """List the checkpoints of THREAD in STORE, newest first."""
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = find_thread(opened, thread, branch)
        checkpoints = found.history(None if show_all else limit, before=before)
        if as_json:
            for checkpoint in checkpoints:
                output.emit(checkpoint_document(checkpoint))
            return
        shown = list(checkpoints)
        print_history(output, found, shown, ids=ids)
        if shown and shown[-1].version > 0:
            output.hint(f"versions below {shown[-1].version}: --before {shown[-1].version}, or --all")


def print_history(output: Output, thread: Thread, checkpoints: list[Checkpoint], *, ids: bool = False) -> None:
    """Write a table of checkpoints."""
    tags: dict[int, list[str]] = {}
    for name, tagged in thread.tags().items():
        tags.setdefault(tagged.lsn, []).append(name)
    rows = []
    for checkpoint in checkpoints:
        branch = checkpoint.branch
        what = [checkpoint.kind] if checkpoint.kind != "commit" else []
        what += [f"on {branch}"] if branch != thread.branch else []
        what += [f"tag {name}" for name in tags.get(checkpoint.lsn, ())]
        rows.append(
            (
                str(checkpoint.version),
                output.time(checkpoint.time),
                checkpoint.id if ids else "",
                ", ".join(what),
                render_pairs(checkpoint.metadata, _METADATA_CHARACTERS_MAX),
                shorten(", ".join(checkpoint.channels_written), _CHANNELS_CHARACTERS_MAX),
            )
        )
    columns = ("version", "time", "id" if ids else "", "", "metadata", "channels written")
    output.table(columns, rows, right=("version",), whole=("time", "id"))
