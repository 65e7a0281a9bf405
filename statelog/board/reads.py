"""Reads the board in one view of the store: current entries, earlier versions, and histories."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from statelog.board.names import RESERVED
from statelog.errors import ExpiredError
from statelog.format import board_keys, cbor, keys
from statelog.format.record import FLAG_REDACTED
from statelog.kernels.board import ENTRIES_MAX, EntryFacts, entries_read
from statelog.log.kinds.entries import BOARD_ID, Claimed, EntryEvent, is_entry, last_row
from statelog.log.kinds.table import decode_event
from statelog.log.names import channel_key
from statelog.storage.read_transaction import ReadTransaction
from statelog.tree import mapping
from statelog.tree.node import ROOT
from statelog.tree.value import read_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog.board.names import KeyPattern
    from statelog.log.view import View
    from statelog.tree.node import Workspace

VALUE = "value"
"""The channel that stores the value of an entry. An entry's root is a dict of channels, like a thread's root.
"""


class EntryRecord(NamedTuple):
    """A decoded record of an entry, with its LSN and time."""

    event: EntryEvent
    lsn: int
    time_us: int

    @property
    def claim(self) -> Claimed | None:
        """The claim of the entry, or None if nobody has claimed the entry."""
        claim = self.event.claim
        return None if claim is None else Claimed(claim[0] or self.lsn, *claim[1:])

    @property
    def attempts(self) -> int:
        """The number of times the entry was claimed."""
        return self.event.order[2] if self.event.order else 0

    @property
    def ready_us(self) -> int:
        """The time from which the entry may be claimed; 0 if it may be claimed from its creation on."""
        return self.event.order[1] if self.event.order else 0

    def is_there(self, now_us: int) -> bool:
        """Return True if the entry exists at `now_us`, which must not be before the time of the record."""
        return self.event.is_there and not 0 < self.event.expires_us <= now_us


def board_of(view: View) -> int | None:
    """Return the LSN of the thread that owns the board's records, or None if there is no board yet."""
    return view.thread_lsn(BOARD_ID)


def read_entry(view: View, lsn: int) -> EntryRecord:
    """Read a record of an entry.

    Raises:
        ExpiredError: retention has removed the record. Facts: lsn.
    """
    record = view.record(lsn)
    if record.flags & FLAG_REDACTED:
        message = f"record {lsn} of the board was removed by retention"
        raise ExpiredError(message, lsn=lsn)
    # The cast is safe, because the board's index and its events refer only to records of entries.
    return EntryRecord(cast("EntryEvent", decode_event(record)), lsn, record.time_us)


def find(view: View, board: int, key: str, now_us: int) -> EntryRecord | None:
    """Return the entry of a key, or None if there is no entry or the entry has expired."""
    row, is_there = last_row(view, board, key)
    return read_entry(view, row.lsn) if is_there and not 0 < row.expires_us <= now_us else None


def find_at(
    view: View, board: int, key: str, *, lsn: int | None = None, time_us: int | None = None
) -> EntryRecord | None:
    """Return the entry of a key as it was at an LSN or at a time, or None if there was no entry.

    Raises:
        ExpiredError: retention has removed a record that is needed.
    """
    moment_us = view.record(lsn).time_us if time_us is None and lsn else time_us or 0
    for found in records(view, board, key):
        if found.lsn <= lsn if lsn is not None else found.time_us <= moment_us:
            return found if found.is_there(moment_us) else None
    return None


def records(view: View, board: int, key: str) -> Iterator[EntryRecord]:
    """Yield the records of a key, the newest first. Raises ExpiredError."""
    lsn = last_row(view, board, key)[0].lsn
    while lsn:
        found = read_entry(view, lsn)
        yield found
        lsn = found.event.before


def records_kept(view: View, board: int, key: str) -> Iterator[EntryRecord]:
    """Yield the records of a key, the newest first, and stop at the first record that retention has removed."""
    with suppress(ExpiredError):
        yield from records(view, board, key)


Row = tuple[str, bytes]
"""An existing entry in the index: its key, and the LSN of its last record, encoded as a log key."""


