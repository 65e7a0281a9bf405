"""A mounted state is a dict. Its final value is committed exactly once, also for a lazy mount."""

# ruff: noqa: PT012 - a mount is a block, and it is the block that raises

from __future__ import annotations

import copy
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import statelog
from statelog import reducers
from statelog.errors import ConflictError, UsageError, ValueTypeError
from statelog.testing import identical, values

NUMBERS = count()
SMALL = values(max_leaves=3)
ITEMS = st.lists(SMALL, max_size=4)


@pytest.fixture
def thread(store):
    return store.thread("t")


class ListMachine(RuleBasedStateMachine):
    """Makes the same changes to a list of a lazy mount and to a plain list. `test_contract.py` has other values."""

    @initialize(size=st.sampled_from([0, 3, 20, 129, 600]), wide=st.booleans())
    def begin(self, size, wide):
        self.plain = [["x" * 70, n] if wide else n for n in range(size)]
        self.thread = STORE.thread(f"list {next(NUMBERS)}")
        self.thread.commit({"list": self.plain})
        self.block = self.thread.mount(lazy=True)
        self.mounted = self.block.__enter__()["list"]

    def both(self, act):
        results = []
        for items in (self.mounted, self.plain):
            try:
                results.append(act(items))
            except (IndexError, ValueError) as error:
                results.append(type(error))
        assert identical(*results)

    @rule(value=SMALL)
    def append(self, value):
        self.both(lambda items: items.append(copy.deepcopy(value)))

    @rule(index=st.integers(-700, 700), value=SMALL)
    def insert(self, index, value):
        self.both(lambda items: items.insert(index, copy.deepcopy(value)))

    @rule(index=st.integers(-10, 10), value=SMALL)
    def set_item(self, index, value):
        self.both(lambda items: items.__setitem__(index, copy.deepcopy(value)))

    @rule(index=st.integers(-10, 10))
    def delete(self, index):
        self.both(lambda items: items.__delitem__(index))

    @rule(part=st.slices(700), new=ITEMS)
    def set_slice(self, part, new):
        self.both(lambda items: items.__setitem__(part, copy.deepcopy(new)))

    @rule(part=st.slices(700))
    def delete_slice(self, part):
        self.both(lambda items: items.__delitem__(part))

    @rule(index=st.integers(-3, 3))
    def pop(self, index):
        self.both(lambda items: items.pop(index))

    @rule(new=ITEMS)
    def extend(self, new):
        self.both(lambda items: items.extend(copy.deepcopy(new)))

    @rule()
    def reverse(self):
        self.both(lambda items: items.reverse())

    @rule(index=st.integers(0, 600))
    def change_inside(self, index):
        def act(items):
            if index < len(items) and hasattr(items[index], "append"):
                items[index].append("inside")

        self.both(act)

    @rule(index=st.integers(-700, 700))
    def look(self, index):
        self.both(lambda items: items[index])
        self.both(lambda items: list(items[index:]))

    @rule()
    def commit_and_mount_again(self):
        self.block.__exit__(None, None, None)
        assert identical(self.thread.state["list"], self.plain)
        self.block = self.thread.mount(lazy=True)
        self.mounted = self.block.__enter__()["list"]

    @invariant()
    def they_are_as_long(self):
        if hasattr(self, "mounted"):
            assert len(self.mounted) == len(self.plain)

    def teardown(self):
        if hasattr(self, "block"):
            assert identical(list(self.mounted), self.plain)
            self.block.__exit__(None, None, None)
            assert identical(self.thread.state["list"], self.plain)
            scratch = STORE.thread(f"scratch {next(NUMBERS)}").commit({"list": self.plain})
            assert self.thread.head.state_digest == scratch.state_digest


STORE = None


@pytest.fixture(scope="module", autouse=True)
def _store(shared_store):
    global STORE  # noqa: PLW0603 - a machine takes no fixtures
    STORE = shared_store


TestListMachine = pytest.mark.slow(ListMachine.TestCase)
TestListMachine.settings = settings(stateful_step_count=20)


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from("abcdef"), SMALL),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.tuples(SMALL)), max_size=10),
)
def test_a_mounted_state_ends_as_the_dict_would(shared_store, state, edits):
    thread = shared_store.thread(f"dict {next(NUMBERS)}")
    thread.commit(state)
    plain = dict(state)
    with thread.mount() as mounted:
        for key, value in edits:
            if value is not None:
                mounted[key] = plain[key] = value[0]
            elif key in plain:
                del mounted[key], plain[key]
            assert (key in mounted) == (key in plain)
            assert len(mounted) == len(plain)
        assert sorted(mounted) == sorted(plain)
    assert identical(thread.state, plain)
    assert thread.version <= 1
    assert thread.version == 1 or identical(state, plain)


