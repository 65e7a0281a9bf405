"""Custom serialisers, and LangGraph's own, unchanged or modified."""

from __future__ import annotations

import subprocess
import sys
import types
import zlib

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import Line, config
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.codec import ValueCodec
from statelog.errors import ValueTypeError


class Reversed:
    """A serialiser of the old kind."""

    def dumps(self, value):
        return repr(value)[::-1].encode()

    def loads(self, data):
        import ast

        return ast.literal_eval(data.decode()[::-1])


def test_a_custom_serialiser_is_used(tmp_path):
    with StatelogSaver.open(tmp_path / "s", serde=Reversed()) as saver:
        line = Line(saver)
        for value in ([1, 2, 3], ["x" * 100] * 5, {"a": [1, None]}, None):
            assert line.put(x=value)["x"] == value
        assert len(list(saver.list(config("t")))) == 4


class Compressed(JsonPlusSerializer):
    """Its bytes are not msgpack, although it says so."""

    def dumps_typed(self, value):
        kind, data = super().dumps_typed(value)
        return kind, zlib.compress(data)

    def loads_typed(self, data):
        return super().loads_typed((data[0], zlib.decompress(data[1])))


def test_values_wrongly_marked_as_msgpack_are_kept_unchanged(tmp_path):
    written = [("x", [1, "x" * 100] * 20), ("y", None)]
    with StatelogSaver.open(tmp_path / "s", serde=Compressed()) as saver:
        line = Line(saver)
        for value in ([1, 2, 3], ["x" * 100] * 5, {"a": [1, None]}, None):
            assert line.put(x=value)["x"] == value
        at = saver.get_tuple(config("t")).config
        saver.put_writes(at, written, "task")
        found = list(saver.list(config("t")))
        assert len(found) == 4
        assert found[0].pending_writes == [("task", *write) for write in written]


class Masked(JsonPlusSerializer):
    """A serialiser whose bytes no other serialiser can read."""

    def dumps_typed(self, value):
        return "masked", repr(value)[::-1].encode()

    def loads_typed(self, data):
        return Reversed().loads(data[1]) if data[0] == "masked" else pytest.fail("of another serialiser")


def on_the_instance(serde, _monkeypatch):
    serde.dumps_typed = types.MethodType(Masked.dumps_typed, serde)
    serde.loads_typed = types.MethodType(Masked.loads_typed, serde)


def on_the_class(_serde, monkeypatch):
    monkeypatch.setattr(JsonPlusSerializer, "dumps_typed", Masked.dumps_typed)
    monkeypatch.setattr(JsonPlusSerializer, "loads_typed", Masked.loads_typed)


def by_another_class(serde, _monkeypatch):
    serde.__class__ = Masked


@pytest.mark.parametrize("change", [on_the_instance, on_the_class, by_another_class])
def test_a_serialiser_changed_later_is_called_for_every_value(tmp_path, monkeypatch, change):
    serde = JsonPlusSerializer()
    with StatelogSaver.open(tmp_path / "s", serde=serde) as saver:
        Line(saver).put(x=1)
        change(serde, monkeypatch)
        line = Line(saver)
        for value in ("told to nobody", 12345678901, ["told to nobody"] * 9):
            assert line.put(x=value)["x"] == value
            saver.put_writes(line.config, [("x", value)], "task")
        saver.store.flush()
        assert b"told" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@given(st.text() | st.characters(categories=["Cs"]) | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.booleans())
def test_plain_values_are_packed_as_the_serialiser_packs_them(value):
    serde = JsonPlusSerializer()
    try:
        expected = serde.dumps_typed(value)
    except Exception:  # noqa: BLE001 - whatever it refuses is refused
        with pytest.raises(ValueTypeError):
            ValueCodec(serde).dump(value, "it")
    else:
        assert ValueCodec(serde).dump(value, "it") == expected


PATCHED_EARLY = """
import functools
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

own = JsonPlusSerializer.dumps_typed

@functools.wraps(own)
def patched(self, value):
    return own(self, value)

JsonPlusSerializer.dumps_typed = patched
from statelog.adapters.langgraph.values.codec import ValueCodec

assert not ValueCodec(JsonPlusSerializer()).proves
JsonPlusSerializer.dumps_typed = own
assert ValueCodec(JsonPlusSerializer()).proves
"""


def test_a_serialiser_changed_before_the_import_of_the_adapter_is_called_for_every_value():
    subprocess.run([sys.executable, "-c", PATCHED_EARLY], check=True)


class Numbering(JsonPlusSerializer):
    """Returns a number instead of bytes."""

    def dumps_typed(self, _value):
        return "number", 7


def test_values_that_are_not_bytes_are_refused(tmp_path):
    with StatelogSaver.open(tmp_path / "s", serde=Numbering()) as saver:
        with pytest.raises(ValueTypeError, match="channel 'x' of thread 't'"):
            Line(saver).put(x="a")
        assert list(saver.list(config("t"))) == []


@pytest.mark.parametrize("kind", [None, 5, b"p"])
def test_a_serialiser_that_names_no_type_is_refused_before_anything_is_stored(tmp_path, kind):
    plain = JsonPlusSerializer()
    serde = types.SimpleNamespace(dumps_typed=lambda value: (kind, plain.dumps_typed(value)[1]), loads_typed=None)
    with StatelogSaver.open(tmp_path / "s") as saver:
        at = Line(saver)
        at.put(x=1)
        (before,) = saver.list(config("t"))
        saver.serde = serde
        with pytest.raises(ValueTypeError, match="as the name of a type; it must be a str"):
            at.put(x=2)
        with pytest.raises(ValueTypeError, match="write to 'x' of task 'a'"):
            saver.put_writes(before.config, [("x", 1)], "a")
        saver.serde = plain
        assert [(each.checkpoint, each.pending_writes) for each in saver.list(config("t"))] == [(before.checkpoint, [])]
