"""Results of `list` are decoded on first use, which makes no visible difference."""

from __future__ import annotations

import copy
import pickle

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import config
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.copies import Making

MESSAGES = [
    HumanMessage("h" * 50, id="1", additional_kwargs={"deep": [1, {"a": 2}]}),
    AIMessage("a" * 50, id="2", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}]),
    {"a": [1, {"b": "c" * 50}]},
    ["d" * 50, [1, 2]],
    *[HumanMessage(f"{number} " * 30, id=str(number)) for number in range(3, 60)],
]


def fill(saver, count=12):
    place = config("t")
    for number in range(count):
        version = f"{number + 1:032}.0"
        checkpoint = {
            "v": 2,
            "id": f"1ef00000-0000-6000-8000-{number:012}",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {"x": MESSAGES[: 40 + number]},
            "channel_versions": {"x": version},
            "versions_seen": {},
            "updated_channels": None,
        }
        place = saver.put(place, checkpoint, {"step": number}, {"x": version})
        saver.put_writes(place, [("x", MESSAGES[number])], "task")
    return saver


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability="interval") as opened:
        yield fill(opened)


USES = [
    tuple,
    list,
    lambda found: [*found],
    lambda found: (found[0], found[1], found[-1], found[1:3]),
    lambda found: (found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes),
    lambda found: found._asdict(),
    lambda found: found._replace(metadata={}),
    lambda found: pickle.loads(pickle.dumps(found)),
    copy.copy,
    copy.deepcopy,
    lambda found: len(repr(found)),
    lambda found: found.__add__((1,)),
    lambda found: found.count(None),
    len,
    lambda found: found.index(None) if None in tuple(found) else found.index(found.metadata),
    lambda found: found * 2,
    lambda found: (None in found, {} in found),
    lambda found: (found == CheckpointTuple(*found), CheckpointTuple(*found) == found),
    lambda found: (found != CheckpointTuple(*found), CheckpointTuple(*found) != found),
]


@pytest.mark.parametrize("use", USES)
def test_a_listed_tuple_behaves_like_any_other(saver, use):
    expected = fill(InMemorySaver())
    for mine, theirs in zip(saver.list(config("t")), expected.list(config("t")), strict=True):
        assert use(mine) == use(theirs)
        assert isinstance(mine, CheckpointTuple)


def test_a_listed_tuple_can_be_unpacked(saver):
    for found in saver.list(config("t")):
        place, checkpoint, metadata, _parent, writes = found
        assert (place, checkpoint, metadata, writes) == (
            found.config,
            found.checkpoint,
            found.metadata,
            found.pending_writes,
        )
        match found:
            case (_, {"id": id}, *_):
                assert id == place["configurable"]["checkpoint_id"]


def test_a_listed_tuple_is_decoded_on_first_use(saver):
    class Counting(JsonPlusSerializer):
        def loads_typed(self, data):
            loaded.append(data[0])
            return super().loads_typed(data)

    loaded = []
    counting = StatelogSaver(saver.store, Counting())
    found = list(counting.list(config("t")))
    assert loaded == []
    assert found[3].metadata == {"step": 8}
    assert loaded == []
    assert found[3].checkpoint["channel_values"]["x"] == MESSAGES[:48]
    assert loaded


def test_tuples_of_one_list_share_no_mutable_object(saver):
    found = list(saver.list(config("t")))
    for each in found:
        for value in each.checkpoint["channel_values"]["x"]:
            if isinstance(value, HumanMessage):
                value.content = "changed"
                value.additional_kwargs.setdefault("deep", []).append("changed")
                value.more = "changed"
            elif isinstance(value, AIMessage):
                value.tool_calls[0]["args"]["x"].append("changed")
            elif isinstance(value, dict):
                value["a"][1]["b"] = "changed"
            else:
                value[1].append("changed")
        later = list(saver.list(config("t")))
        assert later[0].checkpoint["channel_values"]["x"] == MESSAGES[:51]
    again = list(saver.list(config("t")))
    first, second = again[0].checkpoint["channel_values"]["x"], again[1].checkpoint["channel_values"]["x"]
    assert first[:50] == second[:50]
    assert not _containers(first) & _containers(second)
    assert [message.model_fields_set for message in first[:2]] == [message.model_fields_set for message in second[:2]]


def _containers(value):
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {id(value)}.union(*map(_containers, inner))
    if isinstance(value, BaseModel):
        parts = (value.__dict__, value.__pydantic_extra__, value.additional_kwargs)
        return {id(value), id(value.__pydantic_fields_set__)}.union(*map(_containers, parts))
    return set()


class Counted(BaseModel):
    x: int = 0

    def model_post_init(self, _context):
        made.append(self)


class Initialised(BaseModel):
    x: int = 0

    def __init__(self, **fields):
        super().__init__(**fields)
        made.append(self)


made: list = []


@pytest.mark.parametrize("value", [Counted(), Initialised(), {1}, object(), [Counted()], {"a": {"b": object()}}])
def test_objects_with_side_effects_in_their_constructors_are_not_copied(value):
    assert Making(100).maker(value) is None


def test_copies_of_listed_tuples_are_equal():
    for value in MESSAGES:
        make = Making(100).maker(value)
        assert make() == value
        assert make() is not value
        assert repr(make()) == repr(value)
        assert type(make()) is type(value)
