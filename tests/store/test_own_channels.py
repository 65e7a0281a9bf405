"""Channels whose names begin with `statelog:` can be in any thread, whatever its schema."""

from __future__ import annotations

import dataclasses
import io
import operator
from typing import Annotated, TypedDict

import pydantic
import pytest

import statelog
from statelog import reducers
from statelog.errors import ChannelError, ReducerTypeError, SchemaError
from statelog.schema import Schema


class Part(pydantic.BaseModel):
    name: str


class Plain(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]
    part: Part


@dataclasses.dataclass
class Data:
    notes: Annotated[list[str], operator.add]
    part: Part


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    notes: Annotated[list[str], operator.add]
    part: Part


STEPS, INPUT = "statelog:steps", "statelog:input"
MAPPING = {"notes": None, "part": None}
SCHEMAS = {"open": None, "mapping": MAPPING, "typed dict": Plain, "dataclass": Data, "pydantic": Model}
OWN = {STEPS: [1, {"n": 2}], INPUT: {"deep": ["x" * 3000]}}


@pytest.fixture(params=SCHEMAS.values(), ids=SCHEMAS)
def schema(request):
    return request.param


@pytest.fixture
def thread(store, schema):
    thread = store.thread("t", schema=schema)
    thread.commit({"notes": ["a"], "part": {"name": "x"}, STEPS: [1]})
    thread.commit({STEPS: [{"n": 2}], INPUT: "first"}, {INPUT: OWN[INPUT]})
    return thread


def own(state):
    return {channel: value for channel, value in state.to_python().items() if channel.startswith("statelog:")}


def test_reserved_channels_are_written_and_read_beside_declared_channels(store, thread, schema):
    assert own(thread.state) == OWN
    assert (thread.state[STEPS][-1], thread.state["notes"]) == ({"n": 2}, ["a"])
    part = thread.state["part"]
    assert (part["name"] if schema in (None, MAPPING) else part.name) == "x"
    assert sorted(thread.state) == ["notes", "part", INPUT, STEPS]
    assert own(store.thread("t").state) == own(thread.at(-1).state) == OWN


def test_reserved_channels_are_not_remembered_as_channels_of_the_thread(store, thread):
    [info] = store.threads()
    assert set(info.channels) <= {"notes", "part"}
    store.thread("t").commit({STEPS: [3]})
    assert thread.state[STEPS] == [1, {"n": 2}, 3]


def test_reserved_channels_have_their_own_reducers(thread):
    with pytest.raises(ReducerTypeError):
        thread.commit({STEPS: 1})
    thread.commit({STEPS: reducers.Overwrite([9]), INPUT: None})
    assert own(thread.state) == {STEPS: [9], INPUT: None}
    thread.commit({STEPS: reducers.DROP, INPUT: reducers.DROP})
    assert own(thread.state) == {}


def test_rollbacks_forks_and_copies_have_reserved_channels(store, thread):
    branch = thread.fork("branch", update={STEPS: [3]})
    assert branch.state[STEPS] == [1, {"n": 2}, 3]
    assert own(store.copy_thread("t", "copy").state) == OWN
    thread.rollback(0)
    assert own(thread.state) == {STEPS: [1]}


def test_a_diff_includes_reserved_channels(thread):
    changes = statelog.diff(thread.at(0), thread.at(1))
    assert {change.path[0] for change in changes} == {STEPS, INPUT}


def test_mounts_and_edits_of_other_channels_keep_reserved_channels(thread):
    with thread.mount() as state:
        state["notes"].append("b")
    with thread.mount(lazy=True) as state:
        state["notes"].append("c")
    thread.edit(lambda state: state["notes"].append("d"))
    assert (thread.state["notes"], own(thread.state)) == (["a", "b", "c", "d"], OWN)
    assert thread.version == 4


def test_mounts_and_edits_can_change_reserved_channels(thread):
    with thread.mount() as state:
        state[STEPS].append(3)
    thread.edit(lambda state: state.update({"statelog:new": 1, INPUT: 2}))
    assert own(thread.state) == {STEPS: [1, {"n": 2}, 3], INPUT: 2, "statelog:new": 1}


def test_an_export_has_reserved_channels(store, thread, schema, tmp_path):
    file = io.BytesIO()
    store.export(file)
    file.seek(0)
    with statelog.open(tmp_path / "b.state") as other:
        other.import_(file)
        assert own(other.thread("t", schema=schema).state) == own(thread.state)
        other.thread("t", schema=schema).commit({STEPS: [3]})
        assert other.verify().problems == []


@pytest.mark.parametrize(
    "declared",
    [
        {"statelog:x": None},
        TypedDict("Typed", {"a": int, STEPS: list}),
        pydantic.create_model("Aliased", a=(int, pydantic.Field(alias="statelog:a"))),
    ],
    ids=["mapping", "typed dict", "alias"],
)
def test_a_schema_that_declares_a_reserved_channel_is_refused(store, declared):
    with pytest.raises(SchemaError, match="reserved for the library") as caught:
        store.thread("t", schema=declared)
    assert caught.value.facts["channel"].startswith("statelog:")


def test_the_remembered_schema_of_a_thread_can_name_a_reserved_channel():
    assert Schema.from_specs({STEPS: "replace"}).reducer(STEPS) == reducers.replace


def test_other_names_are_refused_as_before(store):
    thread = store.thread("t", schema=Plain)
    with pytest.raises(ChannelError):
        thread.commit({"statelog": 1})
