"""Threads of other savers, copied into a store and back."""

import importlib
import json
import operator
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="needs the extra langgraph")
pytest.importorskip("langgraph.checkpoint.sqlite", reason="needs langgraph-checkpoint-sqlite")

from commands import run_here
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import RESUME, _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

import statelog
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move.endpoints import Endpoint, opened
from statelog.adapters.langgraph.move.migration import migrate
from statelog.errors import CorruptionError, UsageError


def concatenated(values, writes):
    return [*values, *(item for write in writes for item in write)]


class Chat(TypedDict):
    messages: Annotated[list, add_messages]


class Delta(TypedDict):
    items: Annotated[list, DeltaChannel(concatenated, snapshot_frequency=3)]


class Fan(TypedDict):
    results: Annotated[list, operator.add]
    number: int


def config(thread_id):
    return {"configurable": {"thread_id": thread_id}}


def chat_graph(saver):
    builder = StateGraph(Chat)
    builder.add_node("reply", lambda state: {"messages": [AIMessage(f"reply {len(state['messages'])}")]})
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


def asking_graph(saver):
    """A subgraph that waits for an answer while its siblings are done: namespaces, pending writes of several tasks."""
    inner = StateGraph(Fan)
    inner.add_node("ask", lambda _state: {"results": [interrupt("what?")]})
    inner.add_edge(START, "ask")
    builder = StateGraph(Fan)
    builder.add_node("work", lambda task: {"results": [task["number"]]})
    builder.add_node("inner", inner.compile())
    targets = [*(Send("work", {"number": number}) for number in range(3)), Send("inner", {"results": [], "number": 9})]
    builder.add_conditional_edges(START, lambda _state: targets, ["work", "inner"])
    return builder.compile(checkpointer=saver)


def delta_graph(saver):
    builder = StateGraph(Delta)
    builder.add_node("add", lambda state: {"items": [len(state["items"])]})
    builder.add_edge(START, "add")
    return builder.compile(checkpointer=saver)


def fill(saver):
    """Four threads: a chat with a fork, a waiting thread, one with delta channels, and one whose id has two words."""
    chat = chat_graph(saver)
    for turn in range(4):
        chat.invoke({"messages": [HumanMessage(f"turn {turn} " + "x" * 300)]}, config("chat"))
    history = list(chat.get_state_history(config("chat")))
    chat.update_state(history[5].config, {"messages": [HumanMessage("another way")]})
    asking_graph(saver).invoke({"results": [], "number": 0}, config("asking"))
    for _turn in range(8):
        delta_graph(saver).invoke({"items": []}, config("delta"))
    chat.invoke({"messages": [HumanMessage("hi")]}, config("a thread/of: two words"))


def tuples(saver):
    """Return every tuple by its place, for comparison.

    Snapshots of a DeltaChannel are compared at the checkpoints that made them.
    """
    found = {}
    for each in saver.list(None):
        named = each.config["configurable"]
        found[named["thread_id"], named["checkpoint_ns"], named["checkpoint_id"]] = each
    return {place: comparable(each, found) for place, each in found.items()}


def comparable(each, found):
    named = each.config["configurable"]
    parent_id = (each.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    parent = found.get((named["thread_id"], named["checkpoint_ns"], parent_id))
    versions = each.checkpoint["channel_versions"]
    before = parent.checkpoint["channel_versions"] if parent else {}
    values = {
        name: value
        for name, value in each.checkpoint["channel_values"].items()
        if not isinstance(value, _DeltaSnapshot) or before.get(name) != versions[name]
    }
    rest = {name: value for name, value in each.checkpoint.items() if name != "channel_values" and value}
    return (values, rest, each.metadata, parent_id, each.pending_writes)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "checkpoints.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        fill(saver)
    return path


@pytest.fixture
def expected(database):
    with SqliteSaver.from_conn_string(str(database)) as saver:
        return tuples(saver)


def run(*arguments, **environment):
    """Run a command. With another environment, it runs in a new process, which imports LangGraph again."""
    if not environment:
        return run_here(*arguments)
    command = [sys.executable, "-m", "statelog", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **environment}
    )


def import_into(path, database, *options, **environment):
    return run("import-langgraph", f"sqlite:{database}", "--file", path, *options, **environment)


@contextmanager
def saver_of(path):
    with StatelogSaver.open(path) as saver:
        yield saver


