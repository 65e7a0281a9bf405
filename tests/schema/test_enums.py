"""Enum members are stored by value, where the annotation names their class."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypedDict,
)

import pytest
import typing_extensions
from declared import (
    Color,
    Level,
    keep_longest,
)
from hypothesis import given
from hypothesis import strategies as st

from statelog import reducers
from statelog.errors import ValidationError
from statelog.schema import Schema
from statelog.schema.enums import EnumCheck


class Tree(TypedDict):
    color: Color
    children: list[Tree]


Shade = typing_extensions.TypeAliasType("Shade", Color)
ColorId = NewType("ColorId", Color)


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (Color, Color.RED, "red"),
        (Level, Level.HIGH, 2),
        (Color | None, Color.RED, "red"),
        (Color | None, None, None),
        (list[Color], [Color.RED, "blue"], ["red", "blue"]),
        (dict[str, Color], {"a": Color.RED}, {"a": "red"}),
        (dict[Color, int], {Color.RED: 1}, {"red": 1}),
        (tuple[Color, ...], (Color.RED,), ("red",)),
        (set[Color], {Color.RED}, {"red"}),
        (frozenset[Color], frozenset({Color.RED}), frozenset({"red"})),
        (dict[str, list[Color | None]], {"a": [Color.RED, None]}, {"a": ["red", None]}),
        (Literal[Color.RED], Color.RED, "red"),
        (Annotated[list[Annotated[Color, "x"]], operator.add], [Color.RED], ["red"]),
        (Shade, Color.RED, "red"),
        (list[Shade], [Color.RED], ["red"]),
        (ColorId, Color.RED, "red"),
        (Enum, Level.LOW, 1),
        (
            Tree,
            {"color": Color.RED, "children": [{"color": Color.BLUE, "children": []}]},
            {"color": "red", "children": [{"color": "blue", "children": []}]},
        ),
    ],
)
def test_enum_is_stored_by_value_where_the_annotation_names_it(
    annotation: object, value: object, stored: object
) -> None:
    dumped = Schema.of({"a": annotation}).validate_write("a", value)

    assert dumped == stored
    assert type(dumped) is type(stored)


def test_enum_is_left_for_the_encoder_to_refuse_where_nothing_names_it() -> None:
    value = [Color.RED]

    assert Schema.of({"a": Any}).validate_write("a", value) is value


@pytest.mark.parametrize("annotation", [str, list[Level], dict[str, Any]])
def test_enum_that_the_annotation_does_not_name_is_refused(annotation: object) -> None:
    with pytest.raises(ValidationError):
        Schema.of({"a": annotation}).validate_write("a", [Color.RED])


def test_enum_inside_overwrite_and_remove_is_stored_by_value() -> None:
    schema = Schema.of({"a": Annotated[list[Color], reducers.upsert("id")]})

    overwrite = Schema.of({"a": list[Color]}).validate_write("a", reducers.Overwrite([Color.RED]))
    removal = schema.validate_write("a", [reducers.Remove(Color.RED)])

    assert overwrite == reducers.Overwrite(["red"])
    assert removal == [reducers.Remove("red")]


def test_enum_reaches_a_users_reducer_and_is_stored_by_value_after_it() -> None:
    schema = Schema.of({"a": Annotated[list[Color], keep_longest]})

    assert schema.validate_write("a", [Color.RED]) == [Color.RED]
    assert schema.validate_result("a", [Color.RED]) == ["red"]
    assert schema.validate_write("a", reducers.Overwrite([Color.RED])) == reducers.Overwrite(["red"])


def test_enum_key_that_meets_its_own_value_is_refused() -> None:
    schema = Schema.of({"a": dict[Color | str, int]})

    with pytest.raises(ValidationError, match="stored as the same key") as raised:
        schema.validate_write("a", {Color.RED: 1, "red": 2})

    assert raised.value.path == "a"


def test_cyclic_value_is_left_for_the_encoder_to_refuse() -> None:
    cyclic: dict[str, Any] = {"color": Color.RED, "children": []}
    cyclic["children"].append(cyclic)

    assert Schema.of({"a": Tree}).validate_write("a", cyclic) is cyclic


@dataclass
class HoldsUnresolvable:
    color: Missing  # type: ignore[name-defined]  # noqa: F821


def test_unresolvable_annotations_of_a_nested_class_do_not_spoil_the_schema() -> None:
    value = [HoldsUnresolvable(3)]

    assert Schema.of({"a": list[HoldsUnresolvable]}).validate_write("a", value) == [{"color": 3}]


def replace_members(value: Any) -> Any:
    """The oracle: what the encoder would see if members had never been."""
    if isinstance(value, Color):
        return value.value
    if isinstance(value, dict):
        return {replace_members(key): replace_members(part) for key, part in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return type(value)(map(replace_members, value))
    return value


LEAVES = st.one_of(st.integers(), st.text(max_size=2).filter("red".__ne__), st.none())


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.one_of(st.text(max_size=2), st.just(Color.RED)), inner, max_size=3),
            st.frozensets(st.one_of(st.integers(), st.sampled_from(Color)), max_size=3),
        ),
        max_leaves=12,
    )


@given(value=nested(st.one_of(LEAVES, st.sampled_from(Color))))
def test_enums_are_replaced_wherever_they_lie(value: Any) -> None:
    check = EnumCheck.of(Color)
    assert check is not None
    assert check("a", value) == replace_members(value)


@given(value=nested(LEAVES).filter(lambda value: replace_members(value) == value))
def test_value_without_enums_comes_back_as_the_same_object(value: Any) -> None:
    check = EnumCheck.of(Color)
    assert check is not None
    assert check("a", value) is value
