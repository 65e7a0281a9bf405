"""Imports from savers of other projects: every checkpoint is compared, and losses of the source are named."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from contextlib import contextmanager

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

import statelog
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move import endpoints, foreign
from statelog.adapters.langgraph.move.migration import migrate
from statelog.errors import CorruptionError, FormatError, StorageError, StoreNotFoundError

pytestmark = pytest.mark.filterwarnings("ignore")


@contextmanager
def lmdb_source(folder, _monkeypatch):
    package = pytest.importorskip("langgraph_checkpoint_lmdb.lmdb")
    path = folder / "their.lmdb"
    environment = package.lmdb.open(str(path), max_dbs=4)

    def closed():  # A process opens an environment only once.
        environment.close()
        return f"lmdb:{path}"

    yield package.LMDBSaver(environment), closed
    environment.close()


@contextmanager
def redis_source(_folder, _monkeypatch):
    plain = pytest.importorskip("langgraph_checkpoint_plainredis")
    fake = pytest.importorskip("fakeredis")
    server = fake.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"redis://127.0.0.1:{server.server_address[1]}/0"
    try:
        yield plain.RedisSaver(url=url), lambda: url
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def dynamodb_source(_folder, monkeypatch):
    aws = pytest.importorskip("langgraph_checkpoint_aws")
    server_of = pytest.importorskip("moto.server").ThreadedMotoServer
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_of(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {"ENDPOINT_URL": f"http://{host}:{port}", "DEFAULT_REGION": "us-east-1", "ACCESS_KEY_ID": "x"}
        for name, value in (settings | {"SECRET_ACCESS_KEY": "x"}).items():
            monkeypatch.setenv(f"AWS_{name}", value)
        table = f"chats-{uuid.uuid4()}"  # The tables of a server belong to the process.
        saver = aws.DynamoDBSaver(table)
        keys = [("PK", "HASH"), ("SK", "RANGE")]
        saver.client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _kind in keys],
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
        )
        yield saver, lambda: f"dynamodb:{table}"
    finally:
        server.stop()


SOURCES = {"lmdb": lmdb_source, "redis": redis_source, "dynamodb": dynamodb_source}


@pytest.fixture(params=list(SOURCES))
def source(request, tmp_path, monkeypatch):
    """Return a foreign saver, and a function that names its database."""
    with SOURCES[request.param](tmp_path, monkeypatch) as made:
        yield made


def imported(name, path):
    with (
        foreign.opened_foreign(name()) as reading,
        endpoints.opened(str(path), writing=True) as writing,
    ):
        return migrate(reading, writing)


def chat(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", f"answer {len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def config_of(thread, **metadata):
    return {"configurable": {"thread_id": thread}, "metadata": metadata}


def said(graph, config):
    return [message.content for message in graph.get_state(config).values["messages"]]


def test_threads_are_imported_completely_and_continue(source, path):
    saver, name = source
    graph = chat(saver)
    for thread in ("ann", "bob"):
        for text in ("soup?", "bread?"):
            graph.invoke({"messages": [("user", text)]}, config_of(thread))
    before = said(graph, config_of("ann"))
    report = imported(name, path)
    assert (report.threads, report.checkpoints, report.left_out, report.lost) == (2, 12, (), ())
    assert imported(name, path).copied == 0
    with StatelogSaver.open(path) as ours:
        moved = chat(ours)
        assert said(moved, config_of("ann")) == before
        assert len(list(moved.get_state_history(config_of("bob")))) == 6
        moved.invoke({"messages": [("user", "salad?")]}, config_of("ann"))
        assert said(moved, config_of("ann"))[-2:] == ["salad?", "answer 5"]
        assert ours.store.verify().ok


def test_writes_of_one_task_keep_their_order_past_ten(source, path):
    saver, name = source
    made = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(),
                     {"source": "loop", "step": 0, "parents": {}}, {})  # fmt: skip
    saver.put_writes(made, [(f"c{n}", n) for n in range(12)], "task")
    assert imported(name, path).writes == 12
    with StatelogSaver.open(path) as ours:
        assert [write[2] for write in ours.get_tuple(made).pending_writes] == list(range(12))


def test_a_fork_that_overwrote_the_older_line_is_named_and_other_threads_are_imported(source, path):
    saver, name = source
    graph = chat(saver)
    for text in ("soup?", "bread?"):
        graph.invoke({"messages": [("user", text)]}, config_of("forked"))
    earlier = [each.config for each in graph.get_state_history(config_of("forked"))][3]
    graph.invoke({"messages": [("user", "salad?")]}, earlier)
    graph.invoke({"messages": [("user", "tea?")]}, config_of("whole"))
    report = imported(name, path)
    is_shared = type(saver).__name__ == "RedisSaver"
    assert [each.thread for each in report.left_out] == ["forked"] * is_shared
    assert all(isinstance(each.error, CorruptionError) for each in report.left_out)
    assert ["has overwritten the value" in each.error.message for each in report.left_out] == [True] * is_shared
    with StatelogSaver.open(path) as ours:
        assert said(chat(ours), config_of("whole")) == ["tea?", "answer 1"]


def test_metadata_replaced_by_the_application_is_named(tmp_path, monkeypatch, path):
    with dynamodb_source(tmp_path, monkeypatch) as (saver, name):
        chat(saver).invoke({"messages": [("user", "soup?")]}, config_of("t", step="checkout"))
        report = imported(name, path)
    assert report.checkpoints == 3
    assert {each.what for each in report.lost} == {
        "the application's metadata has replaced LangGraph's: step is 'checkout'"
    }


def test_an_expired_value_is_named(tmp_path, monkeypatch, path):
    with redis_source(tmp_path, monkeypatch) as (saver, name):
        chat(saver).invoke({"messages": [("user", "soup?")]}, config_of("t"))
        for key in saver.client.keys("lg:blob:*messages*"):
            saver.client.delete(key)
        [left] = imported(name, path).left_out
    assert "'messages' is missing" in left.error.message


def test_missing_sources_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    pytest.importorskip("langgraph_checkpoint_lmdb")
    with pytest.raises(StoreNotFoundError), foreign.opened_foreign(f"lmdb:{tmp_path / 'none'}"):
        pass
    with statelog.open(tmp_path / "a.state") as store:
        store.thread("t").commit({"a": 1})
    with pytest.raises((FormatError, StorageError)), foreign.opened_foreign(f"lmdb:{tmp_path / 'a.state'}"):
        pass
    pytest.importorskip("langgraph_checkpoint_plainredis")
    with pytest.raises(StorageError), foreign.opened_foreign("redis://127.0.0.1:1/0"):
        pass


def test_the_command_accepts_foreign_savers(source, path):
    from click.testing import CliRunner

    from statelog.cli import application

    saver, name = source
    chat(saver).invoke({"messages": [("user", "soup?")]}, config_of("t"))
    done = CliRunner().invoke(application.main, ["import-langgraph", name(), str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output.splitlines()[-1])["threads"] == 1
