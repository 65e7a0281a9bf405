"""Measures how large the file of a long chat becomes under retention, and how much retention slows down its commits."""

from __future__ import annotations

import operator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from benchmarks.corpus import Corpus
from benchmarks.measure import Samples, interleave, percentile
from benchmarks.regression.live import KEPT, LIVE, measure_live
from benchmarks.result import Result, Side, TargetCheck, at_most
from benchmarks.stores import opened
from benchmarks.workload import Bench, BenchWorkload
from statelog import reducers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from benchmarks.measure import Operation
    from benchmarks.regression.live import Live
    from benchmarks.stores import BenchStore
    from statelog.storage.options import Durability
    from statelog.store.thread import Thread

_TURNS = 10_000
_TURN_BYTES = 500
_KEEP_LAST = 10
_MESSAGES_MAX = 50
"""The maximum number of messages in the trimmed chat."""
_THREADS = 8
_LOOKS = 10
"""The number of times that the file is measured, evenly spread over all turns."""
_FILE_OF_LIVE_MAX = 2.5
_COMPACTED_OF_LIVE_MAX = 1.3
_FLAT_MAX = 1.05
_COMMITS_PER_REPEAT = 600


@dataclass(frozen=True, slots=True)
class _ThreadUse:
    """One way to use a thread.

    Attributes:
        name: the name of the side.
        schema: the schema of the threads.
        take: takes one turn: writes the given message to a thread.
        grows: whether the live bytes grow with every turn. If not, most of the file consists of the log's envelopes.
        threads: the number of threads, which take turns.
    """

    name: str
    schema: Mapping[str, object]
    take: Callable[[Thread, dict[str, Any]], object]
    grows: bool = True
    threads: int = 1


def _append(thread: Thread, message: dict[str, Any]) -> None:
    thread.commit({"messages": [message]})


def _overwrite(thread: Thread, message: dict[str, Any]) -> None:
    thread.commit({"state": {"last": message["content"], "id": message["id"]}})


def _trim(thread: Thread, message: dict[str, Any]) -> None:
    with thread.mount() as state:
        state.setdefault("messages", []).append(message)
        if len(state["messages"]) > _MESSAGES_MAX:
            del state["messages"][0]


_LIST = {"messages": operator.add}
_SHAPES = (
    _ThreadUse("list, appended to", _LIST, _append),
    _ThreadUse("messages, upserted", {"messages": reducers.upsert("id")}, _append),
    _ThreadUse(f"list in {_THREADS} threads", _LIST, _append, threads=_THREADS),
    _ThreadUse(f"list, trimmed to {_MESSAGES_MAX}", _LIST, _trim, grows=False),
    _ThreadUse("dict, overwritten", {"state": reducers.replace}, _overwrite, grows=False),
)


# --- size ---------------------------------------------------------------------


def _measure_size(bench: Bench) -> Result:
    checks: list[TargetCheck] = []
    sides: list[Side] = []
    turns = bench.size(_TURNS, at_least=300)
    notes = [f"{turns} turns of {_TURN_BYTES} B, keep_last={_KEEP_LAST}, no compaction but the last", LIVE, KEPT]
    for number, shape in enumerate(_SHAPES):
        for is_policy in (True, False):
            path = bench.directory / f"{number}-{is_policy}.state"
            found = _run(path, shape, turns, is_policy=is_policy)
            name = f"{shape.name}, {'policy' if is_policy else 'one retain at the end'}"
            checks += _checks(name, shape, found, is_policy=is_policy)
            sides.append(found.samples.side(name, file_size_bytes=found.looks[-1][0]))
            notes.append(_told(name, found))
            path.unlink()
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


@dataclass(slots=True)
class _RetainedSizes:
    """The file size and the live bytes: each time that the file was measured, and after a compaction."""

    samples: Samples
    looks: list[tuple[int, Live]]
    compacted: tuple[int, Live]


def _run(path: Path, shape: _ThreadUse, turns: int, *, is_policy: bool) -> _RetainedSizes:
    messages = Corpus().endless(_TURN_BYTES)
    samples = Samples()
    looks = []
    with opened(path) as store:
        threads = [store.thread(f"chat {number}", schema=shape.schema) for number in range(shape.threads)]
        for thread in threads:
            shape.take(thread, next(messages))
        if is_policy:
            store.set_retention(keep_last=_KEEP_LAST)
        every = turns // _LOOKS
        in_turn = cycle(threads)
        for _ in range(_LOOKS):
            samples.take(lambda: shape.take(next(in_turn), next(messages)), every)
            if is_policy:
                looks.append(_look(store))
        if not is_policy:
            store.prune(keep_last=_KEEP_LAST)
            looks.append(_look(store))
        store.compact()
        return _RetainedSizes(samples, looks, _look(store))


