"""Entries compared with a model, for any operations in any order through several handles."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

import statelog
from statelog import reducers
from statelog.board import writes
from statelog.errors import AlreadyExistsError, ConflictError
from statelog.log import times
from statelog.store import board_reads

KEYS = st.sampled_from(["a", "a/b", "a/b/c", "a!", "a0", "tasks/1", "tasks/2", "tasks/é", "z" * 400])
VALUES = st.one_of(
    st.integers(-3, 3),
    st.none(),
    st.lists(st.integers(), max_size=3),
    st.sampled_from(["x" * 5000, {"k": ["y" * 900] * 9}]),
)
TTLS = st.sampled_from([None, None, 1, 5])
PREFIXES = st.sampled_from(["", "a", "a/", "tasks/", "nothing/"])


class Clock:
    """The clock that decides what has expired."""

    now_us = 1_700_000_000_000_000

    def __call__(self):
        self.now_us += 1  # Two records never have the same time.
        return self.now_us


class Boards(RuleBasedStateMachine):
    """The model: for each key its records, as (LSN, time, value or gone, expiry)."""

    moments = Bundle("moments")

    @initialize()
    def begin(self):
        self.clock = Clock()
        self.patch = pytest.MonkeyPatch()
        for module in (times, board_reads, writes):
            self.patch.setattr(module, "now_us", self.clock)
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "a.state"
        self.store = statelog.open(self.path, durability="interval")
        self.records = {}

    def teardown(self):
        if hasattr(self, "store"):
            assert self.store.verify().problems == []
            self.store.rebuild_index()
            self.check()
            assert self.store.verify().problems == []
            self.store.close()
            self.patch.undo()
            self.directory.cleanup()

    # --- the model ------------------------------------------------------------------

    def held(self, key, at=None):
        """Return (LSN, value) of a key, or None, now or after a record."""
        now = self.clock.now_us + 1 if at is None else at[1]
        for lsn, _time, there, expires in reversed(self.records.get(key, [])):
            if at is None or lsn <= at[0]:
                return (lsn, there[0]) if there and not (expires and expires <= now) else None
        return None

    def note(self, entry):
        expires = entry.expires and times.to_time_us(entry.expires)
        self.records.setdefault(entry.key, []).append(
            (entry.version, times.to_time_us(entry.time), [entry.value], expires)
        )

    # --- writes -----------------------------------------------------------------------

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def set(self, key, value, ttl):
        before = self.held(key)
        entry = self.store.board(agent="one").set(key, value, ttl_s=ttl)
        assert (entry.value, entry.agent) == (value, "one")
        assert (entry.created == entry.time) is (before is None)
        self.note(entry)

    @rule(key=KEYS, value=VALUES)
    def create(self, key, value):
        if self.held(key) is None:
            self.note(self.store.board().create(key, value))
        else:
            with pytest.raises(AlreadyExistsError):
                self.store.board().create(key, value)

    @rule(key=KEYS, value=VALUES, guess=st.sampled_from([None, 0, 1]))
    def cas(self, key, value, guess):
        held = self.held(key)
        actual = 0 if held is None else held[0]
        expected = actual if guess is None else guess
        if expected == actual:
            self.note(self.store.board().cas(key, value, expected_version=expected))
        else:
            with pytest.raises(ConflictError) as caught:
                self.store.board().cas(key, value, expected_version=expected)
            assert (caught.value.expected_version, caught.value.actual_version) == (expected, actual)

    @rule(key=KEYS, number=st.integers(1, 3))
    def add(self, key, number):
        held = self.held(key)
        if held is None or type(held[1]) is int:
            entry = self.store.board().update(key, reducers.add, number)
            assert entry.value == number + (held[1] if held else 0)
            self.note(entry)

    @rule(key=KEYS)
    def delete(self, key):
        held = self.held(key)
        assert self.store.board().delete(key) is (held is not None)
        if held is not None:
            self.records[key].append((self.store.board().history(key)[0].version, self.clock.now_us, [], None))

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds):
        self.clock.now_us += seconds * 1_000_000

    @rule()
    def sweep(self):
        self.store.board().sweep()

    @rule(target=moments)
    def moment(self):
        self.note(self.store.board().set("moment", 0))  # The last record must be a record of the board with this time.
        return self.store.last_lsn, self.clock.now_us

    @rule(moment=consumes(moments), prefix=PREFIXES)
    def rollback(self, moment, prefix):
        expected = {key: self.held(key, moment) for key in self.records if key.startswith(prefix)}
        changed = self.store.board().rollback(prefix, to=moment[0])
        board = self.store.board()
        for key, was in expected.items():
            entry = board.get(key)
            if was is not None and entry is None:  # It has expired in the meantime.
                assert any(lsn == was[0] and expires for lsn, _time, _there, expires in self.records[key])
            else:
                assert (entry and entry.value) == (was and was[1])
            if key in changed:
                last = board.history(key)[0]
                assert last.kind == "rollback"
                expires = last.expires and times.to_time_us(last.expires)
                there = [] if entry is None else [last.value]
                self.records[key].append((last.version, times.to_time_us(last.time), there, expires))
        assert set(changed) <= set(expected)

    @rule(key=KEYS, value=VALUES, is_kept=st.booleans())
    def together(self, key, value, is_kept):
        try:
            with self.store.transaction() as tx:
                tx.board().set(key, value)
                assert tx.board().get(key).value == value
                tx.board().update("total", reducers.add, 1)
                tx.thread("t").commit({"n": value})
                assert 1 / is_kept == 1
        except ZeroDivisionError:
            return
        for each in (key, "total"):
            self.note(self.store.board().get(each))

    @rule()
    def reopen(self):
        self.store.close()
        self.store = statelog.open(self.path, durability="interval")

    @rule()
    def care(self):
        self.store.prune(keep_last=1)
        self.store.compact()

    # --- reads ------------------------------------------------------------------------

    @rule(key=KEYS, moment=moments)
    def at(self, key, moment):
        entry, expected = self.store.board().get(key, at=moment[0]), self.held(key, moment)
        assert (entry and (entry.version, entry.value)) == expected

    @invariant()
    def check(self):
        if not hasattr(self, "store"):
            return
        expected = {key: held for key in sorted(self.records, key=str.encode) if (held := self.held(key)) is not None}
        with self.store.snapshot() as snapshot:
            board = snapshot.board()
            listed = board.list()
            assert [(each.key, (each.version, each.value)) for each in listed] == list(expected.items())
            assert [board.get(each.key) for each in listed] == listed
            paged = [each for key in ["", *expected] for each in board.list(limit=1, after=key)]
            assert paged == listed
            below = {key[len("a/") :] for key in expected if key.startswith("a/")}
            names = {f"a/{rest.partition('/')[0]}{rest.partition('/')[1]}" for rest in below}
            assert board.children("a/") == sorted(names, key=str.encode)
            assert [each.key for each in board.list("tasks/?")] == [
                key for key in expected if key.startswith("tasks/") and len(key) == len("tasks/1")
            ]


TestBoards = pytest.mark.slow(Boards.TestCase)
