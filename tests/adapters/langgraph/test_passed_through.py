"""Foreign exceptions pass through: an application sees the exception of its own code with its place."""

from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

import statelog
from statelog.adapters.langgraph import StatelogSaver, StatelogStore
from statelog.errors import ReducerTypeError, ValueTypeError

CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Vault(JsonPlusSerializer):
    """A serialiser whose key service sometimes fails."""

    down = ()

    def dumps_typed(self, obj):
        if "dumps" in self.down:
            message = "key service"
            raise ConnectionError(message)
        return super().dumps_typed(obj)

    def loads_typed(self, data):
        if "loads" in self.down or ("poison" in self.down and b"poison" in data[1]):
            message = "key service"
            raise ConnectionError(message)
        return super().loads_typed(data)


class State(TypedDict):
    x: object


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s.state", serde=Vault()) as saver:
        yield saver


def _checkpoint():
    return empty_checkpoint() | {"channel_values": {"x": {1, 2}}, "channel_versions": {"x": 1}}


def test_an_exception_of_a_serialiser_while_writing_is_raised_unchanged(saver):
    stored = saver.put(CONFIG, empty_checkpoint(), {}, {})
    saver.serde.down = ("dumps",)
    for call, notes in (
        (lambda: saver.put(stored, _checkpoint(), {}, {"x": 1}), ["channel 'x' of thread 't'"]),
        (
            lambda: saver.put(stored, empty_checkpoint(), {"source": object()}, {}),
            ["metadata 'source' of thread 't'"],
        ),
        (lambda: saver.put_writes(stored, [("x", 1)], "a"), ["write to 'x' of task 'a' of thread 't'"]),
    ):
        with pytest.raises(ConnectionError) as caught:
            call()
        assert caught.value.__notes__ == [f"statelog: raised by the serialiser for {note}" for note in notes]
    saver.serde.down = ()
    assert len(list(saver.list(CONFIG))) == 1
    assert saver.get_tuple(CONFIG).pending_writes == []


def test_an_exception_of_a_serialiser_while_reading_is_raised_unchanged(saver):
    stored = saver.put(CONFIG, _checkpoint(), {}, {"x": 1})
    saver.put_writes(stored, [("x", 1)], "a")
    listed = list(saver.list(CONFIG))
    saver.serde.down = ("loads",)
    for call in (lambda: saver.get_tuple(CONFIG), lambda: listed[0].checkpoint):
        with pytest.raises(ConnectionError) as caught:
            call()
        assert caught.value.__notes__[-1] == "statelog: raised while a checkpoint of thread 't' was decoded"
    saver.serde.down = ()
    above = saver.put(stored, empty_checkpoint(), {}, {})
    saver.serde.down = ("loads",)
    with pytest.raises(ConnectionError) as caught:
        saver.get_delta_channel_history(config=above, channels=["x"])
    assert "of thread 't'" in caught.value.__notes__[-1]


def test_the_channel_of_an_unreadable_value_is_named(saver):
    poisoned = _checkpoint() | {"channel_values": {"x": {"poison"}}}
    stored = saver.put(CONFIG, poisoned, {}, {"x": 1})
    saver.put_writes(stored, [("y", {"poison"})], "a")
    above = saver.put(stored, _checkpoint() | {"channel_values": {}}, {}, {})
    saver.serde.down = ("poison",)
    reader = StatelogSaver(saver.store, serde=saver.serde)
    for call, where in (
        (lambda: reader.get_tuple(stored), "channel 'x'"),
        (lambda: reader.get_delta_channel_history(config=above, channels=["x"]), "channel 'x'"),
        (lambda: reader.get_delta_channel_history(config=above, channels=["y"]), "a write to channel 'y'"),
    ):
        with pytest.raises(ConnectionError) as caught:
            call()
        assert caught.value.__notes__[0] == f"statelog: raised by the serialiser for {where}"
        assert "thread 't'" in caught.value.__notes__[1]


def test_a_graph_gets_the_exception_and_can_retry(saver):
    builder = StateGraph(State)
    builder.add_node("n", lambda state: {"x": [state["x"]]})
    builder.add_edge(START, "n")
    graph = builder.compile(checkpointer=saver)
    saver.serde.down = ("dumps",)
    with pytest.raises(ConnectionError):
        graph.invoke({"x": 1}, CONFIG, durability="sync")
    saver.serde.down = ()
    assert graph.invoke({"x": 1}, CONFIG, durability="sync") == {"x": [1]}


def test_a_value_refused_for_its_type_raises_value_type_error(saver):
    checkpoint = _checkpoint() | {"channel_values": {"x": object()}}
    with pytest.raises(ValueTypeError, match="the serialiser does not accept object"):
        saver.put(CONFIG, checkpoint, {}, {"x": 1})


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("embed_query", lambda store: store.search(("a",), query="wine")),
        ("embed_documents", lambda store: store.put(("a",), "k", {"text": "wine"})),
    ],
)
def test_an_exception_of_an_embedder_is_raised_unchanged(tmp_path, method, call):
    def embed(_texts):
        message = "quota"
        raise ConnectionError(message)

    with StatelogStore.open(tmp_path / "s.state", index={"dims": 2, "embed": embed}) as store:
        with pytest.raises(ConnectionError) as caught:
            call(store)
        assert caught.value.__notes__[0].startswith(f"statelog: raised by {method} of 1 texts, the first ")
        assert store.get(("a",), "k") is None


def test_an_exception_of_a_reducer_is_raised_unchanged(tmp_path):
    def merged(current, write):
        return write / current

    def refusing(_current, _write):
        raise ReducerTypeError("of an application")

    class Numbers(TypedDict):
        n: Annotated[int, merged]
        m: Annotated[int, refusing]

    with statelog.open(tmp_path / "s.state") as store:
        thread = store.thread("t", schema=Numbers)
        thread.commit({"n": 0, "m": 0})
        with pytest.raises(ZeroDivisionError) as caught:
            thread.commit({"n": 1})
        (note,) = caught.value.__notes__
        assert note.startswith("statelog: raised by python:")
        assert note.endswith("of channel 'n' of thread 't'")
        with pytest.raises(ReducerTypeError, match="of an application"):
            thread.commit({"m": 1})
        assert thread.head.version == 0
