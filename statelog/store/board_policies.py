"""Applies retention to the board: by single calls, and by stored policies."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.board import entry_writer, reads, writes
from statelog.board.names import RESERVED, compile_pattern
from statelog.board.retention import GradualRetention, RetentionRule, erase, keys_deleted, prune, rule_fields
from statelog.errors import LimitError
from statelog.format.digests import blake2b
from statelog.limits import POLICIES_MAX
from statelog.log.care.vacuum import RetentionReport
from statelog.log.kinds.entries import EntryAct
from statelog.log.times import now_us

if TYPE_CHECKING:
    from statelog.board.entry_writer import EntryWriter
    from statelog.board.names import KeyPattern
    from statelog.log.batch import Batch
    from statelog.log.engine import Engine
    from statelog.log.view import View
    from statelog.store.session import StoreSession

_POLICIES = f"{RESERVED}board/retain/"
"""The prefix of the entries that store policies. The last segment of each key is the digest of the pattern."""

_TURN_BITS = 6
"""Policies are applied after about one write in `2 ** _TURN_BITS`."""

_WATCHED_S = 60.0
"""For this time after a watcher's last sign of life, retention keeps the records that the watcher has not seen."""

_NEVER = 1 << 62

_EVEN_EXPIRED = 0
"""Scans at this time count no entry as expired, so that they include expired entries, whose records still exist."""

_ERASED = 1024
"""The number of entries that one commit of `erase_entries` deletes."""


def prune_board(session: StoreSession, rule: RetentionRule) -> RetentionReport:
    """See `Board.prune`."""
    engine = session.engine
    engine.store_file.lmdb_file.check_writable()
    with session.read() as view:
        board = reads.board_of(view)
    if board is None or rule.is_empty:
        return RetentionReport()
    return prune(engine, board, [rule], _seen_by_all(engine))


def set_board_policy(session: StoreSession, rule: RetentionRule) -> RetentionReport:
    """See `Board.set_retention`."""
    session.engine.store_file.lmdb_file.check_writable()
    _store(session, rule)
    return prune_board(session, rule)


def erase_entries(session: StoreSession, pattern: KeyPattern) -> list[str]:
    """See `Board.erase`."""
    engine = session.engine
    engine.store_file.lmdb_file.check_writable()
    with session.read() as view:
        board = reads.board_of(view)
        rows = [] if board is None else reads.scan(view, board, pattern, reads.Span(), _EVEN_EXPIRED, count=_ERASED)
        pages = [[key for key, _place in page] for page in rows]
    if board is None:
        return []
    for page in pages:
        session.act(partial(_delete_all, page))
    with session.read() as view:
        deleted = list(keys_deleted(view, board, pattern))
    erase(engine, board, deleted, _seen_by_all(engine))
    return sorted(deleted)


def _delete_all(found: list[str], batch: Batch) -> None:
    writer = writes.begin(batch, None)
    for key in found:
        if writer.known(key).is_there:
            entry_writer.stage(writer, EntryAct.DELETE, key)


def _store(session: StoreSession, rule: RetentionRule) -> None:
    """Store a rule as a policy. An empty rule deletes the policy of its pattern."""
    guard = session.engine.guard
    if guard is not None:
        guard.check_name(rule.pattern.text)  # Refuse a secret, because a redacted pattern would match other keys.
    key = _POLICIES + blake2b(rule.pattern.text.encode(), digest_size=8).hexdigest()
    fields = rule_fields(rule)
    value = entry_writer.prepare(reducers.replace.prepare(reads.VALUE, fields, path=key))
    with session.read() as view:
        board = reads.board_of(view)
        found = None if board is None else reads.find(view, board, key, now_us())
    if (found is None) if rule.is_empty else (found is not None and _fields(session, found) == fields):
        return  # Write nothing, because programs set the same policies at every start.
    if found is None and board is not None:
        with session.read() as view:
            count = len(_rules(session, view, board))
        if count >= POLICIES_MAX:
            message = f"{count + 1} patterns have a policy for the board; at most {POLICIES_MAX} are allowed"
            raise LimitError(message, actual=count + 1, limit=POLICIES_MAX)

    def work(writer: EntryWriter) -> None:
        there = writes.find(writer, key)
        if not rule.is_empty:
            place = entry_writer.NO_PLACE if there is None else entry_writer.place_of(there)
            entry_writer.stage(writer, EntryAct.SET, key, place=place, value=value)
        elif there is not None:
            writes.take(writer, there)

    session.act(lambda batch: work(writes.begin(batch, None)))


def is_turn() -> bool:
    """Return True if this write should apply the policies.

    The choice is random, so processes need no shared counter.
    """
    return not random.getrandbits(_TURN_BITS)


def take_turn(session: StoreSession) -> None:
    """Apply the policies."""
    with session.read() as view:
        board = reads.board_of(view)
        rules = [] if board is None else _rules(session, view, board)
    if rules and board is not None:
        turns = session.kept.setdefault("turns", GradualRetention())
        turns.take(session.engine, board, rules, _seen_by_all(session.engine))


def _rules(session: StoreSession, view: View, board: int) -> list[RetentionRule]:
    """Return the policies, the longest pattern first."""
    pattern = compile_pattern(f"{_POLICIES}*")
    entries = [
        reads.read_entry(view, int.from_bytes(place))
        for rows in reads.scan(view, board, pattern, reads.Span(), now_us())
        for _key, place in rows
    ]
    rules = [
        RetentionRule(compile_pattern(fields["pattern"]), fields["keep_last"], fields["max_age_s"])
        for fields in (_fields(session, found) for found in entries)
    ]
    return sorted(rules, key=lambda rule: -len(rule.pattern.text))


def _fields(session: StoreSession, found: reads.EntryRecord) -> dict[str, Any]:
    fields: dict[str, Any] = reads.read_value(session.workspace(), found.event)
    return fields


def _seen_by_all(engine: Engine) -> int:
    """Return the last LSN that all watchers have seen."""
    positions = engine.store_file.wake.positions(within_s=_WATCHED_S)
    return _NEVER if positions is None else positions - 1
