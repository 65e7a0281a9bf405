"""Values are read as by LangGraph's serialiser, and a put writes what has changed, however it was changed."""

from __future__ import annotations

import dataclasses
import enum
from collections import OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

import pydantic
from histories import Line, config
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from naming import named
from pydantic import BaseModel, computed_field, field_serializer
from pydantic import v1 as pydantic_v1

from statelog.adapters.kit.items import pack_list
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move.untouched import UntouchedSerializer
from statelog.adapters.langgraph.values.codec import ValueCodec, is_snapshot, join
from statelog.adapters.langgraph.values.frozen import common_ends, freeze
from statelog.errors import ValueTypeError


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(BaseModel):
    x: int
    colour: Colour = Colour.RED
    extra: dict[str, Any] = {}


class Corner(BaseModel):
    x: int


class Rounded(BaseModel):
    x: float

    @field_serializer("x")
    def _round(self, value):
        return round(value)


class Doubled(BaseModel):
    x: int

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.x


class Old(pydantic_v1.BaseModel):
    x: int
    names: list[str] = []


@dataclasses.dataclass
class Plain:
    x: int
    colour: Colour = Colour.RED


VALUES = [
    None,
    True,
    0,
    -(2**63),
    2**64 - 1,
    1.5,
    float("inf"),
    "text",
    "\0 ünï 🎉",
    "x" * 100_000,
    b"bytes",
    bytearray(b"more"),
    [],
    ["a", "b" * 200],
    [["nested " * 20], [1, 2, 3]],
    list(range(1000)),
    ("tuple", 1),
    {},
    {"a": {"b": [1, None, {"c": ()}]}, 1: "int key"},
    OrderedDict(b=1, a=2),
    defaultdict(list, {"a": [1]}),
    {1, 2, 3},
    frozenset("ab"),
    deque([1, 2]),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    date(2026, 1, 2),
    timedelta(days=1, microseconds=3),
    UUID(int=7),
    Decimal("1.10"),
    Path("a/b"),
    Colour.RED,
    Level.HIGH,
    Point(x=1, extra={"a": [1]}),
    Old(x=1, names=["a"]),
    Plain(2),
    [Plain(1), Point(x=2), Colour.RED, {"in": Plain(3)}],
    [HumanMessage("hello " * 20, id="1"), AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}])],
    [ToolMessage("result " * 20, tool_call_id="c", artifact={"rows": [1, 2]})],
]


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability="interval") as opened:
        yield opened
        assert opened.store.verify().ok


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {named(value)}")
def test_a_value_is_restored_as_by_an_in_memory_saver(saver, value):
    expected = Line(InMemorySaver()).put(x=value)
    found = Line(saver).put(x=value)
    assert found == expected
    assert type(found["x"]) is type(expected["x"])
    (write,) = _written(saver, value)
    assert write == ("task", "x", expected["x"])


def _written(saver, value):
    place = config("writes", "", "1ef00000-0000-6000-8000-000000000001")
    saver.put_writes(place, [("x", value)], "task")
    Line(saver, "writes").put(y=1)
    return saver.get_tuple(place).pending_writes


def test_a_numpy_array_is_restored(saver):
    numpy = pytest.importorskip("numpy", reason="needs numpy")
    for value in (numpy.arange(12).reshape(3, 4), numpy.array([1.5, 2.5], dtype="float32")):
        found = Line(saver, str(value.dtype)).put(x=value)["x"]
        assert found.dtype == value.dtype
        assert numpy.array_equal(found, value)


# --- changed in place ----------------------------------------------------------------


def items():
    return [
        {"id": 1, "text": "a" * 50, "deep": {"list": [1, {"leaf": 1}]}},
        HumanMessage("b" * 50, id="2", additional_kwargs={"deep": [1]}),
        AIMessage("c" * 50, id="3", tool_calls=[{"name": "f", "args": {"a": [1]}, "id": "x"}]),
        Point(x=4, extra={"name": "d" * 50}),
        Plain(5),
        Old(x=6, names=["e" * 50]),
        [1, 2, ["f" * 50]],
        Rounded(x=1.2),
    ]


