"""Claims compared with a model, with a clock of the test: the order of entries, holders, and late holders."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import statelog
from statelog.board import writes
from statelog.board.clocks import CLOCK
from statelog.errors import LeaseLostError
from statelog.log import times
from statelog.store import board_reads

KEYS = st.sampled_from(["q/1", "q/2", "q/3", "q/deep/4", "q/deep/5", "other"])
PATTERNS = st.sampled_from(["q/*", "q/**", "q/deep/*", "q/?", "**"])
FITS = {
    "q/*": {"q/1", "q/2", "q/3"},
    "q/?": {"q/1", "q/2", "q/3"},
    "q/**": {"q/1", "q/2", "q/3", "q/deep/4", "q/deep/5"},
    "q/deep/*": {"q/deep/4", "q/deep/5"},
}
S = 1_000_000


class Clock:
    now_us = 1_700_000_000 * S

    def __call__(self):
        self.now_us += 1
        return self.now_us


class Task:
    """An entry in the model."""

    def __init__(self, created, priority, ready):
        self.created, self.priority, self.ready = created, priority, ready
        self.attempts = 0
        self.claim = None
        """The claim that holds it, and its deadline."""


class Claims(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.clock = Clock()
        self.patch = pytest.MonkeyPatch()
        for module in (times, board_reads, writes):
            self.patch.setattr(module, "now_us", self.clock)
        self.patch.setattr(CLOCK, "boot_us", lambda: self.clock.now_us - 10**15)
        self.patch.setattr(CLOCK, "wall_us", lambda: self.clock.now_us)
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "a.state"
        self.store = statelog.open(self.path, durability="interval")
        self.tasks = {}
        self.late = []

    def teardown(self):
        if hasattr(self, "store"):
            assert self.store.verify().problems == []
            self.store.close()
            self.patch.undo()
            self.directory.cleanup()

    @rule(key=KEYS, priority=st.integers(-1, 1), delay=st.sampled_from([None, None, 5]))
    def put(self, key, priority, delay):
        entry = self.store.board().set(key, key, priority=priority, delay_s=delay)
        now = times.to_time_us(entry.time)
        before = self.tasks.get(key)
        task = Task(before.created if before else now, priority, now + delay * S if delay else 0)
        if before and before.claim:
            task.claim, task.attempts = before.claim, before.attempts
        self.tasks[key] = task

    @rule(pattern=PATTERNS, lease=st.sampled_from([3, 10]), is_bounded=st.booleans())
    def claim(self, pattern, lease, is_bounded):
        bound = {"max_attempts": 3, "dead": "dead/"} if is_bounded else {}
        claim = self.store.board(agent="a").claim(pattern, lease_s=lease, **bound)
        now = self.clock.now_us
        fitting = {key for key in FITS.get(pattern, set(self.tasks)) if not (is_bounded and key.startswith("dead/"))}
        for key in fitting & set(self.tasks):
            task = self.tasks[key]
            if task.claim and task.claim[1] <= now:
                self.late.append(task.claim[0])
                task.claim = None
        waiting = [
            (-task.priority, task.ready or task.created, key)
            for key, task in self.tasks.items()
            if key in fitting and task.claim is None and task.ready <= now
        ]
        for _priority, _order, key in sorted(waiting):
            task = self.tasks[key]
            if is_bounded and task.attempts >= 3:
                del self.tasks[key]
                name = "dead/" + key.rpartition("/")[2]
                entry = self.store.board().get(name)
                assert entry.value == key
                buried = self.tasks[name] = Task(times.to_time_us(entry.created), 0, 0)
                buried.attempts = task.attempts
                continue
            assert claim is not None
            assert (claim.key, claim.attempt) == (key, task.attempts + 1)
            task.attempts += 1
            task.claim = claim, now + lease * S
            return
        assert claim is None

    def end(self, data, act, after):
        held = [key for key, task in self.tasks.items() if task.claim]
        if held:
            key = data.draw(st.sampled_from(sorted(held)))
            claim = self.tasks[key].claim[0]
            act(claim)
            after(key, self.tasks[key])

    @rule(data=st.data())
    def complete(self, data):
        self.end(data, lambda claim: claim.complete(to="done/"), lambda key, _task: self.tasks.pop(key))
        for entry in self.store.board().list("done/*"):
            self.store.board().delete(entry.key)

    @rule(data=st.data())
    def release(self, data):
        self.end(data, lambda claim: claim.release(), lambda _key, task: setattr(task, "claim", None))

    @rule(data=st.data(), retry=st.sampled_from([0, 4]))
    def fail(self, data, retry):
        def after(key, task):
            task.claim = None
            if key not in {entry.key for entry in self.store.board().list()}:  # This was its last attempt.
                del self.tasks[key]
                name = "dead/" + key.rpartition("/")[2]
                self.tasks[name] = Task(times.to_time_us(self.store.board().get(name).created), 0, 0)
                self.tasks[name].attempts = task.attempts
            elif retry:
                task.ready = times.to_time_us(self.store.board().get(key).time) + retry * S

        self.end(data, lambda claim: claim.fail("x", retry_in_s=retry), after)

    @rule(data=st.data())
    def renew(self, data):
        def after(_key, task):
            task.claim = task.claim[0], self.clock.now_us + 7 * S

        self.end(data, lambda claim: claim.renew(7), after)

    @rule(key=KEYS)
    def delete(self, key):
        self.store.board().delete(key)
        task = self.tasks.pop(key, None)
        if task and task.claim:
            self.late.append(task.claim[0])

    @rule(seconds=st.integers(1, 8))
    def wait(self, seconds):
        self.clock.now_us += seconds * S

    @rule()
    def who_comes_late_is_refused(self):
        for claim in self.late:
            with pytest.raises(LeaseLostError):
                claim.complete()
        self.late.clear()

    @invariant()
    def what_is_seen(self):
        if hasattr(self, "store"):
            seen = {each.key: (each.claim and each.claim.token, each.attempts) for each in self.store.board().list()}
            assert seen == {
                key: (task.claim and task.claim[0].token, task.attempts) for key, task in self.tasks.items()
            }


TestClaims = pytest.mark.slow(Claims.TestCase)
