"""Writes without pydantic: what does not fit the annotation is refused, and what is stored is read as it was."""

from __future__ import annotations

import datetime as dt
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Protocol, TypedDict, TypeVar

import numpy as np
import pytest
import typing_extensions
from declared import Color, Level, Word

from statelog import reducers
from statelog.errors import ValidationError
from statelog.format import cbor
from statelog.schema import Schema
from statelog.schema.shapes import shape_of

T = TypeVar("T")
THING = range(3)
"""Of a type that no annotation here names."""
Name = NewType("Name", str)
Names = typing_extensions.TypeAliasType("Names", list[str])
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")


class Speaks(Protocol):
    def speak(self) -> str: ...


class Point(NamedTuple):
    x: int
    color: Color = Color.RED


class Row(TypedDict):
    id: str
    text: NotRequired[str]


class Tree(TypedDict):
    color: Color
    children: list[Tree]


@dataclass
class User:
    name: str
    born: dt.date | None = None
    color: Color = Color.RED
    friends: list[User] = field(default_factory=list)
    size: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True)
class Frozen:
    at: Point


@dataclass
class Admin(User):
    level: int = 1


class Text(str):
    __slots__ = ()


def named(part: object) -> str:
    return repr(part)[:60]


FITTING = [
    (int, 3),
    (int, True),
    (float, 3),
    (complex, 1.5),
    (str, "x"),
    (None, None),
    (Any, THING),
    (object, THING),
    (T, THING),
    (Speaks, THING),
    (Callable[[], int], str),
    (Name, "x"),
    (Names, ["x"]),
    (Json, {"a": [1, {"b": None}]}),
    (int | None, None),
    (Literal["a", 1], "a"),
    (list[int], [1, 2]),
    (Sequence[int], (1, "x")),
    (tuple[int, str], (1, "x")),
    (tuple[int, ...], (1, 2, 3)),
    (set[str], {"x"}),
    (frozenset[int], frozenset({1})),
    (dict[int, str], {1: "x"}),
    (list, [THING]),
    (dict, {1: THING}),
    (Row, {"id": "1"}),
    (Row, {"id": "1", "other": 2}),
    (dt.date, dt.datetime(2020, 1, 1)),  # noqa: DTZ001 - as mypy has it
    (pathlib.Path, pathlib.Path("/a")),
    (Fraction, Fraction(1, 3)),
    (np.ndarray, np.zeros(1)),
]


@pytest.mark.parametrize(("annotation", "value"), FITTING, ids=named)
def test_fitting_values_are_taken_as_the_same_objects(annotation, value):
    assert Schema.of({"a": annotation}).validate_write("a", value) is value


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (int, "three", "a"),
        (int, 1.5, "a"),
        (int, None, "a"),
        (str, b"x", "a"),
        (bool, 1, "a"),
        (Name, 3, "a"),
        (Names, ["x", 3], "a[1]"),
        (int | None, "x", "a"),
        (Literal["a", 1], "b", "a"),
        (Literal[1], True, "a"),
        (Literal["a"], [], "a"),
        (list[int], "x", "a"),
        (list[int], [1, "x"], "a[1]"),
        (list[int] | None, [1, "x"], "a[1]"),
        (tuple[int, str], (1,), "a"),
        (tuple[int, ...], (1, "x"), "a[1]"),
        (set[str], ["x"], "a"),
        (dict[int, str], {"1": "x"}, "a key '1'"),
        (dict[str, int], {"x": "y"}, "a.x"),
        (Row, {"text": "x"}, "a.id"),
        (Row, {"id": 3}, "a.id"),
        (User, {"name": "x", "nam": 1}, "a.nam"),
        (User, {"born": None}, "a.name"),
        (User, {"name": "x", "friends": [{"name": 3}]}, "a.friends[0].name"),
        (User, Admin("x"), "a"),
        (Color, "green", "a"),
        (Point, (1, "green"), "a[1]"),
        (dt.date, "2020-01-01", "a"),
        (np.ndarray, [1], "a"),
    ],
    ids=named,
)
def test_values_of_wrong_types_are_refused_with_their_paths(annotation, value, path):
    with pytest.raises(ValidationError) as caught:
        Schema.of({"a": annotation}).validate_write("a", value)
    assert caught.value.channel == "a"
    assert caught.value.path == path
    assert caught.value.problems == ((path, caught.value.reason),)


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (User, User("ann", dt.date(2020, 1, 1)), None),
        (User, User("ann", friends=[User("bob", color=Color.BLUE)]), None),
        (User | None, User("ann"), None),
        (User | None, None, None),
        (list[User], [User("ann")], None),
        (dict[str, list[User]], {"x": [User("ann")]}, None),
        (Frozen, Frozen(Point(1)), {"at": (1, "red")}),
        (Point, Point(1, Color.BLUE), (1, "blue")),
        (tuple[Color, int], (Color.RED, 1), ("red", 1)),
        (set[Color], {Color.RED}, {"red"}),
        (dict[Color, int], {Color.RED: 1}, {"red": 1}),
        (Color | int, Color.RED, "red"),
        (Word, Word.RED, "red"),
        (Level, Level.HIGH, 2),
        (Literal[Color.RED, "x"], Color.RED, "red"),
        (Tree, {"color": Color.RED, "children": [{"color": Color.BLUE, "children": []}]}, None),
        (Text, Text("x"), "x"),
        (OrderedDict, OrderedDict(a=1), {"a": 1}),
        (Sequence[Color], (Color.RED,), ("red",)),
        (Iterable[User], [User("ann")], None),
        (Collection[Color], {Color.RED}, {"red"}),
        (Mapping[Color, User], {Color.RED: User("ann")}, None),
        (Mapping[str, Sequence[Color]] | Sequence[Color] | None, {"x": [Color.RED]}, {"x": ["red"]}),
    ],
    ids=named,
)
def test_a_value_that_is_stored_as_another_comes_back_as_it_was(annotation, value, stored):
    shape = shape_of(annotation)
    dumped = shape.dump(value, "a")
    back = shape.load(cbor.decode(cbor.encode(dumped)))
    assert back == value
    assert type(back) is type(value)
    if stored is not None:
        assert dumped == stored
        assert type(dumped) is type(stored)