def change_leaf(held):
    held[0]["deep"]["list"][1]["leaf"] = 2


def change_type(held):
    held[0]["id"] = True


def change_zero(held):
    held[0]["id"] = 0.0


def change_order(held):
    held[0]["text"] = held[0].pop("text")


def change_message(held):
    held[1].content += "!"


def change_keywords(held):
    held[1].additional_kwargs["deep"].append(2)


def change_call(held):
    held[2].tool_calls[0]["args"]["a"][0] = 9


def change_model(held):
    held[3].extra["name"] = "z" * 50


def change_enum(held):
    held[3].colour = None


def change_dataclass(held):
    held[4].x = 99


def change_old_model(held):
    held[5].names.append("z")


def change_nested_list(held):
    held[6][2][0] = "z"


def swap(held):
    held[0], held[6] = held[6], held[0]


def delete_first(held):
    del held[0]


def insert_first(held):
    held.insert(0, "new " * 20)


def delete_all(held):
    held.clear()


CHANGES = [
    change_leaf,
    change_type,
    change_zero,
    change_order,
    change_message,
    change_keywords,
    change_call,
    change_model,
    change_enum,
    change_dataclass,
    change_old_model,
    change_nested_list,
    swap,
    delete_first,
    insert_first,
    delete_all,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("padding", [0, 40])
def test_changes_in_place_are_stored(saver, change, padding):
    held = [*items(), *[{"filler": f"{number} {'x' * 60}"} for number in range(padding)]]
    lines = (Line(InMemorySaver()), Line(saver))
    for line in lines:
        line.put(x=held)
    for _ in range(3):
        expected, found = [line.put(x=held) for line in lines]
        assert found == expected
    change(held)
    expected, found = [line.put(x=held) for line in lines]
    assert found == expected
    if change is change_order:
        assert list(found["x"][0]) == list(expected["x"][0]) == ["id", "deep", "text"]
    if change is change_zero:
        held[0]["id"] = -0.0
        assert str(lines[1].put(x=held)["x"][0]["id"]) == "-0.0"


def is_still(was, value):
    return common_ends(freeze([was]), [value])[0] == 1


def test_values_with_equal_frozen_forms_have_equal_serialisations():
    pairs = [(1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ([], ()), ([], {}), (None, []), ({"a": 1}, {"a": True})]
    pairs += [({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: 1}, {True: 1}), (["a"], ["a", None]), ([[]], [None])]
    pairs += [(Point(x=1), Point(x=1, extra={"a": 1})), (AIMessage("a"), HumanMessage("a"))]
    for a, b in pairs:
        assert not is_still(a, b), (a, b)
        assert not is_still([a], [b]), (a, b)
        assert not is_still({"k": a}, {"k": b}), (a, b)
    for value in ("a", 1, [1, {"a": [None]}], Corner(x=1), HumanMessage("a", additional_kwargs={"a": 1})):
        assert is_still(value, value)


@pytest.mark.parametrize("value", [Rounded(x=1.0), Doubled(x=1), Plain(1), Old(x=1), Colour.RED, {1}, object()])
def test_values_with_several_serialisations_prove_nothing(value):
    assert not is_still(value, value)
    assert not is_still({"in": [value]}, {"in": [value]})


def test_a_subclass_of_str_is_not_a_text():
    class Text(str):
        __slots__ = ()

    assert not is_still("a", Text("a"))
    assert not is_still({"a": 1}, {Text("a"): 1})


# --- serialisers -----------------------------------------------------------------------


class Cipher:
    """Exclusive or, with a nonce: not for use."""

    def __init__(self):
        self.nonce = 0

    def encrypt(self, plaintext):
        self.nonce = self.nonce % 255 + 1
        return "xor", bytes([self.nonce, *[byte ^ self.nonce for byte in plaintext]])

    def decrypt(self, name, ciphertext):
        assert name == "xor"
        return bytes(byte ^ ciphertext[0] for byte in ciphertext[1:])


def test_encrypted_values_stay_encrypted(tmp_path):
    secret = "a secret that is long enough to be looked for"
    serde = EncryptedSerializer(Cipher())
    with StatelogSaver.open(tmp_path / "s", serde=serde) as saver:
        line = Line(saver)
        for turn in range(5):
            assert line.put(x=[secret] * turn)["x"] == [secret] * turn
        saver.put_writes(line.config, [("x", secret)], "task")
        assert saver.get_tuple(line.config).pending_writes == [("task", "x", secret)]
    assert secret.encode() not in (tmp_path / "s").read_bytes()


def test_an_allow_list_is_honoured(tmp_path):
    with StatelogSaver.open(tmp_path / "s", serde=JsonPlusSerializer(allowed_msgpack_modules=None)) as saver:
        strict = Line(saver)
        strict.put(x=Point(x=1))
        assert isinstance(strict.read()["x"], dict)
        loose = saver.with_allowlist([(Point.__module__, "Point")])
        assert isinstance(loose.get_tuple(strict.config).checkpoint["channel_values"]["x"], Point)
        assert loose.store is saver.store


def test_pickle_is_used_only_if_enabled(tmp_path):
    with StatelogSaver.open(tmp_path / "a") as saver, pytest.raises(ValueTypeError, match="channel 'x' of thread 't'"):
        Line(saver).put(x=object)
    with StatelogSaver.open(tmp_path / "b", serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        assert Line(saver).put(x=object)["x"] is object


def test_a_refused_value_stores_nothing(saver):
    line = Line(saver)
    line.put(x=1)
    before = saver.store.last_lsn
    with pytest.raises(ValueTypeError, match="channel 'y' of thread 't'") as raised:
        line.put(x=2, y=lambda: None)
    assert raised.value.type == "function"
    with pytest.raises(TypeError, match="write to 'y' of task 'task'"):
        saver.put_writes(line.config, [("x", 1), ("y", lambda: None)], "task")
    assert saver.store.last_lsn == before


def test_pydantic_has_the_major_version_that_is_supported():
    assert pydantic.VERSION.startswith("2.")


@pytest.mark.parametrize("serde", [JsonPlusSerializer(), UntouchedSerializer()], ids=lambda serde: type(serde).__name__)
@pytest.mark.parametrize("count", [0, 1, 3, 20, 900])
@pytest.mark.parametrize("item", [1, "x" * 90, HumanMessage("m" * 50, id="1")], ids=lambda item: type(item).__name__)
def test_the_stored_form_of_a_delta_channel_is_restored(serde, count, item):
    codec, data = ValueCodec(serde), JsonPlusSerializer().dumps_typed(_DeltaSnapshot([item] * count))[1]
    value = serde.loads_typed(("msgpack", data))
    encoded = codec.encode(value, "value")
    assert is_snapshot(encoded) == (count > 0 and item != 1)
    if isinstance(encoded, bytes):
        decoded = [codec.decode(encoded)] * 2
    else:
        parts = [encoded[at : at + 7] for at in range(0, len(encoded), 7)]
        decoded = [codec.decode([join(part) for part in parts]), codec.decode(pack_list(encoded))]
    assert [type(each) for each in decoded] == [type(value)] * 2
    assert [serde.dumps_typed(each)[1] for each in decoded] == [data] * 2


class Growing(BaseModel):
    """Lengthens the list that it is in when that is looked at, as another OS thread might."""

    text: str = ""

    def __getattr__(self, _name):
        listed.append(AIMessage("late"))


listed = []


def test_a_list_may_grow_while_it_is_put(tmp_path):
    growing = Growing.__new__(Growing)
    object.__setattr__(growing, "__dict__", {"text": "x" * 40})
    with StatelogSaver.open(tmp_path / "s") as saver:
        at = config("t")
        for number in range(3):
            listed[:] = [AIMessage(f"{index} {'x' * 40}") for index in range(number + 1)] + [growing]
            versions = {"messages": str(number)}
            checkpoint = {**empty_checkpoint(), "channel_values": {"messages": listed}, "channel_versions": versions}
            at = saver.put(at, checkpoint, {"source": "loop", "step": 0}, versions)
            found = saver.get_tuple(at).checkpoint["channel_values"]["messages"]
            assert found[: number + 1] == listed[: number + 1]
            assert len(listed) > number + 2
