"""A lineage's commits: made at once, behind one that waits, or in a batch, they leave the same bytes."""

import time
from contextlib import ExitStack
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given

import statelog
from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.log import engine
from statelog.log.direct import DirectCommit
from statelog.storage.commit import keeper

CHANNELS = ["a", "b", "channel", "list", "z" * 40]
VALUES = st.one_of(
    st.integers(0, 9), st.text(max_size=40), st.lists(st.integers(0, 9), max_size=4), st.just("x" * 3000)
)
PUT = st.tuples(st.just("put"), st.sampled_from(CHANNELS), VALUES)
REMOVE = st.tuples(st.just("remove"), st.sampled_from(CHANNELS), st.none())
APPEND = st.tuples(st.just("append"), st.just("list"), st.lists(st.integers(0, 99), min_size=1, max_size=3))
WRITES = st.lists(st.one_of(PUT, PUT, REMOVE, APPEND), min_size=1, max_size=4)
COMMIT = st.tuples(st.just("commit"), st.integers(0, 60), st.integers(0, 5), WRITES)
"""An id, often a later one than all before; how many commits back its parent is; writes."""
ASIDE = st.tuples(st.just("aside"), st.integers(0, 3), VALUES, st.booleans())
TAG = st.tuples(st.just("tag"), st.integers(0, 60))
HISTORY = st.lists(st.one_of(COMMIT, COMMIT, ASIDE, ASIDE, TAG), min_size=1, max_size=30)


@pytest.fixture(autouse=True)
def never_settled_by_time(monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)


def write_of(write):
    operation, channel, value = write
    if operation == "put":
        return items.put(channel, cbor.encode(value))
    if operation == "remove":
        return items.remove(channel)
    return items.append(channel, [cbor.encode(item) for item in value])


class Writer:
    """One store, and the lineage that is written to; the time of its commits is theirs alone."""

    def __init__(self, store, way):
        self.store, self.way = store, way
        self.made = []
        self.at_once = 0
        self.behind = 0
        self.thread_id = None

    def begin(self, thread_id):
        self.lineage = Lineage(self.store, thread_id)
        self.made = []

    def run(self, operation, number, now_us):
        with mock.patch.object(time, "time_ns", return_value=now_us * 1000), ExitStack() as stack:
            for owner, name in self.way:
                stack.enter_context(mock.patch.object(owner, name, return_value=None))
            made = self._run(operation, number)
        if made is not None and operation[0] == "commit":
            self.made.append(made)
        return None if made is None else (made.lsn, made.id, made.version)

    def _run(self, operation, number):
        if operation[0] == "aside":
            _name, name, value, is_followed = operation
            followed = self.made[-1] if is_followed and self.made else None

            def channel(time_us):
                return f"group {name} {time_us:020}"

            item = cbor.encode(value)
            made = self.lineage.put_aside("aside", channel, item, followed=followed)
            if made is None:
                followers = [] if followed is None else [followed]
                made = self.lineage.commit_aside(
                    "aside",
                    lambda time_us: [items.put_once(channel(time_us), item)],
                    followed=followers,
                    is_flushed=False,
                )
            return made
        if operation[0] == "tag":
            thread = self.store.thread(self.lineage.id)
            if self.made:
                thread.tag(f"id {operation[1]:03}", self.made[-1].version)
            return None
        _name, id, back, writes = operation
        parent = self.made[-1 - back] if back < len(self.made) else self.made[-1] if self.made else None
        id = f"id {number + id:03}"
        return self.lineage.commit(
            [write_of(each) for each in writes], id=id, parent=parent, line="main", fork=f"{id} fork"
        )


def watch(owner, name, count):
    function = getattr(owner, name)

    def watched(*arguments):
        made = function(*arguments)
        count.append(made is not None)
        return made

    return mock.patch.object(owner, name, watched)


