"""Kernels that take and make Python objects: their results, their errors, and no leaks."""

import gc
import sys
import threading
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import statelog
from statelog import kernels
from statelog.errors import LimitError, StatelogError, UsageError, ValueTypeError
from statelog.format import cbor
from statelog.kernels.objects import freeze_items, still_items
from statelog.limits import DEPTH_MAX
from statelog.testing import strategies as own

COMMITS = 2000


class Text(str):
    __slots__ = ()


class Number(int):
    pass


def encode_in_python(value):
    """Encode without the kernel, at any depth."""
    with mock.patch.object(cbor, "encode_plain", return_value=None):
        return cbor.encode(value)


def outcome_of(encode, value):
    """Return the encoded value or the error."""
    try:
        return encode(value)
    except StatelogError as error:
        return type(error), str(error)


odd = st.one_of(
    own.values(),
    st.sampled_from([Text("a"), Number(1), "\ud800", 2**64, -(2**64), -(2**64) - 1, 2**63, object(), {1: 2}, 1 << 70]),
    st.dictionaries(st.sampled_from(["a", "é" * 20, "z" * 30, Text("b"), "\udc00", ""]), st.integers(), max_size=6),
    st.text(min_size=250, max_size=260),
)


@pytest.mark.slow
@given(st.recursive(odd, lambda inside: st.one_of(st.lists(inside), st.dictionaries(st.text(), inside)), max_leaves=8))
@example({f"{number}": number for number in range(40)})
@example([{f"{number}": -number for number in range(32)}])
@example({"é" * 300: 1, "z": "é" * 300})
@example([["x" * 70_000], ["y" * 70_000, {"t": (1, 2)}]])
def test_a_value_is_encoded_as_in_python(value):
    assert outcome_of(cbor.encode, value) == outcome_of(encode_in_python, value)


def test_plain_values_are_encoded_by_the_kernel():
    """Else the test above would compare Python with itself."""
    plain = {"role": "user", "content": ["x" * 3000, 1.5, None, True, b"raw", -7], "n": {"k": 2**63 - 1}}
    assert kernels.encode_plain(plain, 0) == encode_in_python(plain)
    for value in ((1,), {1}, 2**63, "\ud800", {"k": Text("v")}, "z" * (128 * 1024)):
        assert kernels.encode_plain(value, 0) is None


def nested(levels, wrap):
    value = wrap(None)
    for _ in range(levels - 1):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"k": value}])
def test_depth_counts_where_the_value_stands(wrap):
    for levels in (20, 32):
        value = nested(levels, wrap)
        assert kernels.encode_plain(value, 0) == kernels.encode_plain(value, DEPTH_MAX - levels) == cbor.encode(value)
        assert kernels.encode_plain(value, DEPTH_MAX - levels + 1) is None
    assert kernels.encode_plain(nested(33, wrap), 0) is None, "a thread's stack may be small"
    assert cbor.encode(nested(DEPTH_MAX, wrap)) == encode_in_python(nested(DEPTH_MAX, wrap))
    with pytest.raises(LimitError):
        cbor.encode(nested(DEPTH_MAX + 1, wrap))
    cycle = []
    cycle.append(wrap(cycle))
    assert kernels.encode_plain(cycle, 0) is None


def test_a_deep_value_in_a_thread_with_a_small_stack():
    before = threading.stack_size(64 * 1024)
    try:
        thread = threading.Thread(target=lambda: made.append(cbor.encode(deep)))
        made, deep = [], nested(DEPTH_MAX, lambda value: {"k": value, **{f"k{number}": number for number in range(30)}})
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert cbor.decode(made[0])


def test_a_kept_text_does_not_grow():
    """A large text beyond ASCII would keep its UTF-8 for as long as it lives."""
    text = "é" * 50_000
    before = sys.getsizeof(text)
    assert cbor.decode(cbor.encode({"text": text})) == {"text": text}
    assert sys.getsizeof(text) == before


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2, 3), (1, "depth"), (1, None), (1, -1), (1, 2**70)])
def test_wrong_arguments_of_encode_plain(arguments):
    with pytest.raises((TypeError, OverflowError)):
        kernels.encode_plain(*arguments)


def test_a_clock_before_1970(tmp_path):
    """Then the time is that of the last record plus a microsecond."""
    with statelog.open(tmp_path / "a", durability="interval") as store:
        thread = store.thread("t")
        before = [thread.commit({"x": number}) for number in range(3)][-1]
        with mock.patch("time.time_ns", return_value=-1):
            after = [thread.commit({"x": number}) for number in range(3)][-1]
        assert (after.time - before.time).microseconds == 3
        assert store.verify().ok


