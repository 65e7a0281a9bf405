"""Threads, branches and re-created threads with the same large documents: each keeps its own, and unused ones are gone.

A document has sections. Each section repeats a number that no other section has, so the numbers in the bytes of the
files show which texts still exist.
"""

from __future__ import annotations

import random
import re
import shutil
import string
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kept import NEEDS, SERVES, Kept, place

import statelog
from statelog import reducers
from statelog.errors import StatelogError, ThreadDeletedError
from statelog.log.care import retention, sweep
from statelog.log.kinds import table
from statelog.testing import StoreModel, identical

SCHEMA = {"doc": reducers.replace, "files": reducers.merge, "log": reducers.extend, "text": reducers.add}
CHANNELS = st.sampled_from(sorted(SCHEMA))
THREADS = st.sampled_from("abcde")
COPIES = st.sampled_from("cde")
LEAF, PIECES = 6, 24
"""The numbers of sections of a string in one leaf, which is shared across the store, and of a string in pieces."""
POLICY_TURN = 4
"""The number of commits between turns of policies. It is small, because a test makes only some tens of versions."""
TOKEN = re.compile(rb"<(\d{8})")


@cache
def section(number):
    letters = random.Random(number).choices(string.ascii_lowercase, k=480)
    return "".join(f"<{number:08}>{''.join(letters[at : at + 6])}" for at in range(0, 480, 6))


def token(number):
    return f"<{number:08}>"


def numbers_in(value):
    """Return the numbers of the sections and tokens in a value."""
    return {int(number) for number in TOKEN.findall(repr(value).encode())}


