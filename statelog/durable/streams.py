"""Streams: parts of a step's result that others may read ahead of it."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from statelog.durable.infos import get_run
from statelog.durable.keys import STEPS, check_run_id
from statelog.durable.values import recorded
from statelog.durable.workflows import check_number
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.store import Store

_SLICE_S = 0.5


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the result of a step.

    Attributes:
        value: what the step gave out.
        step: idempotency key of the step.
        attempt: which call of the step it is from, from 1; one that a crash has cut short counts, too. The parts of an
            earlier one do not count when a later one has begun.
        cursor: `stream(after=cursor)` goes on behind it.
    """

    value: Any
    step: str
    attempt: int
    cursor: int


def _thread_of(store: Store, run: str) -> Any:
    return store.thread(f"statelog:stream/{check_run_id(run)}")


def stage_chunk(store: Store, run: str, place: str, attempt: int, chunk: Any) -> None:
    """Give out a part, not flushed. Raises ValueTypeError, LimitError."""
    item = {"p": place, "i": attempt, "r": recorded(store, chunk, "chunk")}
    _thread_of(store, run).commit({STEPS: [item]}, durable=False)


def next_attempt(store: Store, run: str, place: str, attempt: int) -> int:
    """Return as which attempt a call gives out its parts: another than those that have given out some.

    A call that a crash has cut short is recorded nowhere else.
    """
    held = _thread_of(store, run).state.get(STEPS)
    told = next((item["i"] for item in reversed(held or ()) if item["p"] == place), 0)
    return max(attempt, told + 1)


def check_stream(after: object, timeout_s: object) -> None:
    """Refuse what `stream` cannot begin with. Raises UsageError."""
    if type(after) is not int or after < 0:
        message = f"after is the cursor of a Chunk, or 0 for the beginning, not {after!r}"
        raise UsageError(message, argument="after", value=after)
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, least=0)


def stream(
    store: Store, run: str, *, after: int = 0, follow: bool = True, timeout_s: float | None = None
) -> Iterator[Chunk]:
    """Yield the parts that the steps of a run give out, in their order, until the run ends.

    They are there at once, and not flushed: a power cut may take the last ones. A step that is called again gives out
    its parts again, with another `attempt`.

    Args:
        store: the store.
        run: id of the run.
        after: the cursor behind which to begin.
        follow: wait for more, instead of stopping behind the last one.
        timeout_s: stop after so long without a part.

    Raises:
        RunNotFoundError: there is no such run. Facts: run.
        UsageError: one of the arguments is none.
    """
    check_stream(after, timeout_s)
    get_run(store, run)
    at, heard_s = after, monotonic()
    while True:
        lsn = store.last_lsn
        has_ended = get_run(store, run).has_ended
        held = _thread_of(store, run).state.get(STEPS)
        for item in [] if held is None or len(held) <= at else held[at:]:
            at += 1
            yield Chunk(item["r"], f"{run}/{item['p']}", item["i"], at)
            heard_s = monotonic()
        if has_ended or not follow or (timeout_s is not None and monotonic() - heard_s >= timeout_s):
            return
        store.wait(lsn, _SLICE_S if timeout_s is None else min(_SLICE_S, timeout_s))
