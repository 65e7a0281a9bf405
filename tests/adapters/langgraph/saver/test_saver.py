"""The mapping to the engine, bad input, conflicts, removal, and sharing."""

from __future__ import annotations

import asyncio
import threading
from itertools import islice
from uuid import uuid4

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from graphs import chat
from histories import config
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot

import statelog
from statelog.adapters.kit import items
from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import (
    ClosedError,
    ConflictError,
    LimitError,
    ThreadDeletedError,
    UsageError,
    ValueTypeError,
)
from statelog.storage.wal import checkpointer, wal


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability="interval") as opened:
        yield opened
        assert opened.store.closed or opened.store.verify().ok


def put(saver, place, values=None, metadata=None, **more):
    checkpoint = empty_checkpoint()
    values = values or {}
    versions = {channel: saver.get_next_version(None, None) for channel in values}
    checkpoint.update(channel_values=values, channel_versions=versions, **more)
    return saver.put(place, checkpoint, {"source": "loop", "step": 0, **(metadata or {})}, versions)


def put_line(saver, count, thread="t", namespace="", **metadata):
    made = [put(saver, config(thread, namespace), {"x": "0" * 100}, metadata)]
    for number in range(1, count):
        made.append(put(saver, made[-1], {"x": f"{number}" * 100}, metadata))
    return made


def ids(saver, place, **asked):
    return [each.config["configurable"]["checkpoint_id"] for each in saver.list(place, **asked)]


def id_of(place):
    return place["configurable"]["checkpoint_id"]


# --- mapping -------------------------------------------------------------------------


def test_threads_and_checkpoints_map_to_those_of_the_store(saver):
    made = put_line(saver, 5, user="anna")
    thread = saver.store.thread("t")
    assert [checkpoint.id for checkpoint in thread.history()][:-1] == [id_of(place) for place in reversed(made)]
    checkpoint = thread.at(id_of(made[2]))
    assert checkpoint.metadata == {"source": "loop", "step": 0, "user": "anna"}
    assert checkpoint.state["x"].shown() == "2" * 100
    assert checkpoint.parent == thread.at(id_of(made[1]))


def test_namespaces_and_forks_are_branches(saver):
    root = put_line(saver, 2)
    put_line(saver, 2, namespace="child:1")
    put(saver, root[0], {"x": 1})
    names = [branch.name for branch in saver.store.thread("t").branches()]
    assert names[:2] == ["main", "ns:child:1"]
    assert names[2].startswith("main@")


def test_a_message_of_a_pending_write_is_shared_with_the_channel(saver):
    messages = [HumanMessage("m" * 3000, id=str(number)) for number in range(3)]
    place = put(saver, config("t"), {"messages": messages[:1]})
    sizes = []
    for number in (1, 2):
        before = _nodes(saver)
        saver.put_writes(place, [("messages", [messages[number]])], f"task {number}")
        place = put(saver, place, {"messages": messages[: number + 1]})
        sizes.append(_nodes(saver) - before)
    assert max(sizes) < 3000 + 2500
    found = saver.get_tuple(place)
    assert found.checkpoint["channel_values"]["messages"] == messages


def test_a_message_of_a_write_after_its_checkpoint_is_shared_with_the_channel(saver):
    messages = [HumanMessage("m" * 3000, id=str(number)) for number in range(3)]
    before = put(saver, config("t"), {"messages": messages[:1]})
    for number in (1, 2):
        place = put(saver, before, {"messages": messages[: number + 1]})
        size = _nodes(saver)
        saver.put_writes(before, [("messages", [messages[number]])], f"task {number}")
        assert _nodes(saver) - size < 1500
        assert saver.get_tuple(before).pending_writes == [(f"task {number}", "messages", [messages[number]])]
        before = place
    saver.store.prune(keep_last=1)
    assert saver.store.verify().ok


def test_a_superstep_is_one_flush(tmp_path, monkeypatch):
    monkeypatch.setattr("statelog.storage.wal.background_flusher.IDLE_S", 3600)
    calls = []
    flush_file = checkpointer.flush_file
    for module in (checkpointer, wal):
        monkeypatch.setattr(module, "flush_file", lambda descriptor: (calls.append(descriptor), flush_file(descriptor)))

    def flushes(function, *arguments):
        before = len(calls)
        function(*arguments)
        return len(calls) - before

    with StatelogSaver.open(tmp_path / "s", interval_ms=60_000) as saver:
        first = put(saver, config("t"), {"x": 0})
        assert flushes(saver.put_writes, first, [("x", 1)], "task") == 0
        assert flushes(saver.put_writes, first, [("x", 2)], "another") == 0
        assert flushes(put, saver, first, {"x": 2}) == 1
        for channel in (ERROR, INTERRUPT, RESUME):  # No checkpoint needs to follow.
            assert flushes(saver.put_writes, first, [("y", 1), (channel, "")], f"task {channel}") == 1


