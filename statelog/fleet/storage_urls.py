"""Opens a storage by its URL, and probes whether it enforces the conditions that a fleet relies on."""

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
"""The prefix of probe objects. No store's folder has this name, because `%pr` is not valid percent-encoding."""


def open_archive(url: str, **options: Any) -> Archive:
    """Open a storage.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
            `postgresql://host/database`, or `file:///path` of a folder that exists.
        options: options of buckets, as for obstore: `endpoint`, `region` and so on.

    Raises:
        UsageError: the scheme of the URL is unknown, its package is not installed, or an option is
            unknown. Facts: argument, value.
        NotFoundError: the folder does not exist. Facts: path.
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
        message = f"the storage of a fleet must be one of {_SCHEMES}, not {shown!r}"
        raise UsageError(message, argument="url", value=shown)
    if options:
        message = f"a storage at {scheme}:// does not accept the option {min(options)!r}"
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
    except ValueError:  # Drop the error, whose message would show the URL.
        parts = None
    is_folder = parts is not None and parts.netloc in {"", "localhost"} and parts.path.startswith("/")
    if parts is None or not is_folder or parts.query or parts.fragment or "\0" in unquote(parts.path):
        shown = redacted_url(url)
        message = f"the URL of a folder must be file:///path, not {shown!r}"
        raise UsageError(message, argument="url", value=shown)
    return FolderArchive(unquote(parts.path))


def _missing(url: str, error: ModuleNotFoundError, package: str, extra: str) -> Exception:
    if (error.name or "").partition(".")[0] != package:
        return error
    message = f"{url.partition(':')[0]}:// needs the package {package}: pip install 'statelog[{extra}]'"
    return UsageError(message, argument="url", value=redacted_url(url))


def probe(archive: Archive) -> None:
    """Probe whether a storage enforces its conditions, with objects of its own.

    Raises:
        UnsafeStorageError: a condition was ignored. Facts: probe (the condition).
        RemoteError, AccessError, NotFoundError: as the storage reports.
    """
    folder = f"{_PROBES}{secrets.token_hex(16)}/"
    try:
        if not any(_probe_alone(archive, f"{folder}alone{number}") for number in range(_TRIES)):
            raise RemoteError("this storage did not store the probe's objects")
        with ThreadPoolExecutor(_RACERS, "statelog-fleet-probe") as racers:
            for number in range(_RACES):
                _probe_races(archive, f"{folder}race{number}", racers)
    finally:
        archive.remove(archive.names(folder))


def _probe_alone(archive: Archive, name: str) -> bool:
    """Try the conditions one after the other. Return False if the result is not conclusive, because an answer was lost.

    A lost answer proves nothing: the request may have succeeded or failed, or may succeed later.
    """
    first, other = b"first", b"other"
    created = archive.create(name, first)
    again = archive.create(name, other)
    held = archive.read(name)
    if isinstance(created, str) and (isinstance(again, str) or held is None or held.data != first):
        raise _unsafe("create twice", "it replaces an existing object")
    if held is None:
        return False
    swapped = archive.swap(name, b"swapped", held.token)
    stale = archive.swap(name, other, held.token)
    now = archive.read(name)
    if isinstance(swapped, str) and (isinstance(stale, str) or now is None or now.data != b"swapped"):
        raise _unsafe("stale swap", "it replaces an object that has changed")
    if isinstance(swapped, str) and archive.look(name) != swapped:
        raise _unsafe("look", "it reports a different token than it returned")
    return isinstance(created, str) and isinstance(swapped, str)


def _probe_races(archive: Archive, name: str, racers: ThreadPoolExecutor) -> None:
    drafts = [f"{number}".encode() for number in range(_RACERS)]
    wins = _race(racers, [partial(archive.create, name, draft) for draft in drafts])
    held = archive.read(name)
    if _is_broken(wins, held and held.data, drafts):
        raise _unsafe("creating in a race", "it confirms more than one of several concurrent creations")
    if held is None:
        raise RemoteError("this storage did not store the probe's objects")
    drafts = [b"swapped " + draft for draft in drafts]
    wins = _race(racers, [partial(archive.swap, name, draft, held.token) for draft in drafts])
    now = archive.read(name)
    if _is_broken(wins, now and now.data, drafts):
        raise _unsafe("swapping in a race", "it confirms more than one of several concurrent swaps")


def _race(racers: ThreadPoolExecutor, tries: Sequence[Callable[[], str | Outcome]]) -> list[int]:
    """Run several requests concurrently, and return the positions of those that succeeded."""
    start = Barrier(len(tries))

    def run(attempt: Callable[[], str | Outcome]) -> str | Outcome:
        start.wait()
        return attempt()

    return [number for number, answer in enumerate(racers.map(run, tries)) if isinstance(answer, str)]


def _is_broken(wins: Sequence[int], held: bytes | None, drafts: Sequence[bytes]) -> bool:
    return len(wins) > 1 or (len(wins) == 1 and held != drafts[wins[0]])


def _unsafe(which: str, what: str) -> UnsafeStorageError:
    message = f"this storage ignores conditions ({which}): {what}, so two writers could own one store"
    return UnsafeStorageError(message, probe=which)


def set_up(url: str) -> None:
    """Create the missing tables of a fleet in a Postgres database.

    Raises:
        UsageError: psycopg is not installed.
        AccessError, RemoteError: as the database reports.
    """
    try:
        from statelog.fleet.postgres import setup
    except ModuleNotFoundError as error:
        raise _missing(url, error, "psycopg", "fleet-postgres") from error
    setup(url)
