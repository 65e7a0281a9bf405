"""Recall: what is found, in which order, and that nothing is found that is not true or was forgotten."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Memory, guard, reducers
from statelog.errors import EmbeddingError, UsageError
from statelog.memory.recall import joined

pytest.importorskip("numpy")

AXES = ("vegan", "jazz", "rome", "dog")
SYNONYMS = {"eat": "vegan", "music": "jazz", "live": "rome", "pet": "dog"}


def embed(texts):
    """Embed by meaning: synonyms that share no letter with the fact point the same way."""
    words = [{SYNONYMS.get(word, word) for word in text.lower().split()} for text in texts]
    return [[0.1 + (axis in each) for axis in AXES] for each in words]


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state") as opened:
        yield opened


@pytest.fixture
def memory(store):
    made = Memory(store, "user/42", embed=embed, dims=len(AXES))
    for key, text in (("diet", "is vegan"), ("music", "likes jazz"), ("city", "lives in Rome"), ("pet", "has a dog")):
        made.remember(text, key=key, source=f"chat-{key}", metadata={"about": key})
    return made


def keys(facts):
    return [fact.key for fact in facts]


def test_a_fact_is_found_by_its_meaning(memory):
    assert memory.recall("eat", limit=1)[0].text == "is vegan"
    assert memory.recall("music", limit=1)[0].key == "music"


def test_a_fact_is_found_by_its_words_without_vectors(store, memory):
    assert keys(memory.recall("vegan", limit=1)) == ["diet"]
    assert keys(Memory(store, "user/42").recall("vegan")) == ["diet"]
    assert Memory(store, "user/42").recall("eat") == []


def test_facts_without_vectors_are_found_beside_those_with_them(store, memory):
    Memory(store, "user/42").remember("vegan since March", key="since")
    assert "since" in keys(memory.recall("vegan"))


def test_rankings_are_joined_by_reciprocal_rank():
    scores = joined([["a", "b", "c"], ["c", "a"]])
    assert list(scores) == ["a", "c", "b"]
    assert scores["a"] == pytest.approx(1 / 61 + 1 / 62)
    assert joined([["b"], ["a"]]) == {"a": 1 / 61, "b": 1 / 61}


def test_only_the_true_fact_of_a_key_is_found(memory):
    before = memory.get("diet").known_from
    memory.remember("eats fish", key="diet")
    assert "is vegan" not in [fact.text for fact in memory.recall("vegan", limit=10)]
    assert memory.recall("vegan", limit=1, at=before)[0].text == "is vegan"
    assert memory.recall("vegan", limit=1, known_at=before)[0].text == "is vegan"


def test_a_fact_of_the_future_is_found_when_it_begins(memory):
    begins = datetime(2100, 1, 1, tzinfo=UTC)
    memory.remember("is vegan again", key="plan", valid_from=begins)
    assert "plan" not in keys(memory.recall("vegan", limit=10))
    assert "plan" in keys(memory.recall("vegan", limit=10, at=begins))


def test_pinned_facts_come_first(memory):
    memory.remember("is called Ada", key="name", pinned=True)
    assert keys(memory.recall("vegan", limit=2)) == ["name", "diet"]
    memory.remember("is 30", key="age", pinned=True)
    assert keys(memory.recall("vegan", limit=1)) == keys(memory.pinned()) == ["age", "name"]
    memory.remember("is called Ada", key="name")
    assert keys(memory.pinned()) == ["age"]


def test_filters_are_by_source_and_metadata(memory):
    assert keys(memory.recall("eat music live pet", limit=10, source="chat-pet")) == ["pet"]
    assert keys(memory.recall("eat music live pet", limit=10, metadata={"about": "city"})) == ["city"]
    assert memory.recall("vegan", metadata={"about": None}) == []
    assert keys(memory.facts(source="chat-pet")) == ["pet"]


def test_texts_that_do_not_fit_do_not_crowd_out_a_fact_that_does(store):
    memory = Memory(store, "user/43")
    with store.transaction() as tx:
        for number in range(30):  # More than the 20 facts that a ranking contributes.
            fact = {"id": f"i{number}", "text": f"tea {number}", "known": 1000 + number}
            tx.board().update(f"memory/user/43/:facts/k{number}", reducers.append, {**fact, "source": "chat-1"})
            tx.board().update("memory/user/43/:facts/mood", reducers.append, {**fact, "text": f"mood {number}"})
    memory.remember("she also said that she likes tea of any kind", key="long", source="chat-2", metadata={"n": 1})
    memory.remember("her mood depends on the weather of the day", key="weather")
    assert keys(memory.recall("tea", source="chat-2")) == ["long"]
    assert keys(memory.recall("tea", metadata={"n": 1})) == ["long"]
    assert keys(memory.recall("mood")) == ["mood", "weather"]


@pytest.mark.parametrize(
    ("query", "more", "argument"),
    [
        ("", {}, "query"),
        (" ", {}, "query"),
        (7, {}, "query"),
        ("x", {"limit": 0}, "limit"),
        ("x", {"limit": True}, "limit"),
        ("x", {"source": 1}, "source"),
        ("x", {"metadata": "a"}, "metadata"),
    ],
)
def test_a_bad_question_is_refused(memory, query, more, argument):
    with pytest.raises(UsageError, match=argument):
        memory.recall(query, **more)


@pytest.mark.parametrize("query", ['"', "a AND", "NEAR(", "* vegan", "x" * 5000, "ve\0gan"])
def test_any_text_is_a_question(memory, query):
    memory.recall(query)


def test_facts_of_other_memories_are_found_until_they_are_forgotten(store, memory):
    other = Memory(store, "user/42", embed=embed, dims=len(AXES))
    assert keys(memory.recall("dog", limit=1)) == ["pet"]
    other.remember("has a cat", key="pet")
    assert memory.recall("dog pet", limit=1)[0].text != "has a dog"
    assert other.forget("pet")
    assert "pet" not in keys(memory.recall("dog pet", limit=10))


def test_a_board_that_is_rolled_back_takes_the_memory_with_it(store, memory):
    lsn = store.last_lsn
    memory.remember("eats fish", key="diet")
    memory.remember("has a boat", key="boat")
    assert "boat" in keys(memory.recall("boat", limit=10))
    store.board().rollback("memory/user/42/", to=lsn)
    assert memory.get("diet").text == "is vegan"
    assert "boat" not in keys(memory.recall("boat", limit=10))


def test_facts_of_another_embedding_model_are_found_by_text_until_they_are_remembered_again(store, memory):
    other = Memory(store, "user/42", embed=lambda asked: [[1.0, 2.0] for _text in asked], dims=2)
    assert keys(other.recall("vegan")) == ["diet"]
    assert len(other.facts()) == 4
    other.remember("is vegan", key="diet")
    assert keys(other.recall("x")) == ["diet"]
    assert "diet" in keys(memory.recall("vegan"))
    with pytest.raises(EmbeddingError, match="dims=3"):
        Memory(store, "user/42", embed=lambda asked: [[1.0, 2.0] for _text in asked], dims=3).recall("x")


@pytest.mark.slow
def test_many_changed_facts_keep_the_ranking_right(memory):
    for number in range(300):  # More dead rows than rows, so the matrix is made anew.
        memory.remember(f"is vegan {number}", key=f"k{number % 3}")
        if number % 50 == 0:
            memory.recall("eat")
    found = memory.recall("eat", limit=4)
    assert {*keys(found)} == {"diet", "k0", "k1", "k2"}
    assert {fact.text for fact in found} == {"is vegan", "is vegan 297", "is vegan 298", "is vegan 299"}


def test_a_secret_is_not_embedded(tmp_path):
    pytest.importorskip("re2")
    secret = SECRETS["github-token"](Random(1))
    embedded = []

    def embed_and_note(texts):
        embedded.extend(texts)
        return embed(texts)

    with statelog.open(tmp_path / "guarded.state", guard=statelog.Guard(secrets=guard.Secrets())) as store:
        memory = Memory(store, "user/42", embed=embed_and_note, dims=len(AXES))
        fact = memory.remember(f"the key is {secret}", key="k")
        memory.recall(f"what is {secret}")
    assert len(embedded) == 2
    assert secret not in repr([*embedded, fact])


@pytest.mark.parametrize("change", ["deleted", "cut", "trigram", "rebuilt"])
def test_facts_are_found_whatever_happens_to_the_index(store, change):
    memory = Memory(store, "user/42")
    memory.remember("is vegan", key="diet", metadata={"at": datetime(2026, 1, 1, tzinfo=UTC), "of": "Ada"})
    memory.remember("likes jazz", key="music")
    assert keys(memory.recall("vegan")) == ["diet"]
    index = store.path.with_name(f"{store.path.name}-search")
    if change == "deleted":
        index.unlink()
    elif change == "cut":
        index.write_bytes(index.read_bytes()[:5000])
    elif change == "trigram":
        store.configure_search(tokenizer="trigram")
    else:
        store.compact()
    assert keys(memory.recall("vegan")) == ["diet"]
    memory.forget("diet")
    assert memory.recall("vegan") == []
    assert keys(memory.recall("jazz")) == ["music"]


def test_a_text_that_was_forgotten_does_not_rank_a_new_fact_of_its_key(store):
    memory = Memory(store, "user/42")
    memory.remember("is vegan", key="diet")
    assert keys(memory.recall("vegan")) == ["diet"]
    memory.forget("diet")
    memory.remember("eats fish", key="diet")
    assert memory.recall("vegan") == []
    assert keys(memory.recall("fish")) == ["diet"]


@pytest.mark.slow
def test_rare_words_are_enough_and_frequent_ones_are_found_without_them(store):
    memory, other = Memory(store, "user/42"), Memory(store, "user/43")
    for number in range(120):
        memory.remember(f"eats soup {number}", key=f"k{number:03d}")
    other.remember("truffles and soup", key="rare")
    memory.remember("eats truffles with soup", key="truffles")
    assert keys(memory.recall("soup with truffles", limit=1)) == ["truffles"]
    memory.forget("truffles")
    assert len(memory.recall("soup with truffles", limit=3)) == 3