class SharingMachine(RuleBasedStateMachine):
    """A store with two handles in turn, and its model. `there` has the versions that have not expired."""

    @initialize()
    def create(self):
        self.patch = pytest.MonkeyPatch()
        for module in (retention, statelog.store.thread):
            self.patch.setattr(module, "POLICY_STEP_VERSIONS", POLICY_TURN)
        self.patch.setattr(retention, "SWEEP_VERSIONS_MIN", 2 * POLICY_TURN)
        self.directory = Path(tempfile.mkdtemp(prefix="statelog-"))
        self.path = self.directory / "a.state"
        self.stores = []
        self.open()
        self.model = StoreModel()
        self.there = {}
        self.dead = {}
        self.last = 0
        self.tags = {}
        self.documents = [tuple(map(self.fresh, [0] * length)) for length in (LEAF, LEAF, PIECES)]

    def open(self):
        self.stores = [statelog.open(self.path, durability="interval") for _ in range(2)]

    def close(self):
        for store in self.stores:
            store.close()

    @property
    def store(self):
        self.stores.reverse()
        return self.stores[0]

    def fresh(self, _any=None):
        self.last += 1
        return self.last

    def teardown(self):
        if not hasattr(self, "model"):
            return
        try:
            self.check_all()
            self.store.compact()
            self.check_all()
            self.check_bytes()
        finally:
            self.close()
            self.patch.undo()
            shutil.rmtree(self.directory)

    # --- what there is ----------------------------------------------------------------

    def versions(self, thread):
        return self.there.get(thread, {})

    def lines(self, thread):
        """Return the branches that have a head."""
        data = self.model.threads.get(thread)
        return [] if data is None else [name for name in data.branches if self.has_head(thread, name)]

    def has_head(self, thread, name):
        head = self.model.thread(thread, branch=name).head
        return head is not None and self.versions(thread).get(place(head)) is head

    def note(self, thread):
        """Record the new versions, and those that the policy of the thread removes."""
        data = self.model.threads[thread]
        there = self.there.setdefault(thread, {})
        is_due = False
        for branch in data.branches.values():
            if branch.own and place(branch.own[-1]) not in there:
                there[place(branch.own[-1])] = branch.own[-1]
                is_due = not (branch.head_version + 1) % POLICY_TURN
        return is_due

    def turn(self, thread):
        if self.note(thread) and (policy := self.model.threads[thread].policy):
            self.let_go(thread, keep_last=policy["keep_last"], keep_tags=policy["keep_tags"])

    def let_go(self, thread, **rules):
        data, there = self.model.threads[thread], self.there[thread]
        kept = Kept(data, there, **rules).versions
        for at in [at for at in there if at not in kept]:
            del there[at]
        for branch in data.branches.values():
            while branch.own and place(branch.own[-1]) not in there:
                branch.own.pop()
        data.ids = {id: version for id, version in data.ids.items() if there.get(place(version)) is version}

    def pick_line(self, data, thread):
        return data.draw(st.sampled_from(self.lines(thread)), label="branch")

    def pick_version(self, data, thread):
        there = self.there[thread]
        return there[data.draw(st.sampled_from(list(there)), label="version")]

    # --- commits ----------------------------------------------------------------------

    def draw_write(self, data):
        document = self.draw_document(data)
        text = "".join(map(section, document))
        channel = data.draw(CHANNELS, label="channel")
        if channel == "files":
            return {channel: {data.draw(st.sampled_from("xy"), label="file"): text}}
        if channel == "doc":
            shape = data.draw(st.sampled_from(["text", "list", "dict"]), label="shape")
            return {channel: {"text": text, "list": [text, "short"], "dict": {"k": [text]}}[shape]}
        write = [text] if channel == "log" else text
        is_new = data.draw(st.booleans(), label="overwrite")
        return {channel: reducers.Overwrite(write) if is_new else write}

    def draw_document(self, data):
        """Draw a document: mostly an earlier one, unchanged or edited."""
        document = self.documents[data.draw(st.integers(0, len(self.documents) - 1), label="document")]
        edit = data.draw(st.sampled_from(["none", "none", "none", "replace", "append", "begin", "other"]), label="edit")
        if edit == "none":
            return document
        if edit == "other":
            document = tuple(self.fresh() for _ in document)
        elif edit == "replace":
            at = data.draw(st.integers(0, len(document) - 1), label="at")
            document = (*document[:at], self.fresh(), *document[at + 1 :])
        else:
            document = (*document, self.fresh()) if edit == "append" else (self.fresh(), *document)
        self.documents.append(document)
        return document

    def draw_metadata(self, data, thread, *, may_need=True):
        said = {"said": token(self.fresh())}
        if may_need and data.draw(st.booleans(), label="needs"):
            said[NEEDS] = [data.draw(CHANNELS, label="needs")]
        ids = list(self.model.threads[thread].ids) if thread in self.model.threads else []
        if ids and data.draw(st.booleans(), label="serves"):
            said[SERVES] = data.draw(st.sampled_from(ids), label="serves")
        return said

    def both(self, thread, branch, act):
        """Do the same to both."""
        act(self.store.thread(thread, schema=SCHEMA, branch=branch))
        act(self.model.thread(thread, schema=SCHEMA, branch=branch))
        self.turn(thread)

    @rule(thread=THREADS, data=st.data())
    def commit(self, thread, data):
        if thread in self.dead:
            self.begin_anew(thread, data)
            return
        branch = self.pick_line(data, thread) if self.versions(thread) else "main"
        write, metadata, id = self.draw_write(data), self.draw_metadata(data, thread), token(self.fresh())
        self.both(thread, branch, lambda it: it.commit(write, metadata=metadata, id=id))

    def begin_anew(self, thread, data):
        """Re-create a deleted thread. The old handle is refused, and the new thread has only its own writes."""
        write, metadata = self.draw_write(data), self.draw_metadata(data, thread)
        with pytest.raises(ThreadDeletedError):
            self.dead[thread].commit(write)
        self.store.thread(thread, schema=SCHEMA, recreate=True).commit(write, metadata=metadata)
        self.model.thread(thread, schema=SCHEMA).commit(write, metadata=metadata)
        del self.dead[thread]
        self.turn(thread)

    @rule(threads=st.sets(THREADS, min_size=2, max_size=3), data=st.data())
    def commit_to_several(self, threads, data):
        """The same document to several threads at once."""
        write = self.draw_write(data)
        threads = [each for each in sorted(threads) if each not in self.dead]
        for target in (self.store, self.model):
            with target.transaction() as within:
                for thread in threads:
                    within.thread(thread, schema=SCHEMA).commit(write)
        for thread in threads:
            self.turn(thread)

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data(), is_updated=st.booleans())
    def fork(self, data, is_updated):
        thread = data.draw(st.sampled_from(sorted(self.there)), label="thread")
        name, at = token(self.fresh()), self.pick_version(data, thread)
        update = self.draw_write(data) if is_updated else None
        metadata = self.draw_metadata(data, thread) if is_updated else None

        def act(it):
            it.fork(name, at=it.checkout(at.branch).at(at.version), update=update, metadata=metadata)

        act(self.store.thread(thread, schema=SCHEMA))
        act(self.model.thread(thread, schema=SCHEMA))
        self.note(thread)

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data())
    def rollback(self, data):
        thread = data.draw(st.sampled_from(sorted(self.there)), label="thread")
        branch, at = self.pick_line(data, thread), self.pick_version(data, thread)
        metadata = self.draw_metadata(data, thread, may_need=False)
        self.both(thread, branch, lambda it: it.rollback(it.checkout(at.branch).at(at.version), metadata=metadata))

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data(), is_new=st.booleans())
    def tag(self, data, is_new):
        thread = data.draw(st.sampled_from(sorted(self.there)), label="thread")
        tags = self.model.threads[thread].tags
        if tags and not is_new:
            name = data.draw(st.sampled_from(sorted(tags)), label="tag")
            self.both(thread, "main", lambda it: it.untag(name))
            return
        name, at = token(self.fresh()), self.pick_version(data, thread)
        self.tags.setdefault(thread, set()).add(name)
        self.both(thread, "main", lambda it: it.tag(name, it.checkout(at.branch).at(at.version)))

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data(), copy=COPIES)
    def copy_thread(self, data, copy):
        source = data.draw(st.sampled_from(sorted(self.there)), label="source")
        if copy in self.there or copy in self.dead:
            return
        self.store.copy_thread(source, copy)
        self.model.copy_thread(source, copy)
        made = self.model.threads[copy]
        versions = {place(each): each for branch in made.branches.values() for each in branch.own}
        self.there[copy] = {at: versions[at] for at in self.there[source]}
        made.tags = {name: each for name, each in made.tags.items() if place(each) in self.there[copy]}

    # --- letting go -------------------------------------------------------------------

    @rule(pattern=st.sampled_from("*abcde"), keep_last=st.integers(1, 3), keep_tags=st.booleans(), data=st.data())
    def retain(self, pattern, keep_last, keep_tags, data):
        pinned = {}
        for thread in sorted(self.there):
            if data.draw(st.booleans(), label="pin"):
                pinned[thread] = self.pick_version(data, thread)
        store = self.store
        checkpoints = [store.thread(thread, branch=at.branch).at(at.version) for thread, at in pinned.items()]
        store.prune(keep_last=keep_last, threads=pattern, keep_tags=keep_tags, pinned=checkpoints)
        for thread in list(self.there):
            if pattern in ("*", thread):
                self.let_go(
                    thread,
                    keep_last=keep_last,
                    keep_tags=keep_tags,
                    pinned=[pinned[thread]] if thread in pinned else [],
                )
        self.check_all()

    @rule(pattern=st.sampled_from("*abcde"), keep_last=st.none() | st.integers(1, 3), keep_tags=st.booleans())
    def set_policy(self, pattern, keep_last, keep_tags):
        fields = {} if keep_last is None else {"keep_last": keep_last, "max_age_s": None, "keep_tags": keep_tags}
        self.store.set_retention(keep_last=keep_last, threads=pattern, keep_tags=keep_tags)
        self.model.set_policy(pattern, fields)
        for thread in list(self.there):
            if pattern in ("*", thread) and fields:
                self.let_go(thread, keep_last=keep_last, keep_tags=keep_tags)

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data())
    def expire(self, data):
        thread = data.draw(st.sampled_from(sorted(self.there)), label="thread")
        some = [self.pick_version(data, thread) for _ in range(data.draw(st.integers(1, 3), label="count"))]
        store = self.store
        store.expire([store.thread(thread, branch=at.branch).at(at.version) for at in some])
        self.let_go(thread, only={place(each) for each in some})
        self.check_all()

    @precondition(lambda self: any(self.there.values()))
    @rule(data=st.data())
    def delete(self, data):
        thread = data.draw(st.sampled_from(sorted(self.there)), label="thread")
        store = self.store
        self.dead[thread] = store.thread(thread, schema=SCHEMA)
        store.delete_thread(thread)
        del self.model.threads[thread], self.there[thread]
        self.tags.pop(thread, None)
        self.check_all()

    @rule()
    def compact(self):
        self.store.compact()
        self.check_all()
        self.check_bytes()

    # --- looking ----------------------------------------------------------------------

    @rule()
    def reopen(self):
        self.close()
        self.open()
        self.dead = {thread: self.store.thread(thread, schema=SCHEMA) for thread in self.dead}

    @rule()
    def rebuild_index(self):
        self.store.rebuild_index()

    @invariant()
    def heads_are_the_models(self):
        for thread in getattr(self, "there", {}):
            for name in self.lines(thread):
                mine, theirs = self.store.thread(thread, branch=name), self.model.thread(thread, branch=name)
                assert identical(mine.state, theirs.state)
                assert mine.version == theirs.version

    def check_all(self):
        """Every version that is to be there is, and reads as it did, from the file; and no other is."""
        store = self.store
        problems = store.verify().problems
        assert not problems, problems
        store._engine.cache.clear()
        assert sorted(info.id for info in store.threads()) == sorted(self.there)
        for thread, there in self.there.items():
            found = {}
            for branch in store.thread(thread).branches():
                for checkpoint in store.thread(thread, branch=branch.name).history():
                    found[place(checkpoint)] = checkpoint
            assert found.keys() == there.keys(), (thread, found.keys() ^ there.keys())
            for at, checkpoint in found.items():
                assert identical(checkpoint.state, there[at].state)
                assert identical(checkpoint.metadata, there[at].metadata)

    def check_bytes(self):
        """Check that the files have only data of existing versions, branches and tags."""
        alive = set()
        for thread, there in self.there.items():
            data = self.model.threads[thread]
            alive |= numbers_in([list(data.branches), list(data.tags), self.tags.get(thread)])
            for version in there.values():
                alive |= numbers_in([version.state, version.metadata, version.id])
        found = set()
        for path in self.directory.iterdir():
            found |= {int(number) for number in TOKEN.findall(path.read_bytes())}
        assert alive <= found, "the search finds what is there"
        assert found <= alive


TestSharing = pytest.mark.slow(SharingMachine.TestCase)
TestSharing.settings = settings(stateful_step_count=25)


FINDING = settings(max_examples=300, stateful_step_count=25, phases=[Phase.generate], database=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (table, "apply_borrowed", lambda _index, _digests: None),
        pytest.param(sweep._Sweep, "is_alive", lambda _sweep, _lsn, _number: True, marks=pytest.mark.soak),
    ],
    ids=["what a thread has of another is not noted", "what nobody has is kept"],
)
def test_the_machine_finds(monkeypatch, module, name, fault):
    """Two negative controls: without these parts, text is lost or stays."""
    monkeypatch.setattr(module, name, fault)
    with pytest.raises((AssertionError, StatelogError)):
        run_state_machine_as_test(SharingMachine, settings=FINDING)