@pytest.mark.parametrize(
    ("annotation", "value"), [(set[Frozen], {Frozen(Point(1))}), (dict[Frozen, int], {Frozen(Point(1)): 2})], ids=named
)
def test_a_dataclass_in_a_set_or_as_a_key_is_refused(annotation, value):
    with pytest.raises(ValidationError, match=r"a: .* stored as a dict"):
        Schema.of({"a": annotation}).validate_write("a", value)


def test_a_field_that_init_does_not_take_comes_back_too():
    user = User("ann")
    user.size = 7
    shape = shape_of(User)
    assert shape.load(shape.dump(user, "a")) == user


def test_a_typed_dict_a_dataclass_and_a_dict_check_alike():
    class Declared(TypedDict):
        n: int

    @dataclass
    class Record:
        n: int

    for schema in (Declared, Record, {"n": int}):
        with pytest.raises(ValidationError, match="n: Input should be an instance of int, not str"):
            Schema.of(schema).validate_write("n", "three")


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        (Annotated[list[int], reducers.append], 1, "x"),
        (Annotated[list[int], reducers.extend], (1, 2), ["x"]),
        (Annotated[list[int], reducers.add], [1], ["x"]),
        (Annotated[list[str], reducers.add], ["x"], "x"),
        (Annotated[list[int] | None, reducers.extend], [1], ["x"]),
        (Annotated[int, reducers.add], 1, "x"),
        (Annotated[float, max], 1, "x"),
        (Annotated[set[int], reducers.union], [1], ["x"]),
        (Annotated[set[int], reducers.union], {1}, {"x"}),
        (Annotated[list[Row], reducers.upsert("id")], {"id": "1"}, {"text": "x"}),
        (Annotated[list[Row], reducers.upsert("id")], [reducers.Remove("1"), {"id": "1"}], [{"id": 1}]),
        (Annotated[dict[str, int], reducers.merge], {"x": 1}, {"x": "y"}),
        (Annotated[Row, reducers.merge], {"text": "x"}, {"text": 3}),
        (Annotated[list[int], reducers.append], reducers.Overwrite([1]), reducers.Overwrite(1)),
    ],
    ids=named,
)
def test_a_write_is_checked_as_its_reducer_takes_it(annotation, right, wrong):
    schema = Schema.of({"a": annotation})
    assert schema.validate_write("a", right) == right
    with pytest.raises(ValidationError):
        schema.validate_write("a", wrong)


def test_a_part_of_a_deep_merge_is_left_to_the_reducer():
    schema = Schema.of({"a": Annotated[dict[str, Row], reducers.deep_merge]})
    assert schema.validate_write("a", {"x": {"text": "y"}}) == {"x": {"text": "y"}}
