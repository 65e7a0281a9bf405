"""Compares the smallest operations with SQLite, and measures a commit after another process's commit."""

from __future__ import annotations

import itertools
import operator
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import statelog
from benchmarks import sqlite_peer
from benchmarks.board import table
from benchmarks.board.large_boards import entries, fill, folder_of, key_of, value_of
from benchmarks.children import ask, started
from benchmarks.corpus import Corpus
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measure import Operation
    from statelog.storage.options import Durability

_ROUNDS = 1_000
_AFTER_OTHER_MAX = 1.3
_BESIDE_PER_REPEAT = 400
_ENTRIES = 1000
_LISTED = 100
_MESSAGE_BYTES = 200

_PROCESSOR_MAX = {
    "commit of an int": 2.5,
    "append of 200 B": 2.8,
    "fenced commit": 3.0,
    "board.set": 3.0,
    "board.get": 1.3,
    f"board.list of {_LISTED}": 1.2,
    "state[...]": 0.9,
}
"""The maximum processor time with `interval`, relative to SQLite with synchronous=NORMAL."""

_WALL_MAX = {"commit of an int": 1.0, "board.set": 1.3}
"""The maximum time with `commit`, relative to SQLite with synchronous=FULL."""

_OWN = "after an own commit"
_WAITED = "after another process's answer"
_ELSEWHERE = "after another process's commit to another store"
_OTHER_THREAD = "after another process's commit to another thread"
_SAME_THREAD = "after another process's commit to the same thread"
_LINES = {
    _OWN: "",
    _WAITED: "answer",
    _ELSEWHERE: "elsewhere thread",
    _OTHER_THREAD: "here other",
    _SAME_THREAD: "here own",
}
"""For each case, the request to the other process before the measured commit. Its work leaves the CPU caches cold."""


def main(_number: int) -> None:
    """Run the other process: open the store at the path in the first line, and a second store. Then obey each line."""
    path = sys.stdin.readline().strip()
    with (
        statelog.open(path, durability="interval") as here,
        statelog.open(f"{path}.elsewhere", durability="interval") as elsewhere,
    ):
        stores = {"here": here, "elsewhere": elsewhere}
        _say("open")
        for line in sys.stdin:
            where, *thread_id = line.split()
            if where in stores:
                stores[where].thread(thread_id[0]).commit({"count": 1})
            _say("done")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _measure(bench: Bench) -> Result:
    return Result.joined(
        [_measure_beside(bench, "interval"), _measure_beside(bench, "commit"), _measure_after_others(bench)]
    )


def _measure_beside(bench: Bench, durability: Durability) -> Result:
    """Measure each operation, alternating with the equivalent operation in SQLite."""
    limits = _PROCESSOR_MAX if durability == "interval" else _WALL_MAX
    checks, sides = [], []
    with ExitStack() as stack:
        pairs = _pairs(stack, bench.directory / f"beside, {durability}", durability)
        for name, limit in limits.items():
            ours, theirs = interleave(
                dict(zip(("ours", "theirs"), pairs[name], strict=True)),
                count=bench.repeats * bench.size(_BESIDE_PER_REPEAT, at_least=16),
            ).values()
            processor = ours.processor_p50_us / theirs.processor_p50_us
            ratio = processor if durability == "interval" else ours.p50_us / theirs.p50_us
            what = "processor" if durability == "interval" else "time"
            checks.append(at_most(f"{name}, {durability}: {what}, relative to {sqlite_peer.NAME}'s", ratio, limit))
            sides += [ours.side(f"{name}, {durability}"), theirs.side(f"{sqlite_peer.NAME}: {name}, {durability}")]
    return Result(checks=tuple(checks), sides=tuple(sides))


def _pairs(stack: ExitStack, path: Path, durability: Durability) -> dict[str, tuple[Operation, Operation]]:
    """Return, by operation, a call of statelog and the equivalent call of SQLite, which has no fences."""
    synchronous = sqlite_peer.FULL if durability == "commit" else sqlite_peer.NORMAL
    store = stack.enter_context(statelog.open(f"{path}.state", durability=durability))
    database = path.with_name(f"{path.name}.sqlite")
    peer = stack.enter_context(sqlite_peer.connected(database, synchronous=synchronous))
    peer_board = stack.enter_context(table.connected(path.with_name("board.sqlite"), synchronous=synchronous))
    fill(store, entries(_ENTRIES))
    peer_board.fill(entries(_ENTRIES))
    board, thread = store.board(agent="bench"), store.thread("own")
    messages = store.thread("messages", schema={"messages": operator.add})
    lease = stack.enter_context(board.lease("thread/own"))
    ours_text, theirs_text = Corpus().endless(_MESSAGE_BYTES), Corpus().endless(_MESSAGE_BYTES)
    numbers = itertools.count()
    for _ in range(2 * _LISTED):
        thread.commit({"count": next(numbers)})
    peer.write("count", 0)

    def any_key() -> str:
        return key_of(next(numbers) % _ENTRIES)

    return {
        "commit of an int": (lambda: thread.commit({"count": next(numbers)}), lambda: peer.write("count", 1)),
        "append of 200 B": (
            lambda: messages.commit({"messages": [next(ours_text)]}),
            lambda: peer.append(next(theirs_text)),
        ),
        "fenced commit": (
            lambda: thread.commit({"count": next(numbers)}, fence=lease),
            lambda: peer.write("count", 1),
        ),
        "board.set": (
            lambda: board.set(any_key(), value_of(next(numbers))),
            lambda: peer_board.set(any_key(), value_of(next(numbers))),
        ),
        "board.get": (lambda: board.get(any_key()), lambda: peer_board.get(any_key())),
        f"board.list of {_LISTED}": (
            lambda: board.list(f"{folder_of(0)}*", limit=_LISTED),
            lambda: peer_board.list(folder_of(0), _LISTED),
        ),
        "state[...]": (lambda: thread.state["count"], lambda: peer.read("count")),
    }


def _measure_after_others(bench: Bench) -> Result:
    samples = {name: Samples() for name in _LINES}
    path = bench.directory / "agent.state"
    with started(__name__, 1) as others, statelog.open(path, durability="interval") as store:
        thread = store.thread("own")
        commit = partial(thread.commit, {"count": 1})
        ask(others, str(path))
        for _ in range(bench.size(_ROUNDS, at_least=8)):
            for name, line in _LINES.items():
                commit()
                if line:
                    ask(others, line)
                samples[name].time(commit)
    taken_us = {name: taken.processor_p50_us for name, taken in samples.items()}
    checks = [
        at_most(f"{name}: processor, relative to {_OWN}", taken_us[name] / taken_us[_OWN], _AFTER_OTHER_MAX)
        for name in (_OTHER_THREAD, _SAME_THREAD)
    ]
    notes = [
        f"{name}: processor {taken_us[name] / taken_us[_OWN]:.2f}x, "
        f"of {_ELSEWHERE} {taken_us[name] / taken_us[_ELSEWHERE]:.2f}x"
        for name in _LINES
    ]
    sides = [taken.side(f"a commit {name}") for name, taken in samples.items()]
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


SMALL = BenchWorkload(
    "small",
    "the smallest operations, compared with SQLite, and a commit of an int after another process's commit",
    f"interval ({sqlite_peer.NAME}: {sqlite_peer.NORMAL}); times: commit ({sqlite_peer.NAME}: {sqlite_peer.FULL})",
    _measure,
)
