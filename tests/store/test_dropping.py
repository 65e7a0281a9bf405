"""A write of `DROP` removes a channel, whatever its reducer and type."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from typing import Annotated, TypedDict

import pydantic
import pytest

import statelog
from statelog import reducers
from statelog.errors import ChannelError, ValueTypeError
from statelog.reducers import DROP


class Plain(TypedDict, total=False):
    notes: Annotated[list[str], operator.add]
    count: int


@dataclasses.dataclass
class Data:
    notes: Annotated[list[str], operator.add]
    count: int


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    notes: Annotated[list[str], operator.add] = pydantic.Field(alias="remarks", default_factory=list)
    count: int


SCHEMAS = [None, {"notes": reducers.extend, "count": None}, Plain, Data, Model]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["open", "mapping", "typed dict", "dataclass", "pydantic"])
def test_a_removed_channel_can_be_written_again(store, schema):
    thread = store.thread("t", schema=schema)
    thread.commit({"notes": ["a", "b"], "count": 1})
    made = thread.commit({"notes": DROP, "count": 2})
    assert made.state.to_python() == {"count": 2}
    assert "notes" not in thread.state
    assert thread.at(0).state["notes"] == ["a", "b"]
    assert [change.path for change in statelog.diff(thread.at(0), made)] != []
    thread.commit({"notes": ["c"]})
    assert thread.state["notes"] == ["c"]
    thread.rollback(0)
    assert thread.state["notes"] == ["a", "b"]


@pytest.mark.parametrize("value", [1, "text", {"deep": ["x" * 3000]}, list(range(5000))], ids=repr)
def test_missing_and_large_channels_can_be_dropped(store, value):
    thread = store.thread("t")
    assert thread.commit({"x": DROP}).state.to_python() == {}
    thread.commit({"x": value, "y": 1})
    assert thread.commit({"x": DROP, "z": DROP}).state.to_python() == {"y": 1}
    assert thread.commit({"x": DROP}).state.to_python() == {"y": 1}
    assert thread.commit({"y": DROP}).state.to_python() == {}


@pytest.mark.parametrize("spec", ["replace", "add", "append", "extend", "union", "merge", "max", "upsert:id"])
def test_writes_of_one_commit_merge_in_order(store, spec):
    reducer = reducers.from_spec(spec)
    write = {"union": {1}, "merge": {"a": 1}, "extend": [1], "upsert:id": [{"id": 1}]}.get(spec, 1)
    thread = store.thread("t", schema={"x": reducer})
    thread.commit({"x": write})
    first = thread.state["x"]
    assert thread.commit({"x": write}, {"x": DROP}).state.to_python() == {}
    assert thread.commit({"x": write}, {"x": DROP}, {"x": write}).state["x"] == first
    assert thread.commit({"x": DROP}, {"x": write}).state["x"] == first


def test_a_custom_reducer_and_its_check_are_not_called_for_drop(store):
    def joined(current, write):
        return current + write

    thread = store.thread("t", schema={"x": joined})
    thread.commit({"x": "a"})
    assert thread.commit({"x": DROP}).state.to_python() == {}
    assert thread.commit({"x": "b"}).state["x"] == "b"


def test_the_name_of_a_channel_is_checked_as_in_any_write(store):
    thread = store.thread("t", schema=Plain)
    with pytest.raises(ChannelError, match="did you mean 'notes'"):
        thread.commit({"note": DROP})
    assert thread.version == -1
    aliased = store.thread("m", schema=Model)
    aliased.commit({"notes": ["a"], "count": 1})
    assert aliased.commit({"remarks": DROP}).state.to_python() == {"count": 1}


def test_drop_works_in_a_transaction_and_in_a_fork(store):
    thread = store.thread("t", schema=Plain)
    thread.commit({"notes": ["a"], "count": 1})
    with store.transaction() as tx:
        tx.thread("t", schema=Plain).commit({"notes": DROP})
        assert "notes" not in tx.thread("t").state
    assert thread.fork("branch", update={"count": DROP}).state.to_python() == {}
    assert thread.state.to_python() == {"count": 1}


def test_drop_is_refused_as_a_value_elsewhere(store):
    thread, board = store.thread("t"), store.board()
    thread.commit({"x": {}})
    for call in (
        lambda: thread.commit({"x": {"y": DROP}}),
        lambda: thread.commit({"x": [DROP]}),
        lambda: thread.commit({"x": reducers.Overwrite(DROP)}),
        lambda: thread.edit(lambda state: state.update(x=DROP)),
        lambda: board.set("x", DROP),
        lambda: board.update("x", reducers.replace, DROP),
    ):
        with pytest.raises(ValueTypeError):
            call()
    assert (thread.version, board.list()) == (0, [])


def test_drop_is_a_singleton():
    assert copy.deepcopy(DROP) is copy.copy(DROP) is pickle.loads(pickle.dumps(DROP)) is DROP
    assert repr(DROP) == "reducers.DROP"