def test_an_import_has_every_checkpoint_write_and_metadata(database, expected, path):
    answer = import_into(path, database)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"4 threads, {len(expected)} checkpoints and" in answer.stdout
    with saver_of(path) as saver:
        assert tuples(saver) == expected


def test_an_import_as_json_is_one_object(database, expected, path):
    report = json.loads(import_into(path, database, "--json").stdout)
    writes = sum(len(each[-1]) for each in expected.values())
    assert report == {
        "source": f"sqlite:{database}",
        "target": str(path),
        "threads": 4,
        "checkpoints": len(expected),
        "writes": writes,
        "copied": len(expected),
        "others": 0,
        "left_out": [],
    }


def test_the_source_is_only_read(database, path):
    before = database.read_bytes()
    assert import_into(path, database).returncode == 0
    assert database.read_bytes() == before


def test_graphs_continue_from_imported_checkpoints(database, path):
    assert import_into(path, database).returncode == 0
    with saver_of(path) as saver:
        done = asking_graph(saver).invoke(Command(resume="that"), config("asking"))
        assert sorted(map(str, done["results"])) == ["0", "1", "2", "that"]
        assert delta_graph(saver).invoke({"items": []}, config("delta"))["items"] == list(range(9))
        told = chat_graph(saver).invoke({"messages": [HumanMessage("more")]}, config("chat"))["messages"]
        assert [message.content for message in told][-3:] == ["another way", "more", f"reply {len(told) - 1}"]


def test_an_import_leaves_few_free_pages(database, path):
    assert import_into(path, database).returncode == 0
    size = path.stat().st_size
    with statelog.open(path) as store:
        store.compact()
    assert size <= 1.3 * path.stat().st_size


def test_a_repeated_import_adds_nothing(database, expected, path):
    import_into(path, database)
    answer = import_into(path, database)
    assert (
        answer.returncode,
        f"{len(expected)} checkpoints ({len(expected)} were already there)" in answer.stdout,
    ) == (
        0,
        True,
    )
    with saver_of(path) as saver:
        assert tuples(saver) == expected


def test_an_import_keeps_later_changes_of_the_target(database, path):
    import_into(path, database)
    with saver_of(path) as saver:
        chat_graph(saver).invoke({"messages": [HumanMessage("more")]}, config("chat"))
        chat_graph(saver).invoke({"messages": [HumanMessage("own")]}, config("only here"))
        before = tuples(saver)
    answer = import_into(path, database)
    assert (answer.returncode, "; 3 checkpoints more in the target" in answer.stdout) == (0, True)
    with saver_of(path) as saver:
        assert tuples(saver) == before


@pytest.mark.parametrize("commits", [2, 9, 24])
def test_a_killed_import_continues(database, expected, path, commits):
    killed = import_into(path, database, STATELOG_FAULT=f"commit.after_delivery:{commits}:kill")
    assert killed.returncode == -signal.SIGKILL
    report = json.loads(import_into(path, database, "--json").stdout)
    assert 0 < report["copied"] < report["checkpoints"]
    with saver_of(path) as saver:
        assert tuples(saver) == expected


def test_an_export_equals_the_imported_data(database, expected, path, tmp_path):
    import_into(path, database)
    back = tmp_path / "back.db"
    answer = run("export-langgraph", path, f"sqlite:{back}")
    assert (answer.returncode, answer.stderr) == (0, "")
    with SqliteSaver.from_conn_string(str(back)) as saver:
        assert tuples(saver) == expected
        done = asking_graph(saver).invoke(Command(resume="that"), config("asking"))
        assert sorted(map(str, done["results"])) == ["0", "1", "2", "that"]


def test_a_pruned_thread_with_delta_channels_keeps_its_state_when_exported(path, tmp_path):
    """The store hides the ancestors that make up its channel. One ancestor in the database replaces them."""
    with saver_of(path) as saver:
        for _turn in range(8):
            delta_graph(saver).invoke({"items": []}, config("delta"))
        saver.prune(["delta"])
        assert delta_graph(saver).get_state(config("delta")).values == {"items": list(range(8))}
    back = tmp_path / "back.db"
    for _again in range(2):
        answer = run("export-langgraph", path, f"sqlite:{back}")
        assert (answer.returncode, answer.stderr) == (0, "")
        assert ("1 checkpoint" in answer.stdout, "more in the target" in answer.stdout) == (True, False)
    with SqliteSaver.from_conn_string(str(back)) as saver:
        assert delta_graph(saver).get_state(config("delta")).values == {"items": list(range(8))}
        assert delta_graph(saver).invoke({"items": []}, config("delta"))["items"] == list(range(9))
    answer = import_into(path, back)
    assert (answer.returncode, answer.stderr) == (0, "")
    with saver_of(path) as saver:
        assert delta_graph(saver).get_state(config("delta")).values == {"items": list(range(9))}


