"""T6 for entries: the kernel makes, byte for byte, the records and the index that the general path makes."""

import time
from contextlib import ExitStack, suppress
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.board import entry_writer
from statelog.errors import StatelogError
from statelog.kernels.entry import EntryMade
from statelog.testing import strategies as own

START_US = 1_700_000_000_000_000

keys = st.sampled_from(["a", "b", "tasks/1", "tasks/2", "tasks/deep/3", "é/ü"])
texts = st.builds(lambda size: "x" * size, st.sampled_from([0, 61, 62, 63, 64, 90, 4090, 4093, 4094, 5000, 17_000]))
values = st.one_of(
    own.values(),
    texts,
    st.lists(texts, max_size=3),
    st.lists(st.integers(), max_size=40),
    st.dictionaries(st.text(max_size=4), texts, max_size=3),
    st.sets(st.integers(0, 300), max_size=40),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "ttl_s": st.sampled_from([0.001, 5, 60]),
        "priority": st.sampled_from([-127, 0, 3, 127]),
        "delay_s": st.sampled_from([0, 0.5, 10]),
    },
)
writes = st.one_of(
    st.tuples(st.just(reducers.add), st.one_of(st.integers(-5, 2**63), own.floats(), st.lists(values, max_size=3))),
    st.tuples(st.just(reducers.append), values),
    st.tuples(st.just(reducers.extend), st.lists(values, max_size=9)),
    st.tuples(st.just(reducers.max), st.integers(0, 9)),
    st.tuples(st.just(reducers.merge), st.dictionaries(st.text(max_size=3), values, max_size=3)),
    st.tuples(st.just(reducers.upsert("id")), st.builds(lambda number: [{"id": number}], st.integers(0, 9))),
    st.tuples(st.just(reducers.replace), values),
    st.tuples(st.just(reducers.append), st.builds(reducers.Overwrite, st.lists(values, max_size=2))),
)
acts = st.one_of(
    st.tuples(st.just("set"), keys, values, options),
    st.tuples(st.just("create"), keys, values, options),
    st.tuples(st.just("update"), keys, writes),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("claim"), st.sampled_from(["**", "tasks/*", "a"]), st.sampled_from([None, 1, 2])),
    st.tuples(st.sampled_from(["complete", "fail", "release", "renew"]), st.integers(0, 3), values),
    st.tuples(st.sampled_from(["lease", "unlease"]), st.sampled_from(["one", "two"])),
    st.tuples(st.just("rollback"), st.integers(1, 9)),
    st.tuples(st.just("together"), st.lists(st.tuples(keys, values), min_size=1, max_size=3)),
    st.tuples(st.just("wait"), st.sampled_from([0.002, 1, 7, 100, 100_000])),
)


@st.composite
def programs(draw):
    """Draw a list of acts. A composite strategy has a short representation, which Hypothesis needs."""
    return draw(st.lists(acts, min_size=1, max_size=12))


class Machine:
    """Applies a list of acts to a store. The acts also set its clocks."""

    def __init__(self, store):
        self.store = store
        self.board = store.board(agent="agent")
        self.now_us = START_US
        self.claims = []
        self.leases = {}

    def now_ns(self, _clock=None):
        return self.now_us * 1000

    def do(self, act, *arguments):
        self.now_us += 1000
        with suppress(StatelogError):
            getattr(self, f"do_{act}")(*arguments)

    def do_set(self, key, value, how):
        self.board.set(key, value, **how)

    def do_create(self, key, value, how):
        self.board.create(key, value, **how)

    def do_update(self, key, write):
        self.board.update(key, *write)

    def do_delete(self, key):
        self.board.delete(key)

    def do_claim(self, pattern, attempts):
        dead = {} if attempts is None else {"max_attempts": attempts, "dead": "dead/"}
        claim = self.board.claim(pattern, lease_s=2, **dead)
        self.claims += [claim] if claim else []

    def do_complete(self, number, value):
        self.claims[number % len(self.claims)].complete(value, to="done/") if self.claims else None

    def do_fail(self, number, _value):
        self.claims[number % len(self.claims)].fail("no", retry_in_s=number) if self.claims else None

    def do_release(self, number, _value):
        self.claims[number % len(self.claims)].release(counts=number > 1) if self.claims else None

    def do_renew(self, number, _value):
        self.claims[number % len(self.claims)].renew(3) if self.claims else None

    def do_lease(self, name):
        self.leases[name] = self.board.lease(name, ttl_s=3)

    def do_unlease(self, name):
        if name in self.leases:
            self.leases.pop(name).release()

    def do_rollback(self, distance):
        self.board.rollback("", to=max(self.store.last_lsn - distance, 1))

    def do_together(self, pairs):
        with self.store.transaction() as tx:
            for key, value in pairs:
                tx.board().set(key, value)

    def do_wait(self, seconds):
        self.now_us += round(seconds * 1e6)


def content_after(path, some, *, by_kernel):
    """Return the records and the index of a store after some acts. Without the kernel, nothing is remembered."""
    path.unlink(missing_ok=True)
    with ExitStack() as stack:
        store = stack.enter_context(statelog.open(path, durability="interval"))
        machine = Machine(store)
        for clock in ("time_ns", "clock_gettime_ns"):
            stack.enter_context(mock.patch.object(time, clock, machine.now_ns))
        if not by_kernel:
            stack.enter_context(mock.patch.object(entry_writer, "make_entry", return_value=None))
        for act in some:
            if not by_kernel:
                store._engine.committer.last = None
            machine.do(*act)
        with store._engine.read() as view:
            records = [bytes(view.transaction.get_log(lsn)) for lsn in range(1, store.last_lsn + 1)]
            return records, list(view.transaction.scan_index(b""))


@pytest.mark.slow
@settings(deadline=None)
@given(programs())
def test_the_kernel_equals_the_general_path(tmp_path_factory, some):
    folder = tmp_path_factory.mktemp("twins")
    made = content_after(folder / "kernel.state", some, by_kernel=True)
    wanted = content_after(folder / "general.state", some, by_kernel=False)
    assert made[0] == wanted[0]
    assert made[1] == wanted[1]


def test_plain_entries_are_made_by_the_kernel(tmp_path):
    """Otherwise, the property above would compare the general path with itself."""
    made = []
    entry = entry_writer.make_entry

    def counting(*arguments):
        made.append(entry(*arguments))
        return made[-1]

    with mock.patch.object(entry_writer, "make_entry", counting), statelog.open(tmp_path / "a.state") as store:
        board = store.board()
        board.set("a", {"role": "user", "content": "x" * 100})
        board.update("a", reducers.merge, {"n": 1})
        board.set("count", 1, ttl_s=60, delay_s=1, priority=3)
        board.update("count", reducers.add, 1)
        board.set("list", ["x" * 70])
        board.update("list", reducers.append, "y")
        board.claim("list").complete("done", to="done/")
        with board.lease("name", ttl_s=5):
            pass
        board.delete("a")
        assert store.verify().ok
    entries = [each for each in made if isinstance(each, EntryMade)]
    assert len(entries) == 11
    assert None not in made


@pytest.mark.parametrize("value", ["x" * 5000, ["x" * 3000] * 20, "y" * 20_000], ids=["leaf", "list", "pieces"])
def test_large_values_take_the_general_path_and_come_back(tmp_path, value):
    with statelog.open(tmp_path / "a.state") as store:
        board = store.board()
        board.set("a", value)
        board.set("b", value)
        assert board.get("a").value == board.get("b").value == value
        assert store.verify().ok
