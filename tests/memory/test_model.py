"""Memories of several scopes behave as a naive model does: lists of facts, scanned for each question."""

from __future__ import annotations

import io
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import statelog
from statelog import Memory
from statelog.log.times import to_datetime

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = st.integers(0, 6)
KEYS = st.sampled_from(["diet", "city", "city/old"])
SCOPES = ["user/4", "user/42", "user/42/agent/7"]
WORDS = ["vegan", "rome", "jazz"]


def day(number):
    return BEGIN + timedelta(days=number)


class Told:
    """A fact as the model has it."""

    def __init__(self, fact, begins, until):
        self.text, self.known = fact.text, fact.known_from
        self.begins = fact.known_from if begins is None else begins
        self.until = until

    def __eq__(self, other):
        return vars(self) == vars(other)

    __hash__ = None


def true_at(told, at, known=None):
    """Return the text that is true at a time: that of the fact that began last, if it has not ended."""
    latest = None
    for each in told:
        is_known = known is None or each.known <= known
        if is_known and each.begins <= at and (latest is None or each.begins >= latest.begins):
            latest = each
    return None if latest is None or (latest.until is not None and latest.until <= at) else latest.text


class Memories(RuleBasedStateMachine):
    """Remember, forget, roll back and move; compare everything that can be asked."""

    @initialize()
    def open(self):
        self.directory = tempfile.TemporaryDirectory()
        self.store = statelog.open(Path(self.directory.name) / "a.state")
        self.model = {scope: {} for scope in SCOPES}
        self.moments = []

    def teardown(self):
        if hasattr(self, "store"):
            self.answers_are_those_of_a_scan()
            assert self.store.verify().problems == []
            self.store.close()
            self.directory.cleanup()

    def memory(self, scope):
        return Memory(self.store, scope)

    @rule(scope=st.sampled_from(SCOPES), key=KEYS, word=st.sampled_from(WORDS), begins=st.none() | DAYS, lasts=DAYS)
    def remember(self, scope, key, word, begins, lasts):
        begins = None if begins is None else day(begins)
        until = begins + timedelta(days=lasts) if begins is not None and lasts else None
        fact = self.memory(scope).remember(word, key=key, valid_from=begins, valid_until=until)
        told = self.model[scope].setdefault(key, [])
        assert not told or fact.known_from > told[-1].known
        told.append(Told(fact, begins, until))

    @rule(scope=st.sampled_from(SCOPES), key=KEYS)
    def forget(self, scope, key):
        was_there = self.model[scope].pop(key, None) is not None
        assert self.memory(scope).forget(key) >= was_there  # It is also True for records that a rollback has left.
        self.moments.clear()

    @rule(scope=st.sampled_from([*SCOPES, "user"]))
    def forget_scope(self, scope):
        Memory.forget_scope(self.store, scope)
        for each in SCOPES:
            if f"{each}/".startswith(f"{scope}/"):
                self.model[each].clear()
        self.moments.clear()

    @rule()
    def note_moment(self):
        copied = {scope: {key: list(told) for key, told in facts.items()} for scope, facts in self.model.items()}
        self.moments.append((self.store.last_lsn, copied))

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def roll_back(self, data):
        lsn, model = data.draw(st.sampled_from(self.moments))
        self.store.board().rollback("memory/", to=lsn)
        self.model = {scope: {key: list(told) for key, told in facts.items()} for scope, facts in model.items()}

    @rule()
    def export_and_import(self):
        stream = io.BytesIO()
        self.store.export(stream)
        stream.seek(0)
        self.store.close()
        copy = tempfile.TemporaryDirectory()
        self.store = statelog.open(Path(copy.name) / "a.state")
        self.store.import_(stream)
        self.directory.cleanup()
        self.directory = copy

    @rule()
    def answers_are_those_of_a_scan(self):
        now = datetime.now(UTC)
        for scope, facts in self.model.items():
            memory = self.memory(scope)
            live = {key: text for key, told in facts.items() if (text := true_at(told, now)) is not None}
            assert {fact.key: fact.text for fact in memory.facts()} == live
            for word in WORDS:
                found = {fact.key for fact in memory.recall(word, limit=50)}
                assert found == {key for key, text in live.items() if text == word}
            for key, told in facts.items():
                assert [fact.text for fact in memory.history(key)] == [each.text for each in reversed(told)]
                for at in (day(0), day(3), day(7)):
                    for known in (None, to_datetime(1), *(each.known for each in told[:2])):
                        fact = memory.get(key, at=at, known_at=known)
                        assert (fact and fact.text) == true_at(told, at, known)
                        assert fact is None or fact.valid_from <= at < (fact.valid_until or day(10_000))


TestMemories = pytest.mark.slow(Memories.TestCase)
TestMemories.settings = settings(stateful_step_count=16)
