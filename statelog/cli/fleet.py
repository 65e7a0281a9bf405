"""`statelog fleet`: stores that outlive their machine, in a bucket, a folder or Postgres."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli import exits
from statelog.cli.keys import key_variable, read_variable
from statelog.cli.logs import of_thread, write_record
from statelog.cli.options import AS_JSON, KEY_ENV, Command
from statelog.cli.output import Output
from statelog.cli.replacing import opened_for_replacing, refuse_files_of
from statelog.cli.text import count
from statelog.cli.values import to_json
from statelog.errors import CorruptionError, NotFoundError, UsageError
from statelog.redaction import redacted_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Store
    from statelog.fleet.fleet import Fleet, Stranded
    from statelog.log.reader import LogRecord

_URL = click.argument("url")
_NAME = click.argument("name")
_CACHE_FOLDER = click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".statelog-fleet"),
    show_default=True,
    help="Where this machine keeps its copies.",
)


def _CACHE(command: Command) -> Command:  # noqa: N802 - it is a decorator as the others here
    """Give a command --cache and --key-env."""
    return _CACHE_FOLDER(KEY_ENV(command))


def connect_fleet(url: str, cache: Path) -> Fleet:
    """Connect to the storage of a fleet, with the key that the environment names."""
    connected: Fleet = _import("connecting").connect(url, cache, key=read_variable(key_variable()))
    return connected


def _import(module: str) -> Any:
    """Return a module of the fleet, whose packages most who run commands do not have."""
    try:
        return import_module(f"statelog.fleet.{module}")
    except ImportError as error:
        message = f"{error.name} is not installed: pip install 'statelog[fleet]'"
        raise UsageError(message, package=error.name) from error


@click.group("fleet", short_help="Stores in a bucket, a folder or Postgres.")
def fleet() -> None:
    """Look after stores that are shipped to URL: file:///folder, s3://, gs://, az:// or postgresql://.

    What opens a bucket is taken from the environment, as AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID.
    """


@fleet.command("ls", short_help="List the stores.")
@_URL
@_CACHE
@AS_JSON
def ls(*, url: str, cache: Path, as_json: bool) -> None:
    """List the stores of a fleet, each with its owner."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        found = opened.stores()
    if as_json:
        for each in found:
            output.emit(asdict(each))
        return
    rows = [
        [each.name, each.state, str(each.epoch), "" if each.lsn is None else str(each.lsn), each.owner]
        for each in found
    ]
    output.table(["name", "state", "epoch", "lsn", "owner"], rows, right=["epoch", "lsn"])


@fleet.command("status", short_help="Tell who owns a store.")
@_URL
@_NAME
@_CACHE
@AS_JSON
def status(*, url: str, name: str, cache: Path, as_json: bool) -> None:
    """Tell who owns the store NAME, and up to where its log is written down."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        found = opened.status(name)
    if as_json:
        output.emit(asdict(found))
    else:
        end = "it goes on" if found.lsn is None else f"up to LSN {found.lsn}"
        output.line(f"{found.name}: {found.state}, {end}, epoch {found.epoch}, {found.owner}")


@fleet.command("restore", short_help="Make a file of a store.")
@_URL
@_NAME
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--at", metavar="LSN|TIME", help="As it was at an LSN, or at a time with its zone.")
@_CACHE
@AS_JSON
def restore(*, url: str, name: str, path: Path, at: str | None, cache: Path, as_json: bool) -> None:
    """Make the file PATH of the store NAME. Nothing ships it."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        opened.restore(name, path, at=_parse_at(at))
    if as_json:
        output.emit({"name": name, "path": str(path)})
    else:
        output.line(f"{name} -> {path}")


@fleet.command("follow", short_help="Print what a store commits, as it arrives.")
@_URL
@_NAME
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="LSN", help="Only records above this number.")
@click.option("--thread", metavar="ID", help="Only records of this thread.")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after so many.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="Stop after so long a wait.")
@click.option("--poll", "poll_s", type=float, default=1, show_default=True, metavar="SECONDS", help="Look so often.")
@_CACHE
@AS_JSON
def follow(
    *,
    url: str,
    name: str,
    after: int,
    thread: str | None,
    limit: int | None,
    timeout_s: float | None,
    poll_s: float,
    cache: Path,
    as_json: bool,
) -> None:
    """Print the event log of the store NAME in order, as `statelog log --follow` does, and what its owner ships.

    It ends with Ctrl-C, and when the store is deleted.
    """
    output = Output(as_json=as_json, absolute=True)
    with _ended_by_sigterm(), connect_fleet(url, cache) as opened, opened.follow(name, poll_s=poll_s) as copy:
        for record in islice(of_thread(_arriving(copy, after, timeout_s), thread), limit):
            write_record(record, output)
            sys.stdout.flush()


