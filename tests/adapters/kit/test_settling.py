"""A minimal update makes a value equal to the new one and writes only the differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.adapters.kit.shared_parts import settle

LEAVES = st.integers(0, 3) | st.sampled_from(["a", "b", None, True, 1.0])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=12,
)


def tell(value):
    """Return the value with the types of its members, which == does not compare."""
    if isinstance(value, dict):
        return {key: tell(item) for key, item in value.items()}
    return [tell(item) for item in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_an_updated_value_equals_the_new_one(tmp_path_factory, lazy, values):
    with statelog.open(tmp_path_factory.mktemp("s") / "s", durability="interval") as store:
        for value in values:
            store.thread("t").edit(lambda state, value=value: settle(state, "a", value), lazy=lazy)
            assert tell(store.thread("t").head.state.to_python()["a"]) == tell(value)


def test_a_grown_list_in_a_dict_stores_only_its_new_items(path):
    with statelog.open(path, durability="interval") as store:
        messages = [f"message {n} " * 40 for n in range(1000)]
        store.thread("t").edit(lambda state: settle(state, "team", {"a": messages}))
        before = store.last_lsn
        grown = {"a": [*messages, "one more"]}
        store.thread("t").edit(lambda state: settle(state, "team", grown), lazy=True)
        assert store.thread("t").head.state.to_python()["team"] == grown
        assert sum(record.size_bytes for record in store.log(before)) < 20_000
