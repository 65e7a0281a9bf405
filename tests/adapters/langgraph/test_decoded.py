"""A value that is read again is copied, not decoded, which only saves time."""

from __future__ import annotations

import inspect
import sys
import threading
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import config
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, Field, model_validator

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.codec import Joined, ValueCodec, join, pack
from statelog.adapters.langgraph.values.copies import Decoded, DecodedBy
from statelog.adapters.langgraph.values.list_items import split_list


class Counted(BaseModel):
    """A class whose construction has side effects, so it is never copied."""

    x: str = ""
    tags: list[str] = Field(default_factory=list)

    def model_post_init(self, _context: Any) -> None:
        made.append(self.x)


made: list[str] = []

MESSAGES = [
    HumanMessage("h" * 50, id="1", additional_kwargs={"deep": [1, {"a": 2}]}),
    AIMessage("a" * 50, id="2", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}]),
    {"a": [1, {"b": "c" * 50}]},
    ["d" * 50, [1, 2]],
    *[HumanMessage(f"{number} " * 30, id=str(number)) for number in range(3, 60)],
]


def put(saver, values, *, number=0, parent=None):
    version = f"{number + 1:032}.0"
    checkpoint = {
        "v": 2,
        "id": f"1ef00000-0000-6000-8000-{number:012}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"x": values},
        "channel_versions": {"x": version},
        "versions_seen": {},
        "updated_channels": None,
    }
    return saver.put(parent or config("t"), checkpoint, {"step": number}, {"x": version})


def got(saver):
    return saver.get_tuple(config("t")).checkpoint["channel_values"]["x"]


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability="interval") as opened:
        yield opened


@pytest.fixture
def decoded(monkeypatch):
    """The number of decoded list items."""
    counts = []
    decode = ValueCodec.decode_items

    def counting(self, part):
        counts.append(part.number)
        return decode(self, part)

    monkeypatch.setattr(ValueCodec, "decode_items", counting)
    return counts


def spoil(values):
    """Change every mutable part of a value."""
    for value in values:
        if isinstance(value, AIMessage):
            value.tool_calls[0]["args"]["x"].append("spoilt")
        elif isinstance(value, HumanMessage):
            value.content = "spoilt"
            value.additional_kwargs.setdefault("deep", []).append("spoilt")
            value.more = "spoilt"
        elif isinstance(value, dict):
            value["a"][1]["b"] = "spoilt"
        else:
            value[1].append("spoilt")
    values.clear()


def test_changes_by_one_reader_are_not_seen_by_others(saver, decoded):
    put(saver, MESSAGES)
    fields: list[set[str]] = []
    for reading in range(6):
        found = got(saver)
        assert found == MESSAGES
        fields = fields or [{*message.model_fields_set} for message in found[:2]]
        assert [message.model_fields_set for message in found[:2]] == fields
        assert sum(decoded) == len(MESSAGES) * min(reading + 1, 2), "it is decoded twice, and copied from then on"
        spoil(found)


def test_pending_writes_are_copied_as_well(saver):
    place = put(saver, [])
    saver.put_writes(place, [("x", MESSAGES[:3]), ("x", "alone")], "task")
    for _ in range(4):
        writes = saver.get_tuple(config("t")).pending_writes
        assert [write[2] for write in writes] == [MESSAGES[:3], "alone"]
        spoil(writes[0][2])


def test_only_new_items_of_a_growing_list_are_decoded(saver, decoded):
    place = None
    for number in range(40):
        place = put(saver, MESSAGES[: number + 10], number=number, parent=place)
        assert got(saver) == MESSAGES[: number + 10]
    assert sum(decoded) < 40 * 30 / 2


def test_values_that_cannot_be_copied_are_decoded_each_time(saver):
    values = [Counted(x=f"{number}" * 40) for number in range(8)]
    put(saver, values)
    for _ in range(4):
        made.clear()
        found = got(saver)
        assert found == values
        assert made == [value.x for value in values]
        found[0].tags.append("spoilt")


class Linked(BaseModel):
    """A model that refers to itself after validation, and is kept by its class."""

    name: str = ""
    parent: Any = Field(default=None, exclude=True, repr=False)
    children: list[Linked] = Field(default_factory=list)

    @model_validator(mode="after")
    def link(self):
        for child in self.children:
            child.parent = self
        registry[self.name] = self
        return self


registry: dict[str, Linked] = {}


def test_models_of_the_user_are_decoded_each_time(saver):
    """Their validators may do anything: count, keep values, or pass them on."""
    put(
        saver,
        [HumanMessage("x" * 50, id="1"), *[Linked(name=f"{n}" * 40, children=[Linked(name="c")]) for n in range(5)]],
    )
    for _ in range(4):
        found = got(saver)[1:]
        assert [each.name for each in found] == [f"{n}" * 40 for n in range(5)]
        assert all(each is registry[each.name] and each.children[0].parent is each for each in found)
        found[0].name = registry[found[1].name].name = "spoilt"


def test_a_redefined_class_is_used(saver, monkeypatch):
    put(saver, [HumanMessage("x" * 50, id="1"), *[Counted(x="y" * 50)] * 5])
    for _ in range(3):
        assert type(got(saver)[1]) is Counted

    class Anew(BaseModel):
        x: str = ""
        tags: list[str] = Field(default_factory=list)

    monkeypatch.setattr(sys.modules[__name__], "Counted", Anew)
    for _ in range(3):
        assert type(got(saver)[1]) is Anew


