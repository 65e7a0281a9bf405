"""Retention of the board: remove old records of entries, and records of deleted entries.

A record is removed in two steps. One transaction redacts the record and removes it from the index.
A later sweep marks all nodes that are still needed, and erases the others. The records of a key are
removed in the order of the log, so the remaining history has no gaps.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.board.reads import EntryRecord, read_entry, records_kept
from statelog.format import keys
from statelog.format.board_keys import encode_gone_key
from statelog.log.care.retention import sweep_thread
from statelog.log.care.vacuum import EveryNode, RetentionReport, Rewritable, rewrite, write_in_portions
from statelog.log.index import TO_BE_ERASED, redacted_records
from statelog.log.kinds.entries import is_entry, last_row, records_of
from statelog.log.times import now_us
from statelog.log.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from statelog.board.names import KeyPattern
    from statelog.log.engine import Engine
    from statelog.log.transaction import IndexedLog
    from statelog.storage.write_transaction import WriteTransaction

LOOKED_AT = 512
"""A turn of `GradualRetention` examines this many records from where the last turn ended, and as many of the newest."""

HELD_MIN = 512
"""The number of redacted records with nodes at which a sweep starts; or a quarter of the nodes that the last sweep
kept, if that is more.
"""


class RetentionRule(NamedTuple):
    """A rule that keeps the last and the recent records of each entry whose key matches a pattern."""

    pattern: KeyPattern
    keep_last: int | None
    max_age_s: float | None

    @property
    def is_empty(self) -> bool:
        """Whether the rule has no limits. Setting an empty rule as a policy removes the policy of its pattern."""
        return self.keep_last is None and self.max_age_s is None

    def lets_go(self, view: View, board: int, found: EntryRecord, time_us: int, until: int) -> bool:
        """Return True if a record may be removed.

        The last record of an existing entry stays. The record that was the entry's last one at LSN `until` also stays,
        because a watcher that has read the log up to `until` still needs it.
        """
        key = found.event.key
        row, is_there = last_row(view, board, key)
        if found.lsn == row.lsn and (is_there or self.max_age_s is None):
            return False
        if self.max_age_s is not None and found.time_us > time_us - self.max_age_s * 1e6:
            return False
        last_seen = (each.lsn for each in records_kept(view, board, key) if each.lsn <= until)
        if row.lsn > until and found.lsn == next(last_seen, 0):
            return False
        if self.keep_last is None or found.lsn == row.lsn:
            return True
        return all(each.lsn != found.lsn for each in islice(records_kept(view, board, key), self.keep_last))


def choose(engine: Engine, board: int, rules: Sequence[RetentionRule], lsns: Iterable[int], until: int) -> list[int]:
    """Return the LSNs of the records that rules remove, in the order of the log.

    The first rule whose pattern matches decides. A record stays if an earlier record of its key
    stays.

    Args:
        engine: the store.
        board: the LSN of the board's thread.
        rules: the rules.
        lsns: LSNs of the records to examine, ascending.
        until: records after this LSN stay; see `RetentionRule.lets_go`.
    """
    time_us = now_us()
    chosen: dict[int, None] = {}
    with engine.read() as view:
        for lsn in lsns:
            is_kept = _is_there(view.transaction, board, lsn)  # Another process may have removed the record.
            if lsn > until or not is_kept or not is_entry(view, lsn):
                continue
            found = read_entry(view, lsn)
            rule = next((rule for rule in rules if rule.pattern.fits(found.event.key)), None)
            if rule is not None and rule.lets_go(view, board, found, time_us, until):
                before = found.event.before
                if before in chosen or not _is_there(view.transaction, board, before):
                    chosen[lsn] = None
    return list(chosen)


def let_go(engine: Engine, board: int, lsns: Sequence[int]) -> RetentionReport:
    """Remove records that `choose` returned, except those that have become the last record of an existing entry."""

    def write(transaction: WriteTransaction, some: Sequence[Rewritable]) -> RetentionReport:
        view = View(transaction)
        going: dict[int, Rewritable] = {}
        for each in some:
            if not _is_there(transaction, board, each.lsn):
                continue
            event = read_entry(view, each.lsn).event
            row, is_there = last_row(view, board, event.key)
            has_earlier = event.before not in going and _is_there(transaction, board, event.before)
            if not has_earlier and not (row.lsn == each.lsn and is_there):
                going[each.lsn] = each
        report = rewrite(transaction, going.values(), EveryNode())
        report.expired_versions = len(going)
        return report

    report = RetentionReport()
    for _count, step in write_in_portions(engine, [Rewritable(lsn, board) for lsn in lsns], write):
        report.add(step)
    return report


def _is_there(transaction: IndexedLog, board: int, lsn: int) -> bool:
    """Return True if a record of the board was not removed."""
    return lsn > 0 and transaction.get_index(keys.encode_thread_event_key(board, lsn)) is not None


def prune(engine: Engine, board: int, rules: Sequence[RetentionRule], until: int) -> RetentionReport:
    """Remove the records that the rules do not keep, and erase the nodes that are no longer referenced."""
    with engine.read() as view:
        lsns = list(records_of(view, board))
    report = let_go(engine, board, choose(engine, board, rules, lsns, until))
    report.add(sweep_thread(engine, board)[1])
    return report


def erase(engine: Engine, board: int, found: Iterable[str], until: int) -> RetentionReport:
    """Remove all records of keys whose entries are deleted, regardless of their age.

    The record of the deletion itself has no value. It stays if it is later than LSN `until`,
    because a watcher has not read it yet.
    """
    with engine.read() as view:
        lsns = [
            each.lsn
            for key in found
            for each in records_kept(view, board, key)
            if each.lsn <= until or each.event.root_digest is not None
        ]
    return let_go(engine, board, sorted(lsns))


def keys_deleted(view: View, board: int, pattern: KeyPattern) -> Iterator[str]:
    """Yield the matching keys whose entries are deleted but still have records."""
    beginning = encode_gone_key(board, pattern.prefix)
    skipped = len(beginning) - len(pattern.prefix.encode())
    for place, _payload in view.transaction.scan_index(beginning):
        key = place[skipped:].decode()
        if pattern.fits(key):
            yield key


class GradualRetention:
    """Applies retention policies in small turns, between the writes of other threads and processes."""

    def __init__(self) -> None:
        self._at = 0
        self._kept = 0

    def take(self, engine: Engine, board: int, rules: Sequence[RetentionRule], until: int) -> None:
        """Run one turn: examine the next records and the newest ones, and remove those that the rules do not keep."""
        with engine.read() as view:
            prefix = keys.encode_thread_prefix(b"e", board)
            lsns = list(islice(records_of(view, board, self._at), LOOKED_AT))
            newest = islice(view.transaction.scan_index(prefix, reverse=True), LOOKED_AT)
            some = {*lsns, *(keys.decode_event_lsn(place) for place, _payload in newest)}
            held = sum(state != TO_BE_ERASED for state in redacted_records(view, board).values())
        self._at = lsns[-1] if len(lsns) == LOOKED_AT else 0
        let_go(engine, board, choose(engine, board, rules, sorted(some), until))
        if held >= max(HELD_MIN, self._kept // 4):
            collector, _report = sweep_thread(engine, board)
            self._kept = collector.marked


def rule_fields(rule: RetentionRule) -> dict[str, Any]:
    """Return the fields of `rule`, as a policy entry stores them."""
    return {"pattern": rule.pattern.text, "keep_last": rule.keep_last, "max_age_s": rule.max_age_s}
