"""Postgres as a storage: heads in one table, all other objects in another, through psycopg 3.

Each request is one atomic statement. Connections are kept for later requests. Before each request,
the socket shows whether the server has closed the connection, so the request only needs a new
connection. If a connection is lost during a request, the outcome is unknown: a read tries again, a
write returns `UNKNOWN`.
"""

from __future__ import annotations

import os
import re
import select
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors, sql

from statelog.errors import AccessError, ClosedError, ForkedError, NotFoundError, RemoteError, StatelogError, UsageError
from statelog.fleet import names as object_names
from statelog.fleet.archive import Archive, Outcome, StoredObject
from statelog.redaction import redact_error, redacted_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEADS, OBJECTS = sql.Identifier("statelog_fleet_heads"), sql.Identifier("statelog_fleet_objects")

_IDLE_MAX = 16
"""The maximum number of idle connections."""

_TRIES_MAX = 4
_PAUSE_S = 0.1
"""The pause before the second try, in seconds. It doubles before each further try."""

_REMOVED_AT_ONCE_MAX = 1000
_LAST = "\x7f"
"""A character that sorts after every character of a name."""

_CONNECTING = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "statelog",
}
"""Default options that detect an unreachable network after 20 to 30 s, not after hours. The URL may override them."""

_PORTS = re.compile(r"[\d,]*")
"""The syntax of the ports of one or several hosts."""

_NO_ACCESS = ("password authentication failed", "no pg_hba.conf entry", "authentication failed", "no password supplied")

_READ = sql.SQL("SELECT data, version::text FROM {} WHERE name = %s")
_READ_ALL = sql.SQL("SELECT name, data, version::text FROM {} WHERE name = ANY(%s)")
_LOOK = sql.SQL("SELECT version::text FROM {} WHERE name = %s")
_NAMES = sql.SQL("SELECT name FROM {} WHERE name >= %s AND name < %s")
_AGES = sql.SQL(
    "SELECT name, greatest(extract(epoch FROM clock_timestamp() - put_at), 0)::float8 FROM {}"
    " WHERE name >= %s AND name < %s"
)
_REMOVE = sql.SQL("DELETE FROM {} WHERE name = ANY(%s) RETURNING 1")
_CREATE = sql.SQL("INSERT INTO {} (name, data) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING version::text")
_SWAP = sql.SQL(
    "UPDATE {} SET data = %s, version = gen_random_uuid(), put_at = clock_timestamp()"
    " WHERE name = %s AND version::text = %s RETURNING version::text"
)
_APPEND = sql.SQL(
    "INSERT INTO {} (name, data) SELECT %s, %s FROM"
    " (SELECT 1 FROM {} WHERE name = %s AND version::text = %s FOR SHARE) AS fence"
    " ON CONFLICT DO NOTHING RETURNING version::text"
)
_MAKE = sql.SQL("""CREATE TABLE IF NOT EXISTS {} (
    name text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL,
    version uuid NOT NULL DEFAULT gen_random_uuid(),
    put_at timestamptz NOT NULL DEFAULT clock_timestamp()
)""")
_KEEP_AS_IS = sql.SQL("ALTER TABLE {} ALTER data SET STORAGE EXTERNAL")
"""Stops Postgres from compressing objects, because they are compressed already."""


