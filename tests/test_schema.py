"""Schemas: what channels a declaration means, and what a write to each must be."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable  # noqa: TC003 - annotations of schemas here are evaluated
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
)

import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, RootModel

from statelog import reducers
from statelog.errors import ChannelError, SchemaError, UsageError, ValidationError
from statelog.limits import CHANNELS_MAX, NAME_SIZE_BYTES_MAX
from statelog.schema import Channel, Schema, models, normalise_update, reconcile
from statelog.schema.channels import check_names

# --- what users declare ---------------------------------------------------------------------


def keep_longest(current: list[Any], write: list[Any]) -> list[Any]:
    return max(current, write, key=len)


def takes_one(value: Any) -> Any:
    return value


MOMENT = datetime(2025, 1, 2, tzinfo=UTC)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    RED = "red"


class Base(TypedDict):
    query: str
    findings: Annotated[list[str], operator.add]


class Research(Base, total=False):
    step_count: Required[Annotated[int, operator.add]]
    notes: Annotated[NotRequired[dict[str, Any]], reducers.merge]
    messages: Annotated[list[dict[str, Any]], reducers.upsert("id")]
    best: Annotated[list[Any], keep_longest]
    top: Annotated[float, max]
    maybe: Optional[Annotated[list[str], operator.add]]  # noqa: UP045 - the Optional is the point


RESEARCH_SPECS = {
    "query": "replace",
    "findings": "add",
    "step_count": "add",
    "notes": "merge",
    "messages": "upsert:id",
    "best": f"python:{__name__}.keep_longest",
    "top": "max",
    "maybe": "replace",
}


class Extended(typing_extensions.TypedDict):
    found: typing_extensions.Required[Annotated[list[str], operator.add]]
    fixed: typing_extensions.ReadOnly[Annotated[int, max]]


@dataclass
class Plan:
    version: ClassVar[int] = 1
    seed: InitVar[int] = 0
    goal: str = ""
    steps: Annotated[list[str], reducers.append] = field(default_factory=list)


@dataclass
class LongerPlan(Plan):
    costs: Annotated[int, operator.add] = 0


class Part(BaseModel):
    kind: str = "text"
    text: str


class Message(BaseModel):
    id: str | None = None
    content: str
    parts: list[Part] = []


class Picture(Message):
    width: int = 640


class Profile(BaseModel):
    name: str = "nobody"
    age: int = 0
    address: Part = Part(text="nowhere")


class Agent(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)

    query: str = ""
    step_count: Annotated[int, Field(gt=0), operator.add] = 1
    findings: Annotated[list[str], operator.add] = Field(default_factory=list, max_length=3)
    messages: Annotated[list[Message], reducers.upsert("id")] = []
    log: Annotated[list[Message], reducers.append] = []
    notes: Annotated[dict[str, Part], reducers.merge] = {}
    profile: Annotated[Profile, reducers.merge] = Profile()
    deep_profile: Annotated[Profile, reducers.deep_merge] = Profile()
    best: Annotated[list[Message], keep_longest] = []
    color: Color = Color.RED
    palette: dict[Color, list[Color]] = {}
    anything: Any = None
    lookup: dict[int, Part] = {}
    either: int | str | list[Part] = 0


@pytest.fixture
def agent() -> Schema:
    return Schema.of(Agent)


# --- channels of TypedDict, dataclass and dict ----------------------------------------------


def test_typed_dict_has_inherited_required_and_optional_channels_with_their_reducers() -> None:
    assert Schema.of(Research).specs() == RESEARCH_SPECS


def test_typed_dict_of_typing_extensions_is_read_like_that_of_typing() -> None:
    assert Schema.of(Extended).specs() == {"found": "add", "fixed": "max"}


def test_string_annotations_are_resolved_in_the_module_of_the_class() -> None:
    assert Schema.of(Research).channels["query"] == Channel("query", reducers.replace, str)


def test_functional_typed_dict_may_name_channels_that_are_no_identifiers() -> None:
    hyphened = TypedDict("hyphened", {"a-b": Annotated[int, min]})

    assert Schema.of(hyphened).specs() == {"a-b": "min"}


def test_annotated_inside_optional_is_not_the_channels_reducer() -> None:
    assert Schema.of(Research).channels["maybe"].reducer == reducers.replace


def test_last_reducer_in_annotated_wins() -> None:
    metadata = Annotated[Annotated[int, max], "a remark", min, {"unit": "s"}]

    assert Schema.of({"a": metadata}).specs() == {"a": "min"}


def test_metadata_of_pydantic_is_not_a_reducer_even_after_one() -> None:
    length = Annotated[list[int], operator.add, Field(gt=0), AfterValidator(keep_longest), pydantic.SkipValidation]

    assert Schema.of({"a": length}).specs() == {"a": "add"}


def test_reducer_inside_a_type_alias_counts() -> None:
    findings = typing_extensions.TypeAliasType("findings", Annotated[list[str], operator.add])

    assert Schema.of({"a": findings, "b": Annotated[findings, max]}).specs() == {
        "a": "add",
        "b": "max",
    }


def test_dataclass_has_its_fields_as_channels_without_class_and_init_variables() -> None:
    assert Schema.of(LongerPlan).specs() == {"goal": "replace", "steps": "append", "costs": "add"}


def test_plain_dict_takes_reducers_types_annotations_and_nothing() -> None:
    declared = {
        "a": operator.add,
        "b": reducers.upsert("key"),
        "c": int,
        "d": list[int],
        "e": Annotated[int, max],
        "f": int | None,
        "g": Any,
        "h": NewType("UserId", int),
        "i": None,
        "j": keep_longest,
    }

    assert Schema.of(declared).specs() == {
        **dict.fromkeys("cdfghi", "replace"),
        "a": "add",
        "b": "upsert:key",
        "e": "max",
        "j": f"python:{__name__}.keep_longest",
    }


def test_schema_of_a_schema_is_itself() -> None:
    schema = Schema.of({"a": max})

    assert Schema.of(schema) is schema


def test_schema_of_a_class_is_read_once() -> None:
    assert Schema.of(Research) is Schema.of(Research)


def test_no_schema_is_open_to_any_channel_with_replace() -> None:
    schema = Schema.of(None)

    assert schema.is_open
    assert schema.specs() == {}
    assert schema.reducer("whatever") == reducers.replace
    assert schema.validate_write("whatever", Color.RED) is Color.RED
    assert schema.validate_result("whatever", Color.RED) is Color.RED


def test_schema_is_immutable() -> None:
    schema = Schema.of(Research)

    with pytest.raises(AttributeError):
        schema.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        schema.channels["more"] = schema.channels["query"]  # type: ignore[index]


# --- schemas that cannot be -----------------------------------------------------------------


class Unresolvable(TypedDict):
    value: Annotated[Missing, operator.add]  # type: ignore[name-defined]  # noqa: F821


class UnresolvableModel(BaseModel):
    value: list[Missing]  # type: ignore[name-defined]  # noqa: F821


class WithOneArgument(TypedDict):
    value: Annotated[list[str], takes_one]


class Nothing(TypedDict):
    pass


class Point(NamedTuple):
    x: int


class Root(RootModel[list[int]]):
    pass


with pytest.warns(pydantic.PydanticDeprecatedSince20):

    class WithDeprecatedValidator(BaseModel):
        a: int

        @pydantic.validator("a")
        @classmethod
        def check(cls, value: int) -> int:
            return value


class FakeModelOfPydantic1:
    __fields__: ClassVar[dict[str, Any]] = {}
    __validators__: ClassVar[dict[str, Any]] = {}


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (Unresolvable, ["Unresolvable", "'Missing'"]),
        (UnresolvableModel, ["UnresolvableModel", "'Missing'"]),
        (WithOneArgument, ["WithOneArgument.value", "takes_one", "two arguments"]),
        ({"a": takes_one}, ["schema.a", "takes_one", "two arguments"]),
        ({"a": "add"}, ["schema.a", "neither a reducer nor a type", "'add'"]),
        ({"a": 3}, ["schema.a", "neither a reducer nor a type", "3"]),
        ({1: int}, ["must be a str", "int", "1"]),
        ({"": int}, ["''", "cannot name a channel"]),
        ({"x" * (NAME_SIZE_BYTES_MAX + 1): int}, ["cannot name a channel"]),
        ({"\ud800": int}, ["cannot name a channel"]),
        ({}, ["declares no channel", "schema=None"]),
        (Nothing, ["Nothing", "declares no channel"]),
        (BaseModel, ["BaseModel", "declares no channel"]),
        (int, ["int is not a schema"]),
        (Point, ["Point is not a schema"]),
        ("add", ["type str is not a schema"]),
        (Plan(), ["type Plan", "pass the class"]),
        (Profile(), ["type Profile", "pass the class"]),
        (Root, ["Root", "root model"]),
        (WithDeprecatedValidator, ["WithDeprecatedValidator", "@field_validator"]),
        (FakeModelOfPydantic1, ["FakeModelOfPydantic1", "pydantic 1"]),
    ],
)
def test_bad_schema_is_refused_with_what_is_wrong(declared: object, named: list[str]) -> None:
    with pytest.raises(SchemaError) as raised:
        Schema.of(declared)

    assert [text for text in named if text not in raised.value.message] == []
    assert hasattr(raised.value, "schema")


def test_schema_with_too_many_channels_is_refused() -> None:
    one = Channel("a", reducers.replace, Any)

    with pytest.raises(SchemaError, match=f"{CHANNELS_MAX + 1} channels"):
        check_names("Wide", {f"c{number}": one for number in range(CHANNELS_MAX + 1)})


# --- remembered reducers --------------------------------------------------------------------


def test_reconcile_returns_the_channels_that_are_new() -> None:
    schema = Schema.of({"a": max, "b": operator.add})

    assert reconcile("t", {"a": "max", "gone": "min"}, schema) == {"b": "add"}


def test_reconcile_with_other_reducers_raises_with_both_of_them() -> None:
    schema = Schema.of({"a": max, "b": operator.add, "c": int})

    with pytest.raises(SchemaError) as raised:
        reconcile("ticket-42", {"a": "min", "b": "add", "c": "upsert:id"}, schema)

    assert raised.value.facts == {
        "thread": "ticket-42",
        "stored": {"a": "min", "b": "add", "c": "upsert:id"},
        "given": {"a": "max", "b": "add", "c": "replace"},
    }
    assert "'ticket-42'" in raised.value.message
    assert "a: -min +max, c: -upsert:id +replace" in raised.value.message


SPECS = st.dictionaries(
    st.sampled_from("abcd"),
    st.sampled_from(["add", "max", "replace", "upsert:id", "upsert:key", "python:m.f"]),
)


@given(stored=SPECS, given_specs=SPECS)
def test_reconcile_accepts_exactly_what_agrees_where_both_speak(
    stored: dict[str, str], given_specs: dict[str, str]
) -> None:
    schema = Schema.from_specs(given_specs)
    agrees = all(stored[name] == given_specs[name] for name in stored.keys() & given_specs.keys())

    try:
        added: dict[str, str] | None = reconcile("t", stored, schema)
    except SchemaError:
        added = None

    only_given = {name: spec for name, spec in given_specs.items() if name not in stored}
    assert added == (only_given if agrees else None)


@given(specs=SPECS)
def test_schema_from_specs_has_those_specs(specs: dict[str, str]) -> None:
    assert Schema.from_specs(specs).specs() == specs


def test_schema_from_specs_of_a_class_merges_as_the_class_does() -> None:
    remembered = Schema.from_specs(RESEARCH_SPECS)

    assert remembered.reducer("messages") == reducers.upsert("id")
    assert remembered.reducer("findings") == reducers.add
    assert not remembered.is_open


def test_reducer_of_a_user_from_specs_has_no_function() -> None:
    reducer = Schema.from_specs({"a": "python:m.f"}).reducer("a")

    assert (reducer.name, reducer.spec, reducer.function) == ("python", "python:m.f", None)


def test_merging_with_a_users_reducer_from_specs_asks_for_the_schema() -> None:
    reducer = Schema.from_specs({"a": "python:m.f"}).reducer("a")
    write = reducers.Prepared("a", reducer, b"")
    workspace: Any = None  # not reached

    with pytest.raises(SchemaError, match=r"m\.f: pass schema="):
        reducer.merge(workspace, None, write, {})


def test_no_specs_mean_an_open_schema() -> None:
    assert Schema.from_specs({}).is_open


def test_unknown_spec_is_refused() -> None:
    with pytest.raises(SchemaError, match="median"):
        Schema.from_specs({"a": "median"})


# --- unknown channels -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["validate_write", "validate_result"])
def test_unknown_channel_raises_with_the_known_and_a_similar_one(name: str) -> None:
    method: Callable[[str, object], object] = getattr(Schema.of(Base), name)

    with pytest.raises(ChannelError, match="did you mean 'query'") as raised:
        method("qeury", 1)

    assert raised.value.facts == {"channel": "qeury", "channels": ("query", "findings")}


def test_unknown_channel_with_no_similar_one_lists_what_there_is() -> None:
    with pytest.raises(ChannelError, match=r"no channel 'zzz' \(it has query, findings\)"):
        Schema.of(Base).reducer("zzz")


def test_unknown_channel_of_a_wide_schema_lists_the_first_channels() -> None:
    with pytest.raises(ChannelError, match=r"c19 and 5 more\)"):
        Schema.of({f"c{number}": int for number in range(25)}).validate_write("zzz", 1)


def test_extra_keys_of_a_model_are_no_channels() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int = 0

    with pytest.raises(ChannelError):
        Schema.of(Open).validate_write("b", 1)


# --- writes without pydantic ----------------------------------------------------------------


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


# --- pydantic: channels ---------------------------------------------------------------------


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
        "best": f"python:{__name__}.keep_longest",
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


# --- pydantic: what is accepted, and what becomes of it -------------------------------------


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
def test_what_is_stored_is_accepted_again_unchanged(written: list[dict[str, Any]]) -> None:
    schema = Schema.of(Agent)

    stored = schema.validate_write("messages", written)

    assert schema.validate_write("messages", stored) == stored


class Aliased(BaseModel):
    text: str = Field(alias="txt")
    author: str = Field("", validation_alias=pydantic.AliasChoices("by", "from"))
    first: str = Field("", validation_alias=pydantic.AliasPath("all", 0))


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


# --- pydantic: no silent loss ---------------------------------------------------------------


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


@dataclass(slots=True)
class Place:
    name: str
    part: Part = field(default_factory=lambda: Part(text=""))


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
def test_model_that_says_what_becomes_of_undeclared_keys_decides(
    extra: Literal["allow", "ignore"], stored: dict[str, int]
) -> None:
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

    with pytest.raises(ValidationError, match="cannot be made plain: unhashable") as raised:
        Schema.of(Outer).validate_write("inners", {Inner()})

    assert raised.value.facts["path"] == "inners"


# --- pydantic: what is refused --------------------------------------------------------------


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


# --- pydantic: how a write relates to the annotation ----------------------------------------


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
def test_merge_of_a_model_writes_only_what_was_set(agent: Schema, written: object) -> None:
    """Its defaults would take the place of what is stored."""
    assert agent.validate_write("profile", written) == {"address": {"kind": "text", "text": "x"}}
    assert agent.validate_write("deep_profile", written) == {"address": {"text": "x"}}


def test_merge_of_a_dataclass_is_refused_for_its_defaults_are_not_told_apart() -> None:
    class Outer(BaseModel):
        place: Annotated[Place, reducers.merge]

    with pytest.raises(ValidationError, match="which fields to merge"):
        Schema.of(Outer).validate_write("place", {"name": "x"})


def test_merge_of_nothing_into_an_optional_model_is_left_to_the_reducer() -> None:
    class Outer(BaseModel):
        profile: Annotated[Profile | None, reducers.merge] = None

    assert Schema.of(Outer).validate_write("profile", None) is None


def test_append_that_a_validator_makes_more_items_of_is_refused() -> None:
    class Outer(BaseModel):
        doubled: Annotated[list[int], AfterValidator(lambda items: items + items), reducers.append] = []

    with pytest.raises(ValidationError, match="made 2 items of 1"):
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


# --- pydantic: field validators -------------------------------------------------------------


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


# --- pydantic is optional -------------------------------------------------------------------


@pytest.fixture
def without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)


@pytest.mark.usefixtures("without_pydantic")
def test_schemas_work_where_pydantic_is_not_installed() -> None:
    class Fresh(TypedDict):
        color: Color
        count: Annotated[int, operator.add]

    # Not a local class: its annotations are strings, resolved in this module.
    Fresh.__annotations__ = {"color": Color, "count": Annotated[int, operator.add]}
    schema = Schema.of(Fresh)

    assert schema.specs() == {"color": "replace", "count": "add"}
    assert schema.validate_write("color", Color.RED) == "red"
    assert normalise_update(Plan(goal="x")) == {"goal": "x", "steps": []}
    with pytest.raises(SchemaError, match="not a schema"):
        Schema.of(int)
    with pytest.raises(UsageError):
        normalise_update(3)


def test_pydantic_is_not_imported_for_other_schemas() -> None:
    program = (
        "import sys; from statelog.schema import Schema, normalise_update;"
        "Schema.of({'a': int}).validate_write('a', 1); normalise_update({'a': 1});"
        "assert 'pydantic' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


# --- updates --------------------------------------------------------------------------------


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
def test_what_is_no_write_is_refused_by_its_type(update: object, named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        normalise_update(update)

    assert "type" in raised.value.facts
