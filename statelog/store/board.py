"""The board: entries by key, that all who have the store open share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.board import reading, writing
from statelog.board.names import check_key, check_prefix, compile_pattern
from statelog.errors import UsageError
from statelog.log.kinds.entries import Act
from statelog.log.names import check_name
from statelog.log.times import now_us, to_datetime, to_time_us

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable

    from statelog.board.reading import Found
    from statelog.board.writing import Writer
    from statelog.log.batch import Batch
    from statelog.log.step import Write
    from statelog.log.view import View
    from statelog.reducers import Reducer
    from statelog.store.session import Session

_TTL_S_MAX = 1e9
_COUNT_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the board, as one record of it says."""

    key: str
    value: Any
    """None where `kind` says that it went."""
    version: int
    """LSN of the record: it grows with each write of the key, also where the entry went in between."""
    created: datetime
    """When the entry came to be."""
    agent: str | None
    """Who wrote it."""
    time: datetime
    """When."""
    expires: datetime | None = None
    kind: str = field(default="set", compare=False)
    """`set`, `rollback`; in a history also `delete` and `expire`."""

    def __repr__(self) -> str:
        shown = repr(self.value)
        return f"<Entry {self.key!r} {self.version} {shown if len(shown) <= 60 else shown[:57] + '...'}>"


