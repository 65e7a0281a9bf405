"""Generic schemas: a TypedDict or a dataclass with its type parameters given, as a schema and within one."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions

import statelog
from statelog import durable, reducers
from statelog.errors import SchemaError, ValidationError
from statelog.schema import Schema

X = TypeVar("X")
Y = TypeVar("Y")


class Found(TypedDict, Generic[X]):
    found: Annotated[list[X], operator.add]
    last: NotRequired[X]


class Both(TypedDict, Generic[X, Y]):
    one: X
    pairs: dict[str, tuple[X, Y | None]]
    left: Annotated[list[Y], reducers.append]


class Fixed(Found[int]):
    name: str


class Turned(Found[list[Y]], Generic[Y]):
    more: Y


class Same(Found[list[X]], Generic[X]):
    """Its parameter has the name of its base's, and means another."""

    more: X


@dataclasses.dataclass
class Box(Generic[X]):
    inside: X
    some: Annotated[list[X], operator.add] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class IntBox(Box[int]):
    name: str = ""


class Pair(NamedTuple, Generic[X]):
    one: X
    other: X


class Extended(typing_extensions.TypedDict, Generic[X]):
    found: Annotated[list[X], operator.add]


@dataclasses.dataclass
class Point:
    x: int


class Holding(TypedDict):
    box: Box[int]
    boxes: list[Box[Point]]
    found: Found[int]
    maybe: Box[str] | None
    pair: Pair[Point]


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s.state") as opened:
        yield opened


@pytest.mark.parametrize(
    ("schema", "writes", "state"),
    [
        (Found[int], [{"found": [1]}, {"found": [2]}], {"found": [1, 2]}),
        (Extended[int], [{"found": [1]}, {"found": [2]}], {"found": [1, 2]}),
        (Fixed, [{"found": [1]}, {"found": [2], "name": "n"}], {"found": [1, 2], "name": "n"}),
        (Turned[int], [{"found": [[1]]}, {"more": 2}], {"found": [[1]], "more": 2}),
        (Same[int], [{"found": [[1]]}, {"more": 2}], {"found": [[1]], "more": 2}),
        (Both[int, str], [{"one": 1, "left": "a"}, {"left": "b"}], {"one": 1, "left": ["a", "b"]}),
        (Both[int, str], [{"pairs": {"a": (1, None), "b": (2, "x")}}], {"pairs": {"a": (1, None), "b": (2, "x")}}),
        (Box[int], [{"inside": 1}, {"some": [2]}, {"some": [3]}], {"inside": 1, "some": [2, 3]}),
        (Box[int], [Box(1, [2])], {"inside": 1, "some": [2]}),
        (IntBox, [{"inside": 1, "some": [2]}, {"name": "n"}], {"inside": 1, "some": [2], "name": "n"}),
        (Found[Any], [{"found": [1, "a"]}], {"found": [1, "a"]}),
        (Found, [{"found": [1, "a"]}], {"found": [1, "a"]}),
        (Found[Point], [{"found": [Point(1)]}, {"last": Point(2)}], {"found": [Point(1)], "last": Point(2)}),
        (Found[Annotated[int, ["a list is no key"]]], [{"found": [1]}], {"found": [1]}),
    ],
    ids=str,
)
def test_a_generic_schema_accepts_the_types_of_its_parameters(store, schema, writes, state):
    thread = store.thread("t", schema=schema)
    for write in writes:
        thread.commit(write)
    assert dict(thread.state) == state
    assert store.thread("t", schema=schema).state == state  # it is the one that the thread remembers


@pytest.mark.parametrize(
    ("schema", "write", "path"),
    [
        (Found[int], {"found": ["a"]}, "found[0]"),
        (Found[int], {"last": "a"}, "last"),
        (Fixed, {"found": ["a"]}, "found[0]"),
        (Turned[int], {"found": [1]}, "found[0]"),
        (Turned[int], {"found": [["a"]]}, "found[0][0]"),
        (Same[int], {"found": [1]}, "found[0]"),
        (Same[int], {"more": [1]}, "more"),
        (Both[int, str], {"left": 1}, "left"),
        (Both[int, str], {"pairs": {"a": (1, 2)}}, "pairs.a[1]"),
        (Box[int], {"some": ["a"]}, "some[0]"),
        (IntBox, {"inside": "a"}, "inside"),
        (Found[Point], {"found": [{"y": 1}]}, "found[0].y"),
    ],
    ids=str,
)
def test_values_of_other_types_than_its_parameters_are_refused_by_path(store, schema, write, path):
    thread = store.thread("t", schema=schema)
    with pytest.raises(ValidationError) as caught:
        thread.commit(write)
    assert caught.value.path == path
    assert thread.version == -1


def test_generic_classes_within_a_schema_come_back_as_they_are(store):
    thread = store.thread("t", schema=Holding)
    state = {
        "box": Box(1, [2]),
        "boxes": [Box(Point(1), [Point(2)])],
        "found": {"found": [1]},
        "maybe": Box("a"),
        "pair": Pair(Point(1), Point(2)),
    }
    thread.commit(state)
    assert dict(thread.state) == state
    assert type(thread.state["boxes"][0].some[0]) is Point
    thread.commit({"maybe": None})
    assert thread.state["maybe"] is None
    with pytest.raises(ValidationError) as caught:
        thread.commit({"box": Box("a")})
    assert caught.value.path == "box.inside"


@durable.workflow(name="generic")
def generic(run, box: Box[Point]) -> Box[Point]:
    return run.step_with(durable.StepOptions(name="same"), lambda given: given, box)


def test_a_run_takes_and_gives_generic_classes(store):
    info = durable.run(store, generic, Box(Point(1), [Point(2)]), id="1")
    assert info.status == "completed"


def test_models_that_are_generic_are_classes_anyway(store):
    class Item(pydantic.BaseModel, Generic[X]):
        found: Annotated[list[X], operator.add] = []

    thread = store.thread("t", schema=Item[int])
    thread.commit({"found": [1]})
    with pytest.raises(ValidationError):
        thread.commit({"found": ["a"]})
    assert thread.state["found"] == [1]


def test_a_generic_schema_is_named_whole():
    assert Schema.of(Found[int]).name == "Found[int]"
    assert Schema.of(Both[int, list[str]]).name == "Both[int, list[str]]"
    assert Schema.of(Found[int]) is Schema.of(Found[int])


@pydantic.dataclasses.dataclass
class OfPydantic(Generic[X]):
    x: X


@pytest.mark.parametrize("schema", [list[int], dict[str, int], int | None, Pair[int], OfPydantic[int], type[int]])
def test_invalid_generic_schemas_are_refused(schema):
    with pytest.raises(SchemaError):
        Schema.of(schema)
