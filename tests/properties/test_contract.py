"""Values of a state and a mount behave like the lists and dicts that they show, at any size."""

# ruff: noqa: PLR0124, PLW0108, RUF005, SIM300 - the operators are the point

from __future__ import annotations

import copy
import json
import pickle
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statelog.testing import identical

NUMBERS = count()
SIZES = [0, 1, 3, 14, 15, 16, 43, 44, 45, 129, 200, 3000]
"""Sizes around those at which a dict or list of small items becomes a tree, and a tree of several leaves."""


def make_list(size):
    return list(range(size))


def make_dict(size):
    return {f"k{number:04}": number for number in range(size)}


LIST_READS = {
    "[0]": lambda x: x[0],
    "[-1]": lambda x: x[-1],
    "[9999]": lambda x: x[9999],
    "[1:3]": lambda x: x[1:3],
    "[::-2]": lambda x: x[::-2],
    "['k']": lambda x: x["k"],
    "len": len,
    "bool": bool,
    "in": lambda x: (1 in x, "no" in x),
    "index": lambda x: x.index(2),
    "index of none": lambda x: x.index("no"),
    "count": lambda x: x.count(1),
    "list": list,
    "tuple": tuple,
    "reversed": lambda x: list(reversed(x)),
    "sorted": lambda x: sorted(x, reverse=True),
    "max": max,
    "unpacked": lambda x: [*x],
    "enumerate": lambda x: list(enumerate(x)),
    "+": lambda x: x + [1],
    "r+": lambda x: [1] + x,
    "+ itself": lambda x: x + x,
    "+ tuple": lambda x: x + (1,),
    "* 2": lambda x: x * 2,
    "2 *": lambda x: 2 * x,
    "==": lambda x: (x == make_list(len(x)), x == [1], x == x, [1] == x, x == (), x == {}),
    "!=": lambda x: x != [1],
    "<": lambda x: (x < [5], x <= [5], x > [5], x >= [5], [5] < x),
    "< int": lambda x: x < 5,
    "hash": hash,
    "copy": lambda x: x.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "in a tuple": lambda x: (x, 1)[0],
    "extends another": lambda x: [0, *x].__iadd__(x),
    "max of slice": lambda x: max(x[-3:]),
}
DICT_READS = {
    "['k0000']": lambda x: x["k0000"],
    "['no']": lambda x: x["no"],
    "[5]": lambda x: x[5],
    "get": lambda x: (x.get("k0001"), x.get("no", 7), x.get(5)),
    "len": len,
    "bool": bool,
    "in": lambda x: ("k0000" in x, "no" in x, 5 in x),
    "list": list,
    "keys": lambda x: list(x.keys()),
    "values": lambda x: list(x.values()),
    "items": lambda x: list(x.items()),
    "reversed": lambda x: list(reversed(x)),
    "sorted": lambda x: sorted(x, reverse=True),
    "dict": dict,
    "**": lambda x: {**x},
    "|": lambda x: x | {"n": 1},
    "r|": lambda x: {"n": 1} | x,
    "| itself": lambda x: x | x,
    "| list": lambda x: x | [1],
    "updates another": lambda x: {"n": 1}.__ior__(x),
    "==": lambda x: (x == make_dict(len(x)), x == {"n": 1}, x == x, {"n": 1} == x, x == []),
    "!=": lambda x: x != {"n": 1},
    "<": lambda x: x < {"n": 1},
    "hash": hash,
    "keys &": lambda x: sorted(x.keys() & {"k0000", "no"}),
    "copy": lambda x: x.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "match": lambda x: match(x),
}
LIST_WRITES = {
    "append": lambda x: x.append(7),
    "extend": lambda x: x.extend([7, 8]),
    "+=": lambda x: x.__iadd__([7]),
    "*=": lambda x: x.__imul__(2) and None,
    "insert": lambda x: x.insert(1, 7),
    "pop": lambda x: x.pop(),
    "pop(0)": lambda x: x.pop(0),
    "remove": lambda x: x.remove(1),
    "clear": lambda x: x.clear(),
    "reverse": lambda x: x.reverse(),
    "sort": lambda x: x.sort(key=str),
    "[0] =": lambda x: x.__setitem__(0, {"a": [1]}),
    "[1:3] =": lambda x: x.__setitem__(slice(1, 3), [9, 9, 9]),
    "del [0]": lambda x: x.__delitem__(0),
    "del [::2]": lambda x: x.__delitem__(slice(None, None, 2)),
}
DICT_WRITES = {
    "[] =": lambda x: x.__setitem__("new", {"a": [1]}),
    "[] = again": lambda x: x.__setitem__("k0000", 9),
    "del": lambda x: x.__delitem__("k0000"),
    "pop": lambda x: x.pop("k0001", None),
    "pop none": lambda x: x.pop("no"),
    "popitem": lambda x: x.popitem(),
    "setdefault": lambda x: x.setdefault("list", []).append(1),
    "update": lambda x: x.update({"k0002": 5}, more=1),
    "|=": lambda x: x.__ior__({"n": 1}) and None,
    "clear": lambda x: x.clear(),
}


def match(value):
    match value:
        case {"k0000": first}:
            return first
    return None


def outcome(act, value):
    """Return the result of an act, or the class of its error. Views are converted to plain values."""
    try:
        found = act(value)
    except (IndexError, KeyError, ValueError, TypeError) as error:
        return type(error)
    return found.to_python() if hasattr(found, "to_python") else found