class Board:
    """Entries by key, of one handle: what `Store.board`, a transaction and a snapshot return.

    Every write is one commit. Versions are LSNs; 0 is that of an entry that is not there. An entry that has expired is
    not there, for any read. Values are what a channel takes, and are handed out as plain Python values.
    """

    def __init__(self, session: Session, agent: str | None = None) -> None:
        if agent is not None:
            check_name("agent", agent)
        self._session = session
        self._agent = agent

    def __repr__(self) -> str:
        return f"<Board{'' if self._agent is None else f' of {self._agent!r}'}>"

    # --- reading ----------------------------------------------------------------------

    def get(self, key: str, *, at: int | datetime | None = None) -> Entry | None:
        """Return the entry of a key, None if there is none.

        Args:
            key: 1 to 400 bytes, segments joined by `/`.
            at: as it was behind the record of this LSN, or at this time.

        Raises:
            UsageError: `key` is no key, or `at` is no moment of the store.
            ExpiredError: what it was then was let go.

        """
        check_key(key)
        with self._session.read() as view:
            board = reading.board_of(view)
            if board is None:
                return None
            if at is None:
                found = reading.find(view, board, key, now_us())
            elif isinstance(at, datetime):
                found = reading.find_at(view, board, key, time_us=to_time_us(at))
            else:
                found = reading.find_at(view, board, key, lsn=_check_moment(view, "at", at))
        return None if found is None else self._entry(found)

    def history(self, key: str, limit: int | None = None) -> builtins.list[Entry]:
        """Return what was done to a key, the newest first, as far as it was not let go.

        What says that the entry went is of `kind` `delete` or `expire`.

        Raises:
            UsageError: `key` is no key, or `limit` no number.

        """
        check_key(key)
        _check_count("limit", limit)
        with self._session.read() as view:
            board = reading.board_of(view)
            found = [] if board is None else list(islice(reading.records(view, board, key), limit))
        return [self._entry(each) for each in found]

    def list(self, pattern: str = "**", *, limit: int | None = None, after: str = "") -> builtins.list[Entry]:
        """Return the entries that a pattern fits, in the order of their keys.

        Args:
            pattern: `*` and `?` stand for text within a segment, `**` for any number of segments.
            limit: at most so many.
            after: only entries behind this key: the last one of the page before.

        Raises:
            UsageError: one of the arguments is none.

        """
        compiled = compile_pattern(pattern)
        _check_count("limit", limit)
        if after != "":
            check_key(after)
        with self._session.read() as view:
            board = reading.board_of(view)
            if board is None:
                return []
            places = islice(reading.scan(view, board, compiled, after, now_us()), limit)
            found = [reading.read_entry(view, lsn) for _key, lsn in places]
        return [self._entry(each) for each in found]

    def children(self, prefix: str = "") -> builtins.list[str]:
        """Return what stands right below a prefix, sorted: keys; and with a `/` at its end, what others begin with.

        `children("tasks/")` of entries `tasks/note` and `tasks/open/7` is `["tasks/note", "tasks/open/"]`.

        Raises:
            UsageError: `prefix` is not empty, and does not end in `/`, or is no beginning of a key.

        """
        check_prefix(prefix)
        if prefix and not prefix.endswith("/"):
            raise UsageError(f"prefix {prefix!r} does not end in '/'", argument="prefix", value=prefix)
        with self._session.read() as view:
            board = reading.board_of(view)
            return [] if board is None else list(reading.scan_children(view, board, prefix, now_us()))

    def _entry(self, found: Found) -> Entry:
        event = found.event
        return Entry(
            event.key,
            reading.read_value(self._session.workspace(), event),
            found.lsn,
            to_datetime(found.created_us),
            event.agent,
            to_datetime(found.time_us),
            to_datetime(event.expires_us) if event.expires_us else None,
            Act(event.act).name.lower(),
        )

    # --- writing ----------------------------------------------------------------------

    def set(self, key: str, value: Any, *, ttl_s: float | None = None) -> Entry:
        """Set an entry, whatever it was.

        Args:
            key: as for `get`.
            value: what a channel of a thread takes.
            ttl_s: it expires so many seconds from now; never, if left out.

        Raises:
            UsageError: `key` is no key, or `ttl_s` not above zero.
            ValueTypeError, LimitError: the value cannot be stored.
            StoreFullError: the quota or the disk is used up.

        In each case nothing was written.

        """
        return self._put(key, reducers.replace, value, ttl_s, lambda _found: None)

    def create(self, key: str, value: Any, *, ttl_s: float | None = None) -> Entry:
        """Set an entry that is not there. Raises AlreadyExistsError, and as `set`."""
        return self._put(key, reducers.replace, value, ttl_s, lambda found: writing.check_absent(key, found))

    def cas(self, key: str, value: Any, *, expected_version: int, ttl_s: float | None = None) -> Entry:
        """Set an entry if it is of this version, 0: not there.

        Raises:
            ConflictError: it is another. Facts: key, expected_version, actual_version.

        And as `set`.

        """
        check = lambda found: writing.check_version(key, expected_version, found)  # noqa: E731 - of one line
        return self._put(key, reducers.replace, value, ttl_s, check)

    def update(self, key: str, reducer: Reducer | Callable[[Any, Any], Any], value: Any) -> Entry:
        """Merge a value into an entry, in the commit: `update(key, reducers.add, 1)` needs no second try.

        An entry that is not there is merged with as an empty channel is, and begins. When it expires stays.

        Raises:
            ReducerTypeError: the two do not merge. UsageError: `reducer` is none.

        And as `set`.

        """
        known = reducers.from_annotation(reducer)
        if known is None:
            raise UsageError(f"{reducer!r} is no reducer", argument="reducer", value=reducer)
        return self._put(key, known, value, None, lambda _found: None, keeps_expiry=True)

    def delete(self, key: str, *, expected_version: int | None = None) -> bool:
        """Take an entry away; tell whether it was there.

        Raises:
            UsageError: `key` is no key.
            ConflictError: the entry is of another version than the one expected.

        """
        check_key(key)

        def work(writer: Writer) -> bool:
            found = writing.find(writer, key)
            writing.check_version(key, expected_version, found)
            if found is not None:
                writing.take(writer, found)
            return found is not None

        return self._is_there() and bool(self._act(work))

    def rollback(self, prefix: str, *, to: int) -> builtins.list[str]:
        """Have all entries below a prefix as they were behind the record of an LSN; return the keys that changed.

        It costs what the board has written since, not what is there. It is a write as others: a rollback to where the
        board was before undoes it.

        Args:
            prefix: what the keys begin with; empty for all.
            to: the LSN.

        Raises:
            UsageError: one of the arguments is none.
            ExpiredError: what an entry was then was let go; nothing is changed.

        """
        check_prefix(prefix)
        with self._session.read() as view:
            lsn = _check_moment(view, "to", to)

        def work(writer: Writer) -> builtins.list[str]:
            return [found.event.key for found in writing.roll_back(writer, prefix, lsn)]

        changed: builtins.list[str] = self._act(work) if self._is_there() else []
        return changed

    def sweep(self) -> int:
        """Record of all entries that have expired that they have; return how many. Reads and writes need no sweep."""
        swept, count = 0, writing.SWEPT_MAX
        while count == writing.SWEPT_MAX and self._is_there():
            count = self._act(lambda writer: writing.sweep(writer, writing.SWEPT_MAX), sweeps=False)
            swept += count
        return swept

    def _is_there(self) -> bool:
        """Whether there is a board: only what sets an entry makes it."""
        with self._session.read() as view:
            return reading.board_of(view) is not None

    def _put(
        self,
        key: str,
        reducer: Reducer,
        value: Any,
        ttl_s: float | None,
        check: Callable[[Found | None], None],
        *,
        keeps_expiry: bool = False,
    ) -> Entry:
        check_key(key)
        _check_ttl(ttl_s)
        write: Write = reducer.prepare(reading.VALUE, value, path=key)

        def work(writer: Writer) -> Found:
            found = writing.find(writer, key)
            check(found)
            expires_us = writer.now_us + round(ttl_s * 1_000_000) if ttl_s is not None else 0
            if keeps_expiry and found is not None:
                expires_us = found.event.expires_us
            return writing.put(writer, key, write, found, expires_us)

        made: Found = self._act(work)
        return self._entry(made)

    def _act(self, work: Callable[[Writer], Any], *, sweeps: bool = True) -> Any:
        def commit(batch: Batch) -> Any:
            writer = writing.begin(batch, self._agent)
            result = work(writer)
            if sweeps:
                writing.sweep(writer, writing.EXPIRED_MAX)
            return result

        return self._session.act(commit)


def _check_count(argument: str, count: int | None) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < _COUNT_MAX):
        raise UsageError(f"{argument} is a number from 0, not {count!r}", argument=argument, value=count)


def _check_ttl(ttl_s: float | None) -> None:
    is_number = isinstance(ttl_s, int | float) and not isinstance(ttl_s, bool) and math.isfinite(ttl_s)
    if ttl_s is not None and not (is_number and 0 < ttl_s <= _TTL_S_MAX):
        raise UsageError(f"ttl_s is a number of seconds above 0, not {ttl_s!r}", argument="ttl_s", value=ttl_s)


def _check_moment(view: View, argument: str, lsn: object) -> int:
    last = view.transaction.last_lsn()
    if isinstance(lsn, bool) or not isinstance(lsn, int) or not 0 <= lsn <= last:
        message = f"{argument} is an LSN of this store, 0 to {last}, not {lsn!r}"
        raise UsageError(message, argument=argument, value=lsn)
    return lsn
