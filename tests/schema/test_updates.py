"""What a commit may be given, and the writes it means."""

from __future__ import annotations

import pytest
from declared import (
    LongerPlan,
    Part,
    Plan,
    Profile,
    Word,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from statelog.errors import UsageError
from statelog.schema import normalise_update


@given(update=st.dictionaries(st.text(), st.integers()))
def test_mapping_becomes_an_equal_new_dict(update: dict[str, int]) -> None:
    normalised = normalise_update(update)

    assert normalised == update
    assert normalised is not update


def test_dataclass_instance_writes_all_its_fields() -> None:
    assert normalise_update(LongerPlan(goal="x")) == {"goal": "x", "steps": [], "costs": 0}


def test_model_instance_writes_only_the_fields_that_were_set() -> None:
    part = Part(text="x")

    normalised = normalise_update(Profile(address=part, name="x"))

    assert normalised == {"name": "x", "address": part}
    assert normalised["address"] is part


def test_model_instance_writes_extra_fields_for_the_schema_to_judge() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int = 0

    assert normalise_update(Open(b=1)) == {"b": 1}  # type: ignore[call-arg]


def test_key_of_a_str_subclass_becomes_a_str() -> None:
    (key,) = normalise_update({Word.RED: 1})

    assert key == "red"
    assert type(key) is str


@pytest.mark.parametrize(
    ("update", "named"),
    [
        (None, "NoneType"),
        ([("a", 1)], "list"),
        ("a", "str"),
        (Plan, "the class Plan"),
        (Profile, "the class Profile"),
        ({1: 2}, "not by int: 1"),
        ({"a": 1, None: 2}, "not by NoneType"),
    ],
)
def test_invalid_writes_are_refused_by_their_types(update: object, named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        normalise_update(update)

    assert "type" in raised.value.facts