def _arriving(copy: Store, after: int, timeout_s: float | None) -> Iterator[LogRecord]:
    """Yield the records of a copy as they come. Raises what ends its following."""
    is_more = True
    while is_more:
        end = copy.last_lsn
        for record in copy.log(after):
            after = record.lsn
            yield record
        after = max(after, end)
        is_more = copy.remote.wait(after + 1, timeout_s)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does: what it has made on the disk goes first."""

    def end(_number: int, _frame: object) -> None:
        raise click.exceptions.Exit(exits.TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@fleet.command("stranded", short_help="List what was never shipped, and export it.")
@_URL
@click.option(
    "--export",
    "exported",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="FILE TARGET",
    help="Write what is in FILE, one of the list, to the file TARGET.",
)
@_CACHE
@AS_JSON
def stranded(*, url: str, exported: tuple[Path, Path] | None, cache: Path, as_json: bool) -> None:
    """List the files of this machine with commits that were not shipped before another took the store over.

    Each opens as a store, for reading: `statelog threads FILE`, `statelog board ls FILE`. --export writes the threads
    that have gone on there, for `statelog import`. A thread with which the store has gone on, too, goes out as a copy,
    by the id ID-stranded-EPOCH.
    """
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        found = opened.stranded()
        if exported is not None:
            _export_stranded(opened, found, *exported, output)
            return
    if as_json:
        for each in found:
            output.emit({"name": each.name, "path": str(each.path)})
        return
    output.table(["name", "path"], [[each.name, str(each.path)] for each in found], whole=["path"])


def _export_stranded(opened: Fleet, found: list[Stranded], path: Path, target: Path, output: Output) -> None:
    chosen = next((each for each in found if each.path.resolve() == path.resolve()), None)
    if chosen is None:
        message = f"{path} is no stranded file of this machine: `statelog fleet stranded URL` lists them"
        raise NotFoundError(message, path=str(path))
    refuse_files_of(path, target)
    with opened_for_replacing(target, like=path) as stream:
        ids = opened.export_stranded(chosen, stream)
        if not ids:
            message = f"no thread has gone on in {path}: there is nothing to export"
            raise NotFoundError(message, path=str(path))
    if output.as_json:
        output.emit({"name": chosen.name, "path": str(path), "output": str(target), "threads": ids})
        return
    for id, new in ids.items():
        output.line(id if id == new else f"{id}, as {new}")
    output.say(f"{count(len(ids), 'thread')} to {target}")


@fleet.command("gc", short_help="Remove what nothing leads to.")
@_URL
@_NAME
@_CACHE
@AS_JSON
def gc(*, url: str, name: str, cache: Path, as_json: bool) -> None:
    """Remove the objects of the store NAME that nothing leads to any more."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        removed = opened.gc(name)
    if as_json:
        output.emit({"name": name, "removed": removed})
    else:
        output.say(f"{name}: {count(removed, 'object')} removed")


@fleet.command("purge", short_help="Have what was deleted gone from the storage, too.")
@_URL
@_NAME
@_CACHE
@AS_JSON
def purge(*, url: str, name: str, cache: Path, as_json: bool) -> None:
    """Make the store NAME anew of what it holds now, and remove all objects before. It waits for its owner to end."""
    _own(url, cache, lambda opened: opened.purge(name), name, "purged", as_json=as_json)


@fleet.command("delete", short_help="Delete a store.")
@_URL
@_NAME
@click.option("--yes", is_flag=True, help="Do it.")
@_CACHE
@AS_JSON
def delete(*, url: str, name: str, yes: bool, cache: Path, as_json: bool) -> None:
    """Delete the store NAME, here and in the storage. It waits for its owner to end."""
    if not yes:
        message = f"this deletes {name!r} for good: say --yes"
        raise UsageError(message, argument="--yes")
    _own(url, cache, lambda opened: opened.delete(name), name, "deleted", as_json=as_json)


def _own(url: str, cache: Path, act: Any, name: str, done: str, *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        act(opened)
    if as_json:
        output.emit({"name": name, done: True})
    else:
        output.say(f"{name}: {done}")


@fleet.command("check", short_help="Restore and verify every store.")
@_URL
@click.argument("name", required=False)
@_CACHE
@AS_JSON
def check(*, url: str, name: str | None, cache: Path, as_json: bool) -> None:
    """Restore every store, or NAME alone, into a temporary file, and verify it."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened, output.progress("checking"):
        checked = 1 if name is not None else len(opened.stores())
        problems = opened.check(name)
    if as_json:
        told = [{"name": each.name, "error": each.error.message} for each in problems]
        output.emit({"checked": checked, "problems": to_json(told)})
    else:
        output.say(f"{count(checked, 'store')} restored and verified, {count(len(problems), 'problem')}")
    if problems:
        first = problems[0]
        message = f"{first.name}: {first.error.message}"
        raise CorruptionError(message, **first.error.facts)


@fleet.command("setup", short_help="Make the tables of a fleet in Postgres.")
@_URL
@AS_JSON
def setup(*, url: str, as_json: bool) -> None:
    """Make the tables of a fleet in a database of Postgres, where they are missing."""
    if not url.startswith(("postgresql://", "postgres://")):
        shown = redacted_url(url)
        message = f"only Postgres has tables to be made, not {shown!r}"
        raise UsageError(message, argument="URL", value=shown)
    _import("opening").set_up(url)
    output = Output(as_json=as_json)
    if as_json:
        output.emit({"tables": "there"})
    else:
        output.say("the tables are there")


def _parse_at(text: str | None) -> int | datetime | None:
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"--at is an LSN or a time as 2026-01-31T12:00:00Z, not {text!r}"
        raise UsageError(message, argument="--at", value=text) from error
    return found if found.tzinfo else found.astimezone()
