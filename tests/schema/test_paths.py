"""Writes to pydantic models that are refused: where, and why."""

from __future__ import annotations

import pickle

import pydantic
import pydantic.dataclasses
import pytest
from declared import (
    Agent,
)
from pydantic import BaseModel, ConfigDict

from statelog.errors import ValidationError
from statelog.schema import Schema


@pytest.mark.parametrize(
    ("channel", "value", "path", "reason"),
    [
        ("query", 1, "query", "valid string"),
        ("step_count", 0, "step_count", "greater than 0"),
        ("findings", ["a", 1], "findings[1]", "valid string"),
        ("findings", ["a"] * 4, "findings", "at most 3 items"),
        ("messages", [{"content": "x"}] * 3 + [{"content": 1}], "messages[3].content", "string"),
        ("messages", {"content": 1}, "messages[0].content", "valid string"),
        ("messages", [{"id": "x"}], "messages[0].content", "Field required"),
        ("log", {"content": 1}, "log[0].content", "valid string"),
        ("log", [{"content": "x"}], "log[0]", "valid dictionary or instance of Message"),
        ("notes", {"a b": {"text": 1}}, "notes['a b'].text", "valid string"),
        ("notes", {"k": {}}, "notes.k.text", "Field required"),
        ("color", "green", "color", "'red' or 'blue'"),
        ("palette", {"red": ["green"]}, "palette.red[0]", "'red' or 'blue'"),
        ("lookup", {1: {"text": 2}}, "lookup[1].text", "valid string"),
        ("lookup", {"x": {"text": "y"}}, "lookup.x", "valid integer"),
        ("either", 1.5, "either", "valid integer"),
        ("either", {"a": 1}, "either", "valid integer"),
        ("either", [{"text": 1}], "either", "valid integer"),
    ],
)
def test_invalid_write_is_refused_with_its_path_and_the_reason(
    agent: Schema, channel: str, value: object, path: str, reason: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        agent.validate_write(channel, value)

    assert raised.value.facts["channel"] == channel
    assert raised.value.facts["path"] == path
    assert reason in raised.value.facts["reason"]
    assert raised.value.message.startswith(f"{path}: {raised.value.facts['reason']}")
    assert isinstance(raised.value.__cause__, pydantic.ValidationError)


def test_path_goes_through_the_branch_of_a_union_that_the_value_took(agent: Schema) -> None:
    with pytest.raises(ValidationError) as raised:
        agent.validate_write("either", [{"text": 1}])

    assert ("either[0].text", "Input should be a valid string") in raised.value.facts["problems"]


def test_path_goes_into_instances() -> None:
    class Checked(BaseModel):
        model_config = ConfigDict(revalidate_instances="always")
        count: int

    class Outer(BaseModel):
        checked: list[Checked]

    broken = Checked.model_construct(count="many")

    with pytest.raises(ValidationError) as raised:
        Schema.of(Outer).validate_write("checked", [broken])
    assert raised.value.facts["path"] == "checked[0].count"


def test_element_of_a_set_has_no_path_of_its_own() -> None:
    class Outer(BaseModel):
        tags: set[int]

    with pytest.raises(ValidationError) as raised:
        Schema.of(Outer).validate_write("tags", {"x"})

    assert raised.value.facts["path"] == "tags"


def test_error_counts_other_problems_and_keeps_them() -> None:
    with pytest.raises(ValidationError, match=r"\(and 2 more\)") as raised:
        Schema.of(Agent).validate_write("findings", [1, 2, 3])

    assert [path for path, _ in raised.value.facts["problems"]] == [
        "findings[0]",
        "findings[1]",
        "findings[2]",
    ]


def test_error_keeps_a_bounded_number_of_problems() -> None:
    class Outer(BaseModel):
        values: list[str]

    with pytest.raises(ValidationError) as raised:
        Schema.of(Outer).validate_write("values", [0] * 1_000)

    assert len(raised.value.facts["problems"]) == 100


def test_error_survives_pickling(agent: Schema) -> None:
    with pytest.raises(ValidationError) as raised:
        agent.validate_write("step_count", 0)

    assert pickle.loads(pickle.dumps(raised.value)).facts == raised.value.facts