def _nodes(saver):
    return sum(record.size_bytes for record in saver.store.log())


def test_a_trimmed_conversation_shares_its_remaining_messages(saver):
    messages = [HumanMessage(f"{number} " + "m" * 3000, id=str(number)) for number in range(60)]
    other = StatelogSaver(saver.store)  # It remembers nothing.
    place = put(saver, config("t"), {"messages": messages})
    for each in (saver, other):
        before = _nodes(saver)
        place = put(each, place, {"messages": messages[30:]})
        assert _nodes(saver) - before < 6000
        place = put(saver, place, {"messages": messages})


def test_unusual_names_are_distinguished(saver):
    names = ["t", "t ", "T", "a/b", "ü", "x" * 400, "main", "writes"]
    odd = ["", "a", "a/b", "a//b", "#", "a@b", "ns", "1~0123456789abcdef", "ü", "n" * 500]
    for thread in names:
        for namespace in odd:
            for id in odd[1:]:
                put(saver, config(thread, namespace), {"x": [thread, namespace, id]}, id=id)
        if thread != "t":
            break
    for thread in names[:2]:
        for namespace in odd:
            assert sorted(ids(saver, config(thread, namespace))) == sorted(odd[1:])
            for id in odd[1:]:
                found = saver.get_tuple(config(thread, namespace, id))
                assert found.checkpoint["channel_values"]["x"] == [thread, namespace, id]
    for thread in names:
        put(saver, config(thread), {"x": 1})


def test_foreign_threads_are_not_shown(saver):
    thread = saver.store.thread("mine")
    for number in range(3):
        thread.commit({"x": number})
    put_line(saver, 2)
    assert len(list(saver.list(None))) == 2
    assert saver.get_tuple(config("mine")) is None
    saver.delete_for_runs(["run"])
    assert thread.version == 2


def test_large_or_unusual_metadata_is_restored(saver):
    memory = InMemorySaver()
    odd = {"large": "x" * 100_000, "deep": {"a": [1, {"b": None}]}, "when": {1, 2}, "bytes": b"a", "int": 2**64 - 1}
    ours = {"statelog:needs": ["x"], "statelog:serves": "c"}
    for metadata in ({}, *({key: odd[key]} for key in ("deep", "bytes", "when", "int")), odd, ours):
        thread = str(uuid4())
        places = [put(each, config(thread), {}, metadata) for each in (memory, saver)]
        expected, found = memory.get_tuple(places[0]).metadata, saver.get_tuple(places[1]).metadata
        assert found == expected
        assert next(iter(saver.list(config(thread), filter=metadata))).metadata == found
    assert "statelog:serves" not in saver.store.thread(thread).head.metadata  # Retention would believe it.


# --- filters ---------------------------------------------------------------------------


def test_filters_are_typed_and_literal(saver):
    metadata = [{"n": 1}, {"n": 1.0}, {"n": True}, {"n": "1"}, {"n": None}, {"n": {"a": [1]}}, {"a.b": 1}, {"' --": 1}]
    made = [id_of(put(saver, config("t"), {}, each)) for each in metadata]
    expected = [
        ({"n": 1}, made[:2]),
        ({"n": True}, made[2:3]),
        ({"n": "1"}, made[3:4]),
        ({"a.b": 1}, made[6:7]),
        ({"' --": 1}, made[7:]),
        ({"a": 1}, []),
        ({"n') OR 1=1 --": 1}, []),
        ({"n": 1, "source": "input"}, []),
    ]
    for wanted, found in expected:
        assert sorted(ids(saver, config("t"), filter=wanted)) == found, wanted
    assert ids(saver, config("t"), filter={"n": {"a": [1]}}) == made[5:6]
    assert ids(saver, config("t"), filter={"n": {"a": [True]}}) == []
    assert ids(saver, config("t"), filter={"n": {"a": [1], "b": 2}}) == []