class Span(NamedTuple):
    """The keys to list, and their order. Both bounds are exclusive. An empty str means no bound."""

    after: str = ""
    before: str = ""
    reverse: bool = False


def scan(
    view: View, board: int, pattern: KeyPattern, span: Span, now_us: int, *, count: int = ENTRIES_MAX
) -> Iterator[list[Row]]:
    """Yield the entries that match a pattern, in lists. Only the last list has fewer than `count` entries."""
    transaction, fits, wild = view.transaction, pattern.expression.fullmatch, pattern.text[len(pattern.prefix) :]
    prefix = board_keys.encode_entry_key(board, pattern.prefix)
    skipped, inside, never = len(prefix) - len(pattern.prefix.encode()), len(pattern.prefix), bytes(8)
    found: list[Row] = []
    for low, high in _places(board, pattern, span):
        end = keys.after_prefix(prefix)
        start = (b"" if high == end else high) if span.reverse else low
        if isinstance(transaction, ReadTransaction):
            batches = transaction.scan_batches(prefix, start=start, reverse=span.reverse, count=count)
        else:
            batches = ([pair] for pair in transaction.scan_index(prefix, start=start, reverse=span.reverse))
        for pairs in batches:
            last = pairs[-1][0]
            is_over = last < low if span.reverse else last >= high
            if is_over or pairs[0][0] == high:
                pairs = [pair for pair in pairs if low <= pair[0] < high]
            rows = [
                (place[skipped:].decode(), payload[:8])
                for place, payload in pairs
                if payload.startswith(never, 8) or int.from_bytes(payload[8:16]) > now_us
            ]
            if wild == "*":  # In this frequent case, a search for a slash is faster than the regular expression.
                rows = [row for row in rows if row[0].find("/", inside) < 0]
            elif wild != "**":
                rows = [row for row in rows if fits(row[0])]
            found += rows
            if len(found) >= count:
                yield found
                found = []
            if is_over:
                break
    if found:
        yield found


def _places(board: int, pattern: KeyPattern, span: Span) -> list[tuple[bytes, bytes]]:
    """Return the ranges of index keys that a scan must read. Each range excludes its upper bound.

    The library's own keys begin with `RESERVED`, and may be many. The ranges omit these keys unless the pattern begins
    with `RESERVED`.
    """
    low = board_keys.encode_entry_key(board, pattern.prefix)
    high = low + b"\0" if pattern.is_key else keys.after_prefix(low)
    if span.after:
        low = max(low, board_keys.encode_entry_key(board, span.after) + b"\0")
    if span.before:
        high = min(high, board_keys.encode_entry_key(board, span.before))
    places = [(low, high)]
    if RESERVED.startswith(pattern.prefix) and not pattern.text.startswith(RESERVED):
        own = board_keys.encode_entry_key(board, RESERVED)
        places = [(low, min(high, own)), (max(low, keys.after_prefix(own)), high)]
    places = [(first, end) for first, end in places if first < end]
    return places[::-1] if span.reverse else places


class Records(NamedTuple):
    """The records of some entries. Most of them are plain: a kernel has read them (see `EntryFacts`)."""

    rows: Sequence[Row]
    facts: list[tuple[int, ...]]
    """The `EntryFacts` of each record, as plain tuples."""
    data: bytes
    """Agents and encoded values of the plain records."""
    others: dict[int, EntryRecord]
    """The records that are not plain, keyed by their position in `rows`."""
    values: dict[int, Any]
    """The values that the kernel did not read, keyed by their position in `rows`.

    A value of a plain record is one of them if it is in another record, or is too large or too deep.
    """


_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""

_NOT_PLAIN = (0,) * len(EntryFacts._fields)