def test_many_appends_in_one_commit_take_the_batch(tmp_path):
    """More than the kernel keeps places for."""
    schema = {f"c{number:02}": statelog.reducers.extend for number in range(40)}
    with statelog.open(tmp_path / "a", durability="interval") as store:
        thread = store.thread("t", schema=schema)
        for count in (40, 31, 32, 33, 40):
            for _ in range(3):
                thread.commit({f"c{number:02}": ["item" * 10] for number in range(count)})
        assert [len(thread.state[f"c{number:02}"]) for number in (0, 30, 31, 32, 39)] == [15, 15, 12, 9, 6]
        assert store.verify().ok


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["commit", "append", "rollback", "refused"])
def test_nothing_is_left_behind(tmp_path, kind):
    """A leaked reference would show as memory that is never freed."""
    with statelog.open(tmp_path / "a", durability="interval", interval_ms=60_000) as store:
        thread = store.thread("t", schema={"x": statelog.reducers.replace, "m": statelog.reducers.extend})
        thread.commit({"x": 0, "m": ["a" * 70]})

        def run(count):
            for number in range(count):
                if kind == "commit":
                    thread.commit({"x": number}, metadata={"n": number})
                elif kind == "append":
                    thread.commit({"m": ["b" * 70]})
                elif kind == "rollback":
                    thread.rollback(0)
                else:
                    with pytest.raises(ValueTypeError):
                        thread.commit({"x": [{"deep": object()}]})
            store._engine.cache.clear()
            gc.collect()
            return sys.getallocatedblocks()

        run(COMMITS // 3)
        before = run(COMMITS)
        assert run(COMMITS) - before < COMMITS // 2


@pytest.mark.slow
def test_a_collection_that_commits_while_a_checkpoint_is_made(tmp_path):
    """Finalizers may run where C makes tuples; a commit in one is refused, and the one that is made stays whole."""
    refused = []

    class Late:
        def __init__(self):
            self.me = self

        def __del__(self):
            try:
                thread.commit({"late": 1})
            except UsageError:
                refused.append(1)

    with statelog.open(tmp_path / "a", durability="interval") as store:
        thread = store.thread("t")
        threshold = gc.get_threshold()
        try:
            for number in range(COMMITS // 3):
                gc.set_threshold(1 + number % 80)  # so that it comes at each of a commit's allocations
                Late()
                thread.commit({"x": number})
        finally:
            gc.set_threshold(*threshold)
        assert thread.state["x"] == COMMITS // 3 - 1
        assert store.verify().ok
    assert refused, "no finalizer ran inside a commit"


class Model:
    """Like a plain model of pydantic's."""

    __pydantic_extra__ = None

    def __init__(self, **held):
        self.__dict__.update(held)


def freeze(values, learn=lambda kind: kind is Model):
    return freeze_items(values, {}, learn)


def modelled(value):
    """Return a value whose dicts with texts for keys are models."""
    if isinstance(value, list | tuple):
        return type(value)(map(modelled, value))
    if isinstance(value, dict):
        held = {key: modelled(item) for key, item in value.items()}
        return Model(**held) if held and all(type(key) is str for key in held) else held
    return value


@pytest.mark.slow
@given(st.lists(odd, max_size=5), st.lists(odd, max_size=5))
def test_items_are_unchanged(values, others):
    """`test_frozen.py` tests which values are equal. This tests that reading them is safe."""
    values, others = modelled(values), modelled(others)
    first, last = still_items(freeze(values), others)
    assert first + last <= min(len(values), len(others))
    copies = modelled(values)
    first, last = still_items(freeze(values), copies)
    assert [*copies[:first], *copies[len(copies) - last :]] == [*values[:first], *values[len(values) - last :]]


def test_of_a_deep_value_nothing_is_known():
    """The stack of a thread may be too small for it, and a list that contains itself has no end."""
    deep = nested(31, lambda value: [value])
    assert still_items(freeze([deep]), [deep]) == (1, 0)
    assert still_items(freeze([[[deep]]]), [[[deep]]]) == (0, 0)
    cycle = []
    cycle += [cycle] * 10
    assert still_items(freeze([cycle, "a"]), [cycle, "a"]) == (0, 1)


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_value_that_changes_while_it_is_frozen(is_filled):
    """Python code examines a new type, so another OS thread may run then."""
    held, items = {}, []

    def learn(_kind):
        held.clear()
        if is_filled:
            held.update({f"k{number}": number for number in range(100)})
        items.clear()
        return False

    held.update(a=Model(), b=1)
    assert freeze([held], learn) == (...,)
    items += [Model(), 1]
    assert freeze([items], learn) == (...,)
    values = [Model(), 1]
    items = values
    with pytest.raises(IndexError):
        freeze(values, learn)


def test_attributes_that_describe_a_type_may_raise():
    with pytest.raises(ZeroDivisionError):
        freeze([[{"a": Model()}]], lambda _kind: 1 // 0)


@pytest.mark.soak
def test_nothing_of_freezing_is_left_behind():
    values = [Model(a=1, b=[{"x": "y" * 30}], c=(1.5, None)), {"k": [object()]}, nested(40, lambda value: [value])]

    def run(count):
        for _ in range(count):
            still_items(freeze(values), values)
            with pytest.raises(TypeError):
                freeze([values, Model()], None)
        gc.collect()
        return sys.getallocatedblocks()

    run(COMMITS // 3)
    before = run(COMMITS)
    assert run(COMMITS) - before < COMMITS // 2


@pytest.mark.parametrize("arguments", [(), ([],), ((), {}, bool), ([], [], bool)])
def test_wrong_arguments_of_freeze_items(arguments):
    with pytest.raises(TypeError):
        freeze_items(*arguments)


@pytest.mark.parametrize("arguments", [(), ((),), ([], []), ((), ())])
def test_wrong_arguments_of_still_items(arguments):
    with pytest.raises(TypeError):
        still_items(*arguments)
