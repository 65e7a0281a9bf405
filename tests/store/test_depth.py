"""A value nests at most 128 levels deep, however it is written, counted from the channel."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

import statelog
from statelog import Encoded, durable, reducers
from statelog.errors import LimitError
from statelog.limits import DEPTH_MAX


class Lists(TypedDict, total=False):
    added: Annotated[list[Any], reducers.add]
    appended: Annotated[list[Any], reducers.append]
    extended: Annotated[list[Any], reducers.extend]
    items: Annotated[list[dict[str, Any]], reducers.upsert("id")]
    merged: Annotated[dict[str, Any], reducers.merge]
    deep: Annotated[dict[str, Any], reducers.deep_merge]
    plain: Any


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def inside(thread, value):
    """Put a value into a dict in a list in a dict."""
    with thread.mount(lazy=True) as state:
        state["plain"]["a"][1]["b"] = value


def deeper(thread, value):
    with thread.mount(lazy=True) as state:
        state["plain"]["a"].append(value)


def edited(thread, value):
    def change(state):
        state["plain"]["a"][1]["b"] = value

    thread.edit(change, lazy=True)


WAYS = {  # Each way to write a value, and the number of lists and dicts around it.
    "commit": (lambda thread, value: thread.commit({"plain": value}), 0),
    "in a dict": (lambda thread, value: thread.commit({"plain": {"x": value}}), 1),
    "add": (lambda thread, value: thread.commit({"added": [value]}), 1),
    "append": (lambda thread, value: thread.commit({"appended": value}), 1),
    "extend": (lambda thread, value: thread.commit({"extended": (value,)}), 1),
    "upsert": (lambda thread, value: thread.commit({"items": {"id": "1", "v": value}}), 2),
    "merge": (lambda thread, value: thread.commit({"merged": {"v": value}}), 1),
    "deep_merge": (lambda thread, value: thread.commit({"deep": {"a": {"b": value}}}), 2),
    "overwrite": (lambda thread, value: thread.commit({"added": reducers.Overwrite([value])}), 1),
    "mount": (inside, 3),
    "mount, in a list": (deeper, 2),
    "edit": (edited, 3),
    "encoded": (lambda thread, value: thread.edit(lambda state: state.update(plain=[Encoded(value)])), 1),
}
SIZES = [1, 1000]


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s.state") as opened:
        yield opened
        assert opened.verify().ok
        stream = io.BytesIO()
        opened.export(stream)
        stream.seek(0)
        with statelog.open(tmp_path / "copy.state") as copy:  # Everything stored can be imported.
            copy.import_(stream)
            for info in opened.threads():
                assert copy.thread(info.id).state.to_python() == opened.thread(info.id).state.to_python()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_the_maximum_depth_is_stored_and_one_more_level_is_refused(store, way, size):
    write, around = WAYS[way]
    thread = store.thread("t", schema=Lists)
    some = [f"item {number}" for number in range(size)]
    rows = [{"id": f"old {number}"} for number in range(size)]
    thread.commit(
        {
            "added": some,
            "extended": some,
            "appended": some[0],
            "items": rows,
            "merged": dict.fromkeys(some, 1),
            "deep": {"a": dict.fromkeys(some, 1)},
            "plain": {"a": [1, {"b": 2, **dict.fromkeys(some, 1)}, *some], **dict.fromkeys(some, 1)},
        }
    )
    before = thread.version
    for depth in (DEPTH_MAX - around + 1, DEPTH_MAX - around + 2, 500):
        limit = DEPTH_MAX - (way == "encoded")  # Reported by the encoding, and not by the write.
        with pytest.raises(LimitError, match=f"nested deeper than {limit}") as caught:
            write(thread, nested(depth))
        assert caught.value.limit == limit
        assert thread.version == before
    write(thread, nested(DEPTH_MAX - around))
    assert thread.version == before + 1
    thread.commit({"added": [1], "items": {"id": "2"}, "deep": {"a": {"c": 1}}})  # Other values can be changed.
    with thread.mount() as state:
        state["added"] = state["added"][-2:]
        state["merged"] = {"v": state["merged"].get("v")}


@pytest.mark.parametrize("way", ["set", "create", "append", "metadata"])
def test_the_depth_limit_holds_on_the_board_and_for_metadata(store, way):
    board = store.board()
    board.set("list", [])
    write, around = {
        "set": (lambda value: board.set("k", value), 0),
        "create": (lambda value: board.create("k", value), 0),
        "append": (lambda value: board.update("list", reducers.append, value), 1),
        "metadata": (lambda value: store.thread("t").commit({"n": 1}, metadata={"m": value}), 2),
    }[way]
    before = store.last_lsn
    limit = DEPTH_MAX - (way == "metadata")  # Its record adds levels.
    with pytest.raises(LimitError, match=f"nested deeper than {limit}"):
        write(nested(DEPTH_MAX - around + 1))
    assert store.last_lsn == before
    write(nested(DEPTH_MAX - around))


# --- values that contain themselves ---------------------------------------------------------------------


@dataclass
class Node:
    next: Any = None


def cycles():
    around: list[Any] = []
    around.append(around)
    pairs: dict[Any, Any] = {}
    pairs[1] = pairs
    node = Node()
    node.next = [node]
    return {"list": around, "pairs": pairs, "dataclass": node}


@durable.workflow(name="depth-result")
def result_of(_run, kind):
    return cycles()[kind]


@durable.workflow(name="depth-step")
def step_of(run, kind):
    return run.step_with(durable.StepOptions(name="give"), lambda: cycles()[kind])


@durable.workflow(name="depth-argument")
def argument_of(_run, _value):
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", cycles())
def test_a_value_that_contains_itself_is_a_limit_error_in_a_run(store, kind):
    with pytest.raises(LimitError, match="or part of a cycle"):
        durable.run(store, argument_of, cycles()[kind], id="argument")
    for workflow in (result_of, step_of):
        info = durable.run(store, workflow, kind, id=workflow.name)
        assert info.status == "failed"
        assert info.error.startswith("LimitError")
