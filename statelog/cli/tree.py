"""`statelog tree`: draws branches, forks, rollbacks and tags as a timeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.completion import complete_thread
from statelog.cli.opened_stores import open_for_reading
from statelog.cli.options import ABSOLUTE, AS_JSON, INNER, STORE
from statelog.cli.output import Output
from statelog.cli.targets import find_thread
from statelog.cli.text import count, escape, shorten
from statelog.display.graphs import is_checkpoint, is_graph

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from statelog import Store, Thread
    from statelog.store.branches import BranchInfo

_THREADS_SHOWN = 20
_DEPTH_MAX = 8
"""The maximum depth of nested branches. Deeper branches are only counted."""

_DRAWN = ("├─ ", "└─ ", "│  ", "   ")
_ASCII = ("|- ", "`- ", "|  ", "   ")


@dataclass(slots=True)
class _Version:
    """A version that gets its own line."""

    time: datetime
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _DrawnBranch:
    """A branch in the drawing."""

    info: BranchInfo
    versions: dict[int, _Version] = field(default_factory=dict)
    """The versions to draw, in ascending order."""
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    children: dict[int, list[_DrawnBranch]] = field(default_factory=dict)
    """Branches off this branch, keyed by the version at which they begin."""
    label: str = ""
    """The name to draw instead of the branch's name."""
    earlier: int = 0
    """The number of rollbacks and tags before the first drawn one."""


@click.command(short_help="Draw branches, rollbacks and tags.")
@STORE
@click.argument("thread", required=False, shell_complete=complete_thread)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of marks drawn for each branch.",
)
@INNER
@ABSOLUTE
@AS_JSON
def tree(*, store: Path, thread: str | None, limit: int, inner: bool, absolute: bool | None, as_json: bool) -> None:
    """Draw the branches of THREAD in STORE, or of all threads, with forks, rollbacks and tags.

    Other versions are only counted. A branch is drawn below the version at which it begins. A branch of a LangGraph
    thread is named by the id of its last checkpoint.
    """
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        if thread is None:
            number = _draw_all(opened, output, limit, inner=inner)
            if not number and not as_json:
                output.line("no threads")
        elif not _draw_thread(opened, output, thread, limit, inner=inner):
            find_thread(opened, thread)  # The thread does not exist, so this raises an error.


def _draw_all(store: Store, output: Output, limit: int, *, inner: bool) -> int:
    """Draw the first threads, or with --json all threads. Return their number."""
    number = 0
    for info in store.threads():
        if number == _THREADS_SHOWN and not output.as_json:
            output.hint(f"only the first {_THREADS_SHOWN} threads are drawn: name a THREAD to draw another")
            break
        number += _draw_thread(store, output, info.id, limit, inner=inner, is_first=not number)
    return number


def _draw_thread(store: Store, output: Output, id: str, limit: int, *, inner: bool, is_first: bool = True) -> bool:
    """Draw a thread as it is at one moment, or write it as JSON. Return False if it does not exist."""
    with store.snapshot() as snapshot:
        thread = snapshot.thread(id)
        lines = _lines_of(thread, None if output.as_json else limit)
        if not lines:
            return False
        if output.as_json:
            document = _document(thread, lines)
        else:
            _name_lines(thread, lines, inner=inner)
    if output.as_json:
        output.emit(document)
        return True
    if not is_first:
        output.line()
    output.line(shorten(escape(id), output.width), style="bold")
    _draw(output, lines[0], "", 0)
    return True


def _lines_of(thread: Thread, limit: int | None) -> list[_DrawnBranch]:
    """Return a thread's branches in order of creation, with the versions to draw."""
    lines = [_DrawnBranch(info) for info in thread.branches()]
    by_name = {line.info.name: line for line in lines}
    bases: dict[str, set[int]] = {name: set() for name in by_name}
    for line in lines[1:]:
        owner = by_name[line.info.parent or ""]
        while owner.info.parent is not None and line.info.base_version <= owner.info.base_version:
            owner = by_name[owner.info.parent]
        owner.children.setdefault(line.info.base_version, []).append(line)
        bases[owner.info.name].add(line.info.base_version)
    tags: dict[tuple[str, int], list[str]] = {}
    for name, tagged in thread.tags().items():
        tags.setdefault((tagged.branch, tagged.version), []).append(f"tag {name}")
    for line in lines:
        _mark(thread, line, tags, bases[line.info.name], limit)
    return lines