WAYS = [
    [],
    [(engine, "commit_alone")],
    [(engine, "commit_alone"), (DirectCommit, "make")],
]


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ways")
    with ExitStack() as stack:
        opened = [
            Writer(stack.enter_context(statelog.open(directory / f"{number}", durability="interval")), way)
            for number, way in enumerate(WAYS)
        ]
        yield opened
        for writer in opened:
            assert writer.store.verify().problems == []


def contents(store):
    """All that is in a store."""
    with store.read() as view:
        transaction = view.transaction
        records = [bytes(transaction.get_log(lsn)) for lsn in range(1, transaction.last_lsn() + 1)]
        return records, dict(transaction.scan_index(b""))


numbers = iter(range(10**9))
now = iter(range(1_700_000_000_000_000, 1 << 62, 1000))


def run_alike(writers, history):
    """Run a history in each way; return how often each of them was taken in the first."""
    thread_id = f"t{next(numbers)}"
    at_once, direct = [], []
    for writer in writers:
        writer.begin(thread_id)
    for number, operation in enumerate(history):
        now_us = next(now)
        outcomes = []
        for writer in writers:
            with ExitStack() as stack:
                if writer is writers[0]:
                    stack.enter_context(watch(engine, "commit_alone", at_once))
                    stack.enter_context(watch(DirectCommit, "make", direct))
                try:
                    outcomes.append(writer.run(operation, number, now_us))
                except StatelogError as error:
                    outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1] == outcomes[2], operation
    assert contents(writers[0].store) == contents(writers[1].store) == contents(writers[2].store)
    return sum(at_once), sum(direct)


@given(history=HISTORY)
def test_every_way_leaves_the_same_bytes(writers, history):
    run_alike(writers, history)


def test_supersteps_need_no_batch(writers):
    history = []
    for step in range(40):
        history.append(("aside", 0, f"written in {step}", True))
        history.append(("commit", 0, 0, [("put", "a", step), ("put", "b", "text"), ("remove", "channel", None)]))
    at_once, direct = run_alike(writers, history)
    assert at_once + direct > 60  # behind one that waits, where a look at other processes was due
    assert at_once > 5


def test_a_clock_that_goes_back_makes_no_name_that_comes_before(path):
    """A name made of a time that the commit cannot bear is not used."""
    with statelog.open(path, durability="interval") as store:
        lineage = Lineage(store, "clock")
        lineage.commit([items.put("a", b"\x01")], id="1", parent=None, line="main", fork="f")
        names = []

        def channel(time_us):
            names.append(f"at {time_us:020}")
            return names[-1]

        def put_once(time_us):
            return [items.put_once(channel(time_us), b"\x01")]

        began_us = 1_900_000_000_000_000
        for now_us in (began_us, began_us + 500, began_us - 10**9, began_us - 10**9, began_us + 10**9):
            with mock.patch.object(time, "time_ns", return_value=now_us * 1000):
                made = lineage.put_aside("aside", channel, b"\x01", followed=None)
                if made is None:
                    made = lineage.commit_aside("aside", put_once)
            assert made.channels_written == (names[-1],)
            assert names[-1] == f"at {round(made.time.timestamp() * 1e6):020}"
        assert len(list(made.state)) == 5
        assert names[-2] == f"at {began_us + 502:020}"


def test_an_id_is_never_taken_twice(path):
    """Neither where an id was given in other ways, nor where one behind it is there."""
    with statelog.open(path, durability="interval") as store:
        thread, lineage = store.thread("ids"), Lineage(store, "ids")

        def commit(id, parent):
            return lineage.commit([items.put("a", b"\x01")], id=id, parent=parent, line="main", fork="f")

        first = commit("m", None)
        second = commit("n", first)
        thread.commit({"a": 3}, id="z")
        third = commit("p", lineage.head("main"))
        again = commit("z", third)
        assert lineage.find("z").lsn == again.lsn
        assert [lineage.find(id).lsn for id in "mnp"] == [first.lsn, second.lsn, third.lsn]
        with pytest.raises(statelog.errors.AlreadyExistsError):
            thread.commit({"a": 6}, id="p")
        assert store.verify().ok
