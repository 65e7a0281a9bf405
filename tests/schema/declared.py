"""Schemas as users declare them, which several files of tests take."""

from __future__ import annotations

import operator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    NotRequired,
    Optional,
    Required,
    TypedDict,
)

import pydantic
import pydantic.dataclasses
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field

from statelog import reducers


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


class Aliased(BaseModel):
    text: str = Field(alias="txt")
    author: str = Field("", validation_alias=pydantic.AliasChoices("by", "from"))
    first: str = Field("", validation_alias=pydantic.AliasPath("all", 0))


@dataclass(slots=True)
class Place:
    name: str
    part: Part = field(default_factory=lambda: Part(text=""))
