"""Facts: what was true when, what was known when, and that a scope sees its own facts alone."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta

import pytest

import statelog
from statelog import Memory
from statelog.errors import EmbeddingError, LimitError, UsageError, ValueTypeError

DAY = timedelta(days=1)
JANUARY, MARCH, MAY = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 3, 5))


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state") as opened:
        yield opened


@pytest.fixture
def memory(store):
    return Memory(store, "user/42")


def texts(facts):
    return [fact.text for fact in facts]


def test_a_new_fact_ends_the_former_one_and_deletes_nothing(memory):
    old = memory.remember("Eats meat", key="diet", source="chat-1", valid_from=JANUARY)
    new = memory.remember("Is vegan", key="diet", source="chat-7", valid_from=MAY)
    assert memory.get("diet") == new
    assert memory.get("diet", at=MARCH).text == "Eats meat"
    assert memory.get("diet", at=JANUARY - DAY) is None
    assert texts(memory.history("diet")) == ["Is vegan", "Eats meat"]
    assert (old.valid_until, memory.history("diet")[1].valid_until) == (None, MAY)


def test_a_back_dated_fact_is_true_until_the_next_one_begins(memory):
    memory.remember("Berlin", key="city", valid_from=JANUARY)
    memory.remember("Rome", key="city", valid_from=MAY)
    memory.remember("Paris", key="city", valid_from=MARCH)
    assert [memory.get("city", at=at + DAY).text for at in (JANUARY, MARCH, MAY)] == ["Berlin", "Paris", "Rome"]
    assert memory.get("city").text == "Rome"


def test_a_query_may_combine_known_at_and_valid_at(memory):
    memory.remember("Berlin", key="city", valid_from=JANUARY)
    before = memory.remember("Rome", key="city", valid_from=MAY).known_from
    memory.remember("Paris", key="city", valid_from=MARCH)
    assert memory.get("city", at=MARCH + DAY, known_at=before).text == "Berlin"
    assert memory.get("city", at=MARCH + DAY).text == "Paris"
    assert memory.get("city", known_at=JANUARY) is None


def test_of_facts_that_begin_together_the_last_one_is_true(memory):
    memory.remember("Berlin", key="city", valid_from=JANUARY)
    memory.remember("Bern", key="city", valid_from=JANUARY)
    assert memory.get("city", at=JANUARY).text == "Bern"
    corrected = memory.history("city")[1]
    assert corrected.valid_until == corrected.valid_from


def test_a_fact_with_an_end_is_followed_by_nothing(memory):
    memory.remember("Is on leave", key="leave", valid_from=JANUARY, valid_until=MARCH)
    assert memory.get("leave", at=MARCH - DAY).text == "Is on leave"
    assert memory.get("leave", at=MARCH) is None
    assert memory.get("leave") is None


def test_a_date_is_the_beginning_of_the_day_in_utc(memory):
    assert memory.remember("x", key="k", valid_from=date(2026, 3, 1)).valid_from == MARCH


def test_facts_without_a_key_do_not_replace_each_other(memory):
    first, second = memory.remember("Likes jazz"), memory.remember("Likes soup")
    assert first.key == first.id != second.key
    assert {*texts(memory.facts())} == {"Likes jazz", "Likes soup"}
    assert memory.remember("Likes blues", key=first.key).key == first.key
    assert {*texts(memory.facts())} == {"Likes blues", "Likes soup"}


def test_a_scope_sees_its_own_facts_alone(store):
    scopes = ["user/4", "user/42", "user/42/agent/7", "user"]
    for scope in scopes:
        Memory(store, scope).remember(f"of {scope}", key="k", metadata={"scope": "user/42"}, pinned=True)
    for scope in scopes:
        memory = Memory(store, scope)
        assert texts(memory.facts()) == texts(memory.recall("of")) == texts(memory.pinned()) == [f"of {scope}"]
        with pytest.raises(AttributeError):
            memory.scope = "user/4"


@pytest.mark.parametrize(
    ("scope", "error"),
    [
        *((scope, UsageError) for scope in ("", "user/*", "user/?", "user/[4]", "user//4", "/user", "user/", "a/../b")),
        *((scope, UsageError) for scope in (":facts", "user/:facts", "memory", "memory/user", "durable/x", None, 42)),
        ("user/" + "x" * 200, LimitError),
    ],
)
def test_a_bad_scope_is_refused(store, scope, error):
    with pytest.raises(error, match="scope"):
        Memory(store, scope)
    with pytest.raises(error, match="scope"):
        Memory.forget_scope(store, scope)


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize(
    ("text", "more", "argument"),
    [
        ("", {}, "text"),
        (" \n", {}, "text"),
        (None, {}, "text"),
        (b"x", {}, "text"),
        ("x", {"key": ""}, "key"),
        ("x", {"key": "a*"}, "key"),
        ("x", {"key": "a//b"}, "key"),
        ("x", {"source": 7}, "source"),
        ("x", {"metadata": ["a"]}, "metadata"),
        ("x", {"pinned": "no"}, "pinned"),
        ("x", {"valid_from": NAIVE}, "valid_from"),
        ("x", {"valid_from": "2026-01-01"}, "valid_from"),
        ("x", {"valid_until": NAIVE}, "valid_until"),
        ("x", {"valid_from": MAY, "valid_until": MARCH}, "valid_until"),
    ],
)
def test_a_bad_fact_is_refused_and_nothing_is_stored(store, memory, text, more, argument):
    with pytest.raises(UsageError, match=argument) as refused:
        memory.remember(text, **more)
    assert refused.value.facts["argument"] == argument
    assert store.last_lsn == 0


def test_metadata_that_cannot_be_stored_is_refused(store, memory):
    with pytest.raises(ValueTypeError, match="metadata"):
        memory.remember("x", metadata={"a": object()})
    assert store.last_lsn == 0


def test_a_key_that_is_too_long_for_its_scope_is_refused(memory):
    with pytest.raises(LimitError, match="400"):
        memory.remember("x", key="k" * 390)


@pytest.mark.parametrize("argument", ["at", "known_at"])
def test_a_question_about_a_time_without_a_zone_is_refused(memory, argument):
    for ask in (memory.get, memory.recall):
        with pytest.raises(UsageError, match="time zone"):
            ask("diet", **{argument: NAIVE})


@pytest.mark.parametrize(
    ("vectors", "match"),
    [
        ([[1.0, 2.0, 3.0]], "shape"),
        ([[1.0]], "shape"),
        ([[math.nan, 1.0]], "NaN"),
        ([[math.inf, 1.0]], "NaN"),
        ([], "0 vectors for 1 texts"),
        ([[1.0, 2.0], [1.0, 2.0]], "2 vectors for 1 texts"),
        (None, "not a list"),
        ("ab", "not a list"),
        ([["a", "b"]], "not return a vector"),
    ],
)
def test_a_bad_embedding_is_refused_and_nothing_is_stored(store, vectors, match):
    memory = Memory(store, "user/42", embed=lambda _texts: vectors, dims=2)
    with pytest.raises(EmbeddingError, match=match):
        memory.remember("vegan", key="diet")
    with pytest.raises(EmbeddingError, match=match):
        memory.recall("vegan")
    assert store.last_lsn == 0


def test_an_embedding_that_raises_is_named_with_its_cause(store):
    def embed(_texts):
        message = "no quota"
        raise RuntimeError(message)

    memory = Memory(store, "user/42", embed=embed, dims=2)
    with pytest.raises(EmbeddingError, match="RuntimeError: no quota") as refused:
        memory.remember("vegan")
    assert isinstance(refused.value.__cause__, RuntimeError)
    assert store.last_lsn == 0


@pytest.mark.parametrize("more", [{"embed": "text"}, {"embed": list}, {"embed": list, "dims": 0}])
def test_bad_embedding_options_are_refused(store, more):
    with pytest.raises(UsageError):
        Memory(store, "user/42", **more)


def test_a_memory_is_made_of_an_open_store(tmp_path):
    with pytest.raises(UsageError, match="store"):
        Memory(tmp_path / "a.state", "user/42")


def test_an_async_function_needs_the_loop(store):
    async def embed(_texts):
        return [[1.0]]

    with pytest.raises(UsageError, match=r"statelog\.aio"):
        Memory(store, "user/42", embed=embed, dims=1).remember("x")


def test_the_embedding_runs_outside_of_the_commit(store):
    other = Memory(store, "user/43")

    def embed(asked):
        other.remember("written meanwhile")  # A commit within a commit raises.
        return [[1.0] for _text in asked]

    Memory(store, "user/42", embed=embed, dims=1).remember("x")
    assert texts(other.facts()) == ["written meanwhile"]
