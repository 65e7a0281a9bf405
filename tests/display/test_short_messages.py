"""A message is stored in few bytes and comes back byte for byte; a message of another form stays as it is."""

import uuid

import pytest

pytest.importorskip("langgraph")

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from statelog.adapters.kit.packed import Packed
from statelog.display.packed import Constructed, _split, unpacked
from statelog.display.short_messages import is_short, lengthen, shorten
from statelog.errors import FormatError
from statelog.format import cbor
from statelog.guard.items import UNCHANGED, redact_packed
from statelog.kernels.msgpack import split_array

SPLITS = (split_array, _split)
TEXTS = st.text(max_size=300)
IDS = st.one_of(st.none(), TEXTS, st.uuids().map(str), st.uuids().map(lambda each: str(each).upper()))
CONTENTS = st.one_of(TEXTS, st.lists(st.one_of(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3)), max_size=3))
KWARGS = st.dictionaries(
    TEXTS, st.one_of(st.none(), st.integers(-(1 << 40), 1 << 40), TEXTS, st.binary(max_size=20)), max_size=3
)
COMMON = {
    "content": CONTENTS,
    "id": IDS,
    "name": st.one_of(st.none(), TEXTS),
    "additional_kwargs": KWARGS,
    "response_metadata": KWARGS,
}
CALLS = st.lists(
    st.fixed_dictionaries({"name": TEXTS, "args": st.dictionaries(TEXTS, TEXTS, max_size=2), "id": TEXTS}), max_size=2
)
SHORT = st.one_of(
    st.builds(HumanMessage, **COMMON),
    st.builds(SystemMessage, **COMMON),
    st.builds(AIMessage, **COMMON, tool_calls=CALLS),
    st.builds(AIMessageChunk, **COMMON),
    st.builds(
        ToolMessage,
        **COMMON,
        tool_call_id=TEXTS,
        artifact=st.one_of(st.none(), TEXTS, st.just(b"\xc4\x10" + bytes(16))),
        status=st.sampled_from(["success", "error"]),
    ),
)
serde = JsonPlusSerializer()


def packed(value):
    return serde.dumps_typed(value)[1]


@given(SHORT)
def test_a_message_comes_back_byte_for_byte(message):
    data = packed(message)
    short = shorten(data, split_array)
    assert is_short(short)
    assert len(short) < len(data) - 100
    for split in SPLITS:
        assert shorten(data, split) == short
        assert lengthen(short, split) == data


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("id", [None, "run-1", str(uuid.UUID(int=7))])
def test_a_text_of_any_size_comes_back(size, id):
    data = packed(HumanMessage("x" * size, id=id))
    assert lengthen(shorten(data, split_array), split_array) == data


@pytest.mark.parametrize(
    "value",
    [
        ChatMessage("x", role="r"),
        FunctionMessage("x", name="f"),
        HumanMessage("x", example=True),
        ("user", "x"),
        uuid.uuid4(),
        {"content": "x"},
    ],
)
def test_another_value_stays_as_it_is(value):
    data = packed(value)
    assert shorten(data, split_array) is data
    assert lengthen(data, split_array) is data


def test_a_message_in_another_form_stays_as_it_is():
    data = packed(HumanMessage("x"))
    for other in (
        data.replace(b"\xb3model_validate_json", b"\xb3model_validate_JSON"),
        data.replace(b"\xa4type\xa5human", b"\xa4tipe\xa5human"),
        b"\xc8\x00" + data[1:],  # a head that is not the shortest
        packed(HumanMessage("x", id="i")).replace(b"\xa2id\xa1i", b"\xa2id\xc4\x10" + bytes(16)),
    ):
        assert lengthen(shorten(other, split_array), split_array) == other
        assert not is_short(shorten(other, split_array))


@given(st.binary(max_size=40))
def test_an_extension_of_the_same_code_comes_back(body):
    data = b"\xc7" + bytes([len(body)]) + b"\x52" + body
    assert lengthen(shorten(data, split_array), split_array) == data


def test_a_class_of_a_newer_release_is_named():
    short = bytearray(shorten(packed(HumanMessage("x")), split_array))
    short[4] = 77
    with pytest.raises(FormatError, match="newer release") as caught:
        lengthen(bytes(short), split_array)
    assert caught.value.number == 77


class Hiding(type(UNCHANGED)):
    def redact_field(self, data, _path):
        return data.replace(b"secret", b"[REDACTED key]")


@given(SHORT.filter(lambda message: not isinstance(message.content, list)), TEXTS)
def test_a_walk_finds_the_same_texts_in_both_forms(message, text):
    message.content = f"{text}secret{text}"
    data = packed(message)
    redacted = redact_packed(shorten(data, split_array), (), Hiding())
    assert lengthen(redacted, split_array) == redact_packed(data, (), Hiding())
    assert b"[REDACTED key]" in redacted


def test_a_short_message_is_shown_without_the_adapter_and_with_it():
    data = packed(AIMessage("soup", id=str(uuid.uuid4())))
    item = cbor.encode(Packed(shorten(data, split_array)))
    assert cbor.decode(item) == Packed(data)
    shown = unpacked(Packed(shorten(data, split_array)))
    assert isinstance(shown, Constructed)
    assert shown == unpacked(Packed(data))
    assert shown.short_name == "AIMessage"
