"""The log in Postgres of a store that many hosts write in turns: the host that locks the head's row has the turn."""

from __future__ import annotations

import os
import select
import time
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors, sql

from statelog.errors import ClosedError, CommitOutcomeUnknownError, NotFoundError, RemoteError, StoreLockedError
from statelog.fleet import names
from statelog.fleet.postgres import HEADS, OBJECTS, connecting, translated
from statelog.redaction import redact_error, redacted_url

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANNEL = "statelog_fleet"
"""The channel on which hosts are notified of an append; the message is the segment's name."""

_IDLE_MS = 10_000
"""The idle time after which a host loses its turn, in milliseconds."""

_LOOKS_S = 30.0
"""The maximum time to find out whether a commit has succeeded, in seconds."""
_PAUSE_S_MAX = 2.0

_END = "log/\x7f"

_LOCK = sql.SQL("SELECT data, version::text FROM {} WHERE name = %s FOR UPDATE").format(HEADS).as_string()
_ROWS = (
    sql.SQL(
        "SELECT name, CASE WHEN name = %s THEN NULL ELSE data END, version::text FROM {}"
        " WHERE name >= %s AND name < %s ORDER BY name"
    )
    .format(OBJECTS)
    .as_string()
)
_BEGIN = f"BEGIN; {_LOCK}; {_ROWS}"
"""The statements that begin a turn: lock the head, then read the log.

Each statement sees what was committed before it began (READ COMMITTED, see `_SETTINGS`). So the
last one sees all appends of other hosts.
"""
_APPEND = (
    sql.SQL("INSERT INTO {} (name, data, version) VALUES (%s, %s, %s); SELECT pg_notify({}, %s); COMMIT")
    .format(OBJECTS, CHANNEL)
    .as_string()
)
_CHANGE = (
    sql.SQL("UPDATE {} SET data = %s, version = gen_random_uuid(), put_at = clock_timestamp() WHERE name = %s; COMMIT")
    .format(HEADS)
    .as_string()
)
_VERSION = sql.SQL("SELECT version::text FROM {} WHERE name = %s").format(OBJECTS).as_string()
_SETTINGS = (
    "SELECT set_config('lock_timeout', %s, false), set_config('idle_in_transaction_session_timeout', %s, false),"
    " set_config('default_transaction_isolation', 'read committed', false)"
)


class SegmentRow(NamedTuple):
    """A segment in the log: its name in the store's folder, its bytes (None if they are known), and its version."""

    name: str
    data: bytes | None
    version: str


class Locked(NamedTuple):
    """The state when a turn begins: the head's bytes and version, and the segments from the last known one on."""

    head: bytes
    version: str
    rows: list[SegmentRow]


