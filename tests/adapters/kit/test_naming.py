"""Ids for names of any length and script: different names have different ids, and each id fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.adapters.kit.thread_ids import map_key, thread_id
from statelog.errors import UsageError

NAMES = st.lists(st.text(st.sampled_from("a/%~é7EF2"), max_size=6), min_size=2, max_size=3)


def test_a_plain_name_is_readable_in_its_id():
    assert thread_id("openai", "ticket-42") == "openai:ticket-42"
    assert thread_id("adk", "app", "user", "s 1") == "adk:app/user/s 1"


@pytest.mark.slow
@given(one=NAMES, other=NAMES)
def test_different_names_have_different_ids(one, other):
    assert (thread_id("x", *one) == thread_id("x", *other)) == (one == other)


@pytest.mark.parametrize("name", ["x" * 10_000, "é" * 300, "漢字" * 5_000, "🙂" * 400, "a\nb\0c", "x" * 399])
def test_a_name_of_any_length_can_name_a_thread(path, name):
    with statelog.open(path) as store:
        store.thread(thread_id("x", name)).commit({"a": 1})
        assert store.thread(thread_id("x", name + "x")).version == -1


@pytest.mark.parametrize("name", ["", None, 7, b"x", "\ud800"])
def test_invalid_names_are_refused(name):
    with pytest.raises(UsageError, match="name"):
        thread_id("x", name)


@pytest.mark.parametrize("name", [None, 7, b"x", "\ud800"])
def test_keys_that_are_not_texts_are_not_found(name):
    with pytest.raises(UsageError, match="name"):
        map_key(name)
