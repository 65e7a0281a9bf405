"""`statelog diff`: what changed between two checkpoints."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice
from typing import TYPE_CHECKING

import click

from statelog.adapters.langgraph.deltas import find_changes
from statelog.cli.completion import complete_side
from statelog.cli.documents import change_document, checkpoint_document
from statelog.cli.opened_stores import open_for_reading
from statelog.cli.options import AS_JSON, BRANCH, INNER, STORE, THREAD, TargetsCommand
from statelog.cli.output import Output
from statelog.cli.paths import format_path
from statelog.cli.targets import find_checkpoint, find_side, find_thread
from statelog.cli.text import ELLIPSIS, count, escape, shorten
from statelog.cli.textdiff import compare_texts
from statelog.cli.values import render
from statelog.display.graphs import is_graph, is_inner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from statelog import Change, Checkpoint

_VALUE_CHARACTERS_MIN = 20
_VALUE_FULL_CHARACTERS_MAX = 2**40
_LINES_MAX = 20
"""The maximum number of lines shown for one changed text."""

_ARROW = " -> "
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
_TEXT_STYLES = {"+": "green", "-": "red"}
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@click.command(cls=TargetsCommand, short_help="Show what changed between two checkpoints.")
@STORE
@THREAD
@click.argument("old", required=False, shell_complete=complete_side)
@click.argument("new", required=False, shell_complete=complete_side)
@BRANCH
@click.option("--limit", type=click.IntRange(min=0), default=200, show_default=True, help="Changes shown.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
@INNER
@AS_JSON
def diff(
    *,
    store: Path,
    thread: str,
    old: str | None,
    new: str | None,
    branch: str | None,
    limit: int,
    full: bool,
    inner: bool,
    as_json: bool,
) -> None:
    """Show what changed in THREAD of STORE from OLD to NEW.

    OLD and NEW are targets as for `show --at`, a branch (its head), or BRANCH@TARGET. The
    default of NEW is the head. The default of OLD is the parent of NEW.
    """
    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = find_thread(opened, thread, branch)
        after = find_checkpoint(found, None) if new is None else find_side(found, new)
        before = after.parent if old is None else find_side(found, old)
        changes = find_changes(opened, before, after)
        if as_json:
            output.emit(
                {
                    "old": None if before is None else checkpoint_document(before),
                    "new": checkpoint_document(after),
                    "changes": [change_document(change) for change in changes],
                }
            )
            return
        is_of_graph = is_graph(after.state)
        is_part = is_of_graph and not inner
        shown = [change for change in changes if not is_part or not is_inner(str(change.path[0]))]
        names = [_name(each, is_of_graph=is_of_graph) for each in (before, after)]
        output.hint(f"from {names[0]} to {names[1]}: {count(len(shown), 'change')}")
        print_changes(output, islice(shown, None if full else limit), full=full)
        if not full and len(shown) > limit:
            output.hint(f"{len(shown) - limit:,} more: --limit, or --full")


def _name(checkpoint: Checkpoint | None, *, is_of_graph: bool) -> str:
    if checkpoint is None:
        return "nothing"
    return checkpoint.id if is_of_graph else f"{checkpoint.branch}@{checkpoint.version}"


def print_changes(output: Output, changes: Iterable[Change], *, full: bool = False) -> None:
    """Write changes, grouped by channel: `+ path: new`, `- path: old`, `~ path: old -> new`.

    For a changed text that is long or has several lines, only the differing lines are shown.
    """
    for channel, group in groupby(changes, key=lambda change: change.path[0]):
        of_channel = list(group)
        if len(of_channel) == 1:
            _print_change(output, of_channel[0], format_path(of_channel[0].path), full=full, indent="")
            continue
        kinds = Counter(change.kind for change in of_channel)
        counts = ", ".join(f"{kinds[kind]:,} {kind}" for kind in _SIGNS if kinds[kind])
        output.line(f"{format_path((channel,))}: {counts}")
        for change in of_channel:
            _print_change(output, change, format_path(change.path[1:]), full=full, indent="  ")


def _print_change(output: Output, change: Change, name: str, *, full: bool, indent: str) -> None:
    style = _STYLES[change.kind]
    start = f"{indent}{_SIGNS[change.kind]} {name or '(all of it)'}: "
    room = _VALUE_FULL_CHARACTERS_MAX if full else max(output.width - len(escape(start)), _VALUE_CHARACTERS_MIN)
    if change.kind != "changed":
        output.line(start + render(change.new if change.kind == "added" else change.old, room), style=style)
        return
    if isinstance(change.old, str) and isinstance(change.new, str):
        line = f"{change.old!r} -> {change.new!r}"
        if len(line) > min(room, output.width) or len(change.old.splitlines()) > 1 or len(change.new.splitlines()) > 1:
            output.line(f"{start}text, {len(change.old):,} -> {count(len(change.new), 'character')}", style=style)
            _print_text(output, change.old, change.new, f"{indent}    ", full=full)
            return
    old, new = render(change.old, room), render(change.new, room)
    room -= len(_ARROW)
    if len(old) + len(new) > room:  # The longer text gets the room that the shorter one leaves.
        sizes = [max(room // 2, room - len(other)) for other in (new, old)]
        old, new = shorten(old, sizes[0]), shorten(new, sizes[1])
    output.line(f"{start}{old}{_ARROW}{new}", style=style)


def _print_text(output: Output, old: str, new: str, indent: str, *, full: bool) -> None:
    width = None if full else max(output.width - len(indent) - 2, _VALUE_CHARACTERS_MIN)
    lines = compare_texts(old, new, width)
    for sign, line in islice(lines, None if full else _LINES_MAX):
        output.line(f"{indent}{sign} {line}", style=_TEXT_STYLES.get(sign, ""))
    if not full and (left := sum(1 for _line in lines)):
        output.line(f"{indent}  {ELLIPSIS} {count(left, 'line')} more: --full", style="dim")