def test_a_paused_list_blocks_no_other_call(saver):
    put_line(saver, 100)
    paused = iter(saver.list(config("t")))
    first = [next(paused), next(paused)]
    assert saver.store.statistics().readers == 0
    done = threading.Thread(target=put_line, args=(saver, 30))
    done.start()
    done.join(30)
    assert not done.is_alive()
    assert len([*first, *paused]) == 100


def test_a_list_continues_as_far_as_possible_when_its_thread_is_deleted(saver):
    put_line(saver, 100)
    paused = iter(saver.list(config("t")))
    next(paused)
    saver.delete_thread("t")
    assert len(list(paused)) < 100


# --- conflicts, late writes -----------------------------------------------------------------


def test_two_runs_on_one_checkpoint_fork(saver):
    (base,) = put_line(saver, 1)
    left, right = put(saver, base, {"x": "left"}), put(saver, base, {"x": "right"})
    assert saver.get_tuple(left).checkpoint["channel_values"] == {"x": "left"}
    assert saver.get_tuple(right).parent_config == saver.get_tuple(left).parent_config == base


def test_two_runs_on_one_checkpoint_conflict_if_configured(saver):
    strict = StatelogSaver(saver.store, conflict="raise")
    (base,) = put_line(strict, 1)
    left = put(strict, base, {"x": "left"})
    with pytest.raises(ConflictError) as raised:
        put(strict, base, {"x": "right"})
    assert (raised.value.thread, raised.value.expected_version, raised.value.actual_version) == ("t", 1, 2)
    with pytest.raises(ConflictError):
        put(strict, config("t"), {"x": "anew"})
    assert len(ids(strict, config("t"))) == 2
    put(strict, left, {"x": "on"})
    put(strict, base, {"x": "again"}, id=id_of(left))  # Putting the same checkpoint again is not a conflict.
    with pytest.raises(UsageError, match="conflict"):
        StatelogSaver(saver.store, conflict="ignore")


def test_a_deleted_thread_is_not_re_created_by_late_writes(saver):
    (place,) = put_line(saver, 1)
    saver.delete_thread("t")
    other = StatelogSaver(saver.store)
    for each in (saver, other):
        with pytest.raises(ThreadDeletedError) as raised:
            put(each, place, {"x": 1})
        assert raised.value.thread == "t"
        with pytest.raises(ThreadDeletedError):
            each.put_writes(place, [("x", 1)], "task")
        assert each.get_tuple(place) is None
        assert list(each.list(None)) == []
        each.delete_thread("t")


def test_writes_can_be_put_before_their_checkpoint(saver):
    place = config("t", "", "1ef00000-0000-6000-8000-000000000001")
    saver.put_writes(place, [("x", 1)], "task")
    assert saver.get_tuple(place) is None
    assert list(saver.list(config("t"))) == []
    put(saver, config("t"), {}, id=id_of(place))
    assert saver.get_tuple(place).pending_writes == [("task", "x", 1)]


def test_first_writes_are_kept_and_errors_are_replaced(saver):
    (place,) = put_line(saver, 1)
    for number in range(3):
        saver.put_writes(place, [("x", number), (ERROR, f"error {number}")], "task")
    assert saver.get_tuple(place).pending_writes == [("task", ERROR, "error 2"), ("task", "x", 0)]


def test_writes_of_many_os_threads_are_all_stored(saver):
    (place,) = put_line(saver, 1)

    def write(number):
        saver.put_writes(place, [("x", number), ("y", "y" * 100)], f"task {number:03}", f"path {number % 7}")

    workers = [threading.Thread(target=write, args=(number,)) for number in range(40)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = saver.get_tuple(place).pending_writes
    assert sorted(value for _task, channel, value in found if channel == "x") == list(range(40))
    assert [int(task.split()[1]) % 7 for task, _channel, _value in found] == sorted(n % 7 for n in [*range(40)] * 2)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{}, {"configurable": {}}, {"configurable": {"checkpoint_ns": ""}}, {"metadata": {}}])
def test_a_config_without_a_thread_is_refused(saver, bad):
    for call in (
        lambda: saver.get_tuple(bad),
        lambda: list(saver.list(bad)),
        lambda: put(saver, bad),
        lambda: saver.put_writes(bad, [("x", 1)], "task"),
        lambda: saver.get_delta_channel_history(config=bad, channels=["x"]),
    ):
        with pytest.raises(UsageError, match="thread_id"):
            call()


