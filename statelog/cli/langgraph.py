"""`statelog import-langgraph` and `export-langgraph`: copy threads of LangGraph's savers and compare the copies."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from statelog.cli.opened_stores import open_store
from statelog.cli.options import AS_JSON, MAX_SIZE, STORE
from statelog.cli.output import Output
from statelog.cli.text import count
from statelog.cli.values import to_json
from statelog.errors import StatelogError, StoreNotFoundError, UsageError
from statelog.redaction import redacted_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.adapters.langgraph.move.migration import LeftOutThread, ThreadMoveReport

_NAMED_MAX = 5
"""The maximum number of threads named in an error. The output names all of them."""

_DATABASES = ("sqlite:", "postgresql://", "postgres://")
_FOREIGN = ("dynamodb:", "redis://", "rediss://", "lmdb:")
"""URL prefixes of third-party savers' databases. They support import only."""


@click.command("import-langgraph", short_help="Copy LangGraph threads from a database.")
@click.argument("source", metavar="DATABASE")
@click.argument("store", required=False, type=click.Path(path_type=Path))
@click.option("--file", type=click.Path(path_type=Path), help="The store, as the second argument.")
@MAX_SIZE
@AS_JSON
def import_langgraph(*, source: str, store: Path | None, file: Path | None, as_json: bool) -> None:
    """Copy all threads from DATABASE to STORE. DATABASE is only read.

    DATABASE is sqlite:PATH or postgresql://... of LangGraph's savers, dynamodb:TABLE of langgraph-checkpoint-aws,
    redis://HOST/0 of langgraph-checkpoint-plainredis (with ?prefix= if the prefix is not lg), or lmdb:PATH of
    langgraph-checkpoint-lmdb.

    STORE is created if it does not exist. Its default is the database's name with .state, in the current directory.

    The command copies every namespace, checkpoint and pending write, and all metadata. At the end it reads the copies
    back and compares them. If an import is interrupted, run it again: it skips everything already copied.

    If STORE has a guard, secrets are redacted, and their threads are named.

    A faulty thread (an invalid name, a damaged row, different content in STORE) is copied up to the fault and named at
    the end.
    All other threads are copied whole. The exit code is that of the fault, or 1 for several kinds of faults.
    """
    _check_database(source, (*_DATABASES, *_FOREIGN))
    if store is not None and file is not None:
        message = f"the store is named twice: {store} and --file {file}"
        raise UsageError(message, argument="STORE", value=str(store))
    _move(source, str(store or file or _store_of(source)), "importing", as_json=as_json)


@click.command("export-langgraph", short_help="Copy LangGraph threads to a database.")
@STORE
@click.argument("target", metavar="DATABASE")
@AS_JSON
def export_langgraph(*, store: Path, target: str, as_json: bool) -> None:
    """Copy all LangGraph threads in STORE to DATABASE (sqlite:PATH or postgresql://...), which is created if missing.

    This is the reverse of import-langgraph.
    """
    _check_database(target, _DATABASES)
    if not store.is_file():
        message = f"no store at {store}"
        raise StoreNotFoundError(message, path=str(store))
    _move(str(store), target, "exporting", as_json=as_json, like=store)


def _store_of(database: str) -> Path:
    """Return the default store for a database's threads: the database's name, in the current directory."""
    name = ""
    with suppress(ValueError):  # The database is not a valid URL, for example because of a [ in its password.
        path = urlsplit(database).path if "://" in database else database.partition(":")[2]
        name = PurePath(path).stem
    if not name:
        message = f"{redacted_url(database)} does not name a database: give the STORE for its threads"
        raise UsageError(message, argument="STORE", value=None)
    return Path(f"{name}.state")


def _check_database(name: str, kinds: tuple[str, ...]) -> None:
    if not name.startswith(kinds):
        shown = redacted_url(name)
        message = f"{shown!r} is not a database: give sqlite:checkpoints.db or postgresql://user@host/name, for example"
        raise UsageError(message, argument="DATABASE", value=shown)