def _name_lines(thread: Thread, lines: list[_DrawnBranch], *, inner: bool) -> None:
    """Name the branches of a LangGraph thread by their last checkpoints. Leave out its pending writes."""
    shown = thread.head
    if shown is None or not is_graph(shown.state):
        return
    for line in lines:
        head = thread.checkout(line.info.name).head
        if head is not None and line.info.name.partition("@")[0] == "main" and is_checkpoint(head.state):
            is_shown = head.branch == shown.branch
            line.label = f"{shown.id}, shown by LangGraph" if is_shown else head.id
    if not inner:
        for line in lines:
            for children in line.children.values():
                children[:] = [child for child in children if child.info.name != "writes"]


def _mark(
    thread: Thread, line: _DrawnBranch, tags: dict[tuple[str, int], list[str]], bases: set[int], limit: int | None
) -> None:
    """Find the versions of a branch that are drawn."""
    info = line.info
    marked: dict[int, _Version] = {}
    drawn = 0
    for checkpoint in thread.checkout(info.name).history():
        version = checkpoint.version
        if version <= info.base_version:
            break
        notes = list(tags.get((info.name, version), ()))
        if checkpoint.kind == "rollback":
            target = checkpoint.parent
            to: dict[str, Any] = {"version": version, "to_branch": None, "to_version": None}
            if target is not None:
                to |= {"to_branch": target.branch, "to_version": target.version}
                where = "" if target.branch == info.name else f"{target.branch}@"
                notes.insert(0, f"back to {where}{target.version}")
            else:
                notes.insert(0, "rollback")
            line.rollbacks.insert(0, to)
        if version == info.head_version:
            notes.insert(0, "head")
        drawn += bool(notes)
        is_cut = limit is not None and drawn > limit
        if version in bases or version == info.base_version + 1 or (notes and not is_cut):
            marked[version] = _Version(checkpoint.time, notes)
        else:
            line.earlier += bool(notes)
    line.versions = dict(sorted(marked.items()))


def _draw(output: Output, line: _DrawnBranch, prefix: str, depth: int) -> None:
    tee, end, down, blank = _DRAWN if output.can_draw else _ASCII
    info = line.info
    output.line(shorten(escape(f"{prefix}{line.label or info.name}"), output.width), style="cyan")
    inner = prefix.replace(tee, down).replace(end, blank)
    rows: list[tuple[str, int | None]] = []
    last = info.base_version
    dots = f", {count(line.earlier, 'mark')} among them" if line.earlier else ""
    for version, drawn in line.versions.items():
        if version > last + 1:
            rows.append((_span(last + 1, version - 1, dots), None))
            dots = ""
        rows.append((f"{version}  {output.time(drawn.time)}  {', '.join(drawn.notes)}".rstrip(), version))
        last = version
    for number, (text, at) in enumerate(rows):
        is_last = number == len(rows) - 1
        output.line(shorten(escape(f"{inner}{end if is_last else tee}{text}"), output.width))
        children = line.children.get(at, []) if at is not None else []
        below = inner + (blank if is_last else down)
        if children and depth == _DEPTH_MAX:
            output.line(f"{below}{end}{count(_count(children), 'more branch')}"[: output.width])
            continue
        for position, child in enumerate(children):
            _draw(output, child, below + (end if position == len(children) - 1 else tee), depth + 1)


def _span(first: int, last: int, dots: str) -> str:
    return f"{first}  {dots.removeprefix(', ')}".rstrip() if first == last else f"{first}-{last}{dots}"


def _count(lines: Iterable[_DrawnBranch]) -> int:
    """Return the number of branches in `lines`, including nested branches."""
    number = 0
    pending = list(lines)
    while pending:
        number += 1
        pending += [child for children in pending.pop().children.values() for child in children]
    return number


def _document(thread: Thread, lines: list[_DrawnBranch]) -> dict[str, Any]:
    return {
        "thread": thread.id,
        "branches": [
            {
                "name": line.info.name,
                "parent": line.info.parent,
                "base_version": line.info.base_version,
                "head_version": line.info.head_version,
                "rollbacks": line.rollbacks,
            }
            for line in lines
        ],
        "tags": {name: {"branch": tagged.branch, "version": tagged.version} for name, tagged in thread.tags().items()},
    }