def test_with_conflict_raise_a_thread_continues_after_removed_checkpoints(saver):
    strict = StatelogSaver(saver.store, conflict="raise")
    first = put(strict, config("t"), {"x": 1}, {"run_id": "r1"})
    put(strict, first, {"x": 2}, {"run_id": "r2"})
    strict.delete_for_runs(["r2"])
    assert strict.get_tuple(config("t")).config == first
    again = put(strict, first, {"x": 3}, {"run_id": "r3"})
    assert strict.get_tuple(config("t")).config == again
    strict.prune(["t"], strategy="delete")
    anew = put(strict, config("t"), {"x": 4})
    assert [each.config for each in strict.list(config("t"))] == [anew]
    with pytest.raises(ConflictError, match="the beginning"):
        put(strict, config("t"), {"x": 5})


def test_a_run_id_of_another_type_matches_no_run(saver):
    first = put(saver, config("t"), {"x": 1}, {"run_id": ["r"]})
    put(saver, first, {"x": 2}, {"run_id": "r"})
    saver.delete_for_runs(["r"])
    assert [each.config for each in saver.list(config("t"))] == [first]


def test_arguments_of_wrong_types_are_named(saver):
    (place,) = put_line(saver, 1)
    with pytest.raises(UsageError, match="task_id"):
        saver.put_writes(place, [("x", 1)], 7)
    with pytest.raises(UsageError, match="channel"):
        saver.put_writes(place, [(5, 1)], "task")
    with pytest.raises(UsageError, match="open store"):
        StatelogSaver(str(saver.store.path))
    with pytest.raises(UsageError, match="thread id"):
        saver.delete_thread("\ud800")
    for source, target in (("t", "langgraph:store"), ("langgraph:store", "u")):
        with pytest.raises(UsageError, match="is reserved for"):
            saver.copy_thread(source, target)

    class Texts:
        dumps_typed = staticmethod(lambda _value: ("msgpack", "text"))
        loads_typed = staticmethod(lambda _pair: None)

    with pytest.raises(ValueTypeError, match="channel 'x'"):
        put(StatelogSaver(saver.store, serde=Texts()), config("u"), {"x": 1})


def test_other_invalid_input_is_named(saver):
    with pytest.raises(UsageError, match="checkpoint_ns"):
        saver.get_tuple(config("t", 7))
    with pytest.raises(UsageError, match="checkpoint_id"):
        saver.put_writes(config("t"), [("x", 1)], "task")
    with pytest.raises(UsageError, match="thread id"):
        put(saver, config(""))
    with pytest.raises(LimitError, match="thread id"):
        put(saver, config("x" * 401))
    with pytest.raises(UsageError, match="strategy"):
        saver.prune(["t"], strategy="keep_some")
    assert saver.get_tuple(config("t", "", "unknown")) is None
    assert list(saver.list(config("t", "", "unknown"))) == []
    assert saver.store.last_lsn == 0


def test_a_closed_saver_raises(tmp_path):
    with StatelogSaver.open(tmp_path / "s") as saver:
        (place,) = put_line(saver, 1)
    for call in (
        lambda: saver.get_tuple(place),
        lambda: list(saver.list(None)),
        lambda: put(saver, place),
        lambda: saver.put_writes(place, [("x", 1)], "task"),
        lambda: saver.prune(["t"]),
    ):
        with pytest.raises(ClosedError):
            call()


# --- removing -----------------------------------------------------------------------------------


def test_pruned_versions_leave_the_file(tmp_path):
    with StatelogSaver.open(tmp_path / "s") as saver:
        texts = [f"text {number} {uuid4()}" for number in range(8)]
        place = config("t")
        for text in texts:
            place = put(saver, place, {"x": text})
            saver.put_writes(place, [("x", f"written {text}")], "task")
        fork = put(saver, config("t"), {"x": f"fork {texts[0]}"}, id="0" * 8)
        saver.prune(["t", "nobody"])
        assert ids(saver, config("t")) == [id_of(place)]
        assert saver.get_tuple(fork) is None
        assert saver.get_tuple(place).pending_writes == [("task", "x", f"written {texts[-1]}")]
        report = saver.store.verify()
        assert report.ok
        place = put(saver, place, {"x": "on"})
        assert len(ids(saver, config("t"))) == 2
        saver.store.compact()
        data = (tmp_path / "s").read_bytes()
    assert [text for text in texts if text.encode() in data] == texts[-1:]


