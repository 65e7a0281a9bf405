"""What a search finds, what it does not find any more, and what a query may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import statelog
from statelog import durable, reducers, versioned
from statelog.errors import UsageError
from statelog.log.view import View

SCHEMA = {"messages": reducers.append, "plan": dict}


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "agent.state") as opened:
        yield opened


def say(thread, text, role="user"):
    thread.commit({"messages": {"role": role, "content": text}})


def chat(store, id="chat-7"):
    thread = store.thread(id, schema=SCHEMA)
    say(thread, "What is your refund policy?")
    say(thread, "We refund you within 30 days.", "assistant")
    return thread


def places(hits):
    return [(hit.thread or hit.key or hit.run, hit.path) for hit in hits]


def paths(hits):
    return sorted(hit.path for hit in hits)


# --- what is found ------------------------------------------------------------------


def test_a_message_is_found_with_its_place_role_and_time(store):
    before = datetime.now(UTC)
    chat(store)
    (hit,) = store.search("refund policy", threads="chat-*", where="messages", since="2020-10-01", limit=10)
    assert (hit.kind, hit.thread, hit.branch, hit.version, hit.path) == ("thread", "chat-7", "main", 0, ("messages", 0))
    assert (hit.role, hit.snippet, hit.text) == ("user", "What is your refund policy?", "What is your refund policy?")
    assert before <= hit.time <= datetime.now(UTC)
    assert hit.score > 0
    assert store.thread("chat-7").at(hit.version).state["messages"][0]["content"] == hit.text


def test_a_message_in_the_form_of_langchains_message_to_dict_is_found_by_its_words_and_role(store):
    call = {"id": "1", "name": "lookup", "args": {"city": "Oslo"}}
    stored = [
        {"type": "human", "data": {"content": "refund please", "type": "human"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [call], "type": "ai"}},
        {"type": "tool", "data": {"content": "no refund", "tool_call_id": "1", "status": "success", "type": "tool"}},
    ]
    store.thread("chain").commit({"messages": stored})
    assert [(hit.role, hit.text) for hit in store.search("please", role="user")] == [("user", "refund please")]
    assert [hit.role for hit in store.search("Oslo")] == ["assistant"]
    assert [hit.text for hit in store.search("no refund", role="tool")] == ["no refund"]
    assert store.search("human") == store.search("success") == []


def test_a_path_ends_at_a_dict_whose_keys_are_not_all_texts(store):
    value = {"a": {5: "refund five", ("x", "y"): {"n": "refund pair"}}, "b": [{1: "refund item"}]}
    store.thread("keys").commit({"v": value})
    assert {hit.path for hit in store.search("refund", threads="keys")} == {("v", "a"), ("v", "b", 0)}
    assert store.search("x", threads="keys") == []


@durable.workflow
def said(_run, text):
    return text


def test_the_run_of_a_hit_is_an_id_that_durable_knows(store):
    durable.run(store, said, "refund", id="user/42/é.1")
    (hit,) = store.search("refund", where="runs:user/42/*", limit=1)
    assert durable.get_run(store, hit.run).id == hit.run == "user/42/é.1"


def test_the_text_that_fits_best_is_the_first(store):
    thread = chat(store)
    say(thread, "refund " * 5)
    assert store.search("refund")[0].version == 2
    scores = [hit.score for hit in store.search("refund")]
    assert scores == sorted(scores, reverse=True)


def test_texts_of_dicts_entries_runs_and_their_results_are_found(store):
    @durable.workflow
    def book(_run, city):
        return f"a flight to {city}"

    chat(store).commit({"plan": {"title": "Refund plan", "steps": ["call Rome", {"who": "Anna", "what": "flight"}]}})
    store.board().set("notes/rome", {"text": "Rome is warm"})
    durable.run(store, book, "Rome", id="run-1", thread="t")
    assert sorted(places(store.search("rome")), key=repr) == [
        ("chat-7", ("plan", "steps", 0)),
        ("notes/rome", ("text",)),
        ("run-1", ("args", 0)),
        ("run-1", ("value",)),
    ]
    assert places(store.search("anna flight")) == [("chat-7", ("plan", "steps", 1))]
    assert {hit.kind for hit in store.search("rome")} == {"thread", "entry", "run"}


def test_a_value_that_another_process_commits_is_found_at_once(store):
    chat(store)
    assert len(store.search("refund")) == 2
    with statelog.open(store.path) as other:
        say(other.thread("chat-8", schema=SCHEMA), "a refund, please")
        assert len(store.search("refund")) == 3
        assert len(other.search("refund")) == 3


def test_long_strings_and_large_lists_are_found_where_they_are(store):
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"plan": {"text": "x " * 30_000 + "needle", "list": [f"item {number}" for number in range(3000)]}})
    assert paths(store.search("needle")) == [("plan", "text")]
    assert paths(store.search('"item 2718"')) == [("plan", "list", 2718)]
    assert "needle" in store.search("needle")[0].snippet


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({"threads": "chat-7"}, {("chat-7", 0), ("chat-7", 1)}),
        ({"threads": "chat-?"}, {("chat-7", 0), ("chat-7", 1), ("chat-8", 0)}),
        ({"threads": "none-*"}, set()),
        ({"role": "assistant"}, {("chat-7", 1)}),
        ({"where": "messages", "limit": 1}, {("chat-7", 0)}),
        ({"where": "mess*"}, {("chat-7", 0), ("chat-7", 1), ("chat-8", 0)}),
        ({"where": "threads:chat-8"}, {("chat-8", 0)}),
        ({"where": "board:notes/**"}, {("notes/1", None)}),
        ({"where": "runs:*"}, set()),
        ({"until": "2020-01-01"}, set()),
        ({"since": datetime(2020, 1, 1, tzinfo=UTC), "threads": "chat-8"}, {("chat-8", 0)}),
        ({"since": datetime.now(UTC) + timedelta(days=1)}, set()),
    ],
)
def test_conditions_choose_hits(store, conditions, found):
    chat(store)
    say(store.thread("chat-8", schema=SCHEMA), "Another refund, and so many other words that it fits less well.")
    store.board().set("notes/1", "refund")
    hits = store.search("refund", **conditions)
    assert {(hit.thread or hit.key, hit.path[-1] if hit.path else None) for hit in hits} == found


def test_any_word_is_enough_if_the_caller_says_so(store):
    chat(store)
    assert store.search("refund elephants") == []
    assert len(store.search("refund elephants", match="any")) == 2


# --- what is not found any more --------------------------------------------------------


def test_rolled_back_texts_are_found_only_in_the_history(store):
    thread = chat(store)
    thread.rollback(0)
    assert paths(store.search("refund")) == [("messages", 0)]
    assert paths(store.search("refund", history=True)) == [("messages", 0), ("messages", 1)]
    thread.rollback(1)
    assert paths(store.search("refund")) == [("messages", 0), ("messages", 1)]


def test_a_fork_keeps_the_state_that_its_parent_rolls_back(store):
    thread = chat(store)
    fork = thread.fork("what-if")
    thread.rollback(0)
    say(fork, "a refund by post")
    assert {(hit.branch, hit.path[1]) for hit in store.search("refund")} == {
        ("main", 0),
        ("what-if", 1),
        ("what-if", 2),
    }
    assert {hit.path[1] for hit in store.search("refund", branch="what-if")} == {0, 1, 2}
    assert {hit.path[1] for hit in store.search("refund", branch="main")} == {0}


def test_a_moment_is_searched_as_it_was(store):
    thread = chat(store)
    first = thread.at(0).time
    thread.commit({"plan": {"a": "refund"}})
    thread.rollback(0)
    assert paths(store.search("refund", at=1)) == [("messages", 0), ("messages", 1)]
    assert paths(store.search("refund", at=first)) == [("messages", 0)]
    assert paths(store.search("refund", at=2)) == [("messages", 0), ("messages", 1), ("plan", "a")]
    assert store.search("refund", at=99) == []


def test_a_deleted_thread_a_replaced_text_and_a_deleted_entry_are_not_found(store):
    thread = chat(store)
    thread.commit({"plan": {"note": "blue elephants"}})
    thread.commit({"plan": {"note": "green elephants"}})
    store.board().set("notes/1", "pink elephants")
    assert len(store.search("elephants")) == 2
    assert store.search("blue") == []
    assert len(store.search("blue", history=True)) == 1
    store.board().delete("notes/1")
    store.delete_thread("chat-7")
    assert store.search("pink") == []
    assert store.search("green") == []
    assert store.search("green", history=True) == []


def test_a_removed_item_is_not_found_and_those_behind_it_are_found_where_they_moved(store):
    thread = store.thread("t", schema=SCHEMA)
    for number in range(60):
        say(thread, f"message number{number} of the chat")
    assert len(store.search("chat", limit=100)) == 60
    thread.edit(lambda state: state["messages"].__delitem__(slice(0, 10)))
    assert store.search("number5") == []
    (hit,) = store.search("number42")
    assert hit.path == ("messages", 32)
    assert store.thread("t").at(hit.version).state["messages"][32]["content"] == hit.text
    assert paths(store.search("chat", limit=100)) == [("messages", number) for number in range(50)]


def test_a_text_whose_version_has_expired_is_found_while_the_head_has_it(store):
    thread = chat(store)
    thread.commit({"plan": {"a": "elephants"}})
    assert len(store.search("refund")) == 2
    thread.commit({"plan": {"a": "zebras"}})
    store.prune(keep_last=1)
    assert [(hit.version, hit.path) for hit in store.search("policy")] == [(3, ("messages", 0))]
    assert store.search("elephants", history=True) == []
    assert [hit.version for hit in store.search("policy", history=True)] == [3]


def test_heads_are_read_once_until_somebody_commits(store, monkeypatch):
    chat(store)
    chat(store, "chat-8")
    assert store.search("nothing") == []  # Makes the index.
    read = []
    checkpoint_at = View.checkpoint_at
    monkeypatch.setattr(View, "checkpoint_at", lambda *args: read.append(args) or checkpoint_at(*args))
    for _ in range(3):
        assert len(store.search("refund")) == 4
    assert len(read) == 2
    with statelog.open(store.path) as other:
        other.thread("chat-8").rollback(0)
    assert len(store.search("refund")) == 3


def test_stale_rows_do_not_hide_live_ones(store):
    thread = store.thread("t", schema=SCHEMA)
    for number in range(40):
        thread.commit({"plan": {"note": f"refund {number}"}})
    store.thread("u", schema=SCHEMA).commit({"plan": {"note": "many words beside the one that is a refund"}})
    assert len(store.search("refund", limit=2)) == 2


# --- queries ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("refund", 2),
        ("REFUND Policy", 1),
        ('"refund policy"', 1),
        ('"policy refund"', 0),
        ("polic*", 1),
        ('"your refund pol"*', 1),
        ('"refund', 2),
        ("refund AND policy", 0),
        ("refund:policy", 1),
        ("(refund)", 2),
        ("refund^ -refund", 2),
        ("NEAR(refund policy)", 0),
        ("\0refund", 2),
        ("refund \ud800", 2),
        ("refund " * 5000, 2),
        ("", 0),
        ("?!", 0),
        ('""', 0),
        ("*", 0),
        ("' OR 1=1 --", 0),
    ],
)
def test_no_query_is_a_syntax_error(store, query, count):
    chat(store)
    assert len(store.search(query)) == count


def test_diacritics_and_case_make_no_difference(store):
    store.board().set("k", "Das Café in Málaga")
    assert len(store.search("cafe malaga")) == 1
    assert len(store.search("CAFÉ")) == 1


def test_a_snippet_is_one_line_around_the_first_word(store):
    store.board().set("k", "lorem ipsum\n" * 100 + "the Réfund\npolicy is here " + "dolor sit " * 100)
    (hit,) = store.search("refund policy")
    assert "the Réfund policy is here" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) <= 160


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"query": 5}, "query"),
        ({"query": None}, "query"),
        ({"threads": 5}, None),
        ({"threads": ""}, None),
        ({"where": ""}, "where"),
        ({"where": 5}, "where"),
        ({"where": "board:a//b"}, "pattern"),
        ({"where": "threads:"}, "where"),
        ({"since": "yesterday"}, "since"),
        ({"since": 5}, "since"),
        ({"until": "2026-13-01"}, "until"),
        ({"at": "now"}, "at"),
        ({"at": -1}, "at"),
        ({"at": True}, "at"),
        ({"at": 1, "history": True}, "at"),
        ({"history": "yes"}, "history"),
        ({"limit": 0}, "limit"),
        ({"limit": 10**6}, "limit"),
        ({"match": "some"}, "match"),
        ({"role": 5}, "role"),
        ({"branch": 5}, "branch"),
    ],
)
def test_a_bad_argument_raises_usage_error(store, arguments, argument):
    chat(store)
    with pytest.raises(UsageError) as caught:
        store.search(**{"query": "refund", **arguments})
    assert argument is None or caught.value.facts["argument"] == argument


# --- configuration ----------------------------------------------------------------------


def test_excluded_texts_are_not_found_by_any_process(store):
    chat(store)
    store.board().set("tmp/1", "refund")
    store.configure_search(exclude=["board:tmp/**", "plan"])
    assert len(store.search("refund")) == 2
    with statelog.open(store.path) as other:
        assert len(other.search("refund")) == 2
    store.configure_search(include=["board:tmp/**"])
    hits = store.search("refund")
    assert places(hits) == [("tmp/1", ())]
    assert "configure_search" in hits.notes[0]


def test_a_configuration_that_is_there_is_not_written_again(store):
    store.configure_search(exclude=["plan"], tokenizer="trigram")
    before = store.last_lsn
    store.configure_search(exclude=["plan"], tokenizer="trigram")
    assert store.last_lsn == before


def test_trigrams_find_parts_of_words(store):
    store.board().set("k", "納税証明書が必要です")
    assert store.search("証明書") == []
    store.configure_search(tokenizer="trigram")
    assert places(store.search("証明書")) == [("k", ())]
    assert store.search("書") == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"tokenizer": "porter"},
        {"tokenizer": "unicode61 categories 'L*'"},
        {"include": "messages"},
        {"include": [5]},
        {"exclude": ["board:/"]},
        {"exclude": ["x"] * 101},
    ],
)
def test_a_bad_configuration_raises_usage_error_and_changes_nothing(store, arguments):
    chat(store)
    before = store.last_lsn
    with pytest.raises(UsageError):
        store.configure_search(**arguments)
    assert store.last_lsn == before
    assert len(store.search("refund")) == 2


def test_old_versions_are_searched_as_they_are_stored(store):
    schema = versioned({"memories": reducers.append, "tags": list}, name="s", version=2)
    schema.step(1)(lambda state: {"memories": state["notes"], "tags": ["migrated"]})
    store.thread("t", schema={"notes": reducers.append}).commit({"notes": "prefers tea"})
    store.board().set("tasks/1", {"notes": ["buy tea"]})
    store.board().schema("tasks/*", schema)
    assert paths(store.search("tea")) == paths(store.search("tea", history=True)) == [("notes", 0)] * 2
    assert paths(store.search("migrated", history=True)) == []
    store.thread("t", schema=schema).commit({})
    store.board().migrate()
    assert sorted(paths(store.search("migrated"))) == [("tags", 0)] * 2
    assert paths(store.search("tea")) == [("memories", 0)] * 2
    assert sorted(paths(store.search("tea", history=True))) == [("memories", 0)] * 2 + [("notes", 0)] * 2
