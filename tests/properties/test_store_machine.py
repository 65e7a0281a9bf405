"""A store and its model have the same content after any operations."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import statelog
from statelog.errors import ConflictError, StatelogError
from statelog.testing import SCHEMA, StoreModel, assert_matches, identical, scalars, texts, writes, writes_to

THREADS = st.sampled_from(["a", "b", "c"])
COPIES = st.sampled_from(["a", "b", "d", "e"])
NAMES = st.sampled_from(["p", "q", "r", "s"])
SUPERSTEPS = st.lists(writes(), min_size=1, max_size=3)
PATTERNS = st.sampled_from(["*", "?", "a", "b", "a*", "[bc]", "*c", "other"])
METADATA = st.none() | st.dictionaries(texts(), scalars(), max_size=3)


def outcome(act):
    """Return the version of the result of an act or None, or the class of its error."""
    try:
        result = act()
    except StatelogError as error:
        return type(error)
    return getattr(result, "version", None)


class StoreMachine(RuleBasedStateMachine):
    durability = "interval"

    @initialize()
    def create(self):
        self.directory = Path(tempfile.mkdtemp(prefix="statelog-"))
        self.path = self.directory / "agent.state"
        self.model = StoreModel()
        self.store = statelog.open(self.path, durability=self.durability)
        self.states = {}

    def teardown(self):
        if not hasattr(self, "store"):
            return
        try:
            assert self.store.verify().problems == []
            assert_matches(self.store, self.model)
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    def both(self, thread, branch, act):
        """Do the same to both, and compare the outcomes."""
        found = outcome(lambda: act(self.store.thread(thread, schema=SCHEMA, branch=branch)))
        expected = outcome(lambda: act(self.model.thread(thread, schema=SCHEMA, branch=branch)))
        assert found == expected

    def pick_branch(self, data, thread):
        names = [name for name, *_rest in self.model.thread(thread).branches()] or ["main"]
        return data.draw(st.sampled_from(names), label="branch")

    def pick_version(self, data, thread, branch):
        head = self.model.thread(thread, branch=branch).version
        return data.draw(st.integers(0, max(head, 0)) | st.integers(-3, head + 1), label="version")

    # --- what may happen ------------------------------------------------------------

    @rule(thread=THREADS, step=SUPERSTEPS, metadata=METADATA, data=st.data())
    def commit(self, thread, step, metadata, data):
        self.both(thread, self.pick_branch(data, thread), lambda it: it.commit(*step, metadata=metadata))

    @rule(thread=THREADS, step=SUPERSTEPS, id=NAMES, data=st.data())
    def commit_with_id(self, thread, step, id, data):
        self.both(thread, self.pick_branch(data, thread), lambda it: it.commit(*step, id=id))

    @rule(thread=THREADS, step=SUPERSTEPS, off=st.integers(-1, 1), data=st.data())
    def commit_expecting(self, thread, step, off, data):
        branch = self.pick_branch(data, thread)
        expected = self.model.thread(thread, branch=branch).version + off
        self.both(thread, branch, lambda it: it.commit(*step, expected_version=expected))

    @rule(thread=THREADS, data=st.data())
    def rollback(self, thread, data):
        branch = self.pick_branch(data, thread)
        version = self.pick_version(data, thread, branch)
        self.both(thread, branch, lambda it: it.rollback(version))

    @rule(thread=THREADS, name=NAMES)
    def rollback_by_name(self, thread, name):
        self.both(thread, "main", lambda it: it.rollback(name))

    @rule(thread=THREADS, name=NAMES, update=st.none() | writes(), data=st.data())
    def fork(self, thread, name, update, data):
        branch = self.pick_branch(data, thread)
        at = data.draw(st.none() | st.just(self.pick_version(data, thread, branch)), label="at")
        self.both(thread, branch, lambda it: it.fork(name, at=at, update=update))

    @rule(thread=THREADS, name=NAMES, data=st.data())
    def tag(self, thread, name, data):
        branch = self.pick_branch(data, thread)
        version = self.pick_version(data, thread, branch)
        self.both(thread, branch, lambda it: it.tag(name, version))

    @rule(thread=THREADS, name=NAMES)
    def untag(self, thread, name):
        self.both(thread, "main", lambda it: it.untag(name))

    @rule(source=st.sampled_from(["a", "b", "d"]), copy=COPIES, within=st.none() | writes(), fails=st.booleans())
    def copy_thread(self, source, copy, within, fails):
        """Alone, or in a transaction, between commits to the one and the other."""

        def act(store):
            if within is None:
                store.copy_thread(source, copy)
                return
            with store.transaction() as transaction:
                transaction.thread(source, schema=SCHEMA).commit(within)
                copied = transaction.copy_thread(source, copy)
                assert identical(copied.state, transaction.thread(source).state)
                copied.commit({"query": "the copy's own"})
                if fails:
                    raise ConflictError("meant to fail")

        assert outcome(lambda: act(self.store)) == outcome(lambda: act(self.model))

    @rule(source=COPIES, step=SUPERSTEPS, data=st.data())
    def go_on_with_a_copy(self, source, step, data):
        if source in self.model.threads:
            self.both(source, self.pick_branch(data, source), lambda it: it.commit(*step))

    @rule(steps=st.lists(st.tuples(THREADS, writes()), min_size=1, max_size=5), fails=st.booleans(), data=st.data())
    def transact(self, steps, fails, data):
        branches = {thread: self.pick_branch(data, thread) for thread, _write in steps}

        def act(target):
            with target.transaction() as transaction:
                for thread, write in steps:
                    bound = transaction.thread(thread, schema=SCHEMA, branch=branches[thread])
                    before = bound.version
                    made = bound.commit(write)
                    assert identical(bound.state, made.state)
                    assert made.version == before + 1
                if fails:
                    raise ConflictError("meant to fail")

        assert outcome(lambda: act(self.store)) == outcome(lambda: act(self.model))

    @rule(thread=THREADS, value=writes_to("query"), data=st.data())
    def mount(self, thread, value, data):
        branch = self.pick_branch(data, thread)
        bound = self.model.thread(thread, schema=SCHEMA, branch=branch)
        changed = [bound.state.get("query"), value]
        bound.commit({"query": changed})
        with self.store.thread(thread, schema=SCHEMA, branch=branch).mount() as state:
            state["query"] = [state.get("query"), value]

    @rule(pattern=PATTERNS, keep_last=st.none() | st.integers(1000, 1001))
    def set_policy(self, pattern, keep_last):
        fields = {} if keep_last is None else {"keep_last": keep_last, "max_age_s": None, "keep_tags": True}
        self.model.set_policy(pattern, fields)
        assert self.store.set_retention(keep_last=keep_last, threads=pattern).expired_versions == 0

    @rule(limit=st.none() | st.integers(0, 5), before=st.none() | st.integers(0, 50), thread=THREADS)
    def read_history(self, limit, before, thread):
        found = self.store.thread(thread).history(limit, before=before)
        expected = self.model.thread(thread).history(limit, before=before)
        assert [each.version for each in found] == [each.version for each in expected]

    @rule()
    def reopen(self):
        self.store.close()
        self.store = statelog.open(self.path, durability=self.durability)

    @rule()
    def rebuild_index(self):
        self.store.rebuild_index()

    @precondition(lambda self: self.model.last_lsn < 200)
    @rule()
    def compare_all(self):
        assert_matches(self.store, self.model)

    # --- what always holds ------------------------------------------------------------

    @invariant()
    def log_is_as_long_as_the_model_says(self):
        if hasattr(self, "store"):
            assert self.store.last_lsn == self.model.last_lsn

    @invariant()
    def heads_are_the_models(self):
        for thread in self.model.thread_ids() if hasattr(self, "model") else ():
            assert identical(self.store.thread(thread).state, self.model.thread(thread).state)


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = settings(stateful_step_count=30)


@pytest.mark.soak
class TestStoreMachineDurable(StoreMachine.TestCase):
    """The same with both flushes."""
