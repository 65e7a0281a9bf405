"""Names of parameters are the same in every process."""

from __future__ import annotations

from naming import named


def test_the_order_of_a_set_is_not_in_the_name_at_any_depth():
    # 0 and 8 fall into the same slot of a small set, which then keeps the order of insertion
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert repr(one) != repr(other)
    assert named([{"a": (one,)}]) == named([{"a": (other,)}])


def test_an_address_is_not_in_the_name():
    assert named(["a", {object()}]) == "['a', {<object object>}]"


def test_a_value_within_itself_has_a_name():
    cycle = []
    cycle.append(cycle)
    assert named(cycle)
