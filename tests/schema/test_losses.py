"""Writes to pydantic models: nothing is lost in silence."""

from __future__ import annotations

from typing import (
    Annotated,
    Literal,
)

import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions
from declared import (
    Aliased,
    Part,
    Picture,
    Place,
)
from pydantic import AfterValidator, BaseModel, ConfigDict, RootModel

from statelog.errors import ValidationError
from statelog.schema import Schema, models


def test_instance_of_a_subclass_keeps_its_own_fields(agent: Schema) -> None:
    assert agent.validate_write("log", Picture(content="x")) == {
        "id": None,
        "content": "x",
        "parts": [],
        "width": 640,
    }


def test_instance_of_a_subclass_keeps_its_own_fields_with_older_pydantic(
    agent: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = {"round_trip": True, "warnings": False, "serialize_as_any": True}
    monkeypatch.setattr(models, "_DUMP_OPTIONS", older)

    stored = agent.validate_write("log", Picture(content="x"))

    assert stored == {"id": None, "content": "x", "parts": [], "width": 640}


def test_options_are_only_those_that_the_installed_pydantic_has() -> None:
    def dump(*, round_trip: bool = False) -> bool:
        return round_trip

    assert models._supported(dump, {"round_trip": True, "by_name": True}) == {"round_trip": True}


class Coordinates(typing_extensions.TypedDict):
    x: int


class Numbers(RootModel[dict[str, Part]]):
    pass


class Losing(BaseModel):
    part: Part | None = None
    parts: dict[str, list[Part]] = {}
    aliased: Aliased | None = None
    coordinates: Coordinates | None = None
    place: Place | None = None
    numbers: Numbers | None = None


@pytest.mark.parametrize(
    ("channel", "value", "path"),
    [
        ("part", {"text": "x", "lang": "en"}, "part.lang"),
        ("part", {"text": "x", "a b": "en"}, "part['a b']"),
        ("parts", {"k": [{"text": "x"}, {"text": "x", "y": 1}]}, "parts.k[1].y"),
        ("aliased", {"txt": "a", "author_name": "b"}, "aliased.author_name"),
        ("coordinates", {"x": 1, "y": 2}, "coordinates.y"),
        ("place", {"name": "x", "city": "y"}, "place.city"),
        ("place", {"name": "x", "part": {"text": "", "y": 1}}, "place.part.y"),
        ("numbers", {"a": {"text": "x", "y": 1}}, "numbers.a.y"),
    ],
)
def test_undeclared_key_of_a_nested_class_is_refused(channel: str, value: object, path: str) -> None:
    with pytest.raises(ValidationError, match="would be lost") as raised:
        Schema.of(Losing).validate_write(channel, value)

    assert raised.value.facts["path"] == path


@pytest.mark.parametrize(("extra", "stored"), [("allow", {"a": 1, "b": 2}), ("ignore", {"a": 1})])
def test_a_model_decides_about_undeclared_keys(extra: Literal["allow", "ignore"], stored: dict[str, int]) -> None:
    class Inner(BaseModel):
        model_config = ConfigDict(extra=extra)
        a: int

    class Outer(BaseModel):
        inner: Inner

    assert Schema.of(Outer).validate_write("inner", {"a": 1, "b": 2}) == stored


def test_model_that_reshapes_its_input_may_take_any_key() -> None:
    class Inner(BaseModel):
        a: int

        @pydantic.model_validator(mode="before")
        @classmethod
        def rename(cls, data: dict[str, int]) -> dict[str, int]:
            return {"a": data["old"]}

    class Outer(BaseModel):
        inner: Inner

    assert Schema.of(Outer).validate_write("inner", {"old": 1}) == {"a": 1}


def test_validator_may_take_keys_out_of_a_plain_dict() -> None:
    class Outer(BaseModel):
        values: Annotated[dict[str, int], AfterValidator(lambda values: {"a": values["a"]})]

    assert Schema.of(Outer).validate_write("values", {"a": 1, "b": 2}) == {"a": 1}


def test_validator_may_make_something_else_of_a_dict() -> None:
    class Outer(BaseModel):
        keys: Annotated[list[str], pydantic.BeforeValidator(list)]

    assert Schema.of(Outer).validate_write("keys", {"a": 1, "b": 2}) == ["a", "b"]


def test_set_of_models_cannot_be_made_plain() -> None:
    class Inner(BaseModel):
        model_config = ConfigDict(frozen=True)
        a: int = 0

    class Outer(BaseModel):
        inners: set[Inner]

    with pytest.raises(ValidationError, match="cannot be converted to plain data: unhashable") as raised:
        Schema.of(Outer).validate_write("inners", {Inner()})

    assert raised.value.facts["path"] == "inners"
