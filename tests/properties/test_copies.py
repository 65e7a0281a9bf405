"""Copies and their sources are independent, in whatever order they are committed to, pruned and deleted."""

from __future__ import annotations

import io
import random
import shutil
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import statelog
from statelog import reducers

SCHEMA = {"log": reducers.extend, "text": reducers.add, "notes": reducers.merge}
THREADS = st.sampled_from("abcde")
TEXTS = {
    size: "secret-" + "".join(random.Random(size).choices(string.ascii_letters, k=size))
    for size in (40, 900, 5_000, 30_000, 60_000)
}
SIZES = st.sampled_from(sorted(TEXTS))


def leftovers(path):
    """Return the texts that have bytes in a file."""
    data = path.read_bytes()
    return [
        size
        for size, text in TEXTS.items()
        if any(text[at : at + 12].encode() in data for at in range(0, size, max(size // 40, 12)))
    ]


class CopiesMachine(RuleBasedStateMachine):
    """Records the content of each version when it is made. Existing versions must have that content."""

    @initialize()
    def create(self):
        self.directory = Path(tempfile.mkdtemp(prefix="statelog-"))
        self.path = self.directory / "a.state"
        self.store = statelog.open(self.path, durability="interval")
        self.states = {}
        self.dead = set()

    def teardown(self):
        if not hasattr(self, "store"):
            return
        try:
            self.check_all()
            for name in self.states:
                self.store.delete_thread(name)
            self.store.compact()
            self.verify()
            assert leftovers(self.path) == []
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    def verify(self):
        assert self.store.verify().problems == []

    def check_all(self):
        self.verify()
        self.check(self.store, self.states)

    def check(self, store, names):
        for name in names:
            for checkpoint in store.thread(name).history():
                assert checkpoint.state.to_python() == self.states[name][checkpoint.version]
            assert store.thread(name).version == max(self.states[name])

    def commit(self, name, write):
        if name in self.dead:
            return
        made = self.store.thread(name, schema=SCHEMA).commit(write)
        self.states.setdefault(name, {})[made.version] = made.state.to_python()

    @rule(name=THREADS, size=SIZES)
    def append(self, name, size):
        self.commit(name, {"log": [TEXTS[size]]})

    @rule(name=THREADS, size=SIZES)
    def write_longer(self, name, size):
        self.commit(name, {"text": TEXTS[size]})

    @rule(name=THREADS, size=SIZES, again=st.booleans())
    def overwrite(self, name, size, again):
        self.commit(name, {"text": reducers.Overwrite(TEXTS[size] if again else "short"), "notes": {"k": TEXTS[size]}})

    @rule(name=THREADS)
    def start_afresh(self, name):
        nothing = {"log": [], "text": "", "notes": {}}
        self.commit(name, {channel: reducers.Overwrite(value) for channel, value in nothing.items()})

    @rule(source=THREADS, name=THREADS)
    def copy(self, source, name):
        if source not in self.states or name in self.states or name in self.dead:
            return
        self.store.copy_thread(source, name)
        there = {checkpoint.version for checkpoint in self.store.thread(source).history()}
        self.states[name] = {version: state for version, state in self.states[source].items() if version in there}
        assert {checkpoint.version for checkpoint in self.store.thread(name).history()} == there

    @rule(name=THREADS, keep_last=st.integers(1, 3))
    def retain(self, name, keep_last):
        self.store.prune(keep_last=keep_last, threads=name)

    @rule(name=THREADS)
    def delete(self, name):
        if name in self.states:
            self.store.delete_thread(name)
            del self.states[name]
            self.dead.add(name)

    @rule()
    def compact(self):
        self.store.compact()

    @rule()
    def rebuild_index(self):
        self.store.rebuild_index()

    @precondition(lambda self: getattr(self, "states", None))
    @rule(names=st.sets(THREADS, min_size=1), keep_last=st.none() | st.integers(1, 2))
    def carry_over(self, names, keep_last):
        """Copy threads together. The copies lend each other the same nodes as the originals."""
        names &= self.states.keys()
        exported = io.BytesIO()
        self.store.export(exported, threads=sorted(names))
        exported.seek(0)
        with statelog.open(self.directory / "other.state", durability="interval") as other:
            other.import_(exported)
            self.check(other, names)
            for name in sorted(names):
                if keep_last:
                    other.prune(keep_last=keep_last, threads=name)
                else:
                    other.delete_thread(name)
                assert other.verify().problems == []
                self.check(other, [info.id for info in other.threads()])
            other.compact()
            other.rebuild_index()
            assert other.verify().problems == []
            self.check(other, [info.id for info in other.threads()])
        for path in self.directory.glob("other.state*"):
            path.unlink()

    @rule()
    def check_now(self):
        self.check_all()


TestCopiesMachine = pytest.mark.slow(CopiesMachine.TestCase)
TestCopiesMachine.settings = settings(stateful_step_count=25)
