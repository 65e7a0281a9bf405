"""Schemas: what channels a declaration means, and which reducers a thread remembers."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable  # noqa: TC003 - annotations of schemas here are evaluated
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    NewType,
    TypedDict,
)

import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions
from declared import (
    RESEARCH_SPECS,
    Base,
    Color,
    Extended,
    LongerPlan,
    Plan,
    Profile,
    Research,
    keep_longest,
    takes_one,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel

from statelog import reducers
from statelog.errors import ChannelError, SchemaError, UsageError
from statelog.limits import CHANNELS_MAX, NAME_SIZE_BYTES_MAX
from statelog.schema import Channel, Schema, normalise_update, reconcile
from statelog.schema.channels import check_names

# --- channels of TypedDict, dataclass and dict -----------------------------------------------


def test_typed_dict_has_inherited_required_and_optional_channels_with_their_reducers() -> None:
    assert Schema.of(Research).specs() == RESEARCH_SPECS


def test_typed_dict_of_typing_extensions_is_read_like_that_of_typing() -> None:
    assert Schema.of(Extended).specs() == {"found": "add", "fixed": "max"}


def test_string_annotations_are_resolved_in_the_module_of_the_class() -> None:
    assert Schema.of(Research).channels["query"] == Channel("query", reducers.replace, str)


def test_a_functional_typed_dict_may_name_channels_that_are_not_identifiers() -> None:
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
        "j": "python:declared.keep_longest",
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


# --- schemas that cannot be ------------------------------------------------------------------


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
def test_a_bad_schema_is_refused_with_the_reason(declared: object, named: list[str]) -> None:
    with pytest.raises(SchemaError) as raised:
        Schema.of(declared)

    assert [text for text in named if text not in raised.value.message] == []
    assert hasattr(raised.value, "schema")


def test_schema_with_too_many_channels_is_refused() -> None:
    one = Channel("a", reducers.replace, Any)

    with pytest.raises(SchemaError, match=f"{CHANNELS_MAX + 1} channels"):
        check_names("Wide", {f"c{number}": one for number in range(CHANNELS_MAX + 1)})


# --- remembered reducers ---------------------------------------------------------------------


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
def test_reconcile_accepts_exactly_the_values_on_which_both_agree(
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


# --- unknown channels ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["validate_write", "validate_result"])
def test_unknown_channel_raises_with_the_known_and_a_similar_one(name: str) -> None:
    method: Callable[[str, object], object] = getattr(Schema.of(Base), name)

    with pytest.raises(ChannelError, match="did you mean 'query'") as raised:
        method("qeury", 1)

    assert raised.value.facts == {"channel": "qeury", "channels": ("query", "findings")}


def test_an_unknown_channel_with_no_similar_one_lists_all_channels() -> None:
    with pytest.raises(ChannelError, match=r"no channel 'zzz' \(it has query, findings\)"):
        Schema.of(Base).reducer("zzz")


def test_unknown_channel_of_a_wide_schema_lists_the_first_channels() -> None:
    with pytest.raises(ChannelError, match=r"c19 and 5 more\)"):
        Schema.of({f"c{number}": int for number in range(25)}).validate_write("zzz", 1)


def test_extra_keys_of_a_model_are_not_channels() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int = 0

    with pytest.raises(ChannelError):
        Schema.of(Open).validate_write("b", 1)


# --- pydantic is optional --------------------------------------------------------------------


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


@pytest.mark.slow
def test_pydantic_is_not_imported_for_other_schemas() -> None:
    program = (
        "import sys; from statelog.schema import Schema, normalise_update;"
        "Schema.of({'a': int}).validate_write('a', 1); normalise_update({'a': 1});"
        "assert 'pydantic' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
