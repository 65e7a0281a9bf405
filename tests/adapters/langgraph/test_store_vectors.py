"""Semantic search: embedded texts, ranking, and vectors in the next process."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import subprocess
import sys

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")
pytest.importorskip("numpy", reason="numpy is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import statelog
from statelog.adapters.langgraph import StatelogStore
from statelog.adapters.langgraph.memory.store import STORE_THREAD_ID
from statelog.errors import ValueTypeError

DIMS = 8
SPACE = ("docs",)


def embed(texts):
    """Embed a text by counting letters. Texts with the same letters are similar."""
    return [[float(text.count(letter)) for letter in "abcdefgh"] for text in texts]


async def aembed(texts):
    await asyncio.sleep(0)
    return embed(texts)


def index(**more):
    return {"dims": DIMS, "embed": embed, **more}


@pytest.fixture
def memory(store):
    return StatelogStore(store, index=index(fields=["text"]))


def keys(found):
    return [item.key for item in found]


def test_the_most_similar_items_come_first_and_items_without_a_vector_last(memory):
    memory.put(SPACE, "a", {"text": "aaaa"})
    memory.put(SPACE, "b", {"text": "aabb"})
    memory.put(SPACE, "none", {"text": "aaaa"}, index=False)
    memory.put(SPACE, "c", {"text": "cccc"})
    memory.put(("other",), "a", {"text": "aaaa"})
    found = memory.search(SPACE, query="aa")
    assert keys(found) == ["a", "b", "c", "none"]
    assert [item.score for item in found] == [pytest.approx(1), pytest.approx(0.5**0.5), pytest.approx(0), None]
    assert keys(memory.search(SPACE, query="aa", limit=2, offset=1)) == ["b", "c"]
    assert keys(memory.search(SPACE, query="aa", filter={"text": {"$ne": "aaaa"}})) == ["b", "c"]
    assert [item.namespace for item in memory.search((), query="aa", limit=2)] == [("other",), SPACE]
    assert keys(memory.search(SPACE)) == ["c", "none", "b", "a"]


def test_puts_and_deletions_take_effect_at_once(memory):
    memory.batch([PutOp(SPACE, f"{number}", {"text": "b" * (number + 1)}) for number in range(200)])
    assert len(memory.search(SPACE, query="a", limit=1000)) == 200
    memory.put(SPACE, "7", {"text": "aaa"})
    assert memory.search(SPACE, query="a")[0].key == "7"
    memory.put(SPACE, "7", {"text": "aaa"}, index=False)
    found = memory.search(SPACE, query="a", limit=1000)
    assert (found[-1].key, found[-1].score) == ("7", None)
    memory.put(SPACE, "8", {"text": "a"})
    memory.delete(SPACE, "8")
    assert "8" not in keys(memory.search(SPACE, query="a", limit=1000))
    for _ in range(3):
        memory.batch([PutOp(SPACE, f"{number}", {"text": "ab"}) for number in range(150)])
        assert len(memory.search(SPACE, query="a", limit=1000)) == 200
    memory.batch([PutOp(SPACE, f"{number}", None) for number in range(200)])
    assert memory.search(SPACE, query="a") == []
    memory.put(SPACE, "x", {"text": "a"})
    assert keys(memory.search(SPACE, query="a")) == ["x"]


def test_the_first_results_equal_the_beginning_of_the_full_ranking(memory):
    texts = ["".join("abcdefgh"[number * each % 8] for each in range(1, 4)) for number in range(1500)]
    memory.batch([PutOp(SPACE, f"{number}", {"text": text}) for number, text in enumerate(texts)])
    found = memory.search(SPACE, query="abc", limit=2000)
    ranks = [(-item.score, -int(item.key)) for item in found]
    assert ranks == sorted(ranks)
    assert len({item.key for item in found}) == 1500
    assert found[:20] == memory.search(SPACE, query="abc", limit=20)
    assert found[700:720] == memory.search(SPACE, query="abc", limit=20, offset=700)


def scattered(dims):
    """Embed texts as random numbers. Equal texts have equal vectors."""
    return lambda texts: [[random.Random(f"{text} {at}").gauss() for at in range(dims)] for text in texts]


@pytest.mark.parametrize("dims", [3, 4, 5, 8, 13, 16, 384])
def test_among_equally_similar_items_the_last_put_comes_first(path, dims):
    texts = ["same" if number % 3 else f"{number}" for number in range(111)]
    spaces = [("one",), ("two",)]
    with statelog.open(path) as opened:
        memory = StatelogStore(opened, index={"dims": dims, "embed": scattered(dims)})
        for space in spaces:
            memory.batch([PutOp(space, f"{number:03}", {"text": text}) for number, text in enumerate(texts)])
        memory.put(spaces[0], "001", {"text": "same"})
    with statelog.open(path) as opened:
        memory = StatelogStore(opened, index={"dims": dims, "embed": scattered(dims)})
        found = memory.search((), query="near", limit=500)
        same = [(item.namespace, item.key) for item in found if item.value["text"] == "same"]
        assert len({item.score for item in found if item.value["text"] == "same"}) == 1
        expected = [(space, f"{number:03}") for space in reversed(spaces) for number in range(110, 0, -1) if number % 3]
        expected.remove((spaces[0], "001"))
        assert same == [(spaces[0], "001"), *expected]
        pages = [memory.search((), query="near", limit=7, offset=offset) for offset in range(0, len(found), 7)]
        assert [item for page in pages for item in page] == found


def test_vectors_in_memory_belong_to_the_present_sequence_of_puts(store, memory):
    memory.put(SPACE, "kept", {"text": "ab"})
    version = store.thread(STORE_THREAD_ID).head.version
    memory.put(SPACE, "gone", {"text": "a"})
    memory.put(SPACE, "other", {"text": "b"})
    assert keys(memory.search(SPACE, query="a")) == ["gone", "kept", "other"]
    store.thread(STORE_THREAD_ID).rollback(version)
    assert keys(memory.search(SPACE, query="a")) == ["kept"]
    memory.put(SPACE, "other", {"text": "aa"})
    memory.put(SPACE, "new", {"text": "bbb"})
    memory.put(SPACE, "last", {"text": "c"})
    found = memory.search(SPACE, query="a")
    assert [(item.key, item.score is None) for item in found[:2]] == [("other", False), ("kept", False)]
    assert {item.key: item.score for item in found} == {
        item.key: item.score for item in StatelogStore(store, index=index(fields=["text"])).search(SPACE, query="a")
    }
    store.thread(STORE_THREAD_ID).rollback(version)
    for key in ("x", "y", "z"):  # As many as before, and without a search in between.
        memory.put(SPACE, key, {"text": "a"})
    assert keys(memory.search(SPACE, query="a")) == ["z", "y", "x", "kept"]


def test_fields_are_paths_and_the_most_similar_of_several_vectors_counts(store):
    memory = StatelogStore(store, index=index(fields=["parts[*].text", "title"]))
    memory.put(SPACE, "a", {"parts": [{"text": "bb"}, {"text": "a"}, {"other": 1}], "title": "cc"})
    memory.put(SPACE, "b", {"parts": [{"text": "ab"}], "title": None})
    memory.put(SPACE, "c", {"parts": [], "own": {"x": "a"}}, index=["own.x"])
    memory.put(SPACE, "d", {"n": 1})
    found = memory.search(SPACE, query="a")
    assert keys(found) == ["c", "a", "b", "d"]
    stored = store.thread(STORE_THREAD_ID).state["vectors"].to_python()["docs"]
    assert {key: sorted(fields) for key, fields in stored.items()} == {
        "a": ["parts[*].text.0", "parts[*].text.1", "title"],
        "b": ["parts[*].text"],
        "c": ["own.x"],
    }
    assert {len(vector) for fields in stored.values() for vector in fields.values()} == {4 * DIMS}


def test_without_fields_the_whole_item_is_embedded(store):
    memory = StatelogStore(store, index=index())
    memory.put(SPACE, "a", {"x": "aaaa"})
    memory.put(SPACE, "b", {"x": "bbbb"})
    assert keys(memory.search(SPACE, query="a")) == ["a", "b"]


def test_the_next_process_finds_the_vectors(path):
    with StatelogStore.open(path, index=index()) as memory:
        memory.put(SPACE, "a", {"x": "aaaa"})
        memory.put(SPACE, "b", {"x": "bbbb"})

    def embed_queries_alone(texts):
        assert texts == ["a"]
        return embed(texts)

    with StatelogStore.open(path, index=index(embed=embed_queries_alone)) as memory:
        assert keys(memory.search(SPACE, query="a")) == ["a", "b"]
        with StatelogStore.open(path, index=index()) as other:
            other.put(SPACE, "c", {"x": "a"})
        assert "c" in keys(memory.search(SPACE, query="a"))


def test_tasks_can_use_an_async_embedding(store):
    async def main():
        memory = StatelogStore(store, index=index(embed=aembed))
        await asyncio.gather(*[memory.aput(SPACE, f"{n}", {"x": "a" * n + "b"}) for n in range(10)])
        return await memory.asearch(SPACE, query="aaaa", limit=2)

    assert keys(asyncio.run(main())) == ["9", "8"]
    with pytest.raises(ValueError, match="async"):
        StatelogStore(store, index=index(embed=aembed)).put(SPACE, "x", {"x": "a"})
    assert StatelogStore(store).get(SPACE, "x") is None


TEXTS = st.text("abcdefgh", min_size=1, max_size=6)
OPS = st.one_of(
    st.builds(PutOp, st.just(SPACE), st.sampled_from("klmnop"), st.none() | st.builds(dict, text=TEXTS),
              st.sampled_from([None, False]), st.none()),
    st.builds(SearchOp, st.just(()), st.none(), st.just(100), st.just(0), TEXTS),
    st.builds(GetOp, st.just(SPACE), st.sampled_from("klmnop")),
)  # fmt: skip


@settings(max_examples=30)
@given(st.lists(OPS, max_size=25))
def test_scores_equal_those_of_the_in_memory_store(tmp_path_factory, ops):
    config = index(fields=["text"])
    theirs = InMemoryStore(index=config)
    with StatelogStore.open(tmp_path_factory.mktemp("v") / "a.state", index=config, durability="interval") as ours:
        for op in ops:
            if isinstance(op, PutOp):  # LangGraph's store keeps vectors of earlier puts.
                theirs.batch([PutOp(op.namespace, op.key, None)])
            (mine,), (other,) = ours.batch([op]), theirs.batch([op])
            if isinstance(op, SearchOp):
                scores = {item.key: item.score for item in other}
                assert {item.key: item.score for item in mine} == {
                    key: score if score is None else pytest.approx(score, abs=1e-5) for key, score in scores.items()
                }
                scored = [item.score for item in mine if item.score is not None]
                assert scored == sorted(scored, reverse=True)
                assert [item.score for item in mine[len(scored) :]] == [None] * (len(mine) - len(scored))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"dims": 0, "embed": embed}, "dims"),
        ({"embed": embed}, "dims"),
        ({"dims": DIMS}, "embed"),
        ({"dims": DIMS, "embed": embed, "fields": "text"}, "fields"),
    ],
)
def test_invalid_configurations_are_refused(store, config, message):
    with pytest.raises(ValueError, match=message):
        StatelogStore(store, index=config)


def test_vectors_of_another_length_are_refused(store):
    memory = StatelogStore(store, index=index(dims=3))
    with pytest.raises(ValueError, match="dims=3"):
        memory.put(SPACE, "a", {"x": "a"})
    with pytest.raises(ValueError, match="dims=3"):
        memory.search(SPACE, query="a")
    StatelogStore(store, index=index()).put(SPACE, "a", {"x": "a"})
    with pytest.raises(ValueError, match="vector of 8 numbers, but dims=2"):
        StatelogStore(store, index={"dims": 2, "embed": lambda texts: [[1.0, 2.0] for _ in texts]}).search(
            SPACE, query="a"
        )
    with pytest.raises(ValueError, match="0 vectors for 1"):
        StatelogStore(store, index=index(embed=lambda _texts: [])).put(SPACE, "a", {"x": "a"})


def test_without_numpy_the_error_names_the_package_to_install():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import statelog\n"
        "from statelog.adapters.langgraph import StatelogStore\n"
        "StatelogStore.open(sys.argv[1], index={'dims': 1, 'embed': lambda texts: []})"
    )
    done = subprocess.run([sys.executable, "-c", code, "/dev/null/none"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    made = "from unittest.mock import Mock\nStatelogStore(Mock(statelog.Store), "
    code = code.replace("StatelogStore.open(sys.argv[1], ", made)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: semantic search (index=) needs numpy: pip install 'statelog[vectors]'" in done.stderr


@pytest.mark.parametrize("value", [b"x", {1, 2}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), object()])
def test_values_without_a_text_are_named(store, value):
    memory = StatelogStore(store, index=index())
    with pytest.raises(ValueTypeError, match=r"^docs\.k: its field '\$' has no text to embed"):
        memory.batch([PutOp(SPACE, "good", {"x": 1}), PutOp(SPACE, "k", {"a": value})])
    assert memory.search(()) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([float("nan")] * DIMS, "NaN"),
        ([float("inf")] * DIMS, "NaN, or with numbers beyond"),
        ([1e300] * DIMS, "beyond float32"),
        ([None] * DIMS, "for the text 'soup'"),
        (["a"] * DIMS, "not return a vector of numbers"),
        ([1.0] * (DIMS - 1), "shape"),
    ],
)
def test_an_invalid_vector_is_neither_stored_nor_searched_with(store, given, says):
    vectors = {"good": [1.0] * DIMS, "soup": given}
    memory = StatelogStore(store, index=index(embed=lambda texts: [vectors[text] for text in texts], fields=["t"]))
    memory.put(SPACE, "good", {"t": "good"})
    for call in (lambda: memory.put(SPACE, "k", {"t": "soup"}), lambda: memory.search(SPACE, query="soup")):
        with pytest.raises(ValueError, match=says):
            call()
    assert keys(memory.search(SPACE, query="good")) == ["good"]


def test_an_embedding_that_returns_none_is_refused(store):
    memory = StatelogStore(store, index=index(embed=lambda _texts: None))
    with pytest.raises(ValueError, match="embed returned None for 1 texts"):
        memory.put(SPACE, "k", {"t": "soup"})


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1.0, 1e20, 3e38])
def test_similarity_does_not_depend_on_the_magnitude_of_vectors(store, size):
    memory = StatelogStore(store, index=index(embed=lambda texts: [[size, size] + [0.0] * (DIMS - 2) for _ in texts]))
    memory.put(SPACE, "k", {"t": "soup"})
    assert [item.score for item in memory.search(SPACE, query="q")] == [pytest.approx(1)]


def test_an_item_of_other_dims_is_named(store):
    StatelogStore(store, index=index()).put(SPACE, "old", {"t": "soup"})
    memory = StatelogStore(store, index={"dims": 2, "embed": lambda texts: [[1.0, 0.0] for _ in texts]})
    memory.put(SPACE, "new", {"t": "soup"})
    with pytest.raises(ValueError, match="item 'old' of namespace 'docs' has a vector of 8 numbers, but dims=2"):
        memory.search(SPACE, query="soup")
    memory.put(SPACE, "old", {"t": "soup"})
    assert keys(memory.search(SPACE, query="soup")) == ["old", "new"]


@pytest.mark.parametrize("given", [5, "x", [], {"dims": 8, "embed": 5}, {"dims": 8, "embed": embed, "fields": 5}])
def test_an_invalid_index_argument_is_refused(store, given):
    with pytest.raises(ValueError, match=r"^index"):
        StatelogStore(store, index=given)
