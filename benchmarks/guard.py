"""Measures what a guard and a key add to a commit, and which planted secrets and clean texts a guard gets wrong."""

from __future__ import annotations

import time
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import statelog
from benchmarks.corpus import Corpus
from benchmarks.guard_texts import clean, planted
from benchmarks.injection_texts import attack, clean_text
from benchmarks.measure import interleave
from benchmarks.result import Result, at_most, exactly
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.measure import Operation
    from statelog.storage.options import Durability

_VALUE_BYTES = 2048
_PER_REPEAT = 400
_TEXTS = 2000
_PER_COMMIT = 50
_SEED = 50
_KEY = "the key of a measured store"
_TIMES_MAX: dict[Durability, float] = {"commit": 1.15, "interval": 1.6}
_CHANGED_PERCENT_MAX = 0.5
_FALSE_ALARMS_PERCENT_MAX = 0.5
_PYTHON = "a guard and a check in Python"
"""The name of a measurement without a bound, because a user's check runs in another OS thread, for any time."""
_VERSIONS = 10_000
_THREADS = 20
_PLANTED_EVERY = 1000
_PLANTED_RULES = 14
_SEARCHES = 5


def _measure(bench: Bench) -> Result:
    from statelog.guard import Guard, allow, injection  # These need google-re2, an extra.

    guards = {
        "a guard": (Guard(), None),
        "a guard and injection": (Guard(on_write=[injection]), None),
        "a guard, injection and a key": (Guard(on_write=[injection]), _KEY),
        _PYTHON: (Guard(on_write=[lambda _value, _where: allow()]), None),
    }
    parts = [_measure_commits(bench, durability, guards) for durability in _TIMES_MAX]
    return Result.joined([*parts, _measure_texts(bench, Guard()), _measure_injection(bench), _measure_purge(bench)])


def _measure_commits(
    bench: Bench, durability: Durability, guards: dict[str, tuple[statelog.Guard, str | None]]
) -> Result:
    """Measure commits of 2 KB with guards and keys, alternating with commits without either."""
    with ExitStack() as stack:

        def commits(name: str, given: statelog.Guard | None, key: str | None) -> Operation:
            path = bench.directory / f"{name}, {durability}.state"
            store = stack.enter_context(statelog.open(path, durability=durability, guard=given, key=key))
            thread = store.thread("t")
            texts = Corpus().endless(_VALUE_BYTES)
            thread.commit({"text": next(texts)})
            return lambda: thread.commit({"text": next(texts)})

        measured = interleave(
            {
                "bare": commits("bare", None, None),
                **{name: commits(name, given, key) for name, (given, key) in guards.items()},
            },
            count=bench.repeats * bench.size(_PER_REPEAT, at_least=16),
        )
    bare = measured.pop("bare")
    what = "commit of 2 KB with {}, {}: time, relative to one without"
    return Result(
        checks=tuple(
            at_most(what.format(name, durability), each.p50_us / bare.p50_us, _TIMES_MAX[durability])
            for name, each in measured.items()
            if name != _PYTHON
        ),
        sides=(
            bare.side(f"without, {durability}"),
            *(each.side(f"with {name}, {durability}") for name, each in measured.items()),
        ),
        notes=tuple(
            f"{durability}, {name}: {each.p50_us / bare.p50_us:.2f}x, "
            f"processor {each.processor_p50_us / bare.processor_p50_us:.2f}x"
            for name, each in measured.items()
        ),
    )


def _measure_injection(bench: Bench) -> Result:
    """Count the clean texts that `injection` reports, and the attacks that it does not report."""
    from statelog.guard import Where, injection

    random = Random(_SEED)
    where, count = Where("write", "thread", "text"), bench.size(_TEXTS, at_least=500)
    cleans = [each for number in range(count) for each in (clean_text(random, number), clean(random, number))]
    false = sum(injection(each, where).kind != "allow" for each in cleans)
    missed = sum(injection(attack(random, number), where).kind == "allow" for number in range(count))
    return Result(
        checks=(
            at_most(
                f"clean texts reported by injection, of {2 * count}",
                100 * false / (2 * count),
                _FALSE_ALARMS_PERCENT_MAX,
                "%",
            ),
            exactly(f"planted attacks missed by injection, of {count}", missed, 0, ""),
        ),
        sides=(),
    )


