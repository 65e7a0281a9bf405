"""Streams: parts of a step's result that other programs can read before the step has ended."""

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
        value: the value that the step passed to `stream`.
        step: the idempotency key of the step.
        attempt: counts the calls of the step from 1, including calls that a crash ended. When a part of a later attempt
            arrives, discard the parts of earlier attempts.
        cursor: the position of the part. `stream(after=cursor)` continues after it.
    """

    value: Any
    step: str
    attempt: int
    cursor: int


def _thread_of(store: Store, run: str) -> Any:
    return store.thread(f"statelog:stream/{check_run_id(run)}")


def stage_chunk(store: Store, run: str, place: str, attempt: int, chunk: Any) -> None:
    """Commit a part of a result, without a flush. Raises ValueTypeError, LimitError."""
    item = {"p": place, "i": attempt, "r": recorded(store, chunk, "chunk")}
    _thread_of(store, run).commit({STEPS: [item]}, durable=False)


def next_attempt(store: Store, run: str, place: str, attempt: int) -> int:
    """Return the attempt number for the parts that an attempt will stream.

    It is at least `attempt`, and greater than the attempt number of any part that the step has streamed before.
    `attempt` alone may repeat a number: if a crash ended an earlier attempt, only its streamed parts were recorded.
    """
    held = _thread_of(store, run).state.get(STEPS)
    last = next((item["i"] for item in reversed(held or ()) if item["p"] == place), 0)
    return max(attempt, last + 1)


def check_stream(after: object, timeout_s: object) -> None:
    """Check the arguments of `stream`. Raises UsageError."""
    if type(after) is not int or after < 0:
        message = f"after must be the cursor of a Chunk, or 0 for the beginning, not {after!r}"
        raise UsageError(message, argument="after", value=after)
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, least=0)


def stream(
    store: Store, run: str, *, after: int = 0, follow: bool = True, timeout_s: float | None = None
) -> Iterator[Chunk]:
    """Yield the parts of results that the steps of a run stream, in order, until the run ends.

    Parts are available at once, and are not flushed: a power cut may lose the last ones. A step that is called again
    streams its parts again, with a higher `attempt`.

    Args:
        store: the store.
        run: the id of the run.
        after: the cursor of the part after which to begin; 0 for the beginning.
        follow: wait for more parts, instead of stopping after the last one.
        timeout_s: stop after this time without a part, in seconds; None for no limit.

    Raises:
        RunNotFoundError: there is no such run. Facts: run.
        UsageError: an argument is not valid.
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
