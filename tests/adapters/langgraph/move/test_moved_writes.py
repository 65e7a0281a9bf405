"""Writes of one task with several paths, threads that continue and are moved back, and values that no target keeps."""

import datetime as dt
import operator
import sqlite3
from contextlib import closing, suppress
from typing import Annotated, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langgraph", reason="needs the extra langgraph")
pytest.importorskip("langgraph.checkpoint.sqlite", reason="needs langgraph-checkpoint-sqlite")

from langgraph.checkpoint.base import WRITES_IDX_MAP, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move.endpoints import Endpoint, opened
from statelog.adapters.langgraph.move.migration import migrate
from statelog.errors import FormatError

THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Log(TypedDict):
    log: Annotated[list, operator.add]


def asking_graph(saver):
    """Two parallel nodes, one of which waits for an answer."""
    builder = StateGraph(Log)
    builder.add_node("ask", lambda _state: {"log": [interrupt("may I?")]})
    builder.add_node("other", lambda _state: {"log": ["other"]})
    builder.add_node("end", lambda _state: {"log": ["end"]})
    builder.add_edge(START, "ask")
    builder.add_edge(START, "other")
    builder.add_edge(["ask", "other"], "end")
    return builder.compile(checkpointer=saver)


def failing_graph(saver):
    """Two parallel nodes, one of which fails."""

    def ask(_state):
        message = "not today"
        raise RuntimeError(message)

    builder = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_node("other", lambda _state: {"log": ["other"]})
    builder.add_edge(START, "ask")
    builder.add_edge(START, "other")
    return builder.compile(checkpointer=saver)


def begin(graph):
    with suppress(RuntimeError):
        graph.invoke({"log": ["in"]}, THREAD)


def edit(graph):
    """Write for the task that waits or has failed. LangGraph uses a different path for such writes."""
    graph.update_state(THREAD, {"log": ["edited"]}, as_node="ask")


def resume(graph):
    graph.invoke(Command(resume="yes"), THREAD)


def move(source, target):
    with opened(str(source), writing=False) as reading, opened(str(target), writing=True) as writing:
        return migrate(reading, writing)


class Cut(BaseException):
    """Replaces a kill."""


def move_a_part(source, target, calls):
    """Move until `calls` calls have written for tasks."""

    def put_writes(*arguments):
        nonlocal calls
        if not calls:
            raise Cut
        calls -= 1
        put(*arguments)

    with opened(str(source), writing=False) as reading, opened(str(target), writing=True) as writing, suppress(Cut):
        put, writing.saver.put_writes = writing.saver.put_writes, put_writes
        migrate(reading, writing)


def saver_of(place):
    name = str(place)
    if name.startswith("sqlite:"):
        return SqliteSaver.from_conn_string(name.removeprefix("sqlite:"))
    return StatelogSaver.open(name)


def rows_of(database):
    """Return the writes in a database, and the greatest number of paths of one task."""
    query = "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value, task_path FROM writes"
    with closing(sqlite3.connect(str(database).removeprefix("sqlite:"))) as connection:
        rows = sorted(connection.execute(query))
    paths = {}
    for row in rows:
        paths.setdefault(row[2:4], set()).add(row[-1])
    return rows, max(map(len, paths.values()))


def told(place):
    with saver_of(place) as saver:
        return [(each.config, each.metadata, each.pending_writes) for each in saver.list(THREAD)]


@pytest.fixture
def first(tmp_path):
    return f"sqlite:{tmp_path / 'first.db'}"


@pytest.fixture
def second(tmp_path):
    return f"sqlite:{tmp_path / 'second.db'}"


@pytest.mark.parametrize("graph_of", [asking_graph, failing_graph])
def test_writes_of_a_task_with_two_paths_are_copied_both_ways_unchanged(path, first, second, graph_of):
    with saver_of(first) as saver:
        begin(graph_of(saver))
        edit(graph_of(saver))
    assert move(first, path).left_out == ()
    assert move(path, second).left_out == ()
    rows, paths = rows_of(first)
    assert (rows_of(second)[0], paths) == (rows, 2)
    assert told(path) == told(first)