def test_deep_or_fragmented_values_are_decoded_each_time(saver):
    deep: Any = "bottom"
    for _ in range(240):
        deep = [deep]
    many = [{"a": 1}] * 2000
    message = HumanMessage([{"type": "text", "text": "t" * 40}], additional_kwargs={"many": many, "deep": deep})
    for values in ([message] * 4, [many] * 4, [deep] * 40, [{"a": "b" * 50}] * 50):
        put(saver, values)
        limit = sys.getrecursionlimit()
        try:
            for _ in range(4):
                sys.setrecursionlimit(len(inspect.stack(0)) + 250)
                found = got(saver)
                sys.setrecursionlimit(limit)
                assert found == values
        finally:
            sys.setrecursionlimit(limit)
    held = saver._decoded.by(ValueCodec(saver.serde))._makers.values()
    assert not any(type(makers) is list for makers in held)


def test_pieces_count_towards_the_bound():
    decoding = DecodedBy(ValueCodec(JsonPlusSerializer()), size_bytes_max=200_000)
    message = AIMessage("a", id="1", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": f"{n}"} for n in range(4)])
    for number in range(100):
        _kind, data = JsonPlusSerializer().dumps_typed([message.model_copy(update={"id": f"{number}" * 20})] * 4)
        part = join([pack(item) for item in split_list(data) or ()])
        assert decoding.items(part) == decoding.items(part) == decoding.items(part)
        kept = sum(type(makers) is list for makers in decoding._makers.values())
        assert kept * 4 * 10 * 512 < 200_000


def test_a_serialiser_with_replaced_methods_is_called_each_time(saver):
    saver.serde = JsonPlusSerializer()  # Its serialiser is shared by all savers.
    put(saver, [HumanMessage("x" * 50, id="1")] * 8)
    loaded, loads = [], saver.serde.loads_typed
    for _ in range(3):
        got(saver)
    saver.serde.loads_typed = lambda data: (loaded.append(data), loads(data))[1]
    for _ in range(3):
        loaded.clear()
        got(saver)
        assert len(loaded) > 1


def test_a_different_serialiser_gets_no_decoded_values(saver):
    """A stricter saver does not get values that another saver has decoded."""
    values = [HumanMessage("x" * 50, id="1"), Counted(x="y" * 50)]
    put(saver, [values[0]] * 8)
    for _ in range(4):
        assert got(saver)[0] == values[0]
    permissive = saver.serde

    class Other(JsonPlusSerializer):
        def loads_typed(self, data):
            loaded.append(data)
            return super().loads_typed(data)

    loaded: list[Any] = []
    saver.serde = Other()
    for _ in range(3):
        loaded.clear()
        assert got(saver)[0] == values[0]
        assert len(loaded) > 1
    saver.serde = JsonPlusSerializer(__unpack_ext_hook__=lambda _code, _data: "hooked")
    assert got(saver) == ["hooked"] * 8
    assert got(saver) == ["hooked"] * 8
    saver.serde = permissive
    assert got(saver)[0] == values[0]


def test_a_stricter_clone_gets_no_decoded_values(tmp_path):
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    value = Counted(x="y" * 50)
    with StatelogSaver.open(tmp_path / "s", serde=strict) as saver:
        put(saver, [value] * 8)
        clone = saver.with_allowlist([(Counted.__module__, "Counted")])
        assert clone is not saver
        for _ in range(4):
            assert got(clone) == [value] * 8
            refused = got(saver)
            assert all(not isinstance(each, Counted) for each in refused)


@given(st.lists(st.integers(0, 30), max_size=60))
def test_the_cache_is_bounded(order):
    decoding = DecodedBy(ValueCodec(JsonPlusSerializer()), size_bytes_max=20_000)
    parts = []
    for number in range(31):
        _kind, data = JsonPlusSerializer().dumps_typed([f"{number} " * 40] * 3)
        items = split_list(data)
        assert items is not None
        parts.append(join([pack(item) for item in items]))
    for number in order:
        assert decoding.items(parts[number]) == [f"{number} " * 40] * 3
        held = sum(len(data) + 3 * 512 for data in decoding._makers)
        assert held <= 20_000
        assert decoding._size >= held


def test_an_empty_part_and_one_that_cannot_be_decoded():
    decoding = DecodedBy(ValueCodec(JsonPlusSerializer()))
    for _ in range(4):
        assert decoding.items(Joined(0, b"")) == []
    wrong = Joined(1, b"\xc1")
    for _ in range(3):
        with pytest.raises(ValueError, match="invalid type"):
            decoding.items(wrong)


def test_the_cache_lives_as_long_as_the_serialiser():
    decoded, serde = Decoded(), JsonPlusSerializer()
    first = decoded.by(ValueCodec(serde))
    assert decoded.by(ValueCodec(serde)) is first
    assert decoded.by(ValueCodec(JsonPlusSerializer())) is not first


def test_several_threads_can_read_concurrently(saver):
    place = put(saver, MESSAGES)
    wrong = []

    def read():
        for _ in range(30):
            found = got(saver)
            if found[: len(MESSAGES)] != MESSAGES:
                wrong.append(found)
            spoil(found)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(1, 10):
        place = put(saver, [*MESSAGES, *MESSAGES[4 : 4 + number]], number=number, parent=place)
    for reader in readers:
        reader.join()
    assert not wrong


@pytest.mark.parametrize(("cache_size_bytes", "is_kept"), [(1_000_000, True), (1000, False), (0, False)])
def test_values_larger_than_the_cache_are_decoded_each_time(saver, decoded, cache_size_bytes, is_kept):
    messages = [HumanMessage(f"{number} " * 50, id=str(number)) for number in range(400)]
    put(saver, messages)
    sized = StatelogSaver(saver.store, cache_size_bytes=cache_size_bytes)
    for _ in range(3):
        assert got(sized) == messages
    decoded.clear()
    assert got(sized) == messages
    assert (sum(decoded) == 0) is is_kept
    assert len(sized._decoded.by(sized._codec)._parts) > 1 or not is_kept
