"""Channels of pydantic models: what they are, what is accepted, and what becomes of it."""

from __future__ import annotations

import operator
from collections import Counter
from typing import (
    Annotated,
    Any,
    Literal,
)

import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions
from declared import (
    MOMENT,
    Agent,
    Aliased,
    Color,
    Message,
    Part,
    Place,
    Profile,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from statelog import reducers
from statelog.errors import ValidationError
from statelog.schema import Schema

# --- channels --------------------------------------------------------------------------------


def test_model_has_its_fields_as_channels_with_their_reducers(agent: Schema) -> None:
    specs = agent.specs()

    assert list(specs) == list(Agent.model_fields)
    assert {name: spec for name, spec in specs.items() if spec != "replace"} == {
        "step_count": "add",
        "findings": "add",
        "messages": "upsert:id",
        "log": "append",
        "notes": "merge",
        "profile": "merge",
        "deep_profile": "deep_merge",
        "best": "python:declared.keep_longest",
    }


def test_model_inherits_channels_and_may_replace_them() -> None:
    class Wider(Profile):
        age: Annotated[int, max] = 0
        extra: int = 1

    assert Schema.of(Wider).specs() == {
        "name": "replace",
        "age": "max",
        "address": "replace",
        "extra": "replace",
    }


def test_dataclass_of_pydantic_is_validated_like_a_model() -> None:
    @pydantic.dataclasses.dataclass(config=ConfigDict(strict=True))
    class Checked:
        count: Annotated[int, Field(gt=0), operator.add] = 1

    schema = Schema.of(Checked)

    assert schema.specs() == {"count": "add"}
    assert schema.validate_write("count", 2) == 2
    with pytest.raises(ValidationError, match="greater than 0"):
        schema.validate_write("count", 0)
    with pytest.raises(ValidationError, match="valid integer"):
        schema.validate_write("count", "2")


# --- what is accepted, and what becomes of it ------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "value", "stored"),
    [
        ("query", "  lmdb ", "lmdb"),  # config of the model
        ("step_count", 3, 3),
        ("step_count", "3", 3),
        ("findings", ["a"], ["a"]),
        ("findings", ("a",), ["a"]),
        ("messages", [], []),
        ("messages", [{"content": "x"}], [{"id": None, "content": "x", "parts": []}]),
        ("messages", {"id": "1", "content": "x"}, [{"id": "1", "content": "x", "parts": []}]),
        ("messages", Message(content="x"), [{"id": None, "content": "x", "parts": []}]),
        ("messages", (Message(content="x"),), [{"id": None, "content": "x", "parts": []}]),
        ("log", {"content": "x"}, {"id": None, "content": "x", "parts": []}),
        ("log", Message(content="x"), {"id": None, "content": "x", "parts": []}),
        ("notes", {"k": Part(text="x")}, {"k": {"kind": "text", "text": "x"}}),
        ("color", "red", "red"),
        ("color", Color.RED, "red"),
        ("palette", {"red": [Color.BLUE]}, {"red": ["blue"]}),
        ("anything", Part(text="x"), {"kind": "text", "text": "x"}),
        ("anything", [(1, {2}, b"x", MOMENT)], [(1, {2}, b"x", MOMENT)]),
        ("lookup", {"1": {"text": "x"}}, {1: {"kind": "text", "text": "x"}}),
        ("either", [Part(text="x")], [{"kind": "text", "text": "x"}]),
    ],
)
def test_valid_write_becomes_plain_values(agent: Schema, channel: str, value: object, stored: object) -> None:
    dumped = agent.validate_write(channel, value)

    assert dumped == stored
    assert type(dumped) is type(stored)


def test_enum_under_any_is_left_for_the_encoder_to_refuse(agent: Schema) -> None:
    assert agent.validate_write("anything", [Color.RED]) == [Color.RED]


def test_write_is_not_changed_in_place(agent: Schema) -> None:
    written = [{"content": " x "}, reducers.Remove("1")]

    agent.validate_write("messages", written)

    assert written == [{"content": " x "}, reducers.Remove("1")]


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"content": st.text(max_size=3).map(str.strip)},
        optional={
            "id": st.text(max_size=3).map(str.strip),
            "parts": st.lists(st.fixed_dictionaries({"text": st.just("x")}), max_size=2),
        },
    ),
    max_size=3,
)