class PostgresArchive(Archive):
    """Objects in two tables, which `setup` creates.

    Args:
        url: `postgresql://user@host/database`, as libpq reads it.

    Raises:
        UsageError: the URL is invalid. Facts: argument, value.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._shown = redacted_url(url)
        self._parameters = connecting(url)
        self._process_id = os.getpid()
        self._lock = Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        self._is_closed = False

    def read(self, name: str) -> StoredObject | None:
        """Return the object, or None if it does not exist."""
        rows = self._asked(_READ.format(_table(name)), (name,))
        return StoredObject(*rows[0]) if rows else None

    def look(self, name: str) -> str | None:
        """Return the token of an object, or None if it does not exist."""
        rows = self._asked(_LOOK.format(_table(name)), (name,))
        return rows[0][0] if rows else None

    def create(self, name: str, data: bytes) -> str | Outcome:
        """Create an object that does not exist. Return its token."""
        return self._written(_CREATE.format(_table(name)), (name, data))

    def swap(self, name: str, data: bytes, token: str) -> str | Outcome:
        """Replace an object that still has this token. Return the new token."""
        return self._written(_SWAP.format(_table(name)), (data, name, token))

    def append_fenced(self, head_name: str, head_token: str, name: str, data: bytes) -> str | Outcome:
        """Create an object if a head still has its token: an append and its fence in one statement.

        The statement locks the head's row, so any later change of the head happens after the object
        exists.

        Args:
            head_name: name of the head.
            head_token: expected token of the head.
            name: name of the object.
            data: bytes of the object.

        Returns:
            The object's token. `REFUSED` if the object exists or the head has changed; the caller
            must check which.
        """
        return self._written(_APPEND.format(OBJECTS, HEADS), (name, data, head_name, head_token))

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""
        return sorted(row[0] for row in self._listed(_NAMES, prefix))

    def names_after(self, prefix: str, after: str) -> list[str]:
        """Return the names that begin with a prefix and sort after a name."""
        return [name for name in sorted(row[0] for row in self._listed(_NAMES, prefix, after)) if name > after]

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. Missing objects are ignored."""
        pending = [*names]
        for table in (HEADS, OBJECTS):
            here = [name for name in pending if _table(name) == table]
            for at in range(0, len(here), _REMOVED_AT_ONCE_MAX):
                some = here[at : at + _REMOVED_AT_ONCE_MAX]
                self._asked(_REMOVE.format(table), (some,))

    def ages(self, prefix: str) -> dict[str, float]:
        """Return the age in seconds, by the storage's clock, of each object whose name begins with a prefix."""
        return dict(self._listed(_AGES, prefix))

    def read_all(self, names: Sequence[str]) -> list[StoredObject | None]:
        """Return several objects, with one request for each table."""
        found: dict[str, StoredObject] = {}
        for table in (HEADS, OBJECTS):
            here = [name for name in names if _table(name) == table]
            if here:
                rows = self._asked(_READ_ALL.format(table), (here,))
                found.update((name, StoredObject(data, version)) for name, data, version in rows)
        return [found.get(name) for name in names]

    def close(self) -> None:
        """Close the connections."""
        self._check_process()
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _listed(self, statement: sql.SQL, prefix: str, after: str = "") -> list[Any]:
        within = (max(prefix, after), prefix + _LAST)
        return [row for table in (HEADS, OBJECTS) for row in self._asked(statement.format(table), within)]

    def _asked(self, statement: sql.Composed, values: tuple[Any, ...]) -> list[Any]:
        """Execute a statement that may safely be repeated after an error."""
        for number in range(1, _TRIES_MAX):
            try:
                return self._carried_out(statement, values)
            except RemoteError:
                time.sleep(_PAUSE_S * 2 ** (number - 1))
        return self._carried_out(statement, values)

    def _written(self, statement: sql.Composed, values: tuple[Any, ...]) -> str | Outcome:
        """Execute a statement at most once. Return the new token, REFUSED if no row meets the condition, or UNKNOWN."""
        try:
            rows = self._carried_out(statement, values)
        except RemoteError:
            return Outcome.UNKNOWN
        return rows[0][0] if rows else Outcome.REFUSED

    def _carried_out(self, statement: sql.Composed, values: tuple[Any, ...]) -> list[Any]:
        self._check_process()
        try:
            connection = self._taken()
            try:
                with connection.cursor(binary=True) as cursor:
                    return cursor.execute(statement, values).fetchall()
            finally:
                self._give_back(connection)
        except psycopg.Error as error:
            raise translated(error, self._shown) from error

    def _taken(self) -> psycopg.Connection[Any]:
        while True:
            with self._lock:
                if self._is_closed:
                    raise ClosedError(f"{self._shown} was closed", url=self._shown)
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                # Do not prepare statements: a pooler may send the next request over another connection.
                return psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **self._parameters)
            if _is_quiet(connection):
                return connection
            connection.close()

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            is_done = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            if is_done and not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            message = f"{self._shown} was opened before this process was forked: open it again in the child"
            raise ForkedError(message, url=self._shown)


def setup(url: str) -> None:
    """Create the missing tables of a fleet.

    Args:
        url: URL of the database.

    Raises:
        AccessError: the user has no permission.
        RemoteError: the database does not answer.
        UsageError: the URL is invalid.
    """
    shown = redacted_url(url)
    try:
        with psycopg.connect(url, autocommit=True, **connecting(url)) as connection:
            # If two calls are concurrent, the second may fail despite IF NOT EXISTS, on the name of a type.
            for table in (HEADS, OBJECTS):
                with suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
                    connection.execute(_MAKE.format(table))
            connection.execute(_KEEP_AS_IS.format(OBJECTS))
    except psycopg.Error as error:
        raise translated(error, shown) from error


def connecting(url: str) -> dict[str, Any]:
    """Return the options of a connection that the URL does not set.

    Raises:
        UsageError: the URL is not the URL of a database, or its password is not percent-encoded.
            Facts: argument, value.
    """
    shown = redacted_url(url)
    given: dict[str, Any] | None = None
    with suppress(psycopg.ProgrammingError):  # The message of psycopg may quote a part of the password.
        given = psycopg.conninfo.conninfo_to_dict(url)
    if given is None:
        message = f"{shown} is not an address of a Postgres database"
        raise UsageError(message, argument="url", value=shown)
    if "@" in str(given.get("host", "")) or not _PORTS.fullmatch(str(given.get("port", ""))):
        message = f"{shown}: an @, / or another special character in a user name or password must be percent-encoded"
        raise UsageError(message, argument="url", value=shown)
    return {name: value for name, value in _CONNECTING.items() if name not in given}


def _table(name: str) -> sql.Identifier:
    return HEADS if name.rpartition("/")[2] == object_names.HEAD else OBJECTS


def _is_quiet(connection: psycopg.Connection[Any]) -> bool:
    """Return True if an idle connection is usable: unsolicited data means that the server has closed it."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0)
    except (OSError, psycopg.Error):
        return False


def translated(error: psycopg.Error, shown: str) -> StatelogError:
    """Translate an error of psycopg, and hide the secrets in it."""
    redact_error(error)
    told = " ".join(str(error).split())[:300]
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return NotFoundError(f"{shown} does not have the fleet tables: run `statelog fleet setup {shown}`", url=shown)
    is_refused = isinstance(error, errors.InsufficientPrivilege | errors.InvalidAuthorizationSpecification)
    if is_refused or any(words in told for words in _NO_ACCESS) or ("role " in told and "does not exist" in told):
        return AccessError(f"{shown}: access was denied: {told}", url=shown)
    if "database " in told and "does not exist" in told:
        return NotFoundError(f"{shown}: the database does not exist", url=shown)
    return RemoteError(f"{shown}: {told}", url=shown)