def test_pruned_checkpoints_that_are_still_needed_stay_hidden(path, tmp_path):
    source = tmp_path / "source.db"
    with SqliteSaver.from_conn_string(str(source)) as saver:
        for _turn in range(4):
            delta_graph(saver).invoke({"items": []}, config("delta"))
    import_into(path, source)
    with saver_of(path) as saver:
        saver.prune(["delta"])
        before = tuples(saver)
    for _again in range(2):
        answer = import_into(path, source)
        assert (answer.returncode, answer.stderr) == (0, "")
    with saver_of(path) as saver:
        assert before.items() <= tuples(saver).items()
        assert delta_graph(saver).get_state(config("delta")).values == {"items": [0, 1, 2, 3]}


def test_values_of_classes_that_are_not_installed_are_copied_unchanged(tmp_path, path, monkeypatch):
    (tmp_path / "not_installed.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Order:\n    number: int\n    lines: list\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    order = importlib.import_module("not_installed").Order(7, [b"x", 1.5])
    database = tmp_path / "orders.db"
    with SqliteSaver.from_conn_string(str(database)) as saver:
        first = empty_checkpoint() | {"channel_values": {"order": order}, "channel_versions": {"order": "1"}}
        at = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, first, {"step": 1}, {"order": "1"})
        saver.put_writes(at, [("order", order)], "task")
    assert import_into(path, database).returncode == 0
    with saver_of(path) as saver:
        found = saver.get_tuple(config("t"))
    assert (found.checkpoint["channel_values"], found.pending_writes) == (
        {"order": order},
        [("task", "order", order)],
    )


# --- refusals ---------------------------------------------------------------------


def test_a_different_checkpoint_in_the_target_is_not_overwritten(database, path):
    import_into(path, database)
    with saver_of(path) as saver:
        before = tuples(saver)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE checkpoints SET metadata = '{\"step\": 77}' WHERE thread_id = 'delta'")
    connection.close()
    answer = import_into(path, database, "--json")
    error = json.loads(answer.stderr)
    assert (answer.returncode, error["kind"], error["facts"]["thread"]) == (4, "ConflictError", "delta")
    with saver_of(path) as saver:
        assert tuples(saver) == before


def test_different_writes_in_the_target_are_not_overwritten(tmp_path, path):
    database = tmp_path / "asked.db"
    with SqliteSaver.from_conn_string(str(database)) as saver:
        at = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {"step": 1}, {})
        saver.put_writes(at, [("x", 1)], "one")
    import_into(path, database)
    with saver_of(path) as saver:  # The thread continues there.
        saver.put_writes(at, [("x", 2)], "two")
        saver.put_writes(at, [(RESUME, "yes")], "two")
        before = tuples(saver)
    for _again in range(2):
        assert import_into(path, database).returncode == 0
    with SqliteSaver.from_conn_string(str(database)) as saver:
        saver.put_writes(at, [(RESUME, "no")], "two")
    answer = import_into(path, database)
    assert (answer.returncode, "ConflictError" in answer.stderr or "different content" in answer.stderr) == (4, True)
    with saver_of(path) as saver:
        assert tuples(saver) == before


def test_a_thread_deleted_in_the_store_is_not_imported_again(database, path):
    import_into(path, database)
    with saver_of(path) as saver:
        saver.delete_thread("delta")
    answer = import_into(path, database)
    assert (answer.returncode, answer.stderr.count("\n")) == (3, 1)
    with saver_of(path) as saver:
        assert saver.get_tuple(config("delta")) is None


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (None, 11, "no database at"),
        (b"no database " * 400, 6, "is not a SQLite database"),
        (b"", 6, "contains no LangGraph checkpoints"),
    ],
)
def test_a_file_that_is_not_a_database_of_checkpoints_is_named(tmp_path, path, content, code, says):
    database = tmp_path / "some.db"
    if content is not None:
        database.write_bytes(content)
    answer = import_into(path, database)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (code, "", 1)
    assert says in answer.stderr
    assert str(database) in answer.stderr
    assert not path.exists()