def test_a_thread_whose_checkpoints_were_all_pruned_continues(saver):
    made = put_line(saver, 3)
    saver.prune(["t"], strategy="delete")
    assert ids(saver, config("t")) == []
    assert saver.get_tuple(made[-1]) is None
    place = put(saver, made[-1], {"x": 1})
    assert ids(saver, config("t")) == [id_of(place)]
    assert saver.get_tuple(place).checkpoint["channel_values"] == {"x": 1}
    put(saver, config("t"), {"x": 2}, id=id_of(made[0]))
    assert saver.get_tuple(made[0]).checkpoint["channel_values"] == {"x": 2}


def test_runs_are_deleted_in_the_middle_and_at_the_end(saver):
    (first,) = put_line(saver, 1, run_id="a")
    second = put(saver, first, {"x": 2}, {"run_id": "b"})
    third = put(saver, second, {"x": 3}, {"run_id": "a"})
    last = put(saver, third, {"x": 4}, {"run_id": "b"})
    saver.delete_for_runs(["b"])
    assert ids(saver, config("t")) == [id_of(third), id_of(first)]
    assert saver.get_tuple(config("t")).checkpoint["channel_values"] == {"x": 3}
    assert saver.get_tuple(last) is None
    assert saver.get_tuple(third).parent_config == second
    saver.delete_for_runs(["a"])
    assert ids(saver, config("t")) == []


def test_a_copy_is_one_commit_and_independent_of_its_source(saver):
    made = put_line(saver, 40)
    saver.put_writes(made[-1], [("x", "written")], "task")
    put_line(saver, 2, namespace="child:1")
    put(saver, made[3], {"x": "fork"})
    before = saver.store.last_lsn
    expected = _without_thread(saver, "t")
    saver.copy_thread("t", "copy")
    records = list(saver.store.log(after=before))
    assert [record.continues for record in records] == [True] * (len(records) - 1) + [False]
    saver.delete_thread("t")
    assert _without_thread(saver, "copy") == expected
    place = put(saver, config("copy", "", id_of(made[-1])), {"x": "on"})
    assert saver.get_tuple(place).parent_config == config("copy", "", id_of(made[-1]))


def _without_thread(saver, thread):
    listed = saver.list({"configurable": {"thread_id": thread}})
    return [each._replace(config=id_of(each.config), parent_config=None) for each in listed]


def test_versions_ascend_and_differ(saver):
    version = None
    for number in range(1, 30):
        pair = [saver.get_next_version(version, None) for _ in range(2)]
        assert pair[0] != pair[1]
        assert all(version is None or each > version for each in pair)
        version = pair[0]
        assert int(version.split(".")[0]) == number
    assert saver.get_next_version(7, None).startswith("0" * 31 + "8.")


def test_a_store_of_the_caller_stays_open(tmp_path):
    with statelog.open(tmp_path / "s") as store:
        saver = StatelogSaver(store)
        graph = chat().compile(checkpointer=saver)
        graph.invoke({"messages": [HumanMessage("hello")]}, config("t"))
        assert saver.store is store
        state = store.thread("t").state
        assert [type(message.shown()).__name__ for message in islice(state["messages"], 2)] == ["Constructed"] * 2
        assert isinstance(items.read(state)["turns"], bytes)


def test_a_cycle_of_parents_ends(saver):
    first = put(saver, config("t", "", "b"), {"x": AIMessage("x")}, id="a")
    second = put(saver, first, {}, id="b")
    history = saver.get_delta_channel_history(config=second, channels=["y"])
    assert history == {"y": {"writes": []}}
    saver.prune(["t"])
    assert ids(saver, config("t")) == ["b"]


@pytest.mark.parametrize("key", ["user.", ".user", "user..name", ".", ""])
def test_a_filter_with_an_empty_path_part_is_refused(saver, key):
    put(saver, config("t"), {}, {"user": {"name": "ann", "": 1}})
    with pytest.raises(UsageError, match="a part between dots is empty") as caught:
        list(saver.list(None, filter={"source": "input", key: None}))
    assert caught.value.key == key


def test_a_filter_of_list_accepts_a_key_with_dots_or_a_path(saver):
    told = {"deep": {"user": {"name": "ann"}}, "flat": {"user.name": "ann"}, "other": {"user": {"name": "bob"}}}
    for thread, metadata in told.items():
        put(saver, config(thread), {}, metadata)
    found = saver.list(None, filter={"user.name": "ann"})
    assert sorted(each.config["configurable"]["thread_id"] for each in found) == ["deep", "flat"]
    assert [*saver.list(None, filter={"user.name": "ann", "user.age": 3})] == []
    assert len([*saver.list(config("other"), filter={"user.name": "bob"})]) == 1


