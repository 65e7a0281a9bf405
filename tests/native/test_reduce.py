from __future__ import annotations

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import encode, outcome
from strategies import containers, damaged, floats, integers, items, map_items, scalars

from statelog import kernels
from statelog.errors import ReducerTypeError

relaxed = settings(deadline=None)
numbers = (
    st.tuples(st.just("int"), integers)
    | st.tuples(st.just("float"), floats)
    | st.tuples(st.just("simple"), st.booleans())
).map(encode)
sets = st.tuples(st.sampled_from(["set", "frozenset"]), st.lists(scalars | containers(scalars), max_size=8)).map(encode)


BOTH = pytest.mark.parametrize(
    ("kernel", "oracle"), [(kernels.add, oracles.add), (kernels.compare, oracles.compare)], ids=["add", "compare"]
)


@BOTH
@relaxed
@given(a=numbers, b=numbers)
def test_numbers_agree_with_python(kernel, oracle, a, b):
    assert kernel(a, b) == oracle(a, b)


@BOTH
@relaxed
@given(a=items, b=items)
def test_items_agree_with_oracle(kernel, oracle, a, b):
    assert outcome(kernel, a, b) == outcome(oracle, a, b)
    assert outcome(kernel, a, a) == outcome(oracle, a, a)


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (2**64 - 1, 0, 2**64 - 1),
        (2**64 - 2, 1, 2**64 - 1),
        (2**64 - 1, 1, None),
        (-(2**64), 0, -(2**64)),
        (-(2**64), -1, None),
        (-(2**63), -(2**63), -(2**64)),
        (2**64 - 1, -(2**64), -1),
        (5, -5, 0),
        (4, -5, -1),
    ],
)
def test_add_at_the_edges_of_64_bits(a, b, total):
    expected = None if total is None else encode(("int", total))
    assert kernels.add(encode(("int", a)), encode(("int", b))) == expected
    assert kernels.add(encode(("int", b)), encode(("int", a))) == expected


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        (("int", 2**53 + 1), ("float", float(2**53)), 1),
        (("int", 2**64 - 1), ("float", 2.0**64), -1),
        (("int", -(2**64)), ("float", -(2.0**64)), 0),
        (("int", -(2**64)), ("float", -(2.0**65)), 1),
        (("int", 0), ("float", -0.0), 0),
        (("int", 0), ("float", 0.5), -1),
        (("int", 0), ("float", -0.5), 1),
        (("int", -1), ("float", -1.5), 1),
        (("int", 1), ("float", float("inf")), -1),
        (("int", 1), ("float", float("-inf")), 1),
        (("simple", True), ("int", 1), 0),
        (("text", "\uffff"), ("text", "\U00010000"), -1),
        (("int", 1), ("float", float("nan")), None),
        (("int", 1), ("int", 2**64), None),
        (("list", []), ("list", []), None),
    ],
)
def test_compare_is_exact(a, b, order):
    assert kernels.compare(encode(a), encode(b)) == order
    assert kernels.compare(encode(b), encode(a)) == (None if order is None else -order)


@pytest.mark.parametrize("name", ["add", "compare"])
def test_str_and_int_do_not_go_together(name):
    with pytest.raises(ReducerTypeError) as caught:
        getattr(kernels, name)(b"\x61a", b"\x01")
    assert caught.value.reducer == name


@pytest.mark.slow
@relaxed
@given(map_items, map_items, st.booleans())
def test_merge_agrees_with_oracle(a, b, deep):
    assert kernels.merge_maps(a, b, deep=deep) == oracles.merge_maps(a, b, deep=deep)


def test_deep_merge_of_the_deepest_maps():
    a = b"\xa1\x61a" * 128 + b"\x01"
    b = b"\xa1\x61a" * 127 + b"\xa1\x61b\x02"
    assert kernels.merge_maps(a, b, deep=True) == b"\xa1\x61a" * 127 + b"\xa2\x61a\x01\x61b\x02"


def test_merge_that_grows_a_head_at_every_level():
    def nested(prefix, depth):
        leaf = ("map", [(("text", f"{prefix}{n:02}"), ("int", n)) for n in range(20)])
        return ("map", [*leaf[1], (("text", "x"), nested(prefix, depth - 1))]) if depth else leaf

    a, b = encode(nested("a", 30)), encode(nested("b", 30))
    assert kernels.merge_maps(a, b, deep=True) == oracles.merge_maps(a, b, deep=True)
    assert kernels.merge_maps(a, a, deep=True) == a


@relaxed
@given(items, items)
def test_merge_of_no_dicts_is_refused(a, b):
    assert outcome(kernels.merge_maps, a, b, deep=True) == outcome(oracles.merge_maps, a, b, deep=True)


@relaxed
@given(sets, sets)
def test_union_agrees_with_oracle(a, b):
    assert outcome(kernels.union, a, b) == outcome(oracles.union, a, b)


@relaxed
@given(items, items)
def test_union_of_no_sets_is_refused(a, b):
    assert outcome(kernels.union, a, b) == outcome(oracles.union, a, b)


@pytest.mark.slow
@relaxed
@given(map_items.flatmap(damaged), map_items.flatmap(damaged), st.booleans())
def test_reducers_agree_with_oracle_on_damage(a, b, deep):
    assert outcome(kernels.merge_maps, a, b, deep=deep) == outcome(oracles.merge_maps, a, b, deep=deep)
    assert outcome(kernels.add, a, b) == outcome(oracles.add, a, b)


def test_results_beyond_the_scratch():
    text = encode(("text", "x" * 100_000))
    assert kernels.add(text, text) == encode(("text", "x" * 200_000))
