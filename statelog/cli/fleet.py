"""`statelog fleet`: stores kept in a bucket, a folder or Postgres."""

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
from statelog.cli.output_file import opened_for_replacing, refuse_files_of
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
    help="Directory of this machine's copies.",
)


def _CACHE(command: Command) -> Command:  # noqa: N802 - names of option decorators are in capitals
    """Give a command --cache and --key-env."""
    return _CACHE_FOLDER(KEY_ENV(command))


def connect_fleet(url: str, cache: Path) -> Fleet:
    """Connect to the storage of a fleet, with the key in the environment variable that `--key-env` names."""
    connected: Fleet = _import("connection").connect(url, cache, key=read_variable(key_variable()))
    return connected


def _import(module: str) -> Any:
    """Import and return a module of the fleet. The packages that it needs are an optional extra."""
    try:
        return import_module(f"statelog.fleet.{module}")
    except ImportError as error:
        message = f"{error.name} is not installed: pip install 'statelog[fleet]'"
        raise UsageError(message, package=error.name) from error


@click.group("fleet", short_help="Stores in a bucket, a folder or Postgres.")
def fleet() -> None:
    """Maintain stores that are shipped to URL: file:///folder, s3://, gs://, az:// or postgresql://.

    Credentials of buckets come from the environment, such as AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID.
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


@fleet.command("status", short_help="Show the owner of a store.")
@_URL
@_NAME
@_CACHE
@AS_JSON
def status(*, url: str, name: str, cache: Path, as_json: bool) -> None:
    """Show the owner of the store NAME and the last LSN of its shipped log."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        found = opened.status(name)
    if as_json:
        output.emit(asdict(found))
    else:
        end = "still growing" if found.lsn is None else f"up to LSN {found.lsn}"
        output.line(f"{found.name}: {found.state}, {end}, epoch {found.epoch}, {found.owner}")


@fleet.command("restore", short_help="Restore a store to a file.")
@_URL
@_NAME
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--at", metavar="LSN|TIME", help="Restore the state at an LSN, or at a time with a time zone.")
@_CACHE
@AS_JSON
def restore(*, url: str, name: str, path: Path, at: str | None, cache: Path, as_json: bool) -> None:
    """Restore the store NAME to the file PATH. The file is not shipped."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        opened.restore(name, path, at=_parse_at(at))
    if as_json:
        output.emit({"name": name, "path": str(path)})
    else:
        output.line(f"{name} -> {path}")


@fleet.command("follow", short_help="Print a store's commits as they arrive.")
@_URL
@_NAME
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="LSN", help="Only records with a higher number."
)
@click.option("--thread", metavar="ID", help="Only records of this thread.")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after this many records.")
@click.option(
    "--timeout", "timeout_s", type=float, metavar="SECONDS", help="Stop after this time without a new record."
)
@click.option(
    "--poll",
    "poll_s",
    type=float,
    default=1,
    show_default=True,
    metavar="SECONDS",
    help="Interval between checks of the fleet.",
)
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
    """Print the event log of the store NAME in order, and new records as its owner ships them.

    The command ends with Ctrl-C, or when the store is deleted.
    """
    output = Output(as_json=as_json, absolute=True)
    with _ended_by_sigterm(), connect_fleet(url, cache) as opened, opened.follow(name, poll_s=poll_s) as copy:
        for record in islice(of_thread(_arriving(copy, after, timeout_s), thread), limit):
            write_record(record, output)
            sys.stdout.flush()


def _arriving(copy: Store, after: int, timeout_s: float | None) -> Iterator[LogRecord]:
    """Yield the records of a copy as they arrive. Raises the error that ends the replication."""
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
    """Make SIGTERM end a command as Ctrl-C does: the command first removes its temporary files."""

    def end(_number: int, _frame: object) -> None:
        raise click.exceptions.Exit(exits.TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@fleet.command("stranded", short_help="List and export commits that were never shipped.")
@_URL
@click.option(
    "--export",
    "exported",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="FILE TARGET",
    help="Export the stranded file FILE to the file TARGET.",
)
@_CACHE
@AS_JSON
def stranded(*, url: str, exported: tuple[Path, Path] | None, cache: Path, as_json: bool) -> None:
    """List this machine's files with commits that were not shipped before another machine took over the store.

    Each file can be read as a store: `statelog threads FILE`, `statelog board ls FILE`. --export writes the threads
    that have new commits in FILE, for `statelog import`. A thread that has also changed in the store is exported as
    a copy with the id ID-stranded-EPOCH.
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
        message = f"{path} is not a stranded file of this machine: `statelog fleet stranded URL` lists them"
        raise NotFoundError(message, path=str(path))
    refuse_files_of(path, target)
    with opened_for_replacing(target, like=path) as stream:
        ids = opened.export_stranded(chosen, stream)
        if not ids:
            message = f"no thread has new commits in {path}: there is nothing to export"
            raise NotFoundError(message, path=str(path))
    if output.as_json:
        output.emit({"name": chosen.name, "path": str(path), "output": str(target), "threads": ids})
        return
    for id, new in ids.items():
        output.line(id if id == new else f"{id}, as {new}")
    output.say(f"{count(len(ids), 'thread')} to {target}")


@fleet.command("gc", short_help="Remove unreferenced objects.")
@_URL
@_NAME
@_CACHE
@AS_JSON
def gc(*, url: str, name: str, cache: Path, as_json: bool) -> None:
    """Remove the unreferenced objects of the store NAME."""
    output = Output(as_json=as_json)
    with connect_fleet(url, cache) as opened:
        removed = opened.gc(name)
    if as_json:
        output.emit({"name": name, "removed": removed})
    else:
        output.say(f"{name}: {count(removed, 'object')} removed")


@fleet.command("purge", short_help="Erase deleted data from the storage.")
@_URL
@_NAME
@_CACHE
@AS_JSON
def purge(*, url: str, name: str, cache: Path, as_json: bool) -> None:
    """Rewrite the store NAME from its current content and remove all older objects. Waits for its owner to close it."""
    _own(url, cache, lambda opened: opened.purge(name), name, "purged", as_json=as_json)


@fleet.command("delete", short_help="Delete a store.")
@_URL
@_NAME
@click.option("--yes", is_flag=True, help="Do it.")
@_CACHE
@AS_JSON
def delete(*, url: str, name: str, yes: bool, cache: Path, as_json: bool) -> None:
    """Delete the store NAME on this machine and in the storage. Waits until its owner has closed it."""
    if not yes:
        message = f"this deletes {name!r} for good: give --yes"
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
    """Restore every store, or only NAME, to a temporary file and verify it."""
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


@fleet.command("setup", short_help="Create the tables of a fleet in Postgres.")
@_URL
@AS_JSON
def setup(*, url: str, as_json: bool) -> None:
    """Create the missing tables of a fleet in a Postgres database."""
    if not url.startswith(("postgresql://", "postgres://")):
        shown = redacted_url(url)
        message = f"setup needs a postgresql:// URL, not {shown!r}"
        raise UsageError(message, argument="URL", value=shown)
    _import("storage_urls").set_up(url)
    output = Output(as_json=as_json)
    if as_json:
        output.emit({"tables": "there"})
    else:
        output.say("the tables exist")


def _parse_at(text: str | None) -> int | datetime | None:
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"--at must be an LSN or a time such as 2026-01-31T12:00:00Z, not {text!r}"
        raise UsageError(message, argument="--at", value=text) from error
    return found if found.tzinfo else found.astimezone()