# --- removed parents ------------------------------------------------------


def parent_of(found):
    return None if found.parent_config is None else id_of(found.parent_config)


def test_prune_leaves_the_checkpoint_it_keeps_without_a_parent(saver):
    made = put_line(saver, 4)
    inner = put_line(saver, 3, namespace="child")
    saver.prune(["t"])
    for place, head in ((config("t"), made[-1]), (config("t", "child"), inner[-1])):
        assert [parent_of(each) for each in saver.list(place)] == [None]
        assert parent_of(saver.get_tuple(place)) is parent_of(saver.get_tuple(head)) is None
    after = put(saver, saver.get_tuple(config("t")).config, {"x": "after"})
    assert parent_of(saver.get_tuple(config("t"))) == id_of(made[-1])
    saver.copy_thread("t", "copy")
    found = {id_of(each.config): parent_of(each) for each in saver.list(config("copy", ""))}
    assert found == {id_of(after): id_of(made[-1]), id_of(made[-1]): None}


def test_prune_after_retention_leaves_no_missing_parent_and_writes_nothing_twice(saver):
    put_line(saver, 300)
    saver.store.prune(keep_last=1)
    assert len(ids(saver, config("t"))) == 1
    saver.prune(["t"])
    assert parent_of(saver.get_tuple(config("t"))) is None
    lsn = saver.store.last_lsn
    saver.prune(["t"])
    assert saver.store.last_lsn == lsn


def test_prune_keeps_a_needed_parent_and_removes_the_marks_of_removed_ones(saver):
    put_line(saver, 3)
    saver.prune(["t"])
    state = saver.store.thread("t", branch="writes").state
    assert sum(name.endswith("+++") for name in state) == 1
    saver.prune(["t"], strategy="delete")
    saver.store.prune(keep_last=1)
    assert [name for name in saver.store.thread("t", branch="writes").state if name.endswith("+++")] == []


# --- the checkpoints that a DeltaChannel needs ------------------------------------------


def delta_line(saver, count, snapshots, thread="d"):
    """Put a line of checkpoints, some of which store channels as a DeltaChannel does. Return their ids."""
    made, ids_ = config(thread), []
    for step in range(count):
        values = {channel: DeltaSnapshot([step]) for channel, steps in snapshots.items() if step in steps}
        made = put(saver, made, values)
        ids_.append(id_of(made))
        saver.put_writes(made, [(channel, [step]) for channel in snapshots if channel not in values], f"task {step}")
    return made, ids_


@pytest.mark.parametrize(
    ("snapshots", "channels", "first"),
    [
        ({"a": [0]}, [], 5),
        ({"a": [0, 5]}, ["a"], 5),
        ({"a": [0]}, ["a"], 0),
        ({"a": [3], "b": [1]}, ["a", "b"], 1),
        ({"a": [3], "b": [1]}, ["a"], 3),
        ({"a": []}, ["a"], 0),
        ({"a": [0]}, ["a", "missing"], 0),
    ],
)
def test_a_keepset_reaches_back_to_the_last_stored_value_of_each_channel(saver, snapshots, channels, first):
    head, made = delta_line(saver, 6, snapshots)
    for place in (head, config("d")):
        expected = set(made[first:])
        assert saver.get_delta_channel_keepset(config=place, channels=channels) == expected
        assert asyncio.run(saver.aget_delta_channel_keepset(config=place, channels=channels)) == expected
    history = saver.get_delta_channel_history(config=head, channels=channels)
    for channel in channels:
        stored = [step for step in snapshots.get(channel, ()) if step < 5]
        begin = max(stored, default=-1)
        writes = [value for _task, _channel, [value] in history[channel]["writes"]]
        assert writes == ([*range(begin + 1, 5)] if channel in snapshots else [])


def test_a_keepset_of_missing_nodes_is_empty(saver):
    assert saver.get_delta_channel_keepset(config=config("none"), channels=["a"]) == set()
    assert saver.get_delta_channel_keepset(config=config("none", "", "x"), channels=[]) == set()
    with pytest.raises(UsageError, match="channels"):
        saver.get_delta_channel_keepset(config=config("none"), channels="abc")
