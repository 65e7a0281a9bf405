"""Workflows get arguments of the annotated types, in every position."""

# ruff: noqa: ARG001 - the signatures are what is tested

from __future__ import annotations

import asyncio
import enum
import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pydantic import BaseModel

from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.errors import ValueTypeError

if TYPE_CHECKING:
    from statelog.durable import Run


@dataclass
class Order:
    id: int


@dataclass(frozen=True)
class Frozen:
    id: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Point(NamedTuple):
    x: int
    order: Order


class Model(BaseModel):
    colour: Colour


seen = {}


def note(**values):
    seen.update(values)


VALUES = {
    "order": (Order(1), Order),
    "colour": (Colour.RED, Colour),
    "level": (Level.HIGH, Level),
    "point": (Point(1, Order(2)), Point),
    "model": (Model(colour="red"), Model),
    "orders": ([Order(1)], list[Order]),
    "by_colour": ({Colour.RED: Order(1)}, dict[Colour, Order]),
    "colours": ({Colour.RED}, set[Colour]),
    "maybe": (Order(1), Order | None),
    "sequence": ((Order(1),), Sequence[Order]),
    "iterable": ([Order(1)], typing.Iterable[Order]),
    "mapping": ({"a": [Order(1)]}, Mapping[str, Sequence[Order]]),
    "models": ([Model(colour="red")], Iterable[Model] | None),
}


def positional(run, value, /):
    note(found=value)


def either(run, value):
    note(found=value)


def keyword(run, *, value):
    note(found=value)


def rest(run, first: int, *values, note_: str = ""):
    note(found=values[-1], first=values[0])


def others(run, value_: int = 0, **values):
    note(found=values["b"])


HOW = {
    "positional": (positional, lambda value: ((value,), {})),
    "by place": (either, lambda value: ((value,), {})),
    "by name": (either, lambda value: ((), {"value": value})),
    "keyword": (keyword, lambda value: ((), {"value": value})),
    "rest": (rest, lambda value: ((1, value, value), {"note_": "fragile"})),
    "others": (others, lambda value: ((), {"a": value, "b": value})),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("how", HOW)
def test_an_argument_has_its_annotated_type_in_every_position(store, how, name):
    value, kind = VALUES[name]
    body, given = HOW[how]
    args, kwargs = given(value)

    def fresh(*args, **kwargs):
        return body(*args, **kwargs)

    fresh.__signature__ = inspect.signature(body)
    fresh.__annotations__ = dict.fromkeys(("value", "values"), kind)
    durable.run(store, durable.workflow(name=how.replace(" ", "-"))(fresh), *args, id="a", **kwargs)
    assert seen["found"] == value
    assert type(seen["found"]) is type(value)


@pytest.mark.parametrize("value", [{Frozen(1)}, frozenset({Frozen(1)}), {Frozen(1): 2}], ids=["set", "frozen", "key"])
def test_a_dataclass_in_a_set_or_as_a_key_is_refused_and_named(store, value):
    workflow = durable.workflow(name="go")(lambda _run, value: value)
    with pytest.raises(ValueTypeError, match=r"arguments of workflow 'go'.*Frozen") as refused:
        durable.run(store, workflow, [value], id="a")
    assert refused.value.facts["path"] == "arguments of workflow 'go'"
    assert durable.runs(store) == []


def test_an_annotation_that_cannot_be_evaluated_does_not_disable_the_others(store):
    @durable.workflow
    def go(run: Run, order: Order, colour: Nowhere) -> Order:  # noqa: F821
        note(found=order)
        return Order(order.id + 1)

    info = durable.run(store, go, Order(1), "red", id="a")
    assert (seen["found"], info.value) == (Order(1), Order(2))


def test_children_and_async_workflows_get_typed_arguments(tmp_path):
    @durable.workflow
    async def inner(run, *points: Point) -> Colour:
        note(inner=points)
        return Colour.RED

    @durable.workflow
    async def outer(run, **levels: Level):
        note(outer=levels)
        return (await run.child(inner, Point(1, Order(1)), Point(2, Order(2)))) is Colour.RED

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            return await aio_durable.run(store, outer, a=Level.HIGH, id="a")

    assert asyncio.run(main()).value is True
    assert seen["inner"] == (Point(1, Order(1)), Point(2, Order(2)))
    assert seen["outer"]["a"] is Level.HIGH


def test_a_step_with_typed_arguments_and_results_is_not_called_again(store):
    calls = []

    def paint(colour: Colour, point: Point) -> Point:
        calls.append((colour, point))
        return point

    @durable.workflow
    def go(run):
        found = run.step(paint, Colour.RED, Point(1, Order(2)))
        note(found=found)
        run.recv()
        return found.order.id

    durable.run(store, go, id="a")
    durable.send(store, "a", 1)
    assert durable.run(store, go, id="a").value == 2
    assert calls == [(Colour.RED, Point(1, Order(2)))]
    assert type(seen["found"]) is Point


def test_arguments_of_continue_as_new_keep_their_types(store):
    @durable.workflow
    def go(run, level: Level, *points: Point):
        if len(points) < 3:
            run.continue_as_new(level, *points, Point(len(points), Order(1)))
        return [type(level).__name__, *(type(each).__name__ for each in points)]

    assert durable.run(store, go, Level.HIGH, id="a").value == ["Level", "Point", "Point", "Point"]
