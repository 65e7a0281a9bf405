"""Measures whether reading the last items of a long list costs no more than these items."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import cbor2

from benchmarks.corpus import Corpus
from benchmarks.measure import interleave
from benchmarks.regression.compared import Compared
from benchmarks.result import Result, at_least
from benchmarks.stores import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.stores import BenchStore
    from benchmarks.workload import Bench
    from statelog.store.thread import Thread

_LIST_BYTES = 5_000_000
_MESSAGE_BYTES = 500
_MESSAGES_PER_COMMIT = 10
_TAKEN = 20
_PER_REPEAT = 4

GROWN = f"last {_TAKEN}, nothing in memory"
WRITTEN_AT_ONCE = f"last {_TAKEN}, nothing in memory, list of one commit"
WARM = f"last {_TAKEN}"
ALL = "read it all"
SNAPSHOT = "decode a snapshot of it all"


def _build(store: BenchStore, messages: list[dict[str, Any]], per_commit: int) -> Thread:
    thread = store.thread(f"{per_commit} messages a commit", schema={"messages": operator.add})
    for start in range(0, len(messages), per_commit):
        thread.commit({"messages": messages[start : start + per_commit]})
    return thread


def _read_last(store: BenchStore, thread: Thread, *, is_cold: bool) -> Operation:
    """Return an operation that reads the last items at the thread's head. `is_cold` empties the node cache first."""

    def operation() -> None:
        if is_cold:
            store.engine.cache.clear()
        assert len(thread.state["messages"][-_TAKEN:]) == _TAKEN

    return operation


def _read_all(thread: Thread) -> Operation:
    def operation() -> None:
        thread.state["messages"].to_python()

    return operation


@contextmanager
def _sides(bench: Bench) -> Iterator[dict[str, Operation]]:
    messages = Corpus().messages(bench.size(_LIST_BYTES, at_least=100_000) // _MESSAGE_BYTES, _MESSAGE_BYTES)
    snapshot = cbor2.dumps(messages)
    with opened(bench.directory / "reading.state", flush=False) as store:
        grown = _build(store, messages, _MESSAGES_PER_COMMIT)
        at_once = _build(store, messages, len(messages))
        yield {
            GROWN: _read_last(store, grown, is_cold=True),
            WRITTEN_AT_ONCE: _read_last(store, at_once, is_cold=True),
            WARM: _read_last(store, grown, is_cold=False),
            SNAPSHOT: partial(cbor2.loads, snapshot),
            ALL: _read_all(grown),
        }


def _measure(bench: Bench) -> Result:
    with _sides(bench) as operations:
        samples = interleave(operations, count=bench.repeats * _PER_REPEAT)
    checks = tuple(
        at_least(f"decoding it all, relative to the {side}", samples[SNAPSHOT].p50_us / samples[side].p50_us, 50.0)
        for side in (WARM, GROWN, WRITTEN_AT_ONCE)
    )
    return Result(
        checks=checks,
        sides=tuple(taken.side(side) for side, taken in samples.items()),
        notes=(
            (
                "measured from the thread's head; the snapshot is one CBOR item already in memory, decoded by cbor2:"
                " the least that a store of whole states would do"
            ),
        ),
    )


LAST_ITEMS = Compared(
    "last-items",
    "Last 20 items of a 5 MB list, compared with decoding it all",
    "reads only",
    _measure,
    sides=(GROWN, WRITTEN_AT_ONCE, WARM, SNAPSHOT, ALL),
    operations=_sides,
)
