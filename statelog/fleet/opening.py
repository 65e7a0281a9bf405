"""Storages by their URL, and whether one does what a fleet relies on."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from statelog.errors import RemoteError, UnsafeStorageError, UsageError
from statelog.redaction import redacted_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.fleet.archive import Archive, Outcome

_SCHEMES = "s3://, gs://, az://, postgresql:// and file://"
_RACERS = 8
_RACES = 3
_TRIES = 5
_PROBES = "%probe/"
"""Where a storage is probed. No store's folder is named so: `%pr` quotes nothing."""


def open_archive(url: str, **options: Any) -> Archive:
    """Open a storage.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `postgresql://host/database`, or
            `file:///path` of a folder that exists.
        options: of buckets, what obstore knows: `endpoint`, `region` and so on.

    Raises:
        UsageError: the URL is none of these, its package is not installed, or an option is not known.
            Facts: argument, value.
        NotFoundError: there is no such folder. Facts: path.

    """
    scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else None
    if scheme in {"s3", "gs", "az"}:
        try:
            from statelog.fleet.buckets import BucketArchive
        except ModuleNotFoundError as error:
            raise _missing(url, error, "obstore", "fleet") from error
        return BucketArchive(url, options)
    if scheme not in {"file", "postgresql", "postgres"}:
        shown = redacted_url(url)
        message = f"a fleet's storage is one of {_SCHEMES}, not {shown!r}"
        raise UsageError(message, argument="url", value=shown)
    if options:
        message = f"a storage at {scheme}:// has no option {min(options)!r}"
        raise UsageError(message, argument="options", value=sorted(options))
    if scheme == "file":
        return _open_folder(url)
    try:
        from statelog.fleet.postgres import PostgresArchive
    except ModuleNotFoundError as error:
        raise _missing(url, error, "psycopg", "fleet-postgres") from error
    return PostgresArchive(url)


def _open_folder(url: str) -> Archive:
    from statelog.fleet.folders import FolderArchive

    try:
        parts: SplitResult | None = urlsplit(url)
    except ValueError:  # Its message quotes the URL.
        parts = None
    is_folder = parts is not None and parts.netloc in {"", "localhost"} and parts.path.startswith("/")
    if parts is None or not is_folder or parts.query or parts.fragment or "\0" in unquote(parts.path):
        shown = redacted_url(url)
        message = f"a folder is file:///path, not {shown!r}"
        raise UsageError(message, argument="url", value=shown)
    return FolderArchive(unquote(parts.path))


def _missing(url: str, error: ModuleNotFoundError, package: str, extra: str) -> Exception:
    if (error.name or "").partition(".")[0] != package:
        return error
    message = f"{url.partition(':')[0]}:// needs the package {package}: pip install 'statelog[{extra}]'"
    return UsageError(message, argument="url", value=redacted_url(url))


def probe(archive: Archive) -> None:
    """Find out whether a storage holds to its conditions, under names of its own.

    Raises:
        UnsafeStorageError: it does not. Facts: probe (which condition it ignored).
        RemoteError, AccessError, NotFoundError: as the storage says.

    """
    folder = f"{_PROBES}{secrets.token_hex(16)}/"
    try:
        if not any(_probe_alone(archive, f"{folder}alone{number}") for number in range(_TRIES)):
            raise RemoteError("this storage does not take what it was probed with")
        with ThreadPoolExecutor(_RACERS, "statelog-fleet-probe") as racers:
            for number in range(_RACES):
                _probe_races(archive, f"{folder}race{number}", racers)
    finally:
        archive.remove(archive.names(folder))


def _probe_alone(archive: Archive, name: str) -> bool:
    """Try conditions one after the other; return whether that has proved anything.

    An answer that was lost proves nothing: what it was asked for may be there, or not, or come later.
    """
    first, other = b"first", b"other"
    created = archive.create(name, first)
    again = archive.create(name, other)
    held = archive.read(name)
    if isinstance(created, str) and (isinstance(again, str) or held is None or held.data != first):
        raise _unsafe("create twice", "it puts an object where there is one")
    if held is None:
        return False
    swapped = archive.swap(name, b"swapped", held.token)
    stale = archive.swap(name, other, held.token)
    now = archive.read(name)
    if isinstance(swapped, str) and (isinstance(stale, str) or now is None or now.data != b"swapped"):
        raise _unsafe("stale swap", "it replaces an object that was changed")
    if isinstance(swapped, str) and archive.look(name) != swapped:
        raise _unsafe("look", "it shows another token than it gave")
    return isinstance(created, str) and isinstance(swapped, str)


def _probe_races(archive: Archive, name: str, racers: ThreadPoolExecutor) -> None:
    drafts = [f"{number}".encode() for number in range(_RACERS)]
    wins = _race(racers, [partial(archive.create, name, draft) for draft in drafts])
    held = archive.read(name)
    if _is_broken(wins, held and held.data, drafts):
        raise _unsafe("creating in a race", "of several who create an object, more than one is told it did")
    if held is None:
        raise RemoteError("this storage does not take what it was probed with")
    drafts = [b"swapped " + draft for draft in drafts]
    wins = _race(racers, [partial(archive.swap, name, draft, held.token) for draft in drafts])
    now = archive.read(name)
    if _is_broken(wins, now and now.data, drafts):
        raise _unsafe("swapping in a race", "of several who swap an object, more than one is told it did")


def _race(racers: ThreadPoolExecutor, tries: Sequence[Callable[[], str | Outcome]]) -> list[int]:
    """Return which of several requests at once were done."""
    start = Barrier(len(tries))

    def run(attempt: Callable[[], str | Outcome]) -> str | Outcome:
        start.wait()
        return attempt()

    return [number for number, answer in enumerate(racers.map(run, tries)) if isinstance(answer, str)]


def _is_broken(wins: Sequence[int], held: bytes | None, drafts: Sequence[bytes]) -> bool:
    return len(wins) > 1 or (len(wins) == 1 and held != drafts[wins[0]])


def _unsafe(which: str, what: str) -> UnsafeStorageError:
    message = f"this storage ignores conditions ({which}): {what}, so two writers would own one store"
    return UnsafeStorageError(message, probe=which)


def set_up(url: str) -> None:
    """Make the tables of a fleet in a database of Postgres, where they are missing.

    Raises:
        UsageError: psycopg is not installed. AccessError, RemoteError: as the database says.

    """
    try:
        from statelog.fleet.postgres import setup
    except ModuleNotFoundError as error:
        raise _missing(url, error, "psycopg", "fleet-postgres") from error
    setup(url)