def test_an_invalid_database_name_is_refused(path):
    answer = run("import-langgraph", "mysql://me:secret@host/db", "--file", path)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "'mysql://me:***@host/db' is not a database" in answer.stderr
    answer = run("import-langgraph", "postgresql://me:secret@host")
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "postgresql://me:***@host does not name a database" in answer.stderr
    with (
        pytest.raises(UsageError, match=r"^mysql://me:\*\*\*@x is not a source or target of threads"),
        opened("mysql://me:secret@x", writing=True),
    ):
        pass


@pytest.mark.parametrize(("arguments", "made"), [([], "checkpoints.state"), (["x.state"], "x.state")])
def test_without_a_name_the_store_gets_the_name_of_the_database(database, expected, tmp_path, arguments, made):
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    named = database.rename(database.with_name("checkpoints.db"))
    command = [sys.executable, "-m", "statelog", "import-langgraph", f"sqlite:{named}", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path[1:]))}
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=600, env=environment)
    assert [path.name for path in directory.iterdir() if path.suffix == ".state"] == [made]
    with saver_of(directory / made) as saver:
        assert tuples(saver) == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sqlite:x.db", "a.state", "--file", "b.state"], "the store is named twice: a.state and --file b.state"),
        (["postgresql://host"], "postgresql://host does not name a database: give the STORE for its threads"),
    ],
)
def test_a_store_that_is_named_twice_or_invalidly_is_refused(arguments, says):
    answer = run("import-langgraph", *arguments)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert says in answer.stderr


def test_an_export_of_a_missing_store_creates_none(tmp_path, path):
    answer = run("export-langgraph", path, f"sqlite:{tmp_path / 'x.db'}")
    assert (answer.returncode, answer.stderr) == (11, f"statelog: no store at {path}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_completely_encrypted_checkpoint_is_named(database, path):
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE checkpoints SET type = 'msgpack+aes' WHERE thread_id = 'chat'")
    connection.close()
    answer = import_into(path, database)
    assert (answer.returncode, answer.stderr.count("\n")) == (6, 1)
    assert "of thread 'chat' is of type 'msgpack+aes'" in answer.stderr


# --- the comparison at the end ----------------------------------------------------


class Forgetful(InMemorySaver):
    """A saver that loses data during a copy."""

    def __init__(self, loses: str) -> None:
        super().__init__()
        self.loses = loses

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.loses == "metadata":
            metadata = {**metadata, "step": 1000}
        if self.loses == "channel_values":
            new_versions = dict(list(new_versions.items())[1:])
        if self.loses == "checkpoint" and metadata["step"] == 2:
            return config
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes[:-1] if self.loses == "pending_writes" else writes, task_id, task_path)


@pytest.mark.parametrize("field", ["metadata", "channel_values", "checkpoint", "pending_writes"])
def test_losses_of_the_target_are_detected(field):
    source = InMemorySaver()
    fill(source)
    report = migrate(Endpoint("source", source), Endpoint("target", Forgetful(field)))
    assert {type(each.error) for each in report.left_out} == {CorruptionError}
    assert field in {name for each in report.left_out for name in each.error.fields}


def test_threads_can_be_copied_between_any_two_savers():
    source, target = InMemorySaver(), InMemorySaver()
    fill(source)
    steps = []
    report = migrate(Endpoint("source", source), Endpoint("target", target), progress=lambda *step: steps.append(step))
    assert tuples(target) == tuples(source)
    assert steps == [(number, 2 * report.checkpoints) for number in range(1, 2 * report.checkpoints + 1)]


# --- PostgreSQL -------------------------------------------------------------------

POSTGRES_URL = os.environ.get("STATELOG_TEST_POSTGRES")


@pytest.mark.skipif(not POSTGRES_URL, reason="STATELOG_TEST_POSTGRES names no empty database of a PostgreSQL server")
def test_threads_can_be_imported_from_and_exported_to_postgres(path):
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(POSTGRES_URL) as saver:
        saver.setup()
        fill(saver)
        expected = tuples(saver)
        answer = run("import-langgraph", POSTGRES_URL, "--file", path)
        assert (answer.returncode, answer.stderr) == (0, "")
        with saver_of(path) as copy:
            assert tuples(copy) == expected
        for thread_id in {place[0] for place in expected}:
            saver.delete_thread(thread_id)
        assert tuples(saver) == {}
        assert run("export-langgraph", path, POSTGRES_URL).returncode == 0
        assert tuples(saver) == expected
    with statelog.open(path) as store:
        assert store.verify().ok