def _measure_texts(bench: Bench, guard: statelog.Guard) -> Result:
    """Commit texts and read them again. Count the missed secrets, and the clean texts that the guard changed."""
    random = Random(_SEED)
    count = bench.size(_TEXTS, at_least=200)
    plants = [planted(random, number) for number in range(count)]
    cleans = [clean(random, number) for number in range(count)]
    stored = _stored(bench.directory / "texts.state", guard, [*(each.text for each in plants), *cleans])
    missed = sum(_is_missed(each.secret, text) for each, text in zip(plants, stored[:count], strict=True))
    changed = sum(given != text for given, text in zip(cleans, stored[count:], strict=True))
    return Result(
        checks=(
            exactly(f"planted secrets missed, of {count}", missed, 0, ""),
            at_most(f"clean texts changed, of {count}", 100 * changed / count, _CHANGED_PERCENT_MAX, "%"),
        ),
        sides=(),
    )


def _is_missed(secret: str, text: str) -> bool:
    """Return True if a text has a secret. For a key in several lines, one line between the first and last is enough."""
    return any(line in text for line in secret.splitlines() if not line.startswith("-----"))


def _stored(path: Path, guard: statelog.Guard, texts: list[str]) -> list[str]:
    with statelog.open(path, durability="interval", guard=guard) as store:
        thread = store.thread("texts")
        found: list[str] = []
        for at in range(0, len(texts), _PER_COMMIT):
            thread.commit({"texts": texts[at : at + _PER_COMMIT]})
            found += thread.state["texts"].to_python()
        return found


def _measure_purge(bench: Bench) -> Result:
    """Compare a search for secrets with a verification, and a purge with a compaction, on the same store."""
    random = Random(_SEED)
    count = bench.size(_VERSIONS, at_least=400)
    texts = Corpus().endless(_VALUE_BYTES)
    path = bench.directory / "purged.state"
    with statelog.open(path, durability="interval") as store:
        threads = [store.thread(f"t{number}") for number in range(_THREADS)]
        for number in range(count):
            text = str(next(texts))
            if number % _PLANTED_EVERY == 0:
                text = f"{text} {planted(random, number // _PLANTED_EVERY % _PLANTED_RULES).text}"
            threads[number % _THREADS].commit({"text": text, "number": number})
        store.compact()
        store.find_secrets()  # The first call in a process compiles the rules.
        finding = interleave({"verify": store.verify, "find": store.find_secrets}, count=_SEARCHES)
        compaction_s = min(_took_s(store.compact) for _ in range(_SEARCHES))
        purge_s = float("inf")
        for number in range(_SEARCHES):
            found = store.find_secrets()
            purge_s = min(purge_s, _took_s(lambda found=found: store.purge(found)))  # type: ignore[misc]
            threads[0].commit({"text": planted(random, number).text})
        found = store.find_secrets()
        store.purge(found)
        left = len(store.find_secrets())
    search = finding["find"].p50_us / finding["verify"].p50_us
    return Result(
        checks=(
            at_most("find_secrets: time, relative to verify", search, 1.5),
            at_most("purge: time, relative to compact", purge_s / compaction_s, 3),
            exactly("secrets left after a purge", left, 0, ""),
        ),
        sides=(finding["find"].side("find_secrets"), finding["verify"].side("verify")),
        notes=(f"{count} versions of 2 KB; compact {compaction_s:.2f} s, purge {purge_s:.2f} s",),
    )


def _took_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


GUARD = BenchWorkload(
    "guard", "A guard that keeps secrets out of the store", "commit and interval", _measure, ("re2",), extra="guard"
)
