"""Read operations of the board."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelog.board import holders, reads
from statelog.board.names import check_bound, check_key, check_prefix, compile_pattern
from statelog.board.rules import ALL, Rules
from statelog.errors import UsageError
from statelog.format.board_keys import encode_entry_key
from statelog.kernels.board import ENTRIES_MAX
from statelog.log.names import check_name
from statelog.log.times import now_us, to_time_us
from statelog.store.arguments import check_flag
from statelog.store.entries import Entry, entries_of, entry_of, with_quarantined

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterable

    from statelog.board.reads import EntryRecord, Records
    from statelog.log.view import View
    from statelog.store.session import AnySession

_COUNT_MAX = 1 << 40


class ReadBoard:
    """The read operations of a board handle."""

    def __init__(
        self,
        session: AnySession,
        agent: str | None = None,
        rules: Rules | None = None,
        *,
        include_quarantined: bool = False,
    ) -> None:
        if agent is not None:
            check_name("agent", agent)
        if rules is not None and not isinstance(rules, Rules):
            message = f"rules must be a statelog.Rules, not {type(rules).__name__}"
            raise UsageError(message, argument="rules", value=rules)
        self._session = session
        self._agent = agent
        self._include_quarantined = include_quarantined
        self._rights = ALL if rules is None else rules.of(agent)
        self._place = b""
        """The prefix of the index keys of all entries. It is empty until the board has been found."""

    def __repr__(self) -> str:
        return f"<Board{'' if self._agent is None else f' of {self._agent!r}'}>"

    def get(self, key: str, *, at: int | datetime | None = None) -> Entry | None:
        """Return the entry of a key, or None if there is no entry.

        Args:
            key: segments joined by `/`, 1 to 400 bytes in all.
            at: return the entry as it was right after this LSN, or at this time.

        Raises:
            UsageError: `key` is not a valid key, or `at` is not an LSN of the store.
            ExpiredError: retention has removed the earlier version of the entry.
        """
        check_key(key)
        if self._rights.is_bound:
            self._rights.check("read", key)
        with self._session.read() as view:
            if at is not None:
                return self._get_at(view, key, at)
            payload = view.transaction.get_index(self._place + key.encode()) if self._place else None
            if payload is None:
                payload = self._look_again(view, key)
                if payload is None:
                    return None
            expires_us = int.from_bytes(payload[8:16])
            if 0 < expires_us <= now_us():
                return None
            open_workspace = partial(self._session.workspace_in, view)
            (records,) = reads.read_records(view, ((key, payload[:8]),), open_workspace)
        entry = entries_of(self._session, records, raises=True)[0]
        return with_quarantined(entry) if self._include_quarantined else entry

    def _get_at(self, view: View, key: str, at: int | datetime) -> Entry | None:
        board = reads.board_of(view)
        if board is None:
            return None
        if isinstance(at, datetime):
            found = reads.find_at(view, board, key, time_us=to_time_us(at))
        else:
            found = reads.find_at(view, board, key, lsn=check_moment(view, "at", at))
        if found is None:
            return None
        return self._entry(found, reads.read_value(self._session.workspace_in(view), found.event))

    def _look_again(self, view: View, key: str) -> bytes | None:
        """Look for the board again, because another handle may have created it. Return the row of a key, or None."""
        board = reads.board_of(view)
        place = b"" if board is None else encode_entry_key(board, "")
        if place == self._place:
            return None
        self._place = place
        return view.transaction.get_index(place + key.encode()) if place else None

    def history(self, key: str, limit: int | None = None) -> builtins.list[Entry]:
        """Return the records of a key, the newest first, back to the first record that retention has removed.

        The records include those that end the entry, such as records of `kind` `delete` or `expire`.

        Raises:
            UsageError: `key` is not a valid key, or `limit` is not a non-negative int.
        """
        check_key(key)
        _check_count("limit", limit)
        self._rights.check("read", key)
        with self._session.read() as view:
            board = reads.board_of(view)
            records = [] if board is None else islice(reads.records_kept(view, board, key), limit)
            found = self._with_values(view, records)
        return [self._entry(*each) for each in found]

    def list(
        self,
        pattern: str = "**",
        *,
        limit: int | None = None,
        after: str = "",
        before: str = "",
        reverse: bool = False,
        values: bool = True,
    ) -> builtins.list[Entry]:
        """Return the entries whose keys match a pattern, sorted by key.

        The cost depends on the number of entries read, not on the size of the board. To read the next page, pass the
        last key of a page as `after`, or as `before` with `reverse`.

        Args:
            pattern: `*` and `?` stand for characters within a segment, `**` for any number of segments.
            limit: the maximum number of entries to return.
            after: return only entries whose keys sort after this key. An entry with this key need not exist.
            before: return only entries whose keys sort before this key. An entry with this key need not exist.
            reverse: return the entries in descending order of their keys.
            values: False skips the values. `Entry.value` of such an entry raises UsageError.

        Raises:
            UsageError: an argument is not valid.
        """
        compiled = compile_pattern(pattern)
        _check_count("limit", limit)
        for argument, bound in (("after", after), ("before", before)):
            if bound != "":
                check_bound(argument, bound)
        check_flag("reverse", reverse)
        check_flag("values", values)
        rights = self._rights
        rights.check_any("read", pattern)
        span = reads.Span(after, before, reverse)
        left = _COUNT_MAX if limit is None else limit
        read: builtins.list[Records] = []
        with self._session.read() as view:
            board = reads.board_of(view)
            if board is None or not left:
                return []
            count = min(left, ENTRIES_MAX)
            open_workspace = partial(self._session.workspace_in, view) if values else None
            for rows in reads.scan(view, board, compiled, span, now_us(), count=count):
                some = [row for row in rows if rights.may("read", row[0])] if rights.is_bound else rows
                read += reads.read_records(view, some[:left], open_workspace)
                left -= len(some)
                if left <= 0:
                    break
        entries = [entry for records in read for entry in entries_of(self._session, records, with_values=values)]
        return [with_quarantined(entry) for entry in entries] if self._include_quarantined and values else entries

    def children(self, prefix: str = "") -> builtins.list[str]:
        """Return the children of a prefix, sorted: keys with one more segment, and directories, which end with `/`.

        With the entries `tasks/note` and `tasks/open/7`, `children("tasks/")` is `["tasks/note", "tasks/open/"]`.

        Raises:
            UsageError: `prefix` is not empty and does not end in `/`, or no key can begin with it.
        """
        check_prefix(prefix)
        if prefix and not prefix.endswith("/"):
            raise UsageError(f"prefix {prefix!r} does not end in '/'", argument="prefix", value=prefix)
        self._rights.check_any("read", f"{prefix}**")
        may = partial(self._rights.may, "read")
        with self._session.read() as view:
            board = reads.board_of(view)
            return [] if board is None else list(reads.scan_children(view, board, prefix, now_us(), may))

    def claims(self, pattern: str = "**") -> builtins.list[Entry]:
        """Return the claimed entries whose keys match a pattern, sorted by key, including claims past their deadlines.

        The cost depends on the number of claims, not on the size of the board.

        Raises:
            UsageError: `pattern` is not a valid pattern.
        """
        compiled = compile_pattern(pattern)
        self._rights.check_any("read", pattern)
        with self._session.read() as view:
            records = (
                each
                for each in holders.claimed(view)
                if compiled.fits(each.event.key) and self._rights.may("read", each.event.key)
            )
            found = self._with_values(view, records)
        return sorted((self._entry(*each) for each in found), key=lambda each: each.key)

    def _with_values(self, view: View, records: Iterable[EntryRecord]) -> builtins.list[tuple[EntryRecord, Any]]:
        """Return the records with their values, which retention may remove as soon as `view` is closed."""
        workspace = self._session.workspace_in(view)
        return [(each, reads.read_value(workspace, each.event)) for each in records]

    def _entry(self, found: EntryRecord, value: Any) -> Entry:
        entry = entry_of(self._session, found, value)
        return with_quarantined(entry) if self._include_quarantined else entry


def _check_count(argument: str, count: int | None) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _COUNT_MAX):
        message = f"{argument} must be an int from 0 to {_COUNT_MAX}, not {count!r}"
        raise UsageError(message, argument=argument, value=count)


def check_moment(view: View, argument: str, lsn: object) -> int:
    """Return `lsn`. Raise UsageError if it is not an LSN of the store."""
    last = view.transaction.last_lsn()
    if isinstance(lsn, bool) or not isinstance(lsn, int) or not 0 <= lsn <= last:
        message = f"{argument} must be an LSN of this store, 0 to {last}, not {lsn!r}"
        raise UsageError(message, argument=argument, value=lsn)
    return lsn
