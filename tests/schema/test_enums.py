"""Writes without pydantic: any value passes, and enums are stored by value."""

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
    Research,
    keep_longest,
)
from hypothesis import given
from hypothesis import strategies as st

from statelog import reducers
from statelog.errors import ValidationError
from statelog.schema import Schema


@pytest.mark.parametrize("channel", list(Research.__annotations__))
def test_plain_schema_passes_any_value_as_the_same_object(channel: str) -> None:
    schema = Schema.of(Research)
    value = object()

    assert schema.validate_write(channel, value) is value
    assert schema.validate_result(channel, value) is value


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
        (list[Color], [Color.RED, "other"], ["red", "other"]),
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


@pytest.mark.parametrize("annotation", [Any, str, list[Level], dict[str, Any]])
def test_enum_is_left_alone_where_the_annotation_does_not_name_it(annotation: object) -> None:
    value = [Color.RED]

    assert Schema.of({"a": annotation}).validate_write("a", value) is value


def test_enum_inside_overwrite_and_remove_is_stored_by_value() -> None:
    schema = Schema.of({"a": Annotated[list[Color], reducers.upsert("id")]})

    overwrite = schema.validate_write("a", reducers.Overwrite([Color.RED]))
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

    with pytest.raises(ValidationError, match="equal once stored") as raised:
        schema.validate_write("a", {Color.RED: 1, "red": 2})

    assert raised.value.facts == {"channel": "a", "path": "a"}


def test_cyclic_value_is_left_for_the_encoder_to_refuse() -> None:
    cyclic: list[Any] = [Color.RED]
    cyclic += [cyclic, cyclic]

    dumped = Schema.of({"a": list[Color]}).validate_write("a", cyclic)

    assert isinstance(dumped, list)
    assert dumped[0] == "red"
    assert dumped[1] is cyclic


def test_value_of_great_depth_is_left_for_the_encoder_to_refuse() -> None:
    deep: list[Any] = [Color.RED]
    for _ in range(5_000):
        deep = [deep]

    assert Schema.of({"a": list[Color]}).validate_write("a", deep) is deep


@dataclass
class HoldsUnresolvable:
    color: Missing  # type: ignore[name-defined]  # noqa: F821


def test_unresolvable_annotations_of_a_nested_class_do_not_spoil_the_schema() -> None:
    value = [Color.RED]

    assert Schema.of({"a": list[HoldsUnresolvable]}).validate_write("a", value) is value


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
    assert Schema.of({"a": Color}).validate_write("a", value) == replace_members(value)


@given(value=nested(LEAVES).filter(lambda value: replace_members(value) == value))
def test_value_without_enums_comes_back_as_the_same_object(value: Any) -> None:
    assert Schema.of({"a": Color}).validate_write("a", value) is value
