"""A contract of checkpoint storages, which the framework's own storages and the adapter fulfil."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    AgentSession,
    Executor,
    FileCheckpointStorage,
    FileHistoryProvider,
    FileSessionStore,
    InMemoryCheckpointStorage,
    Message,
    WorkflowBuilder,
    WorkflowCheckpoint,
    handler,
    response_handler,
)
from agent_framework.exceptions import WorkflowCheckpointException
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.adapters.agent_framework import (
    StatelogCheckpointStorage,
    StatelogHistoryProvider,
    StatelogSessionStore,
)
from statelog.adapters.agent_framework.checkpoints import thread_of

pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = ("memory", "file", "statelog")
ALLOWED = [f"{__name__}:Ask"]


def storage_of(kind, folder, store, **options):
    if kind == "memory":
        return InMemoryCheckpointStorage()
    return (
        FileCheckpointStorage(folder / "f", **options)
        if kind == "file"
        else StatelogCheckpointStorage(store, **options)
    )


@pytest.fixture(params=KINDS)
def storage(request, tmp_path, store):
    return storage_of(request.param, tmp_path, store)


def checkpoint(number, name="w", state=None):
    return WorkflowCheckpoint(
        workflow_name=name,
        graph_signature_hash="h",
        checkpoint_id=f"c{number}",
        iteration_count=number,
        state={"n": number, "list": list(range(number)), "deep": {"a": None, "t": (1, 2)}} if state is None else state,
        timestamp=f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}+00:00",
    )


def saved(storage, *checkpoints):
    async def save():
        return [await storage.save(each) for each in checkpoints]

    return asyncio.run(save())


def test_a_save_returns_the_id(storage):
    assert saved(storage, checkpoint(1)) == ["c1"]


def test_a_load_returns_an_equal_checkpoint(storage):
    saved(storage, checkpoint(1), checkpoint(2))
    assert [asyncio.run(storage.load(f"c{n}")) for n in (1, 2)] == [checkpoint(1), checkpoint(2)]


def test_a_list_has_the_checkpoints_of_one_workflow(storage):
    saved(storage, checkpoint(1), checkpoint(2), checkpoint(3, "other"))
    assert {each.checkpoint_id for each in asyncio.run(storage.list_checkpoints(workflow_name="w"))} == {"c1", "c2"}
    assert set(asyncio.run(storage.list_checkpoint_ids(workflow_name="w"))) == {"c1", "c2"}


def test_get_latest_returns_the_checkpoint_with_the_latest_timestamp(storage):
    saved(storage, checkpoint(2), checkpoint(1))
    assert asyncio.run(storage.get_latest(workflow_name="w")) == checkpoint(2)
    assert asyncio.run(storage.get_latest(workflow_name="no")) is None


def test_get_latest_ignores_deleted_checkpoints(tmp_path, store):
    storage = storage_of("statelog", tmp_path, store)
    saved(storage, *map(checkpoint, range(1, 5)))
    store.prune(keep_last=1)
    asyncio.run(storage.delete("c4"))
    assert asyncio.run(storage.get_latest(workflow_name="w")) is None
    saved(storage, checkpoint(3))
    assert asyncio.run(storage.get_latest(workflow_name="w")) == checkpoint(3)


def test_lists_leave_out_checkpoints_that_retention_or_a_deletion_removed(tmp_path, store):
    storage = storage_of("statelog", tmp_path, store)
    saved(storage, *map(checkpoint, range(1, 4)), checkpoint(4, "other"))
    store.prune(keep_last=1)
    assert asyncio.run(storage.list_checkpoint_ids(workflow_name="w")) == ["c3"]
    store.delete_thread(thread_of("w"))
    assert asyncio.run(storage.list_checkpoint_ids(workflow_name="w")) == []
    assert asyncio.run(storage.list_checkpoint_ids(workflow_name="other")) == ["c4"]


def test_a_deleted_checkpoint_is_not_found(storage):
    saved(storage, checkpoint(1))
    assert asyncio.run(storage.delete("c1"))
    assert not asyncio.run(storage.delete("c1"))
    with pytest.raises(WorkflowCheckpointException, match="No checkpoint found with ID c1"):
        asyncio.run(storage.load("c1"))


def test_a_checkpoint_saved_again_is_replaced(storage):
    saved(storage, checkpoint(1), checkpoint(1, state={"other": 1}))
    assert asyncio.run(storage.load("c1")).state == {"other": 1}
    assert asyncio.run(storage.list_checkpoint_ids(workflow_name="w")) == ["c1"]


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans() | st.sampled_from([1.0, (1, 2), b"x", {1}]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["x", "y/", "~é", ""]), inner, max_size=3)
    ),
    max_leaves=10,
)
STATES = st.dictionaries(st.sampled_from(["a", "b/c", "shape", "", "d" * 300, "_executor_state"]), VALUES, max_size=4)
CALLS = st.lists(
    st.tuples(st.just("save"), st.sampled_from("pq"), STATES)
    | st.tuples(st.sampled_from(["delete", "load"]), st.integers(0, 9), st.none()),
    max_size=12,
)


async def answers(storage, calls):
    """Return the answers of a storage to a history of calls in one form."""
    given: list[object] = []
    for number, (name, argument, state) in enumerate(calls):
        if name == "save":
            given.append(await storage.save(checkpoint(number, argument, state)))
        elif name == "delete":
            given.append(await storage.delete(f"c{argument}"))
        else:
            try:
                given.append(repr(await storage.load(f"c{argument}")))
            except WorkflowCheckpointException:
                given.append("none")
    for name in "pq":
        listed = await storage.list_checkpoints(workflow_name=name)
        given.append(sorted(map(repr, listed)))
        given.append(sorted(await storage.list_checkpoint_ids(workflow_name=name)))
        given.append(repr(await storage.get_latest(workflow_name=name)))
    return given


@given(calls=CALLS)
def test_random_calls_get_the_same_answers_as_from_the_frameworks_files(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("s")
    with statelog.open(folder / "s", durability="interval") as store:
        ours = asyncio.run(answers(StatelogCheckpointStorage(store), calls))
    assert ours == asyncio.run(answers(FileCheckpointStorage(folder / "f"), calls))


@dataclass
class Ask:
    question: str


class Counter(Executor):
    def __init__(self):
        super().__init__(id="counter")

    # `from __future__ import annotations` hides the types from the decorator
    @handler(input=int, output=int, workflow_output=str)
    async def count(self, n, ctx):
        ctx.set_state("seen", [*(ctx.get_state("seen") or []), n])
        if n == 5:
            await ctx.request_info(Ask("go on?"), str)
        elif n < 8:
            await ctx.send_message(n + 1, target_id="counter")
        else:
            await ctx.yield_output(f"{ctx.get_state('seen')}")

    @response_handler(request=Ask, response=str, output=int)
    async def on(self, original_request, response, ctx):  # noqa: ARG002 - called by position
        await ctx.send_message(6, target_id="counter")


def built(storage):
    counter = Counter()
    builder = WorkflowBuilder(start_executor=counter, checkpoint_storage=storage, name="count")
    return builder.add_edge(counter, counter).build()


@pytest.mark.parametrize("kind", ["file", "statelog"])
def test_a_workflow_can_be_resumed_by_another_object(kind, tmp_path, store):
    async def resumed():
        result = await built(storage_of(kind, tmp_path, store, allowed_checkpoint_types=ALLOWED)).run(0)
        request = result.get_request_info_events()[0]
        again = storage_of(kind, tmp_path, store, allowed_checkpoint_types=ALLOWED)
        latest = await again.get_latest(workflow_name="count")
        assert len(await again.list_checkpoint_ids(workflow_name="count")) >= 6
        return await built(again).run(checkpoint_id=latest.checkpoint_id, responses={request.request_id: "yes"})

    assert asyncio.run(resumed()).get_outputs() == ["[0, 1, 2, 3, 4, 5, 6, 7, 8]"]


@pytest.fixture(params=["file", "statelog"])
def history(request, tmp_path, store):
    return FileHistoryProvider(tmp_path / "h") if request.param == "file" else StatelogHistoryProvider(store)


@pytest.fixture(params=["file", "statelog"])
def sessions(request, tmp_path, store):
    return FileSessionStore(tmp_path / "s") if request.param == "file" else StatelogSessionStore(store)


def test_a_history_has_the_messages_in_order(history):
    async def told():
        await history.save_messages("a", [Message("user", ["hi"]), Message("assistant", ["ho"])])
        await history.save_messages("a", [Message("user", ["again"])])
        return [message.text for message in await history.get_messages("a")], await history.get_messages("b")

    assert asyncio.run(told()) == (["hi", "ho", "again"], [])


def test_a_history_without_a_session_belongs_to_default(history):
    asyncio.run(history.save_messages(None, [Message("user", ["hi"])]))
    assert len(asyncio.run(history.get_messages("default"))) == 1


def test_a_session_is_loaded_with_its_state(sessions):
    session = AgentSession(session_id="x", service_session_id="y")
    session.state["k"] = {"v": [1, 2], "m": [Message("user", ["hi"])]}
    asyncio.run(sessions.set("one", session))
    assert asyncio.run(sessions.get("one")).to_dict() == session.to_dict()
    assert asyncio.run(sessions.get("two")) is None


def test_a_deleted_session_is_none_and_can_be_created_again(sessions):
    asyncio.run(sessions.set("one", AgentSession(session_id="x")))
    asyncio.run(sessions.delete("one"))
    asyncio.run(sessions.delete("one"))
    assert asyncio.run(sessions.get("one")) is None
    asyncio.run(sessions.set("one", AgentSession(session_id="z")))
    assert asyncio.run(sessions.get("one")).session_id == "z"


@pytest.mark.parametrize("id", ["", None, 7])
def test_a_session_id_must_be_a_str(sessions, id):
    for call in (sessions.get(id), sessions.set(id, AgentSession()), sessions.delete(id)):
        with pytest.raises(ValueError, match="session_id"):
            asyncio.run(call)


def test_a_session_of_a_subclass_is_refused(sessions):
    class Other(AgentSession):
        pass

    with pytest.raises(TypeError, match="AgentSession"):
        asyncio.run(sessions.set("one", Other()))