def _look(store: BenchStore) -> tuple[int, Live]:
    return store.path.stat().st_size, measure_live(store)


def _checks(name: str, shape: _ThreadUse, found: _RetainedSizes, *, is_policy: bool) -> Iterator[TargetCheck]:
    size, live = found.looks[-1]
    compacted, compacted_live = found.compacted
    if is_policy:
        half_size, half_live = found.looks[len(found.looks) // 2 - 1]
        if shape.grows:
            yield at_most(f"{name}: file, relative to live bytes", size / live.live, _FILE_OF_LIVE_MAX)
            flat = size / live.live / (half_size / half_live.live)
            yield at_most(f"{name}: file, relative to live bytes, at the end relative to half way", flat, _FLAT_MAX)
        else:
            growth = (size - half_size) / (live.kept - half_live.kept)
            yield at_most(
                f"{name}: growth over the last half, relative to that of kept bytes", growth, _FILE_OF_LIVE_MAX
            )
    if shape.grows:
        ratio = compacted / compacted_live.live
        yield at_most(f"{name}, then compact: file, relative to live bytes", ratio, _COMPACTED_OF_LIVE_MAX)
    else:
        ratio = compacted / compacted_live.kept
        yield at_most(f"{name}, then compact: file, relative to kept bytes", ratio, _COMPACTED_OF_LIVE_MAX)


def _told(name: str, found: _RetainedSizes) -> str:
    (size, live), (compacted, _) = found.looks[-1], found.compacted
    return (
        f"{name}: file {size / 1e6:.2f} MB, live {live.live / 1e6:.2f}, kept {live.kept / 1e6:.2f};"
        f" compacted {compacted / 1e6:.2f}"
    )


# --- time ---------------------------------------------------------------------


_NO_POLICY = "no policy"
_COST_SIDES = (_NO_POLICY, f"keep_last={_KEEP_LAST}")
_COST_MAX = 1.25
_DURABILITIES: tuple[Durability, ...] = ("commit", "interval")


@contextmanager
def _cost(bench: Bench, durability: Durability) -> Iterator[dict[str, Operation]]:
    """Yield an append to a long chat without a policy, and one to a long chat with a policy."""
    messages = Corpus().endless(_TURN_BYTES)
    with ExitStack() as stack:
        operations: dict[str, Operation] = {}
        for name in _COST_SIDES:
            path = bench.directory / f"{durability} {name}.state"
            store = stack.enter_context(opened(path, durability=durability))
            thread = store.thread("chat", schema=_LIST)
            thread.commit({"messages": [next(messages)]})
            if name != _NO_POLICY:
                store.set_retention(keep_last=_KEEP_LAST)
            for _ in range(bench.size(_TURNS, at_least=300)):
                _append(thread, next(messages))
            operations[name] = partial(_append_next, thread, messages)
        yield operations


def _append_next(thread: Thread, messages: Iterator[dict[str, Any]]) -> None:
    _append(thread, next(messages))


def _measure_cost(bench: Bench) -> Result:
    checks: list[TargetCheck] = []
    sides: list[Side] = []
    slowest_ms = []
    for durability in _DURABILITIES:
        with _cost(bench, durability) as operations:
            samples = interleave(operations, count=bench.repeats * _COMMITS_PER_REPEAT)
        plain, retained = samples.values()
        checks.append(at_most(f"{durability}: median commit, with a policy", retained.p50_us / plain.p50_us, _COST_MAX))
        checks.append(
            at_most(f"{durability}: mean commit, with a policy", _mean_us(retained) / _mean_us(plain), _COST_MAX)
        )
        sides += [taken.side(f"{durability}, {name}") for name, taken in samples.items()]
        slowest_ms += [f"{percentile(taken.durations_ns, 100) / 1e6:.1f}" for taken in samples.values()]
    return Result(
        checks=tuple(checks),
        sides=tuple(sides),
        notes=(
            (
                f"append {_TURN_BYTES} B to a chat of {bench.size(_TURNS, at_least=1000)} turns; the policy runs at"
                f" every 64th commit, which p99 shows; the slowest commits took {', '.join(slowest_ms)} ms"
            ),
        ),
    )


def _mean_us(samples: Samples) -> float:
    return sum(samples.durations_ns) / len(samples.durations_ns) / 1000


SIZE = BenchWorkload("retained-chat", "File of a 10,000-turn chat with keep_last=10", "commit", _measure_size)
COST = BenchWorkload(
    "retention-cost",
    "Commit with a retention policy, compared with one without",
    "commit, and interval",
    _measure_cost,
)