def test_an_exception_leaves_no_checkpoint(thread):
    thread.commit({"list": [1]})
    with pytest.raises(ZeroDivisionError), thread.mount() as state:
        state["list"].append(1 / 0)
    assert (thread.version, thread.state["list"]) == (0, [1])


def test_looking_is_not_a_change(thread):
    thread.commit({"list": [[1], {"a": [2]}] * 50, "dict": {"k": {"n": [1]}}})
    with thread.mount() as state:
        assert state["list"][1]["a"] == [2]
        assert dict(state["dict"])["k"] == {"n": [1]}
        state["list"].append(1)
        state["list"].pop()
        state["dict"]["new"] = 1
        del state["dict"]["new"]
    assert thread.version == 0


def test_setting_an_equal_value_is_not_a_change(thread):
    state = {"small": [1], "number": 1, "text": "é" * 3000, "large": list(range(500)), "dict": {"a": {"b": [1]}}}
    thread.commit(state)
    with thread.mount() as mounted:
        for channel, value in copy.deepcopy(state).items():
            mounted[channel] = value
        mounted["large"][7] = 7
        mounted["dict"]["a"] = {"b": [1]}
    assert thread.version == 0
    with thread.mount() as mounted:
        mounted["number"] = 1.0
    assert thread.version == 1


def test_changes_at_any_depth_count(thread):
    thread.commit({"notes": {}, "deep": {"a": [{"b": {"c": [1]}}] * 3}})
    with thread.mount(metadata={"node": "edit"}) as state:
        state["notes"]["k"] = {"nested": [1, 2]}
        state["notes"]["k"]["nested"].append(3)
        state["deep"]["a"][1]["b"]["c"].append(2)
    assert thread.state["notes"] == {"k": {"nested": [1, 2, 3]}}
    assert [each["b"]["c"] for each in thread.state["deep"]["a"]] == [[1], [1, 2], [1]]
    assert thread.head.metadata == {"node": "edit"}
    assert thread.head.channels_written == ("deep", "notes")


def test_only_a_channel_written_by_another_writer_conflicts(store):
    thread = store.thread("t", schema={"mine": reducers.add, "theirs": reducers.add})
    thread.commit({"mine": 1, "theirs": 1})
    with thread.mount() as state:
        state["mine"] = 5
        store.thread("t").commit({"theirs": 1})
    assert thread.state == {"mine": 5, "theirs": 2}
    with pytest.raises(ConflictError) as caught, thread.mount() as state:
        state["mine"] = 6
        store.thread("t").commit({"mine": 1})
    assert caught.value.channel == "mine"
    assert thread.state == {"mine": 6, "theirs": 2}


def test_values_that_cannot_be_stored_are_refused_by_path(thread):
    thread.commit({"list": [[1], [2]]})
    with pytest.raises(ValueTypeError) as caught, thread.mount() as state:
        state["list"][1].append(object())
    assert caught.value.path.startswith("list[1]")
    assert (thread.version, thread.state["list"]) == (0, [[1], [2]])


def test_an_edit_in_a_long_list_writes_a_path(store):
    thread = store.thread("t")
    thread.commit({"list": [f"item {number} " + "x" * 80 for number in range(5000)]})
    with thread.mount() as state:
        state["list"][2500] = "changed"
    record = next(store.log(after=thread.head.lsn - 1))
    assert record.size_bytes < 16_384
    assert thread.state["list"][2500] == "changed"


def test_mounts_of_an_upsert_channel_keep_its_identities(store):
    thread = store.thread("t", schema={"m": reducers.upsert("id")})
    thread.commit({"m": [{"id": number, "text": "x" * 50} for number in range(200)]})
    with thread.mount() as state:
        state["m"][7]["text"] = "changed"
        state["m"].append({"id": "new"})
        del state["m"][0]
    thread.commit({"m": {"id": "new", "text": "found"}})
    assert thread.state["m"][6] == {"id": 7, "text": "changed"}
    assert thread.state["m"][-1] == {"id": "new", "text": "found"}
    assert len(thread.state["m"]) == 200


def test_mounting_a_thread_that_is_not_yet_begins_it(store):
    with store.thread("new").mount() as state:
        assert len(state) == 0
        state["x"] = [1]
    assert store.thread("new").state == {"x": [1]}
    assert statelog.diff(None, store.thread("new").head)


def test_a_key_written_as_an_attribute_is_refused(thread):
    """It would be lost."""
    thread.commit({"step": 0, "items": []})
    for name in ("step", "items", "new"):
        with pytest.raises(UsageError, match=rf'write state\["{name}"\] = ...'), thread.mount() as state:
            setattr(state, name, 5)
    with pytest.raises(AttributeError, match=r'read state\["step"\]'), thread.mount() as state:
        state.step += 1
    with pytest.raises(UsageError), thread.mount(lazy=True) as state:
        state.step = 5
    assert thread.version == 0
