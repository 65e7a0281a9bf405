"""`statelog rollback`, `fork`, `copy` and `tag`: the commands that write."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_target, complete_thread
from statelog.cli.documents import checkpoint_document
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, AT, BRANCH, IDS, METADATA, STORE, THREAD, TargetsCommand
from statelog.cli.output import Output
from statelog.cli.targets import find_checkpoint, find_thread, parse_object
from statelog.cli.text import format_duration
from statelog.display.graphs import is_graph
from statelog.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@click.command(cls=TargetsCommand, short_help="Go back to an earlier state.")
@STORE
@THREAD
@click.argument("target", shell_complete=complete_target)
@BRANCH
@METADATA
@click.option("--expected-version", type=int, metavar="VERSION", help="Fail unless this is the head.")
@AS_JSON
def rollback(
    *,
    store: Path,
    thread: str,
    target: str,
    branch: str | None,
    metadata: str | None,
    expected_version: int | None,
    as_json: bool,
) -> None:
    """Restore the state of TARGET in THREAD of STORE, as a new version.

    Nothing is deleted: a rollback to the former head undoes the rollback. TARGET is a version,
    tag, id or time, as for `show --at`. LangGraph continues from the new version of its thread.
    """
    output = Output(as_json=as_json)
    parsed = parse_object(metadata, "--metadata")
    with open_for_writing(store) as opened:
        found = find_thread(opened, thread, branch)
        goal, before = find_checkpoint(found, target), found.head
        started = time.perf_counter()
        made = found.rollback(goal.id, metadata=parsed, expected_version=expected_version)
        duration_s = time.perf_counter() - started
        if as_json:
            output.emit(
                {
                    "checkpoint": checkpoint_document(made),
                    "target": checkpoint_document(goal),
                    "duration_s": round(duration_s, 6),
                }
            )
        elif is_graph(made.state) and before is not None and made.kind == "commit":
            output.say(
                f"LangGraph continues from checkpoint {made.id}, a copy of {goal.id}"
                f" ({format_duration(duration_s)}); undo: rollback to {before.id}"
            )
        else:
            output.say(
                f"version {made.version} of {found.branch} is version {goal.version} again"
                f" ({format_duration(duration_s)}); undo: rollback to {made.version - 1}"
            )


@click.command(short_help="Begin a branch.")
@STORE
@THREAD
@click.argument("name")
@BRANCH
@AT
@click.option(
    "--update", metavar="JSON", help="First commit of the branch: a JSON object of channels, @FILE, or - for stdin."
)
@METADATA
@AS_JSON
def fork(
    *,
    store: Path,
    thread: str,
    name: str,
    branch: str | None,
    at: str | None,
    update: str | None,
    metadata: str | None,
    as_json: bool,
) -> None:
    """Create branch NAME of THREAD in STORE. The branch shares everything up to a version."""
    output = Output(as_json=as_json)
    writes = parse_object(update, "--update")
    parsed = parse_object(metadata, "--metadata")
    with open_for_writing(store) as opened:
        found = find_thread(opened, thread, branch)
        base = find_checkpoint(found, at)
        made = found.fork(name, at=base.id, update=writes, metadata=parsed)
        head = find_checkpoint(made, None)
        if as_json:
            output.emit(
                {
                    "thread": thread,
                    "branch": name,
                    "base": checkpoint_document(base),
                    "head": checkpoint_document(head),
                }
            )
        else:
            output.say(
                f"branch {name} begins at version {base.version} of {base.branch}; its head is version {head.version}"
            )


@click.command(short_help="Copy a thread.")
@STORE
@click.argument("source", shell_complete=complete_thread)
@click.argument("target")
@AS_JSON
def copy(*, store: Path, source: str, target: str, as_json: bool) -> None:
    """Create thread TARGET in STORE with all branches, versions and tags of thread SOURCE.

    The threads share values, so the copy writes one small record per version. Later commits change one thread only.
    """
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        find_thread(opened, source)
        copied = opened.copy_thread(source, target)
        branches = [(branch.name, branch.head_version) for branch in copied.branches()]
        head = copied.head
        if as_json:
            output.emit(
                {
                    "source": source,
                    "thread": target,
                    "branches": [{"name": name, "head_version": version} for name, version in branches],
                    "head": None if head is None else checkpoint_document(head),
                }
            )
        else:
            version = branches[0][1] if head is None else head.version
            count = f"{len(branches)} branches" if len(branches) > 1 else "1 branch"
            output.say(f"thread {target} is a copy of {source}: {count}; its head is version {version}")


@click.command(short_help="Name checkpoints.")
@STORE
@THREAD
@click.argument("name", required=False, shell_complete=complete_target)
@BRANCH
@AT
@click.option("--remove", is_flag=True, help="Remove the tag.")
@IDS
@ABSOLUTE
@AS_JSON
def tag(
    *,
    store: Path,
    thread: str,
    name: str | None,
    branch: str | None,
    at: str | None,
    remove: bool,
    ids: bool,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """Tag a checkpoint of THREAD in STORE. Without NAME, list the tags.

    An existing tag NAME is moved.
    """
    output = Output(as_json=as_json, absolute=absolute)
    if name is None and (remove or at is not None):
        message = "tag: --at and --remove need the NAME of a tag"
        raise UsageError(message)
    if remove and at is not None:
        message = "tag: --remove cannot be used with --at: a tag is removed by its name"
        raise UsageError(message)
    if name is None:
        _list_tags(output, store, thread, ids=ids)
        return
    with open_for_writing(store) as opened:
        found = find_thread(opened, thread, branch)
        if remove:
            found.untag(name)
            if as_json:
                output.emit({"thread": thread, "tag": name, "checkpoint": None})
            else:
                output.line(f"tag {name} is removed")
            return
        tagged = found.tag(name, find_checkpoint(found, at).id)
        if as_json:
            output.emit({"thread": thread, "tag": name, "checkpoint": checkpoint_document(tagged)})
        else:
            output.say(f"tag {name} is version {tagged.version} of branch {tagged.branch}")


def _list_tags(output: Output, store: Path, thread: str, *, ids: bool) -> None:
    with open_for_reading(store) as opened:
        tags = find_thread(opened, thread).tags()
        if output.as_json:
            documents = {name: checkpoint_document(tagged) for name, tagged in tags.items()}
            output.emit({"thread": thread, "tags": documents})
            return
        rows = [
            (name, tagged.branch, str(tagged.version), output.time(tagged.time), tagged.id if ids else "")
            for name, tagged in tags.items()
        ]
    if rows:
        columns = ("tag", "branch", "version", "time", "id" if ids else "")
        output.table(columns, rows, right=("version",), whole=("time", "id"), name="tag")
    else:
        output.line("no tags")
