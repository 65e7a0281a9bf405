"""`statelog diff`: what changed between two checkpoints."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

import statelog
from statelog.cli.documents import change_document, checkpoint_document
from statelog.cli.opening import open_for_reading
from statelog.cli.options import AS_JSON, BRANCH, STORE, THREAD
from statelog.cli.output import Output
from statelog.cli.paths import format_path
from statelog.cli.targets import find_checkpoint, find_side, find_thread
from statelog.cli.text import count
from statelog.cli.values import render

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from statelog import Change

_VALUE_CHARACTERS_MAX = 160
_VALUE_FULL_CHARACTERS_MAX = 2**40
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@click.command(short_help="Show what changed between two checkpoints.")
@STORE
@THREAD
@click.argument("old", required=False)
@click.argument("new", required=False)
@BRANCH
@click.option("--limit", type=click.IntRange(min=0), default=200, show_default=True, help="Changes shown.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
@AS_JSON
def diff(
    *, store: Path, thread: str, old: str | None, new: str | None, branch: str, limit: int, full: bool, as_json: bool
) -> None:
    """Show what changed in THREAD of STORE from OLD to NEW.

    Each is a target as of --at in `show`, a branch (its head), or BRANCH@TARGET. NEW is the
    head if left out, OLD the checkpoint that NEW was made from.
    """
    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = find_thread(opened, thread, branch)
        after = find_checkpoint(found, None) if new is None else find_side(found, new)
        before = after.parent if old is None else find_side(found, old)
        changes = statelog.diff(before, after)
        if as_json:
            output.emit(
                {
                    "old": None if before is None else checkpoint_document(before),
                    "new": checkpoint_document(after),
                    "changes": [change_document(change) for change in changes],
                }
            )
            return
        start = "nothing" if before is None else f"{before.branch}@{before.version}"
        output.hint(f"from {start} to {after.branch}@{after.version}: {count(len(changes), 'change')}")
        size = _VALUE_FULL_CHARACTERS_MAX if full else _VALUE_CHARACTERS_MAX
        print_changes(output, islice(changes, None if full else limit), characters_max=size)
        if not full and len(changes) > limit:
            output.hint(f"{len(changes) - limit:,} more: --limit, or --full")


def print_changes(
    output: Output, changes: Iterable[Change], *, characters_max: int = _VALUE_CHARACTERS_MAX, indent: str = ""
) -> None:
    """Write changes, one per line: `+ path: new`, `- path: old`, `~ path: old -> new`."""
    for change in changes:
        sides = [] if change.kind == "added" else [render(change.old, characters_max)]
        sides += [] if change.kind == "removed" else [render(change.new, characters_max)]
        line = f"{indent}{_SIGNS[change.kind]} {format_path(change.path)}: {' -> '.join(sides)}"
        output.line(line, style=_STYLES[change.kind])