@given(written=MESSAGES)
def test_stored_values_are_accepted_again_unchanged(written: list[dict[str, Any]]) -> None:
    schema = Schema.of(Agent)

    stored = schema.validate_write("messages", written)

    assert schema.validate_write("messages", stored) == stored


class HasAliases(BaseModel):
    items: list[Aliased] = Field([], alias="things")


def test_fields_with_aliases_are_stored_by_name_and_accepted_by_both() -> None:
    schema = Schema.of(HasAliases)

    stored = schema.validate_write("items", [{"txt": "a", "from": "b", "all": ["c"]}])

    assert stored == [{"text": "a", "author": "b", "first": "c"}]
    assert schema.validate_write("items", stored) == stored


def test_computed_fields_are_not_stored() -> None:
    class Square(BaseModel):
        side: int

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def area(self) -> int:
            return self.side**2

    class Drawing(BaseModel):
        square: Square

    assert Schema.of(Drawing).validate_write("square", {"side": 2}) == {"side": 2}


def plain_counts(counts: Counter[str]) -> dict[str, int]:
    return dict(counts)


def test_serializers_in_annotated_make_a_value_storable() -> None:
    class Tally(BaseModel):
        counts: Annotated[Counter[str], PlainSerializer(plain_counts)]

    dumped = Schema.of(Tally).validate_write("counts", Counter("aab"))

    assert dumped == {"a": 2, "b": 1}
    assert type(dumped) is dict


def test_discriminated_union_chooses_by_its_tag() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]
        tricks: int

    class Home(BaseModel):
        pet: Cat | Dog = Field(discriminator="kind")

    schema = Schema.of(Home)

    assert schema.validate_write("pet", {"kind": "cat"}) == {"kind": "cat"}
    with pytest.raises(ValidationError) as raised:
        schema.validate_write("pet", {"kind": "dog"})
    assert raised.value.facts["path"] == "pet.tricks"
    assert raised.value.facts["reason"] == "Field required"


# --- how a write relates to the annotation ---------------------------------------------------


def test_removals_pass_and_the_items_between_them_are_validated(agent: Schema) -> None:
    gone = reducers.Remove("1")

    dumped = agent.validate_write("messages", [gone, {"content": "x"}, reducers.REMOVE_ALL])

    assert dumped == [gone, {"id": None, "content": "x", "parts": []}, reducers.REMOVE_ALL]


@pytest.mark.parametrize("written", [reducers.Remove("1"), [reducers.Remove("1")]])
def test_write_of_removals_alone_passes(agent: Schema, written: object) -> None:
    assert agent.validate_write("messages", written) == written


def test_path_beside_removals_counts_them(agent: Schema) -> None:
    with pytest.raises(ValidationError) as raised:
        agent.validate_write("messages", [reducers.Remove("1"), {"content": 1}])

    assert raised.value.facts["path"] == "messages[1].content"


def test_lost_key_beside_removals_has_a_path_that_counts_them(agent: Schema) -> None:
    with pytest.raises(ValidationError, match="would be lost") as raised:
        agent.validate_write("messages", [reducers.Remove("1"), {"content": "x", "y": 1}])

    assert raised.value.facts["path"] == "messages[1].y"


def test_overwrite_is_validated_as_the_whole_value(agent: Schema) -> None:
    dumped = agent.validate_write("log", reducers.Overwrite([{"content": "x"}]))

    assert dumped == reducers.Overwrite([{"id": None, "content": "x", "parts": []}])
    with pytest.raises(ValidationError):
        agent.validate_write("log", reducers.Overwrite({"content": "x"}))


def test_overwrite_of_a_merged_model_holds_its_defaults(agent: Schema) -> None:
    dumped = agent.validate_write("profile", reducers.Overwrite({"name": "x"}))

    assert dumped == reducers.Overwrite({"name": "x", "age": 0, "address": {"kind": "text", "text": "nowhere"}})


@pytest.mark.parametrize("written", [{"address": {"text": "x"}}, Profile(address=Part(text="x"))])
def test_merging_a_model_writes_only_the_fields_that_were_set(agent: Schema, written: object) -> None:
    """Its defaults would take the place of what is stored."""
    assert agent.validate_write("profile", written) == {"address": {"kind": "text", "text": "x"}}
    assert agent.validate_write("deep_profile", written) == {"address": {"text": "x"}}


