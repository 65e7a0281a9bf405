"""Metadata equal to that of LangGraph, whether or not LangGraph's function is called."""

from __future__ import annotations

from collections import ChainMap

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, get_checkpoint_metadata

from statelog.adapters.langgraph.saver import metadata as of_configs
from statelog.adapters.langgraph.saver.metadata import metadata_of

keys = st.sampled_from([*sorted(EXCLUDED_METADATA_KEYS), "__pregel_runtime", "__", "run_id", "user", "step", "", "_x"])
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("a\0", max_size=3)
values |= st.lists(values, max_size=1)


class Text(str):
    __slots__ = ()


class Config(dict):
    pass


dicts = st.dictionaries(keys, values, max_size=4)
parts = dicts | dicts.map(Config) | st.lists(dicts, max_size=3).map(lambda maps: ChainMap(*maps)) | st.none()
metadatas = st.dictionaries(
    st.sampled_from(["source", "step", "parents", "user"]), values | st.text("a\0", max_size=3).map(Text)
)


@given(metadatas, parts, parts)
def test_metadata_equals_that_of_langgraph(metadata, configurable, given_metadata):
    config = {"configurable": configurable, "metadata": given_metadata}
    expected = get_checkpoint_metadata(config, metadata)
    found = metadata_of(config, metadata)
    assert (found, [*map(type, found.values())]) == (expected, [*map(type, expected.values())])


def test_a_key_that_is_not_a_text_raises_the_same_error():
    for part in ({1: "x"}, {"thread_id": "t", None: 1}):
        with pytest.raises(AttributeError):
            get_checkpoint_metadata({"configurable": part}, {})
        with pytest.raises(AttributeError):
            metadata_of({"configurable": part}, {})


def test_values_to_which_langgraph_adds_nothing_are_not_copied():
    metadata = {"source": "loop", "step": 1, "parents": {}}
    config = {
        "configurable": {"thread_id": "t", "checkpoint_ns": "", "__pregel_runtime": object()},
        "metadata": ChainMap({"thread_id": "t"}),
    }
    assert metadata_of(config, metadata) is metadata
    config["configurable"]["tenant"] = "x"
    assert metadata_of(config, metadata) == {**metadata, "tenant": "x"}


def test_the_number_of_remembered_keys_is_limited(monkeypatch):
    monkeypatch.setattr(of_configs, "_left_out", set())
    monkeypatch.setattr(of_configs, "_taken", set())
    for number in range(3 * of_configs._KEYS_MAX):
        name = f"__{number}" if number % 2 else f"{number}"
        assert metadata_of({"configurable": {name: number}}, {}) == ({} if number % 2 else {name: number})
        assert len(of_configs._left_out) + len(of_configs._taken) <= of_configs._KEYS_MAX