@pytest.mark.parametrize("how", [edit, resume])
@pytest.mark.parametrize("began_in_the_database", [True, False])
def test_a_thread_that_continued_after_a_move_can_be_moved_back(path, first, second, how, began_in_the_database):
    source, target = (first, path) if began_in_the_database else (path, first)
    with saver_of(source) as saver:
        begin(asking_graph(saver))
    move(source, target)
    with saver_of(target) as saver:
        how(asking_graph(saver))
    for _again in range(2):
        report = move(target, source)
        assert (report.left_out, report.others) == ((), 0)
    assert told(source) == told(target)
    move(path, second)
    assert rows_of(second) == rows_of(first)


CHANNELS = ("x", "y")
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["", "~p", "~q", "~r"]),
        st.one_of(
            st.lists(st.tuples(st.sampled_from(CHANNELS), st.integers(0, 9)), max_size=4),
            st.lists(st.tuples(st.sampled_from([*CHANNELS, *WRITES_IDX_MAP]), st.integers(0, 9)), max_size=4),
        ),
    ),
    min_size=1,
    max_size=8,
)


@given(calls=CALLS, more=CALLS, cuts=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_any_writes_are_copied_both_ways_unchanged_wherever_a_move_was_cut(tmp_path_factory, calls, more, cuts):
    directory = tmp_path_factory.mktemp("moved")
    first, path, second = f"sqlite:{directory / 'a.db'}", directory / "a.state", f"sqlite:{directory / 'b.db'}"
    with saver_of(first) as saver:
        at = saver.put(THREAD, empty_checkpoint(), {}, {})
        saver.put_writes(at, [("x", 0)], "a", "~z")
        for task_id, task_path, writes in calls:
            saver.put_writes(at, writes, task_id, task_path)
    move_a_part(first, path, cuts[0])
    assert move(first, path).left_out == ()
    with saver_of(first) as saver:  # The thread continues: writes are added, and none is replaced.
        for task_id, task_path, writes in more:
            if any(channel in CHANNELS for channel, _ in writes):
                saver.put_writes(at, writes, task_id, task_path)
    move_a_part(first, path, cuts[1])
    assert move(first, path).left_out == ()
    move_a_part(path, second, cuts[1])
    assert move(path, second).left_out == ()
    assert rows_of(second) == rows_of(first)
    assert told(path) == told(first)


@pytest.mark.parametrize("cut", range(6))
def test_an_error_repeated_to_number_a_write_keeps_its_path(path, first, second, cut):
    """The other write of its task has number 1, and no write has 0.

    So the error is put before that write, with its path.
    """
    with saver_of(first) as saver:
        at = saver.put(THREAD, empty_checkpoint(), {}, {})
        saver.put_writes(at, [("__error__", 7)], "a", "~a")
        saver.put_writes(at, [("__error__", 7), ("x", 1)], "a", "~z")
        saver.put_writes(at, [("y", 2)], "m", "~m")
    move_a_part(first, path, cut)
    assert move(first, path).left_out == ()
    move_a_part(path, second, cut)
    assert move(path, second).left_out == ()
    assert told(path) == told(first) == told(second)


def test_writes_added_to_the_source_during_a_move_need_another_move(path, first):
    with saver_of(first) as saver:
        at = saver.put(THREAD, empty_checkpoint(), {}, {})
        saver.put_writes(at, [("x", 1)], "b", "~b")
    added = []
    with saver_of(first) as saver, opened(first, writing=False) as reading, opened(str(path), writing=True) as writing:

        def progress(done, whole):
            if done == whole // 2:  # Everything is copied, and nothing is compared yet.
                for task_id in ("a", "c"):
                    saver.put_writes(at, [("x", 2)], task_id, f"~{task_id}")
                    added.append(task_id)

        report = migrate(reading, writing, progress=progress)
        assert (report.left_out, report.writes, added) == ((), 1, ["a", "c"])
        report = migrate(reading, writing)
        assert (report.left_out, report.writes) == ((), 3)
    assert told(path) == told(first)


def test_savers_without_paths_keep_the_order_of_writes(path):
    source = InMemorySaver()
    begin(asking_graph(source))
    edit(asking_graph(source))
    with saver_of(path) as target:
        assert migrate(Endpoint("source", source), Endpoint("target", target)).left_out == ()
    assert told(path) == [(each.config, each.metadata, each.pending_writes) for each in source.list(THREAD)]


# --- values that no target can keep --------------------------------------------------------


class Own:
    """A class that msgpack cannot encode."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return isinstance(other, Own) and other.number == self.number

    __hash__ = None


class Sealed(SerializerProtocol):
    """A serialiser that appears to encrypt."""

    def dumps_typed(self, obj):
        kind, data = JsonPlusSerializer().dumps_typed(obj)
        return f"{kind}+sealed", data[::-1]

    def loads_typed(self, data):
        return JsonPlusSerializer().loads_typed((data[0].removesuffix("+sealed"), data[1][::-1]))


def put(saver, thread_id, value, metadata=None):
    at = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for number, each in enumerate((0, value)):
        versions = {"x": str(number + 1)}
        checkpoint = {**empty_checkpoint(), "channel_values": {"x": each}, "channel_versions": versions}
        at = saver.put(at, checkpoint, (metadata or {}) if number else {}, versions)
    return at


def check_left_out(report, database, says):
    """Check that only the second checkpoint of a thread is missing."""
    (left,) = report.left_out
    assert (left.thread, left.checkpoints, left.there, report.threads) == ("bad", 2, 1, 1)
    assert (type(left.error), says in left.error.message) == (FormatError, True)
    assert {"thread": "bad", "checkpoint": left.error.facts["checkpoint"]}.items() <= left.error.facts.items()
    with saver_of(database) as saver:
        found = [each.checkpoint["channel_values"] for each in saver.list({"configurable": {"thread_id": "bad"}})]
    assert found == [{"x": 0}]


def test_a_pickled_value_is_not_copied_to_a_target_that_stores_all_channels_in_one_value(path, first):
    with StatelogSaver.open(path, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        put(saver, "bad", Own(1))
        put(saver, "good", "text")
    for _again in range(2):
        check_left_out(move(path, first), first, "channel 'x' of checkpoint")


def test_a_pickled_value_is_copied_to_a_target_that_stores_each_channel_separately(path, tmp_path):
    serde = JsonPlusSerializer(pickle_fallback=True)
    with StatelogSaver.open(path, serde=serde) as saver:
        at = put(saver, "t", Own(1))
        saver.put_writes(at, [("x", Own(2))], "task")
    copy = tmp_path / "copy.state"
    assert move(path, copy).left_out == ()
    with StatelogSaver.open(copy, serde=serde) as saver:
        found = saver.get_tuple(at)
    assert (found.checkpoint["channel_values"], found.pending_writes) == ({"x": Own(1)}, [("task", "x", Own(2))])


def test_an_encrypted_store_is_not_reported_as_damaged(path, first):
    with StatelogSaver.open(path, serde=Sealed()) as saver:
        put(saver, "bad", "secret")
    report = move(path, first)
    (left,) = report.left_out
    assert (type(left.error), left.there, left.error.facts["thread"]) == (FormatError, 0, "bad")
    assert "cannot be read without the serialiser that wrote it" in left.error.message
    with saver_of(first) as saver:
        assert list(saver.list(None)) == []


def test_metadata_refused_by_the_target_does_not_stop_other_threads(path, first):
    with saver_of(path) as saver:
        put(saver, "bad", 1, {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)})
        put(saver, "good", 1)
    check_left_out(move(path, first), first, "does not accept checkpoint")


# --- values of one version ----------------------------------------------------------------------


class Memo(TypedDict):
    memo: dict
    n: int


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_database_can_have_several_values_for_one_version(path, first, durability):
    """A saver that stores whole checkpoints also stores changes that a node made in place."""

    def remember(state):
        state["memo"][f"{state['n']}"] = "x" * 100
        return {"n": state["n"] + 1}

    builder = StateGraph(Memo)
    for name in "abc":
        builder.add_node(name, remember)
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", "c")
    with saver_of(first) as saver:
        graph = builder.compile(checkpointer=saver)
        for _turn in range(2):
            graph.invoke({"memo": {}, "n": 0}, THREAD, durability=durability)
    assert move(first, path).left_out == ()
    with saver_of(first) as saver, saver_of(path) as moved:
        expected = [each.checkpoint["channel_values"] for each in saver.list(THREAD)]
        assert [each.checkpoint["channel_values"] for each in moved.list(THREAD)] == expected
    assert len({len(values.get("memo", ())) for values in expected}) > 1
