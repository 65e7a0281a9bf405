"""A guard, and a key: what they add to a commit, which planted secrets it misses, and which clean texts it changes."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import statelog
from statelog.bench.corpus import Corpus
from statelog.bench.guard_texts import clean, planted
from statelog.bench.measure import interleave
from statelog.bench.result import Result, at_most, exactly
from statelog.bench.workload import Bench, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.bench.measure import Operation
    from statelog.storage.options import Durability

_VALUE_BYTES = 2048
_PER_REPEAT = 400
_TEXTS = 2000
_PER_COMMIT = 50
_SEED = 50
_KEY = "the key of a measured store"
_TIMES_MAX: dict[Durability, float] = {"commit": 1.15, "interval": 1.6}
_CHANGED_PERCENT_MAX = 0.5


def _measure(bench: Bench) -> Result:
    from statelog.guard import Guard  # and re2, an extra

    parts = [_measure_commits(bench, durability, Guard(), key) for key in (None, _KEY) for durability in _TIMES_MAX]
    return Result.joined([*parts, _measure_texts(bench, Guard())])


def _measure_commits(bench: Bench, durability: Durability, guard: statelog.Guard, key: str | None) -> Result:
    """Measure commits of 2 KB with a guard, and perhaps a key, alternating with commits without either."""
    given_what = "a guard" if key is None else "a guard and a key"
    with ExitStack() as stack:

        def commits(name: str, given: statelog.Guard | None, key: str | None) -> Operation:
            path = bench.directory / f"{name}, {durability}.state"
            store = stack.enter_context(statelog.open(path, durability=durability, guard=given, key=key))
            thread = store.thread("t")
            texts = Corpus().endless(_VALUE_BYTES)
            thread.commit({"text": next(texts)})
            return lambda: thread.commit({"text": next(texts)})

        bare, guarded = interleave(
            {"bare": commits(f"beside {given_what}", None, None), "guarded": commits(given_what, guard, key)},
            count=bench.repeats * bench.size(_PER_REPEAT, at_least=16),
        ).values()
    what = f"commit of 2 KB with {given_what}, {durability}: time, relative to one without"
    return Result(
        checks=(at_most(what, guarded.p50_us / bare.p50_us, _TIMES_MAX[durability]),),
        sides=(guarded.side(f"with {given_what}, {durability}"), bare.side(f"without {given_what}, {durability}")),
        notes=(f"{given_what}, {durability}: processor {guarded.processor_p50_us / bare.processor_p50_us:.2f}x",),
    )


def _measure_texts(bench: Bench, guard: statelog.Guard) -> Result:
    """Count what the guard misses and changes, of texts that are committed and read again."""
    random = Random(_SEED)  # noqa: S311 - the same texts each time
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
    """Return True if a text has a secret; of a key in several lines, one of those between the first and the last."""
    return any(line in text for line in secret.splitlines() if not line.startswith("-----"))


def _stored(path: Path, guard: statelog.Guard, texts: list[str]) -> list[str]:
    with statelog.open(path, durability="interval", guard=guard) as store:
        thread = store.thread("texts")
        found: list[str] = []
        for at in range(0, len(texts), _PER_COMMIT):
            thread.commit({"texts": texts[at : at + _PER_COMMIT]})
            found += thread.state["texts"].to_python()
        return found


GUARD = Workload(
    "guard", "A guard that keeps secrets out of the store", "commit and interval", _measure, ("re2",), extra="guard"
)
