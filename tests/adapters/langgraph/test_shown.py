"""A LangGraph thread shows the state of `graph.get_state`, and a rollback changes the state that LangGraph sees."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
import uuid
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="needs langgraph")

from graphs import Command, chat, config, nested, review
from langchain_core.messages import HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph

import statelog
from statelog import aio
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.names import id_after
from statelog.errors import CheckpointNotFoundError, ConflictError, LeaseLostError, StatelogError, UsageError


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability="interval") as opened:
        yield opened
        assert opened.store.closed or opened.store.verify().ok


def ask(graph, text, place=None):
    graph.invoke({"messages": [HumanMessage(text, id=text)], "turns": 0}, place or config())


def id_of(state):
    return state.config["configurable"]["checkpoint_id"]


def travelled(saver, turns=("one", "two", "three")):
    """Return a graph that continued from the end of its first turn, and the ids of all its earlier heads."""
    graph = chat().compile(checkpointer=saver)
    heads = []
    for text in turns:
        ask(graph, text)
        heads.append(graph.get_state(config()))
    ask(graph, "another way", heads[0].config)
    return graph, heads


def assert_shows(saver, graph, thread_id="t"):
    """Each way to a thread shows the checkpoint that LangGraph shows, through objects made before and now."""
    expected = id_of(graph.get_state(config(thread_id)))
    thread = saver.store.thread(thread_id)
    assert thread.head.id == expected
    assert thread.version == thread.head.version
    assert thread.at(-1).id == expected
    assert next(thread.history()).id == expected
    assert dict(thread.state) == dict(thread.head.state)
    with saver.store.snapshot() as snapshot:
        assert snapshot.thread(thread_id).head.id == expected
    with saver.store.transaction() as tx:
        assert tx.thread(thread_id).head.id == expected
    return thread


# --- the shown checkpoint --------------------------------------------------------------------


def test_the_head_equals_get_state_after_time_travel(saver):
    early = saver.store.thread("t")
    assert early.head is None
    graph = chat().compile(checkpointer=saver)
    ask(graph, "zero")
    assert early.head.id == id_of(graph.get_state(config()))
    graph, heads = travelled(saver)
    assert early.head.id == assert_shows(saver, graph).head.id != id_of(heads[-1])


def test_update_state_of_an_earlier_checkpoint_moves_the_head(saver):
    graph, heads = travelled(saver)
    graph.update_state(heads[1].config, {"messages": [HumanMessage("edited", id="e")]}, as_node="answer")
    assert_shows(saver, graph)
    graph.update_state(heads[2].config, None, as_node="__copy__")
    assert_shows(saver, graph)


def test_history_follows_the_line_of_the_head_and_not_the_abandoned_one(saver):
    graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    shown, parent = [], graph.get_state(config())
    while parent is not None:
        shown.append(id_of(parent))
        parent = None if parent.parent_config is None else graph.get_state(parent.parent_config)
    assert [each.id for each in thread.history() if each.version] == shown
    assert id_of(heads[1]) not in shown
    assert [each.id for each in thread.history(2)] == shown[:2]
    assert [each.id for each in thread.history(1, before=thread.version)] == shown[1:2]


def test_versions_and_times_refer_to_the_shown_line(saver):
    travelled(saver)
    thread = saver.store.thread("t")
    head = thread.head
    assert thread.at(head.version) == thread.at(head.time) == thread.at(head.time.isoformat()) == head
    assert thread.at(-2) == thread.at(head.version - 1)
    for version in (head.version + 1, -head.version - 2, 10**15, -(10**15)):
        with pytest.raises(CheckpointNotFoundError, match=f"no checkpoint {version} "):
            thread.at(version)


def test_the_abandoned_line_is_found_by_its_id_and_main_names_the_first_line(saver):
    _graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    assert thread.at(id_of(heads[-1])).id == id_of(heads[-1])
    assert saver.store.thread("t", branch="main").head.id == id_of(heads[-1])
    assert thread.checkout("main").head.id == id_of(heads[-1])


def test_a_fork_and_a_tag_begin_at_the_shown_head(saver):
    graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    head = thread.head
    assert thread.tag("here") == head == thread.tags()["here"]
    mine = thread.fork("mine", update={"note": 1})
    assert mine.head.parent == head
    other = thread.fork("other", at=id_of(heads[1]))
    assert other.head.id == id_of(heads[1])
    mine.commit({"note": 2})
    mine.rollback(-2)
    assert mine.state["note"] == 1
    assert_shows(saver, graph)


def test_a_thread_without_checkpoints_shows_no_state(saver):
    graph = chat().compile(checkpointer=saver)
    ask(graph, "one")
    saver.prune(["t"], strategy="delete")
    thread = saver.store.thread("t")
    assert (thread.head, thread.version, dict(thread.state)) == (None, -1, {})
    ask(graph, "again")
    assert thread.head.id == id_of(graph.get_state(config()))


def test_removed_checkpoints_are_not_shown_even_if_their_line_continues(saver):
    graph = chat().compile(checkpointer=saver)
    ask(graph, "one", config(run_id="first"))
    graph.invoke({"messages": [HumanMessage("two", id="two")]}, {**config(), "metadata": {"run_id": "second"}})
    saver.delete_for_runs(["second"])
    thread = assert_shows(saver, graph)
    assert [each.content for each in graph.get_state(config()).values["messages"]] == ["one", "answer 1"]
    assert thread.checkout("main").version > thread.version


@pytest.mark.parametrize("remove", [lambda saver: saver.prune(["t"]), lambda saver: saver.store.prune(keep_last=1)])
def test_the_head_is_unchanged_when_other_checkpoints_are_removed(saver, remove):
    graph, _heads = travelled(saver)
    before = saver.store.thread("t").head.id
    remove(saver)
    assert assert_shows(saver, graph).head.id == before


def test_a_copied_and_a_reopened_thread_show_the_same(saver, tmp_path):
    graph, _heads = travelled(saver)
    head = saver.store.thread("t").head.id
    saver.copy_thread("t", "copy")
    assert_shows(saver, graph, "copy")
    saver.store.close()
    with statelog.open(tmp_path / "s", read_only=True) as store:
        assert store.thread("t").head.id == store.thread("copy").head.id == head


def test_ids_out_of_order_show_the_greatest(saver):
    made = {}
    for number in (5, 3, 4):
        place = config() if not made else config(checkpoint_id=f"id-{5}")
        checkpoint = {
            "v": 1,
            "id": f"id-{number}",
            "ts": "",
            "channel_values": {"x": number},
            "channel_versions": {"x": number},
        }
        saver.put(place, {**checkpoint, "versions_seen": {}}, {"source": "loop", "step": number}, {"x": number})
        made[number] = checkpoint
    thread = saver.store.thread("t")
    assert saver.get_tuple(config()).checkpoint["id"] == "id-5" == thread.head.id
    thread.tag("later", "id-3")
    assert thread.at("later").id == thread.at("id-3").id == thread.at(thread.at("id-3")).id == "id-3"
    assert thread.at(thread.at("id-3").time).id == "id-5"


def test_checkpoints_of_a_subgraph_do_not_change_the_head_of_the_graph(saver):
    graph = nested().compile(checkpointer=saver)
    graph.invoke({"log": ["begin"]}, config())
    assert_shows(saver, graph)
    graph.invoke(Command(resume="yes"), config())
    assert_shows(saver, graph)


def test_a_thread_outside_langgraph_is_read_as_before(saver):
    thread = saver.store.thread("own")
    thread.commit({"n": 1})
    thread.commit({"n": 2})
    thread.fork("main@other").commit({"n": 3})
    assert thread.state["n"] == thread.at(-1).state["n"] == 2
    assert thread.rollback(0).kind == "rollback"


def test_asyncio_shows_the_same_head(saver, tmp_path):
    _graph, _heads = travelled(saver)
    expected = saver.store.thread("t").head.id

    async def read():
        async with aio.open(tmp_path / "s", durability="interval") as store:
            thread = store.thread("t")
            assert thread.branch == "main"
            history = [each.id async for each in thread.history(1)]
            return (await thread.head()).id, history

    assert asyncio.run(read()) == (expected, [expected])


def test_a_process_without_langgraph_shows_the_same_head(saver, tmp_path):
    travelled(saver)
    program = (
        "import sys; sys.modules['langgraph'] = sys.modules['langchain_core'] = None\n"
        f"import statelog\nwith statelog.open({str(tmp_path / 's')!r}, read_only=True) as store:\n"
        "    print(store.thread('t').head.id)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == saver.store.thread("t").head.id


def test_a_commit_rolled_back_by_an_older_release_is_not_shown(saver, monkeypatch):
    graph = chat().compile(checkpointer=saver)
    ask(graph, "one")
    ask(graph, "two")
    head = graph.get_state(config())
    for change in (lambda thread: thread.rollback(3), lambda thread: thread.commit({"n": 1})):
        with monkeypatch.context() as patch:
            patch.setattr("statelog.store.frameworks.is_line", lambda _name: False)
            change(saver.store.thread("t"))
        thread = assert_shows(saver, graph)
        assert thread.head.id == id_of(head)
        assert thread.checkout("main").version > thread.version
    ask(graph, "three")
    assert_shows(saver, graph)
    thread.rollback(id_of(head))
    assert graph.get_state(config()).values == head.values


class Turned:
    """A cipher that reverses bytes."""

    def encrypt(self, plaintext):
        return "turned", plaintext[::-1]

    def decrypt(self, _name, ciphertext):
        return ciphertext[::-1]


def test_a_thread_with_encrypted_values_shows_its_head_and_no_bytes(tmp_path):
    with StatelogSaver.open(tmp_path / "e", serde=EncryptedSerializer(Turned())) as saver:
        graph, _heads = travelled(saver)
        thread = assert_shows(saver, graph)
        thread.rollback(thread.at(-2))
        assert_shows(saver, graph)
        assert "size_bytes" in repr(thread.state)
        assert "turned" in thread._repr_html_()


# --- rollback ---------------------------------------------------------------------------


def without_ids(state):
    tasks = [(task.name, task.error) for task in state.tasks]
    return (state.values, state.next, tasks)


def test_langgraph_sees_a_rollback_and_continues_from_it(saver):
    graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    made = thread.rollback(id_of(heads[1]), metadata={"why": "a test"})
    state = graph.get_state(config())
    assert id_of(state) == made.id == assert_shows(saver, graph).head.id
    assert without_ids(state) == without_ids(heads[1])
    assert state.parent_config == heads[1].parent_config
    assert (state.metadata["source"], state.metadata["step"], state.metadata["why"]) == (
        "fork", heads[1].metadata["step"] + 1, "a test",
    )  # fmt: skip
    ask(graph, "on")
    texts = [each.content for each in graph.get_state(config()).values["messages"]]
    assert texts == ["one", "answer 1", "two", "answer 3", "on", "answer 5"]
    assert_shows(saver, graph)


def test_a_rollback_equals_the_copy_that_langgraph_makes(saver):
    graph, heads = travelled(saver)
    graph.update_state(heads[1].config, None, as_node="__copy__")
    by_langgraph = saver.get_tuple(config())
    saver.store.thread("t").rollback(id_of(heads[1]))
    ours = saver.get_tuple(config())
    assert ours.metadata == by_langgraph.metadata
    assert ours.parent_config == by_langgraph.parent_config
    differing = {"id", "ts", "updated_channels"}
    assert {key: value for key, value in ours.checkpoint.items() if key not in differing} == {
        key: value for key, value in by_langgraph.checkpoint.items() if key not in differing
    }
    assert ours.pending_writes == []


def test_a_rollback_is_undone_by_a_rollback(saver):
    graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    before = graph.get_state(config())
    thread.rollback(id_of(heads[0]))
    thread.rollback(id_of(before))
    assert graph.get_state(config()).values == before.values


def test_a_rollback_to_a_waiting_step_lets_it_run_again(saver):
    graph = review().compile(checkpointer=saver)
    graph.invoke({"log": []}, config())
    waiting = graph.get_state(config())
    graph.invoke(Command(resume="a"), config())
    graph.invoke(Command(resume="b"), config())
    assert graph.get_state(config()).next == ()
    saver.store.thread("t").rollback(id_of(waiting))
    state = graph.get_state(config())
    assert (state.next, state.values) == (waiting.next, waiting.values)
    assert [each.value for each in graph.invoke(None, config())["__interrupt__"]] == ["first question"]
    graph.invoke(Command(resume="c"), config())
    assert graph.invoke(Command(resume="d"), config())["log"][-1] == "sent ['c', 'd']"


class Notes(TypedDict):
    notes: Annotated[
        list, DeltaChannel(lambda before, writes: [*before, *[x for w in writes for x in w]], snapshot_frequency=3)
    ]
    count: Annotated[int, operator.add]


def test_a_rolled_back_delta_channel_stays_complete_through_retention(saver):
    builder = StateGraph(Notes)
    builder.add_node("add", lambda state: {"notes": [f"n{len(state['notes'])}"], "count": 1})
    builder.add_edge(START, "add")
    graph = builder.compile(checkpointer=saver)
    heads = []
    for number in range(8):
        graph.invoke({"notes": [f"in{number}"]}, config())
        heads.append(graph.get_state(config()))
    for head in heads[2:6]:
        saver.store.thread("t").rollback(id_of(head))
        assert graph.get_state(config()).values == head.values
        steps = [each.values for each in graph.get_state_history(head.config)]
        assert steps[0] == head.values
    for remove in (lambda: saver.store.prune(keep_last=1, threads="t"), lambda: saver.prune(["t"])):
        remove()
        assert graph.get_state(config()).values == heads[5].values
    graph.invoke({"notes": ["more"]}, config())
    assert graph.get_state(config()).values["notes"] == [
        *heads[5].values["notes"],
        "more",
        f"n{len(heads[5].values['notes']) + 1}",
    ]


def test_a_rollback_works_with_many_lines_and_within_a_transaction(saver):
    graph = chat().compile(checkpointer=saver)
    ask(graph, "one")
    base = graph.get_state(config())
    for number in range(12):
        ask(graph, f"way {number}", base.config)
    with saver.store.transaction() as tx:
        tx.thread("t").rollback(id_of(base))
        tx.thread("beside").commit({"n": 1})
    assert graph.get_state(config()).values == base.values
    assert_shows(saver, graph)
    abandoned = saver.store.transaction()
    abandoned.__enter__().thread("t").rollback(-3)
    abandoned.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert graph.get_state(config()).values == base.values


def test_a_rollback_writes_as_little_as_a_small_commit(saver):
    graph = chat().compile(checkpointer=saver)
    ask(graph, "x" * 200_000)
    head = graph.get_state(config())
    ask(graph, "two")
    before = saver.store.last_lsn
    saver.store.thread("t").rollback(id_of(head))
    sizes = [len(record.body) for record in saver.store.log(before)]
    assert len(sizes) <= 2  # A fork and a commit.
    assert saver.store.thread("t").head.state["messages"] == saver.store.thread("t").at(id_of(head)).state["messages"]


def test_a_rollback_checks_its_expected_version(saver):
    graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    head = thread.head
    for stale in (head.version - 1, head.version + 1, thread.at(-2), thread.at(id_of(heads[-1]))):
        with pytest.raises(ConflictError):
            thread.rollback(id_of(heads[0]), expected_version=stale)
    assert thread.head == head
    thread.rollback(id_of(heads[0]), expected_version=head.version)
    thread.rollback(id_of(heads[1]), expected_version=thread.head)
    assert graph.get_state(config()).values == heads[1].values


def test_a_checkpoint_put_between_check_and_commit_conflicts(saver, monkeypatch):
    graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    commit = Lineage.commit

    def late(lineage, *args, **options):
        monkeypatch.setattr(Lineage, "commit", commit)
        ask(graph, "meanwhile")
        return commit(lineage, *args, **options)

    monkeypatch.setattr(Lineage, "commit", late)
    with pytest.raises(ConflictError, match="was written after"):
        thread.rollback(id_of(heads[0]), expected_version=thread.head)
    assert graph.get_state(config()).values["messages"][-2].content == "meanwhile"


def test_a_rollback_is_fenced(saver):
    _graph, heads = travelled(saver)
    thread = saver.store.thread("t")
    lease = saver.store.board(agent="a").lease("l", ttl_s=60)
    lease.release()
    head = thread.head
    with pytest.raises(LeaseLostError):
        thread.rollback(id_of(heads[0]), fence=lease)
    assert thread.head == head


def test_targets_that_langgraph_could_not_show_are_refused(saver):
    graph = nested().compile(checkpointer=saver)
    graph.invoke({"log": ["begin"]}, config())
    thread = saver.store.thread("t")
    inner = next(each for each in thread.branches() if each.name.startswith("ns:"))
    lsn = saver.store.last_lsn
    with pytest.raises(UsageError, match="subgraph"):
        thread.rollback(thread.checkout(inner.name).head)
    with pytest.raises(UsageError, match="not a checkpoint of LangGraph"):
        thread.rollback(0)
    with pytest.raises(UsageError, match="not a checkpoint of LangGraph"):
        thread.checkout("writes").rollback(-1)
    with pytest.raises(CheckpointNotFoundError):
        thread.rollback("no such id")
    assert saver.store.last_lsn == lsn


def test_a_removed_checkpoint_is_refused_as_a_target(saver):
    graph, heads = travelled(saver)
    target = saver.store.thread("t").at(id_of(heads[1]))
    saver.prune(["t"])
    with pytest.raises(StatelogError):
        saver.store.thread("t").rollback(target)
    assert_shows(saver, graph)


def test_ids_of_another_kind_are_refused_with_the_way_to_go_back(saver):
    parent = config()
    for id in ("a", "b"):
        checkpoint = {"v": 1, "id": id, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
        parent = saver.put(parent, checkpoint, {"source": "loop", "step": 0}, {})
    with pytest.raises(UsageError, match=r"graph\.update_state\(.*'checkpoint_id': 'a'.*__copy__"):
        saver.store.thread("t").rollback("a")


def test_metadata_that_only_langgraph_can_read_is_refused(saver):
    graph = chat().compile(checkpointer=saver)
    ask(graph, "one", {**config(), "metadata": {"large": "x" * 100_000}})
    with pytest.raises(UsageError, match="metadata"):
        saver.store.thread("t").rollback(-1)


def test_a_commit_that_langgraph_would_not_show_is_refused(saver):
    graph, _heads = travelled(saver)
    lsn = saver.store.last_lsn
    for thread in (saver.store.thread("t"), saver.store.thread("t", branch="main")):
        with pytest.raises(UsageError, match=r"graph\.update_state"):
            thread.commit({"n": 1})
        with pytest.raises(UsageError, match=r"graph\.update_state"):
            thread.edit(lambda state: state.update(n=1))
        with pytest.raises(UsageError, match=r"graph\.update_state"), thread.mount() as state:
            state["n"] = 1
        with pytest.raises(UsageError, match=r"graph\.update_state"), saver.store.transaction() as tx:
            tx.thread("t").commit({"n": 1})
    assert saver.store.last_lsn == lsn
    assert_shows(saver, graph)


def test_a_new_id_is_greater_than_any_before_it():
    greatest = str(uuid.UUID(int=(0xFFFFFFFE << 96) | (0x6 << 76) | (0x8 << 60)))
    for id in ("1ef00000-0000-6000-8000-000000000000", "2fffffff-ffff-6fff-bfff-ffffffffffff", greatest):
        made = id_after(id)
        assert made > id
        assert uuid.UUID(made).version == 6
        assert str(uuid.UUID(made)) == made
    assert id_after("ffffffff-ffff-6fff-bfff-ffffffffffff") is None
    assert [id_after(id) for id in ("", "a", str(uuid.uuid4()))] == [None] * 3