class HostTurns:
    """A host's turns, and the notifications of other hosts' turns.

    One thread may have the turn while another waits in `hear`. Any thread may call `look`.
    """

    def __init__(self, url: str, folder: str, timeout_s: float) -> None:
        self._url = url
        self._shown = redacted_url(url)
        self._folder = folder
        self._timeout_s = timeout_s
        self._turn: psycopg.Connection[Any] | None = None
        self._ear: psycopg.Connection[Any] | None = None
        self._eye: psycopg.Connection[Any] | None = None
        self._looking = Lock()
        self._is_closed = False
        self._waker, self._wakes = os.pipe()
        self.requests = 0

    def lock(self, known: str) -> Locked:
        """Begin a turn: no other host appends until `append`, `change` or `release`.

        Args:
            known: name of the last known segment. The result shows whether it still exists, and
                what follows it.

        Raises:
            StoreLockedError: other hosts had the turn until the timeout.
            RemoteError: Postgres is unavailable.
        """
        try:
            return self._lock(known)
        except RemoteError:  # A kept connection has ended before the turn began: try again.
            return self._lock(known)

    def _lock(self, known: str) -> Locked:
        with self._dropping():
            connection = self._turn = self._turn or self._connect()
            self.requests += 1
            try:
                cursor = connection.execute(_BEGIN, (self._folder + names.HEAD, *self._behind(known)))
            except errors.LockNotAvailable as error:
                redact_error(error)
                self.release()
                message = f"other hosts have held the turn to write for {self._timeout_s} s"
                raise StoreLockedError(message, timeout_s=self._timeout_s) from error
            cursor.nextset()
            head = cursor.fetchall()
            cursor.nextset()
            rows = self._rows(cursor)
        if not head:
            self.release()
            raise NotFoundError(f"{self._shown} no longer has the store {self._folder.rstrip('/')!r}", url=self._shown)
        return Locked(head[0][0], head[0][1], rows)

    def append(self, name: str, data: bytes, version: str) -> BaseException | None:
        """Append a segment under a new version, and end the turn. The append is durable on return.

        Returns:
            An interrupt that came during the append, or None.

        Raises:
            CommitOutcomeUnknownError: the outcome cannot be determined. After any other error, the
                segment is not in the log.
        """
        try:
            self._commit(_APPEND, (self._folder + name, data, version, self._folder + name))
        except BaseException as error:  # After any error, the commit may still succeed.
            if not self._is_there(name, version, error):
                raise
            return None if isinstance(error, RemoteError) else error
        return None

    def change(self, head: bytes) -> None:
        """Replace the locked head, and end the turn.

        Raises:
            RemoteError: it is unknown whether the head was replaced.
        """
        self._commit(_CHANGE, (head, self._folder + names.HEAD))

    def _commit(self, statements: str, values: tuple[Any, ...]) -> None:
        connection = self._turn
        if connection is None:
            raise RemoteError(f"{self._shown}: this host's turn to write has ended", url=self._shown)
        self.requests += 1
        with self._dropping():
            connection.execute(statements, values)

    def release(self) -> None:
        """End a turn without an append."""
        connection = self._turn
        if connection is None or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except BaseException as error:
            self._drop()
            if not isinstance(error, psycopg.Error):
                raise

    def _is_there(self, name: str, version: str, cause: BaseException) -> bool:
        """Return True if a commit succeeded. Its outcome is final as soon as the head's row can be locked.

        Raises:
            CommitOutcomeUnknownError: the outcome cannot be determined.
        """
        deadline, pause_s = time.monotonic() + _LOOKS_S, 0.05
        try:
            while True:
                try:
                    with self._connect() as connection, connection.transaction():
                        connection.execute(_LOCK, (self._folder + names.HEAD,))
                        row = connection.execute(_VERSION, (self._folder + name,)).fetchone()
                    return row is not None and row[0] == version
                except psycopg.Error:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        except BaseException as error:
            redact_error(error)
            message = f"{self._shown} does not report whether a commit is in the log: {cause}"
            raise CommitOutcomeUnknownError(message, url=self._shown) from error

    # --- turns of other hosts ----------------------------------------------------------------

    def hear(self, timeout_s: float) -> str | None:
        """Wait for an append by any host, or for a call of `wake`.

        Returns:
            The name of the last announced segment in the store's folder. An empty name means that
            any segment may have been appended. None after the timeout.

        Raises:
            RemoteError: Postgres is unavailable.
        """
        try:
            if self._ear is None:
                self._ear = self._connect()
                self._ear.execute(f"LISTEN {CHANNEL}")
                return ""
            poll = select.poll()  # Not `select`, which does not support descriptors above 1023.
            for descriptor in (self._ear.fileno(), self._waker):
                poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _event in poll.poll(timeout_s * 1000)]
            if self._waker in ready:
                os.read(self._waker, 4096)
            told = [note.payload for note in self._ear.notifies(timeout=0)]
        except psycopg.Error as error:
            _close(self._ear)
            self._ear = None
            raise translated(error, self._shown) from error
        mine = [payload.removeprefix(self._folder) for payload in told if payload.startswith(self._folder)]
        return max(mine, default=None)

    def wake(self) -> None:
        """Wake the thread that waits in `hear`."""
        os.write(self._wakes, b".")

    def look(self, known: str) -> list[SegmentRow]:
        """Return the segments of the log from the segment `known` on, without taking a turn. Raises RemoteError."""
        with self._looking:
            try:
                if self._eye is None:
                    self._eye = self._connect()
                self.requests += 1
                return self._rows(self._eye.execute(_ROWS, self._behind(known)))
            except BaseException as error:
                _close(self._eye)
                self._eye = None
                if isinstance(error, psycopg.Error):
                    raise translated(error, self._shown) from error
                raise

    def close(self) -> None:
        """Close the connections for good. The caller has no turn, and no thread waits in `hear`."""
        self._is_closed = True
        self._drop()
        for connection in (self._ear, self._eye):
            _close(connection)
        for descriptor in (self._waker, self._wakes):
            os.close(descriptor)

    # -----------------------------------------------------------------------------------------

    def _behind(self, known: str) -> tuple[str, str, str]:
        return self._folder + known, self._folder + known, self._folder + _END

    def _rows(self, cursor: psycopg.Cursor[Any]) -> list[SegmentRow]:
        return [SegmentRow(name.removeprefix(self._folder), data, version) for name, data, version in cursor.fetchall()]

    def _connect(self) -> psycopg.Connection[Any]:
        if self._is_closed:
            raise ClosedError(f"the store {self._folder.rstrip('/')!r} is closed")
        # Use a `ClientCursor`, because `_commit` sends several statements at once.
        connection = psycopg.connect(
            self._url, autocommit=True, cursor_factory=psycopg.ClientCursor, **connecting(self._url)
        )
        connection.execute(_SETTINGS, (str(max(1, int(self._timeout_s * 1000))), str(_IDLE_MS)))
        return connection

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Close the turn's connection after any error, except StoreLockedError, which leaves it unchanged."""
        try:
            yield
        except StoreLockedError:
            raise
        except psycopg.Error as error:
            self._drop()
            raise translated(error, self._shown) from error
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        _close(self._turn)
        self._turn = None


def _close(connection: psycopg.Connection[Any] | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
