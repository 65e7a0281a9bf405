from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

import statelog


def test_the_head_is_shown_channel_by_channel(run, state):
    answer = run("show", state, "ticket-42")
    assert answer.code == 0
    assert " ".join(answer.out.splitlines()[-1].split()) == "findings list, 2 items ['a', 'b']"
    assert "version 2" in answer.err


def test_a_state_as_json_is_complete(run, state):
    document = run("show", state, "ticket-42", "--json").document
    assert document["value"] == {
        "query": "lmdb",
        "steps": 2,
        "findings": ["a", "b"],
        "notes": {"a.b": {"deep": [1, 2, {"x": 3}]}},
    }
    assert document["path"] is None
    assert document["checkpoint"]["id"] == "mine"


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("0", 0),
        ("version:1", 1),
        ("good", 1),
        ("tag:good", 1),
        ("mine", 2),
        ("id:mine", 2),
        ("2999-01-01", 2),
        ("-1", 2),
        ("version:-2", 1),
        ("0s ago", 2),
        ("time:0s ago", 2),
    ],
)
def test_a_checkpoint_can_be_given_by_version_tag_id_or_time(run, state, target, version):
    document = run("show", state, "ticket-42", "--at", target, "--json").document
    assert document["checkpoint"]["version"] == version


def test_a_default_id_selects_its_checkpoint(run, state):
    first = run("history", state, "ticket-42", "--json").documents[-1]
    assert run("show", state, "ticket-42", "--at", first["id"], "--json").document["checkpoint"] == first


def test_a_time_selects_the_last_checkpoint_up_to_it(run, state):
    first = run("history", state, "ticket-42", "--json").documents[-1]
    assert run("show", state, "ticket-42", "--at", first["time"], "--json").document["checkpoint"]["version"] == 0
    before = datetime.fromisoformat(first["time"]) - timedelta(microseconds=1)
    answer = run("show", state, "ticket-42", "--at", f"time:{before.isoformat()}")
    assert (answer.code, answer.out) == (3, "")


@pytest.mark.parametrize(
    ("target", "code"), [("99", 3), ("-4", 3), ("nope", 3), ("tag:2", 3), ("version:x", 2), ("time:noon", 2)]
)
def test_an_unknown_checkpoint_is_one_line(run, state, target, code):
    answer = run("show", state, "ticket-42", "--at", target)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)


def test_a_path_shows_one_value(run, state):
    assert run("show", state, "ticket-42", "--path", "findings[-1]").out == "b\n"
    assert run("show", state, "ticket-42", "--path", 'notes["a.b"].deep[2].x').out == "3\n"
    document = run("show", state, "ticket-42", "--path", "findings[0:1]", "--json").document
    assert (document["path"], document["value"]) == ("findings[0:1]", ["a"])


def test_items_of_a_slice_keep_their_positions(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"numbers": [value * value for value in range(100)]})
    lines = run("show", path, "t", "--path", "numbers[7:9]").out.splitlines()
    assert [line.split()[::2] for line in lines[1:]] == [["7", "49"], ["8", "64"]]


@pytest.mark.parametrize(("where", "code"), [("nope", 3), ("findings[9]", 3), ("findings[", 2), ("steps.x", 3)])
def test_a_path_to_a_missing_value_is_one_line(run, state, where, code):
    answer = run("show", state, "ticket-42", "--path", where)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)


def test_stored_text_cannot_steer_the_terminal(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"text": "one\n\x1b[2Jtwo\u202e", "list": ["\x1b]0;title\x07"]})
    assert run("show", path, "t", "--path", "text").out == "one\n\\x1b[2Jtwo\\u202e\n"
    everything = run("show", path, "t").out + run("show", path, "t", "--full").out
    assert "\x1b" not in everything
    assert "\x07" not in everything


def test_long_values_are_cut_with_a_note_how_to_see_them(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"text": "x" * 20_000, "items": list(range(100))})
    answer = run("show", path, "t", "--path", "text")
    assert len(answer.out) == 8001
    assert "--full" in answer.err
    assert len(run("show", path, "t", "--path", "text", "--full").out) == 20_001
    answer = run("show", path, "t", "--path", "items", "--limit", 3)
    assert len(answer.out.splitlines()) == 4
    assert answer.err == "97 more of list, 100 items: --limit, --full, or --path\n"
    assert run("show", path, "t", "--path", "items", "--full").out.splitlines()[-1] == "99  int  99"


