"""Finds the differences between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog.durable.forks import StepInfo, calls_of, step_info
from statelog.durable.runs import ENDED, find
from statelog.durable.values import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from statelog.durable.record import Item
    from statelog.store.store import Store


@dataclass(frozen=True, slots=True)
class RunDifference:
    """A difference between two runs: in the runs themselves, or in a call.

    Attributes:
        place: the place of the call, or None if the runs themselves differ.
        what: `workflow`, `arguments` or `outcome` of the runs. Of a call: `call` (its kind or name), `arguments`,
            `outcome` (its status, result or error), or `missing` (only one run has it).
        left: the call in the first run, or None.
        right: the call in the second run, or None.
    """

    place: str | None
    what: str
    left: StepInfo | None = None
    right: StepInfo | None = None


def compare_runs(store: Store, run: str, other: str) -> list[RunDifference]:
    """Return the differences between two runs, in order. The list is empty if the runs did the same.

    Workflow and arguments come first, then the calls in the order in which they were recorded, then the outcome of the
    runs. Calls at the same place are compared. Times and numbers of attempts are ignored.

    Raises:
        RunNotFoundError: there is no such run.
    """
    with store.snapshot() as seen:
        left, right = find(seen, run).value, find(seen, other).value
        calls, others = dict(calls_of(seen, left)), dict(calls_of(seen, right))
    found = [
        RunDifference(None, what) for what in ("workflow", "arguments") if _of_run(left, what) != _of_run(right, what)
    ]
    for place in in_order(calls, others):
        items, theirs = calls.get(place), others.get(place)
        infos = [
            None if each is None else step_info(place, each, has_ended=value["status"] in ENDED)
            for each, value in ((items, left), (theirs, right))
        ]
        what = "missing" if items is None or theirs is None else _difference(items, theirs, infos)
        if what is not None:
            found.append(RunDifference(place.removeprefix("undo."), what, *infos))
    if _of_run(left, "outcome") != _of_run(right, "outcome"):
        found.append(RunDifference(None, "outcome"))
    return found


def _of_run(value: Mapping[str, Any], what: str) -> object:
    if what == "workflow":
        return value["workflow"]
    if what == "arguments":
        return _encoded([value["args"], value["kwargs"]])
    return value["status"], value.get("error"), _encoded(value.get("value"))


def _encoded(value: Any) -> bytes:
    """Return the canonical bytes of a value, for a comparison.

    Unlike `==`, this comparison distinguishes 1 from True. It also works for arrays and NaN.
    """
    return encode(value, "value", depth=0)


def in_order(places: Iterable[str], others: Iterable[str]) -> list[str]:
    """Merge two lists of places, in the order of `places`. Insert any other place after its predecessor in `others`."""
    first: list[str] = []
    behind: dict[str, list[str]] = {place: [] for place in places}
    last = first
    for place in others:
        if place in behind:
            last = behind[place]
        else:
            last.append(place)
    return [*first, *(each for place, more in behind.items() for each in (place, *more))]


def _difference(items: Sequence[Item], others: Sequence[Item], infos: Sequence[StepInfo | None]) -> str | None:
    """Return how a call differs between two runs: `call`, `arguments` or `outcome`. Return None if it does not."""
    first, second = items[0], others[0]
    left, right = infos
    assert left is not None
    assert right is not None
    if (first["o"], first["n"]) != (second["o"], second["n"]):
        return "call"
    if first.get("a") != second.get("a"):
        return "arguments"
    alike = (left.status, left.error, _encoded(left.result)) == (right.status, right.error, _encoded(right.result))
    return None if alike else "outcome"