def read_records(view: View, rows: Sequence[Row], open_workspace: Callable[[], Workspace] | None) -> list[Records]:
    """Read the last records of some entries, with their values unless `open_workspace` is None.

    `open_workspace` returns a reader of nodes in `view`. A later reader might find that retention has removed a value.
    """
    with_values = open_workspace is not None
    read: list[Records] = []
    stored = view.transaction if isinstance(view.transaction, ReadTransaction) else None
    while rows:
        some = rows[:ENTRIES_MAX]
        places = [place for _key, place in some]
        records = None if stored is None else stored.join_logs(places)
        if records is None:
            facts, data, are_plain = [_NOT_PLAIN] * len(some), b"", False
        else:
            facts, data, are_plain = entries_read(records[0], records[1], places, with_values=with_values)
        others: dict[int, EntryRecord] = {}
        if not are_plain:
            others = {at: read_entry(view, int.from_bytes(places[at])) for at, fact in enumerate(facts) if not fact[0]}
        values: dict[int, Any] = {}
        if open_workspace is not None:
            for at, fact in enumerate(facts):
                if fact[12]:
                    values[at] = _plain_value(open_workspace(), EntryFacts._make(fact), data)
            for at, found in others.items():
                values[at] = read_value(open_workspace(), found.event)
        read.append(_new(Records, (some[: len(facts)], facts, data, others, values)))
        rows = rows[len(facts) :]
    return read


def scan_children(view: View, board: int, prefix: str, now_us: int, may: Callable[[str], bool]) -> Iterator[str]:
    """Yield the children of a prefix: keys with one more segment, and directories, which end with `/`.

    Keys for which `may` returns False are skipped.
    """
    beginning = board_keys.encode_entry_key(board, prefix)
    skip, start = len(beginning) - len(prefix.encode()), b""
    while True:
        for place, payload in view.transaction.scan_index(beginning, start=start):
            key, expires_us = place[skip:].decode(), board_keys.decode_row(payload).expires_us
            if key.startswith(RESERVED) and not prefix.startswith(RESERVED):  # Skip all of the library's own keys.
                start = board_keys.encode_entry_key(board, RESERVED)[:-1] + b"0"
                break
            if 0 < expires_us <= now_us or not may(key):
                continue
            name, slash, _rest = key.removeprefix(prefix).partition("/")
            yield f"{prefix}{name}{slash}"
            if slash:  # Skip the rest of this directory.
                start = board_keys.encode_entry_key(board, f"{prefix}{name}/")[:-1] + b"0"
                break
        else:
            return


def records_since(view: View, board: int, lsn: int) -> Iterator[int]:
    """Yield the LSNs of entry records after `lsn`, the newest first. Skip removed records."""
    for place, _payload in view.transaction.scan_index(keys.encode_thread_prefix(b"e", board), reverse=True):
        found = keys.decode_event_lsn(place)
        if found <= lsn:
            return
        if is_entry(view, found):
            yield found


def changed_since(view: View, board: int, lsn: int) -> list[str]:
    """Return the keys that have records after `lsn`, the most recently written first."""
    return list(dict.fromkeys(read_entry(view, each).event.key for each in records_since(view, board, lsn)))


def expired(view: View, board: int, now_us: int) -> Iterator[str]:
    """Yield the keys of expired entries whose expiry is not recorded yet, the earliest expiry first."""
    prefix = keys.encode_thread_prefix(b"E", board)
    stop = board_keys.encode_expiry_key(board, now_us + 1, 0)
    for place, payload in view.transaction.scan_index(prefix):
        if place >= stop:
            return
        yield payload.decode()


def read_value(workspace: Workspace, event: EntryEvent) -> Any:
    """Return the value of an entry, or None if the event has ended the entry."""
    if event.root_digest is None:
        return None
    return read_root(workspace, event.root_digest, event.root_lsn, event.root_node)


def _plain_value(workspace: Workspace, fact: EntryFacts, data: bytes) -> Any:
    return read_root(workspace, data[fact.value_at : fact.value_end], fact.root_lsn, fact.root_node)


def read_root(workspace: Workspace, digest: bytes, lsn: int, node: int) -> Any:
    """Return the value of an entry from the root node at this location."""
    root = workspace.read(ROOT, digest, lsn, node)
    slot = mapping.find_in_root(workspace, root, channel_key(VALUE))
    assert slot is not None
    return cbor.decode(read_item(workspace, slot))