def test_types_beyond_json_are_readable_and_tagged(run, path):
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    with statelog.open(path) as store:
        store.thread("t").commit({"when": moment, "raw": b"\x00", "pair": (1, 2), "tags": {"a"}, "who": UUID(int=2)})
    out = run("show", path, "t").out
    assert "datetime(2026-01-02T00:00:00+00:00)" in out
    assert r"b'\x00'" in out
    assert run("show", path, "t", "--json").document["value"] == {
        "when": {"$datetime": "2026-01-02T00:00:00+00:00"},
        "raw": {"$bytes": "AA=="},
        "pair": {"$tuple": [1, 2]},
        "tags": {"$set": ["a"]},
        "who": {"$uuid": "00000000-0000-0000-0000-000000000002"},
    }


def test_an_empty_value_is_described(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"nothing": []})
    assert run("show", path, "t", "--path", "nothing").out == "list, 0 items\n"


@pytest.mark.slow
def test_a_value_of_an_unknown_codec_hides_only_itself(start, path):
    class Money:
        pass

    statelog.register_codec(Money, name="cli.money", encode=lambda _value: [1, "EUR"], decode=lambda _payload: Money())
    with statelog.open(path) as store:
        state = {"price": Money(), "count": 3, "list": [Money(), 1], "dict": {"all": {Money()}}, "none": 0}
        store.thread("t").commit(state)

    def show(*options):
        out, err = (process := start("show", path, "t", *options)).communicate(timeout=300)
        assert process.returncode == 0, err
        told = " ".join(err.split())
        assert "values of codec 'cli.money' are shown as stored: the codec is not registered here" in told
        return out

    lines = {line.split()[0]: line for line in show().splitlines()}
    assert lines["count"].split() == ["count", "int", "3"]
    assert "codec cli.money, not registered" in lines["price"]
    assert "<cli.money: [1, 'EUR']>" in lines["price"]
    assert "[<cli.money: [1, 'EUR']>, 1]" in lines["list"]
    assert "{<cli.money: (1, 'EUR')>}" in lines["dict"]
    assert show("--path", "price").strip() == "<cli.money: [1, 'EUR']>"
    assert show("--path", "list[0]").strip() == "<cli.money: [1, 'EUR']>"
    money = {"$codec": "cli.money", "payload": [1, "EUR"]}
    told = json.loads(show("--json"))["value"]
    assert told.pop("dict")["all"]["$set"][0]["$codec"] == "cli.money"
    assert told == {"price": money, "count": 3, "list": [money, 1], "none": 0}
    out, err = (process := start("show", path, "t", "--path", "count")).communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "3\n", "")


def test_a_path_leads_into_messages_stored_by_langgraph(run, path):
    graphs = pytest.importorskip("langgraph.graph")
    from langchain_core.messages import AIMessage, HumanMessage

    from statelog.adapters.langgraph import StatelogSaver

    answer = AIMessage("the answer", tool_calls=[{"name": "look", "args": {"at": "sea"}, "id": "1"}])
    with statelog.open(path) as store:
        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node("agent", lambda _state: {"messages": [answer]})
        graph.add_edge(graphs.START, "agent")
        agent = graph.compile(checkpointer=StatelogSaver(store))
        agent.invoke({"messages": [HumanMessage("a question")]}, {"configurable": {"thread_id": "chat"}})

    def show(where, *options):
        return run("show", path, "chat", "--path", where, *options)

    assert show("messages[-1].content").out == "the answer\n"
    assert show("messages[0].content").out == "a question\n"
    assert show("messages[-1].tool_calls[0].args.at").out == "sea\n"
    assert show("messages[-1].content", "--json").document["value"] == "the answer"
    whole = show("messages[-1]")
    assert ("AIMessage" in whole.err, "content" in whole.out) == (True, True)
    missing = show("messages[-1].contents")
    assert (missing.code, missing.out) == (3, "")
    assert "messages[-1] (AIMessage) has no key 'contents'; its keys are content, " in missing.err
