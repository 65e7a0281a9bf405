"""The cost of the smallest commit: after a commit of another process, relative to after a commit of its own process."""

from __future__ import annotations

import sys
from functools import partial

import statelog
from statelog.bench.children import ask, started
from statelog.bench.measure import Samples
from statelog.bench.result import Result, at_most
from statelog.bench.workload import Bench, Workload

_ROUNDS = 1_000
_AFTER_OTHER_MAX = 1.3

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
    """Run the other process: open the store whose path is the first line, and another one, and then obey each line."""
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
        at_most(f"{name}: processor, of {_OWN}", taken_us[name] / taken_us[_OWN], _AFTER_OTHER_MAX)
        for name in (_OTHER_THREAD, _SAME_THREAD)
    ]
    notes = [
        f"{name}: processor {taken_us[name] / taken_us[_OWN]:.2f}x, "
        f"of {_ELSEWHERE} {taken_us[name] / taken_us[_ELSEWHERE]:.2f}x"
        for name in _LINES
    ]
    sides = [taken.side(f"a commit {name}") for name, taken in samples.items()]
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


SMALL = Workload(
    "small",
    "the smallest commit, of an int, after an own commit and after another process's",
    "interval",
    _measure,
)
