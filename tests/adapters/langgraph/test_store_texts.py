"""A query of a store without vectors: items with its words come first, and deleted texts are not found."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("langgraph")

from statelog.adapters.langgraph import StatelogStore


@pytest.fixture
def memory(tmp_path):
    with StatelogStore.open(tmp_path / "a.state") as opened:
        opened.put(("users", "4"), "food", {"text": "likes vegan soup", "rank": 1})
        opened.put(("users", "4"), "music", {"text": "likes jazz", "rank": 2})
        opened.put(("users", "42"), "food", {"text": "likes soup", "notes": ["vegan", "no salt"], "rank": 1})
        yield opened


def keys(found):
    return [(*each.namespace, each.key) for each in found]


def test_items_with_words_of_the_query_come_first_and_have_a_score(memory):
    found = memory.search(("users", "4"), query="vegan")
    assert keys(found) == [("users", "4", "food"), ("users", "4", "music")]
    assert found[0].score > 0
    assert found[1].score is None
    assert keys(memory.search(("users",), query="jazz", limit=1)) == [("users", "4", "music")]
    assert {*keys(memory.search(("users",), query="what vegan food?", limit=2))} == {
        ("users", "4", "food"),
        ("users", "42", "food"),
    }


def test_a_filter_and_an_offset_apply_to_found_items(memory):
    assert keys(memory.search(("users",), query="jazz", filter={"rank": 1}, limit=1)) != [("users", "4", "music")]
    assert keys(memory.search(("users", "4"), query="jazz", offset=1)) == [("users", "4", "food")]


def test_deleted_or_replaced_texts_are_not_found(memory):
    memory.put(("users", "4"), "food", {"text": "likes fish"})
    memory.delete(("users", "42"), "food")
    found = memory.search(("users",), query="vegan")
    assert keys(found) == [("users", "4", "food"), ("users", "4", "music")]
    assert [each.score for each in found] == [None, None]


@pytest.mark.parametrize("query", ['"', "a AND", "*", " "])
def test_any_text_can_be_a_query(memory, query):
    assert len(memory.search(("users",), query=query)) == 3


def test_an_async_query_finds_the_same_items(memory):
    found = asyncio.run(memory.asearch(("users",), query="jazz", limit=1))
    assert keys(found) == [("users", "4", "music")]