@pytest.fixture(scope="module")
def threads(shared_store):
    """Threads with a list and a dict of each size, as channels and within other values."""
    made = {}
    for size in SIZES:
        thread = made[size] = shared_store.thread(f"contract {size}")
        values = {"list": make_list(size), "dict": make_dict(size)}
        thread.commit({**values, "in dict": {"x": 1, **values}, "in list": list(values.values())})
    return made


def handed_out(state):
    """Yield (the value read, the plain value) for all places of the fixture."""
    for holder in (state, state["in dict"]):
        yield holder["list"], holder["dict"]
    yield tuple(state["in list"])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_mounted", [False, True], ids=["state", "mount"])
def test_reading_is_as_of_plain_ones(threads, size, is_mounted):
    thread = threads[size]
    with thread.mount() as mount:
        for mine_list, mine_dict in handed_out(mount if is_mounted else thread.state):
            for table, mine, plain in (
                (LIST_READS, mine_list, make_list(size)),
                (DICT_READS, mine_dict, make_dict(size)),
            ):
                for name, act in table.items():
                    assert identical(outcome(act, mine), outcome(act, plain)), name
    assert thread.version == 0


@pytest.mark.parametrize("size", SIZES)
def test_json_takes_all_but_views_which_are_views_at_any_size(threads, size):
    state = threads[size].state
    for name, made in (("list", make_list(size)), ("dict", make_dict(size))):
        with threads[size].mount() as mount:
            assert json.loads(json.dumps([mount[name], mount["in dict"][name]])) == [made, made]
        assert json.loads(json.dumps(state["in dict"][name])) == made
        assert json.loads(json.dumps(state[name].to_python())) == made
        with pytest.raises(TypeError, match="View is not JSON serializable"):
            json.dumps(state[name])
        assert json.loads(json.dumps(state[name], default=lambda view: view.to_python())) == made


@pytest.mark.parametrize("size", [1, 200])
def test_copies_of_mounted_values_are_independent(store, size):
    thread = store.thread("t")
    thread.commit({"list": make_list(size), "dict": make_dict(size)})
    with thread.mount() as mount:
        for copied in (copy.copy(mount["list"]), mount["list"].copy(), mount["list"][:]):
            copied.append("mine")
        copy.copy(mount)["more"] = mount.copy()["more"] = 1
        (mount | {})["more"] = 1
    assert thread.version == 0


class MountMachine(RuleBasedStateMachine):
    """Makes the same changes to the values of a mount and to a plain list and dict."""

    @initialize(size=st.sampled_from(SIZES[:-1]))
    def begin(self, size):
        self.plain = {"list": make_list(size), "dict": make_dict(size), "deep": [{"list": make_list(size)}]}
        self.thread = STORE.thread(f"mounted {next(NUMBERS)}")
        self.thread.commit(self.plain)
        self.mount()

    def mount(self):
        self.block = self.thread.mount()
        self.mounted = self.block.__enter__()

    def both(self, act, *path):
        found = []
        for value in (self.mounted, self.plain):
            for key in path:
                value = value[key]
            found.append(outcome(act, value))
        assert identical(*found)

    @rule(name=st.sampled_from(sorted(LIST_READS)))
    def read_list(self, name):
        self.both(LIST_READS[name], "list")

    @rule(name=st.sampled_from(sorted(DICT_READS)))
    def read_dict(self, name):
        self.both(DICT_READS[name], "dict")

    @rule(name=st.sampled_from(sorted(LIST_WRITES)), path=st.sampled_from([("list",), ("deep", 0, "list")]))
    def change_list(self, name, path):
        self.both(LIST_WRITES[name], *path)

    @rule(name=st.sampled_from(sorted(DICT_WRITES)), path=st.sampled_from([("dict",), ("deep", 0)]))
    def change_dict(self, name, path):
        if path != ("deep", 0) or name not in {"clear", "popitem"}:  # a list is to stay there
            self.both(DICT_WRITES[name], *path)

    @rule(name=st.sampled_from(["[] =", "del", "setdefault", "update", "|="]))
    def change_state(self, name):
        self.both(DICT_WRITES[name])

    @rule()
    def commit_and_mount_again(self):
        self.block.__exit__(None, None, None)
        assert identical(self.thread.state.to_python(), self.plain)
        self.plain = self.thread.state.to_python()  # dicts come back in the order of their keys
        self.mount()

    @invariant()
    def they_are_equal(self):
        if hasattr(self, "mounted"):
            assert self.mounted == self.plain
            assert len(self.mounted) == len(self.plain)

    def teardown(self):
        if hasattr(self, "mounted"):
            self.commit_and_mount_again()
            scratch = STORE.thread(f"scratch {next(NUMBERS)}").commit(self.plain)
            assert self.thread.head.state_digest == scratch.state_digest


STORE = None


@pytest.fixture(scope="module", autouse=True)
def _store(shared_store):
    global STORE  # noqa: PLW0603 - a machine takes no fixtures
    STORE = shared_store


TestMountMachine = pytest.mark.slow(MountMachine.TestCase)
TestMountMachine.settings = settings(stateful_step_count=20)


@pytest.mark.slow
@given(st.sampled_from(SIZES), st.sampled_from([list, dict]))
def test_a_state_as_a_whole_is_a_dict(threads, size, kind):
    state, plain = threads[size].state, threads[size].state.to_python()
    with threads[size].mount() as mount:
        for whole in (state, mount):
            assert (whole | {"n": 1}) == (plain | {"n": 1})
            assert ({"n": 1} | whole) == ({"n": 1} | plain)
            assert list(reversed(whole)) == list(reversed(plain))
            assert kind(whole) == kind(plain)
            assert pickle.loads(pickle.dumps(whole)) == copy.deepcopy(whole) == copy.copy(whole) == plain
