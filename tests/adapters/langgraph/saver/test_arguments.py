"""Invalid arguments are refused with their names before anything is done."""

import uuid

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.base import empty_checkpoint

from statelog import UsageError
from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import ClosedError, LimitError, ValueTypeError

NAMED = {"configurable": {"thread_id": "n", "checkpoint_ns": ""}}
FOLLOWED = {"configurable": {"thread_id": "n", "checkpoint_ns": "", "checkpoint_id": "c"}}


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "agent.state") as opened:
        at = NAMED
        for _ in range(3):
            at = opened.put(at, empty_checkpoint(), {"source": "loop", "step": 1, "parents": {}}, {})
        yield opened


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("thread_ids", lambda saver: saver.prune("nope")),
        ("thread_ids", lambda saver: saver.prune("nope", strategy="delete")),
        ("thread_ids", lambda saver: saver.prune(b"nope")),
        ("thread_ids", lambda saver: saver.prune(5)),
        ("thread_id", lambda saver: saver.prune(["n", None], strategy="delete")),
        ("run_ids", lambda saver: saver.delete_for_runs("nope")),
        ("run_ids", lambda saver: saver.delete_for_runs(None)),
        ("thread_id", lambda saver: saver.copy_thread("n", None)),
        ("thread_id", lambda saver: saver.copy_thread("n", ["x"])),
        ("thread_id", lambda saver: saver.delete_thread(None)),
        ("thread_id", lambda saver: saver.get_tuple({"configurable": {"thread_id": b"n"}})),
        ("thread_id", lambda saver: saver.get_tuple({"configurable": 5})),
        ("thread_id", lambda saver: saver.put_writes({"configurable": ["thread_id"]}, [], "task")),
        ("channels", lambda saver: saver.get_delta_channel_history(config=NAMED, channels="zz")),
        ("filter", lambda saver: list(saver.list(NAMED, filter="x"))),
        ("filter", lambda saver: list(saver.list(NAMED, filter=[1]))),
        ("limit", lambda saver: list(saver.list(NAMED, limit="3"))),
        ("limit", lambda saver: list(saver.list(NAMED, limit=1.5))),
        ("before", lambda saver: list(saver.list(NAMED, before="x"))),
        ("before", lambda saver: list(saver.list(NAMED, before={"configurable": 5}))),
        ("before", lambda saver: list(saver.list(NAMED, before={"configurable": "x"}))),
        ("before", lambda saver: list(saver.list(NAMED, before={"configurable": {"checkpoint_id": 5}}))),
        ("thread_id", lambda saver: list(saver.list("x"))),
        ("thread_id", lambda saver: list(saver.list(5))),
        ("checkpoint", lambda saver: saver.put(NAMED, None, {}, {})),
        ("checkpoint.id", lambda saver: saver.put(NAMED, empty_checkpoint() | {"id": 5}, {}, {})),
        ("checkpoint.id", lambda saver: saver.put(NAMED, empty_checkpoint() | {"id": ""}, {}, {})),
        ("checkpoint.channel_values", lambda saver: saver.put(NAMED, {"id": "a", "channel_versions": {}}, {}, {})),
        ("checkpoint.channel_versions", lambda saver: saver.put(NAMED, {"id": "a", "channel_values": {}}, {}, {})),
        (
            "checkpoint.channel_versions",
            lambda saver: saver.put(NAMED, empty_checkpoint() | {"channel_versions": {5: 1}}, {}, {}),
        ),
        ("metadata", lambda saver: saver.put(NAMED, empty_checkpoint(), [1], {})),
        ("new_versions", lambda saver: saver.put(NAMED, empty_checkpoint(), {}, "ab")),
        ("writes", lambda saver: saver.put_writes(FOLLOWED, "ab", "t")),
        ("writes", lambda saver: saver.put_writes(FOLLOWED, ["ab"], "t")),
        ("writes", lambda saver: saver.put_writes(FOLLOWED, [("a", 1, 2)], "t")),
        ("writes", lambda saver: saver.put_writes(FOLLOWED, [(5, 1)], "t")),
        ("writes", lambda saver: saver.put_writes(FOLLOWED, 5, "t")),
        ("current", lambda saver: saver.get_next_version("x", None)),
        ("current", lambda saver: saver.get_next_version([1], None)),
        ("serde", lambda saver: StatelogSaver(saver.store, serde=5)),
        ("conflict", lambda saver: StatelogSaver(saver.store, conflict=5)),
        ("cache_size_bytes", lambda saver: StatelogSaver(saver.store, cache_size_bytes=-1)),
        ("cache_size_bytes", lambda saver: StatelogSaver(saver.store, cache_size_bytes=1e6)),
        ("cache_size_bytes", lambda saver: StatelogSaver(saver.store, cache_size_bytes=True)),
    ],
)
def test_invalid_arguments_are_refused_by_name_without_effect(saver, argument, call):
    before = len(list(saver.list(None)))
    with pytest.raises(UsageError) as caught:
        call(saver)
    assert caught.value.facts["argument"] == argument
    assert len(list(saver.list(None))) == before