def test_merge_of_a_dataclass_is_refused_for_its_defaults_are_not_told_apart() -> None:
    class Outer(BaseModel):
        place: Annotated[Place, reducers.merge]

    with pytest.raises(ValidationError, match="which merge needs: use a model"):
        Schema.of(Outer).validate_write("place", {"name": "x"})


def test_merge_of_nothing_into_an_optional_model_is_left_to_the_reducer() -> None:
    class Outer(BaseModel):
        profile: Annotated[Profile | None, reducers.merge] = None

    assert Schema.of(Outer).validate_write("profile", None) is None


def test_append_that_a_validator_makes_more_items_of_is_refused() -> None:
    class Outer(BaseModel):
        doubled: Annotated[list[int], AfterValidator(lambda items: items + items), reducers.append] = []

    with pytest.raises(ValidationError, match="returned 2 items for 1"):
        Schema.of(Outer).validate_write("doubled", 1)


def test_users_reducer_takes_any_write_and_its_result_is_validated(agent: Schema) -> None:
    written = [Message(content="x")]

    assert agent.validate_write("best", written) is written
    assert agent.validate_result("best", written) == [{"id": None, "content": "x", "parts": []}]
    with pytest.raises(ValidationError) as raised:
        agent.validate_result("best", [{"content": "x"}, {"content": 1}])
    assert raised.value.facts["path"] == "best[1].content"


def test_result_of_a_built_in_reducer_is_not_validated_again(agent: Schema) -> None:
    value = ["a"] * 10

    assert agent.validate_result("findings", value) is value


# --- field validators ------------------------------------------------------------------------


class Validated(BaseModel):
    even: int = 0
    trail: list[str] = []
    other: int = 0
    seen: Any = None
    wrapped: str = ""
    plain: str = ""

    @pydantic.field_validator("even")
    @classmethod
    def must_be_even(cls, value: int) -> int:
        if value % 2:
            message = "must be even"
            raise ValueError(message)
        return value

    @pydantic.field_validator("trail", mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        return value.split("/") if isinstance(value, str) else value

    @pydantic.field_validator("trail")
    @classmethod
    def add_first(cls, value: list[str]) -> list[str]:
        return [*value, "first"]

    @pydantic.field_validator("trail")
    @classmethod
    def add_second(cls, value: list[str]) -> list[str]:
        return [*value, "second"]

    @pydantic.field_validator("seen")
    @classmethod
    def look(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        return [value, info.field_name, info.data, info.mode]

    @pydantic.field_validator("wrapped", mode="wrap")
    @classmethod
    def wrap(cls, value: Any, handler: pydantic.ValidatorFunctionWrapHandler, info: Any) -> str:
        return f"{info.field_name} {handler(value)}"

    @pydantic.field_validator("plain", mode="plain")
    @classmethod
    def take(cls, value: Any) -> str:
        return f"<{value}>"

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def refuse_secrets(cls, value: Any) -> Any:
        assert value != "secret", "no secrets"
        return value


@pytest.mark.parametrize(
    ("channel", "value", "stored"),
    [
        ("even", 2, 2),
        ("trail", "a/b", ["a", "b", "first", "second"]),
        ("seen", 1, [1, "seen", {}, "python"]),
        ("wrapped", "x", "wrapped x"),
        ("plain", 3, "<3>"),
    ],
)
def test_field_validators_of_the_model_run(channel: str, value: object, stored: object) -> None:
    assert Schema.of(Validated).validate_write(channel, value) == stored


@pytest.mark.parametrize(
    ("channel", "value", "reason"),
    [("even", 3, "must be even"), ("trail", "secret", "no secrets"), ("seen", "secret", "no")],
)
def test_field_validators_of_the_model_refuse(channel: str, value: object, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as raised:
        Schema.of(Validated).validate_write(channel, value)

    assert raised.value.facts["path"] == channel


def test_bug_in_a_users_validator_is_raised_as_it_is() -> None:
    class Outer(BaseModel):
        a: Annotated[int, AfterValidator(lambda value: {}[value])]

    with pytest.raises(KeyError):
        Schema.of(Outer).validate_write("a", 1)


def test_a_model_with_a_typed_dict_is_committed(store) -> None:
    class Options(typing_extensions.TypedDict):
        key: str

    class Holder(BaseModel):
        options: Options | None = None

    store.thread("t", schema={"v": Holder}).commit({"v": Holder(options={"key": "a"})})
    assert store.thread("t").state["v"] == {"options": {"key": "a"}}
