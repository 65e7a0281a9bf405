"""A secret is found wherever a value or a name can be: beside its name, in library records, in joined texts."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("re2")

from random import Random

from pydantic import BaseModel

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, SecretError, durable, guard, reducers
from statelog.errors import ReducerTypeError, ValueTypeError

RANDOM = Random(51)
RULE = SECRETS["github-token"](RANDOM)
NAMED = SECRETS["named-secret"](RANDOM)
FIELD = "hunter2-and-more"
HANDLE = "$CRED{x}"


def opened(tmp_path, *fields, **options):
    secrets = guard.Secrets(fields=fields or ["**.password"], **options)
    return statelog.open(tmp_path / "agent.state", guard=Guard(secrets=secrets))


def raw(store):
    return b"".join(path.read_bytes() for path in store.path.parent.iterdir() if path.is_file())


def assert_hidden(store):
    data = raw(store)
    assert [text for text in (RULE, NAMED, FIELD) if text.encode() in data] == []


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": [NAMED]},
        {"api_key": ["short", {"x": 1}, NAMED]},
        {"api_key": (NAMED,)},
        {"api_key": {NAMED}},
        {"api_key": NAMED.encode()},
        {"api_key": [NAMED.encode()]},
        {"API key (prod)": NAMED},
        {"headers": [("Authorization", f"Bearer {NAMED}")]},
        {"headers": [["X-Api-Key", NAMED]]},
        {"headers": [(b"authorization", b"Bearer " + NAMED.encode())]},
        {b"authorization": b"Bearer " + NAMED.encode()},
        [{"name": "API_KEY", "value": NAMED}, {"key": "password", "value": FIELD}],
        {1: "a", "password": FIELD, "api_key": NAMED},
        {1: {2: {"password": FIELD, "x": [("api_key", NAMED)]}}},
        {"password": {3: [FIELD]}},
    ],
)
def test_a_value_beside_a_telling_name_is_hidden(tmp_path, value):
    with opened(tmp_path) as store:
        store.thread("t").commit({"c": value, "d": [value]})
        store.board().set("k", value)
        assert_hidden(store)
        assert store.verify().ok


@pytest.mark.parametrize("key", ["password", "config/password", "password/prod", "of/password/prod/1"])
def test_an_entry_at_or_below_a_named_key_is_hidden(tmp_path, key):
    with opened(tmp_path) as store:
        store.board().set(key, FIELD)
        store.board().set("passwords/prod", "shown")
        assert store.board().get("passwords/prod").value == "shown"
        assert_hidden(store)


@pytest.mark.parametrize("size", [250, 255, 256, 266, 300])
def test_no_length_hides_a_value_from_the_scan(tmp_path, size):
    value = (NAMED * 10)[:size]
    with opened(tmp_path) as store:
        store.thread("t").commit({"c": {"api_key": value}, "d": {"api_key": value.encode()}})
        assert value.encode() not in raw(store)


@pytest.mark.parametrize(
    "value",
    [
        {"required": ["password", "email"]},
        {"pair": ["api_key", "of the customer"]},
        [{"name": "password", "type": "text"}, {"name": "user", "value": "bob"}],
        {"users": ["bob", {"name": "x"}], 5: ["token", "usage"]},
        {"tokens": ["a", "b"], "keys": (1, 2), "keyword": b"\x00\xff"},
    ],
)
def test_a_list_of_two_is_not_always_a_name_and_its_value(tmp_path, value):
    with opened(tmp_path) as store:
        store.thread("t").commit({"c": value})
        assert store.thread("t").state["c"] == value


def test_an_array_of_texts_beside_a_telling_name_is_refused(tmp_path):
    numpy = pytest.importorskip("numpy")
    with opened(tmp_path) as store:
        with pytest.raises(SecretError, match="UTF-16 or UTF-32"):
            store.thread("t").commit({"c": {"api_key": numpy.array([NAMED])}})
        assert_hidden(store)


@pytest.mark.parametrize("value", [RULE, RULE.encode()])
@pytest.mark.parametrize("way", ["one commit", "two commits", "transaction"])
def test_a_token_that_add_joins_is_hidden(tmp_path, value, way):
    first, rest = value[:15], value[15:]
    with opened(tmp_path) as store:
        thread = store.thread("t", schema={"a": operator.add})
        if way == "one commit":
            thread.commit({"a": first}, {"a": rest})
        elif way == "two commits":
            thread.commit({"a": first})
            thread.commit({"a": rest})
        else:
            with store.transaction() as tx:
                tx.thread("t", schema={"a": operator.add}).commit({"a": first})
                tx.thread("t", schema={"a": operator.add}).commit({"a": rest})
        assert "[REDACTED github-token " in str(thread.state["a"])
        store.compact()
        assert_hidden(store)


def test_a_token_is_hidden_that_add_joins_to_a_long_text_or_an_entry(tmp_path):
    with opened(tmp_path) as store:
        thread, board = store.thread("t", schema={"a": operator.add}), store.board(agent="a")
        thread.commit({"a": "x" * 100_000 + " " + RULE[:15]})
        thread.commit({"a": RULE[15:]})
        assert thread.state["a"].startswith("xxx")
        board.set("k", RULE[:15])
        entry = board.update("k", operator.add, RULE[15:])
        assert entry.value == board.get("k").value
        assert "[REDACTED github-token " in entry.value
        assert_hidden(store)


def test_add_refuses_and_adds_as_without_a_guard(tmp_path):
    with opened(tmp_path) as store:
        thread = store.thread("t", schema={"a": operator.add})
        thread.commit({"a": "some "})
        thread.commit({"a": "words"})
        with pytest.raises(ReducerTypeError):
            thread.commit({"a": b"bytes"})
        assert thread.state["a"] == "some words"


def test_the_entry_that_a_writer_gets_is_as_stored(tmp_path):
    value = {"t": RULE, "password": FIELD}
    with opened(tmp_path) as store:
        board = store.board(agent="a")
        made = [board.set("k", value), board.create("c", value)]
        made.append(board.cas("k", value, expected_version=made[0].version))
        with store.transaction() as tx:
            made.append(tx.board(agent="a").set("k", value))
        for entry in made:
            assert entry.value == board.get("k").value
            assert not any(text in repr(entry) for text in (RULE, FIELD))


class Inner(BaseModel):
    several: list[Annotated[str, guard.Secret]] = []
    perhaps: Annotated[str, guard.Secret] | None = None
    by_name: dict[str, list[Annotated[str, guard.Secret]]] = {}
    pair: tuple[int, Annotated[str, guard.Secret]] = (1, HANDLE)
    number: int | Annotated[str, guard.Secret] = 3


class Outer(BaseModel):
    key: Annotated[str, guard.Secret] = HANDLE
    inner: Inner = Inner()


class Schema(BaseModel):
    config: Outer = Outer()


def with_secret(name, value):
    outer = Outer(inner=Inner())
    setattr(outer if name == "key" else outer.inner, name, value)
    return outer


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", FIELD),
        ("several", [HANDLE, FIELD]),
        ("perhaps", FIELD),
        ("by_name", {"a": [FIELD]}),
        ("pair", (1, FIELD)),
        ("number", FIELD),
    ],
)
def test_a_secret_that_was_assigned_to_a_field_of_handles_is_refused(tmp_path, name, value):
    outer = with_secret(name, value)
    with opened(tmp_path) as store:
        thread = store.thread("t", schema=Schema)
        thread.commit({"config": Outer()})
        works = [
            lambda: thread.commit({"config": outer}),
            lambda: thread.edit(lambda state: state.update(config=outer)),
            lambda: thread.fork("b", update={"config": outer}),
        ]
        for work in works:
            with pytest.raises(ValueTypeError, match="a handle"):
                work()

        @durable.workflow(name="assigns")
        def flow(run):
            run.step_with(durable.StepOptions(name="step"), lambda: outer)

        assert durable.run(store, flow, id="run").status == "failed"
        assert thread.state["config"] == Outer()
        assert_hidden(store)


def test_a_field_of_handles_accepts_handles_and_other_types(tmp_path):
    config = Outer(inner=Inner(several=[HANDLE], perhaps=HANDLE, by_name={"a": [HANDLE]}))
    with opened(tmp_path) as store:
        thread = store.thread("t", schema=Schema)
        thread.commit({"config": config})
        assert thread.state["config"] == config


def test_a_channel_that_fields_name_may_have_a_reducer(tmp_path):
    with opened(tmp_path) as store:
        thread = store.thread("t", schema={"password": reducers.append})
        thread.commit({"password": FIELD})
        thread.commit({"password": HANDLE})
        assert thread.state["password"][1] == HANDLE
        assert_hidden(store)


@pytest.mark.parametrize("field", ["**.id", "**.status", "**.value", "**.name", "**.error", "**.args", "*", "**"])
def test_fields_leave_records_of_runs_as_they_are(tmp_path, field):
    @durable.workflow(name="flow")
    def flow(run, _given):
        with pytest.raises(ValueError, match="no"):
            run.step_with(durable.StepOptions(name="fails"), fails)
        return run.step_with(durable.StepOptions(name="step"), lambda: 7)

    def fails():
        message = "no"
        raise ValueError(message)

    with opened(tmp_path, field) as store:
        for _ in range(2):
            info = durable.run(store, flow, {"x": 1}, id="run", wait_s=5)
            assert (info.status, info.value) == ("completed", 7)


def test_fields_match_users_values_in_records_of_runs(tmp_path):
    @durable.workflow(name="flow")
    def flow(run, given):
        return run.step_with(durable.StepOptions(name="step"), lambda each: [each, {"password": FIELD}], given)

    with opened(tmp_path, "password") as store:
        durable.run(store, flow, {"password": FIELD}, id="run", wait_s=5)
        info = durable.run(store, flow, {"password": FIELD}, id="run", wait_s=5)
        assert info.status == "completed"
        assert_hidden(store)


NAME = f"ok {RULE}"


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.step_with(durable.StepOptions(name=NAME), lambda: 1),
        lambda run: run.step_with(durable.StepOptions(name="GET https://u:pw1234@h/"), lambda: 1),
        lambda run: run.gate(NAME),
        lambda run: run.recv(NAME),
        lambda run: run.set_event(NAME, 1),
        lambda run: run.emit(NAME, 1),
    ],
)
def test_a_secret_in_a_name_of_a_run_is_refused(tmp_path, call):
    @durable.workflow(name="flow")
    def flow(run):
        with pytest.raises(SecretError):
            call(run)
        return "refused"

    with opened(tmp_path) as store:
        assert durable.run(store, flow, id="run").value == "refused"
        with pytest.raises(SecretError):
            durable.send(store, "run", 1, topic=NAME)
        assert_hidden(store)
        assert b"pw1234" not in raw(store)


class State(TypedDict):
    password: str
    api_key: str
    config: dict
    headers: list
    raw: bytes


def test_channels_of_langgraph_are_first_names(tmp_path):
    pytest.importorskip("langgraph")
    from langgraph.graph import START, StateGraph

    from statelog.adapters.langgraph import StatelogSaver

    given = {
        "password": FIELD,
        "api_key": NAMED,
        "config": {"db": {"pin": FIELD}},
        "headers": [("Authorization", f"Bearer {NAMED}")],
        "raw": b"",
    }
    with opened(tmp_path, "**.password", "config.db.pin", "raw") as store:
        saver, config = StatelogSaver(store), {"configurable": {"thread_id": "1"}}
        graph = StateGraph(State)
        graph.add_node("node", lambda _state: {**given, "raw": FIELD.encode()})
        graph.add_edge(START, "node")
        app = graph.compile(checkpointer=saver)
        for _ in range(2):
            app.invoke(given, config)
        writes = [("password", FIELD), ("password", FIELD.encode()), ("api_key", [NAMED.encode(), NAMED])]
        saver.put_writes(saver.get_tuple(config).config, writes, task_id="task")
        app.update_state(config, {"password": FIELD}, as_node="node")
        assert app.get_state(config).values["password"].startswith("[REDACTED field ")
        assert app.get_state(config).values["raw"].startswith(b"[REDACTED field ")
        versions = saver.get_tuple(config).checkpoint["channel_versions"]
        assert not any("REDACTED" in str(version) for version in versions.values())
        assert_hidden(store)


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.copy_thread(RULE, "b"),
        lambda store: store.delete_thread(RULE),
        lambda store: store.thread(RULE).at(3),
        lambda store: store.thread("t").rollback(RULE),
        lambda store: store.thread("t").at(RULE),
        lambda store: store.board(agent="a").cas(f"k/{RULE}", 1, expected_version=5),
        lambda store: store.thread("t").commit({"a": {RULE: object()}}),
        lambda store: durable.cancel(store, RULE),
        lambda store: store.thread("t").commit({"a": 1}, expected_version=RULE),
    ],
)
def test_messages_of_errors_hide_secrets_found_by_rules(tmp_path, work):
    with opened(tmp_path) as store:
        store.thread("t").commit({"a": 1})
        with pytest.raises(statelog.StatelogError) as caught:
            work(store)
        assert RULE not in str(caught.value)
        assert "[REDACTED github-token" in str(caught.value)