def _move(source: str, target: str, what: str, *, as_json: bool, like: Path | None = None) -> None:
    if find_spec("langgraph") is None:
        message = "langgraph is not installed: pip install 'statelog[langgraph]'"
        raise UsageError(message)
    from statelog.adapters.langgraph.move import endpoints, foreign
    from statelog.adapters.langgraph.move.migration import migrate

    output = Output(as_json=as_json)
    is_foreign = source.startswith(_FOREIGN)
    opened = (
        foreign.opened_foreign(source) if is_foreign else endpoints.opened(source, writing=False, open_store=open_store)
    )
    with (
        opened as reading,
        endpoints.opened(target, writing=True, open_store=open_store, like=like) as writing,
        output.progress(what) as progress,
    ):
        report = migrate(reading, writing, progress=progress)
    if as_json:
        output.emit(_document(report))
    else:
        output.say(_sentence(report))
        for lost in report.lost[:_NAMED_MAX]:
            output.say(f"checkpoint {lost.checkpoint} of thread {lost.thread!r}: {lost.what}")
        if len(report.lost) > _NAMED_MAX:
            output.say(f"and {count(len(report.lost) - _NAMED_MAX, 'checkpoint')} more")
        if report.redacted:
            output.say(f"secrets were redacted in {count(len(report.redacted), 'thread')}: {_listed(report.redacted)}")
        for each in report.left_out if len(report.left_out) > 1 else ():
            output.say(_why(each))
    if report.left_out:
        raise _error_of(report)


def _document(report: ThreadMoveReport) -> dict[str, Any]:
    left_out = [
        {
            "thread": each.thread,
            "checkpoints": each.checkpoints,
            "there": each.there,
            "error": each.error.message,
            "kind": type(each.error).__name__,
            "exit_code": each.error.exit_code,
            "facts": each.error.facts,
        }
        for each in report.left_out
    ]
    numbers = {field.name: getattr(report, field.name) for field in fields(report)}
    lost = [{"thread": each.thread, "checkpoint": each.checkpoint, "what": each.what} for each in report.lost]
    document = {**numbers, "left_out": to_json(left_out), "lost": to_json(lost)}
    return {name: value for name, value in document.items() if value or name not in ("lost", "redacted")}


def _why(left: LeftOutThread) -> str:
    return (
        f"thread {left.thread!r} is left out ({left.there:,} of {count(left.checkpoints, 'checkpoint')} are in"
        " the target):"
        f" {left.error.message}"
    )


def _error_of(report: ThreadMoveReport) -> StatelogError:
    """Return one error for all threads left out: the only error, or a new error of the kind that all errors share."""
    first, *more = (each.error for each in report.left_out)
    if not more:
        (left,) = report.left_out
        return type(first)(_why(left), **{**first.facts, "thread": left.thread})
    kinds = (kind for kind in type(first).__mro__ if all(isinstance(error, kind) for error in more))
    kind = next(kind for kind in kinds if issubclass(kind, StatelogError))
    threads = [each.thread for each in report.left_out]
    message = f"{count(len(threads), 'thread')} are left out: {_listed(threads)}"
    return kind(message, path=report.source, threads=threads)


def _listed(threads: Sequence[str]) -> str:
    """Return the ids of the first threads, and the number of the others."""
    named = ", ".join(map(repr, threads[:_NAMED_MAX]))
    return f"{named} and {len(threads) - _NAMED_MAX:,} more" if len(threads) > _NAMED_MAX else named


def _sentence(report: ThreadMoveReport) -> str:
    there = report.checkpoints - report.copied
    rest = f" ({there:,} were already there)" if there else ""
    more = f"; {count(report.others, 'checkpoint')} more in the target" if report.others else ""
    return (
        f"{report.source} -> {report.target}: {count(report.threads, 'thread')},"
        f" {count(report.checkpoints, 'checkpoint')}{rest} and {count(report.writes, 'pending write')}, read back"
        f" and equal{more}"
    )