@pytest.mark.parametrize("options", [{"conflict": 5}, {"serde": "x"}, {"cache_size_bytes": "64 MB"}])
def test_a_saver_with_invalid_arguments_creates_no_file(tmp_path, options):
    with pytest.raises(UsageError), StatelogSaver.open(tmp_path / "agent.state", **options):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("thread_id", [5, uuid.UUID(int=7)])
def test_an_object_with_a_str_can_name_a_thread(saver, thread_id):
    saver.put({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
    assert saver.get_tuple({"configurable": {"thread_id": str(thread_id)}}) is not None
    saver.prune((str(thread_id),), strategy="delete")
    assert saver.get_tuple({"configurable": {"thread_id": thread_id}}) is None


@pytest.mark.parametrize(
    ("path", "put"),
    [
        ("channel 'x' of thread 'n'['a'][1]['b']", {"channel_values": {"x": {"a": [1, {"b": object()}]}}}),
        ("channel 'x' of thread 'n'[0]", {"channel_values": {"x": [object()]}}),
        ("metadata 'step' of thread 'n'", {"metadata": {"step": {1, object()}}}),
        ("metadata of thread 'n'['a \\ud800 key']", {"metadata": {"a \ud800 key": 1}}),
        ("checkpoint['channel_versions']['a \\ud800 name']", {"channel_versions": {"a \ud800 name": 1}}),
    ],
)
def test_the_part_of_a_value_that_the_serialiser_refuses_is_named(saver, path, put):
    checkpoint = empty_checkpoint() | {"channel_versions": {"x": 2}, **put}
    metadata = checkpoint.pop("metadata", {})
    before = len(list(saver.list(None)))
    with pytest.raises(ValueTypeError) as caught:
        saver.put(NAMED, checkpoint, metadata, {"x": 2})
    assert caught.value.facts["path"] == path
    assert len(list(saver.list(None))) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda saver: saver.prune([]),
        lambda saver: saver.get_delta_channel_history(config=NAMED, channels=[]),
        lambda saver: saver.prune([], strategy="delete"),
        lambda saver: saver.delete_for_runs([]),
        lambda saver: saver.put_writes(FOLLOWED, [], "t"),
    ],
)
def test_a_closed_saver_refuses_even_calls_without_effect(saver, call):
    assert not call(saver)
    saver.store.close()
    with pytest.raises(ClosedError, match="closed"):
        call(saver)


@pytest.mark.parametrize("bad", ["", "x" * 500, "\ud800", None])
@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
def test_all_given_threads_are_pruned_or_none(saver, bad, strategy):
    with pytest.raises((UsageError, LimitError)):
        saver.prune(["n", bad], strategy=strategy)
    assert len(list(saver.list(None))) == 3
