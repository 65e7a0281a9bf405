"""Damages a store file in every way, and measures what notices it: opening, `verify` or reads.

The promise: opening or `verify` finds damage that changes what a user reads. A read of damaged content raises
CorruptionError, and never returns anything else. A reader that dies in a child process also counts as found damage.
Damage that changes nothing is explained by its place (`HARMLESS`).
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from corruption_case import MAX_SIZE_BYTES, DamageResult, Patch, look_at
from corruption_pages import PAGE_SIZE_BYTES, PageMap

from statelog.testing.history import Commit, Fork, Rollback, Tag
from statelog.testing.powerloss.recorder import log_directory
from statelog.testing.powerloss.steps import Retain, Step
from statelog.testing.powerloss.workers import Died, WorkerPool, worker_count
from statelog.testing.powerloss.workloads import SCHEMA, WorkloadSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_RUN = "corruption:run_batch"
_BATCH = 25
_TIMEOUT_S = 300.0
_BAD_MAX = 100
_USED_OF = 8
"""One in this number of unnoticed damages is checked again after commits."""

HARMLESS: dict[str, str] = {
    "free page": "holds nothing: LMDB writes it before it reads it",
    "stale meta page": "of the commit before the last: not read, and overwritten by the next commit",
    "unused rest": "behind a meta page: never read",
    "unused gap": "between the pointers and the nodes of a page: never read",
    "unused tail": "behind a long value: never read",
    "padding": "two bytes of a page's head that LMDB does not use",
    "padding of nodes": "nodes begin at even places",
    "live meta page: page flags": "of the flags of a page only some are looked at",
    "live meta page: bounds": "a meta page has no nodes",
    "live meta page: main: page size": "of a table: only the free list's is used",
    "live meta page: free list: flags": "how the file was opened when it was made",
    "free list, leaf page: key": "which commit freed pages: any between those beside it will do",
    "index, branch page: key": "any key between those of two pages parts them",
    "log, branch page: key": "the same",
    "map size": "LMDB takes the larger of this and what is asked for",
}
"""Why a flip changes nothing, for readers or writers, by the page, or the part of a page, that it fell into."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage to a file, and its place.

    Attributes:
        kind: "flip", "byte", "zero", "cut", "swap", "copy".
        place: for flips and bytes, the purpose of the byte, else the kind.
        patches: the bytes.
    """

    kind: str
    place: str
    patches: tuple[Patch, ...]


@dataclass(slots=True)
class DamageCounts:
    """The results for one kind of damage or of place.

    Attributes:
        done: the number of damages.
        refused: those with which the file did not open.
        named: those that `verify` found.
        killed: those that killed the process of `verify`.
        harmless: those that changed nothing for any reader.
        missed: those that changed something for a reader, but that neither opening nor `verify` noticed.
        spread: those that were harmless until a commit.
    """

    done: int = 0
    refused: int = 0
    named: int = 0
    killed: int = 0
    harmless: int = 0
    missed: int = 0
    spread: int = 0

    @property
    def changed(self) -> int:
        """How often something changed for a reader."""
        return self.done - self.harmless

    def take(self, result: DamageResult) -> None:
        """Add one result."""
        look = result.verifying
        self.done += 1
        self.refused += bool(look.refused)
        self.killed += look.end != "done"
        self.named += look.end == "done" and not look.refused and look.problems > 0
        self.harmless += not result.is_visible
        self.missed += result.is_visible and not result.is_found
        self.spread += _has_spread(result)


def _has_spread(result: DamageResult) -> bool:
    later = result.later
    return later is not None and bool(
        later.end != "done"
        or later.refused
        or later.problems
        or later.damaged
        or later.absent
        or later.wrong
        or later.misnamed
        or later.leaked
    )


@dataclass(slots=True)
class CorruptionReport:
    """The results of all damage.

    Attributes:
        by_kind: counts by kind of damage.
        by_place: counts of flips by place.
        damaged_reads: reads that raised CorruptionError.
        placed_reads: those of them that named the place.
        absent_reads: reads that found something missing.
        killed_readers: processes that died while reading.
        wrong: reads that returned something else than what was written.
        misnamed: opening, `verify` and reads that raised another error of statelog than CorruptionError.
        leaked: those that raised an error of another library.
        hung: processes that did not end.
        missed: damage that a reader sees, but opening and `verify` do not.
        undecidable: flips among those that equal the bytes of a refused commit (`is_undecidable`).
        spread: damage that nobody noticed before a commit.
        unexplained: places of harmless flips that `HARMLESS` does not explain.
        bad: examples of the bad cases.
        duration_s: the duration of the whole campaign.
    """

    by_kind: dict[str, DamageCounts] = field(default_factory=dict)
    by_place: dict[str, DamageCounts] = field(default_factory=dict)
    damaged_reads: int = 0
    placed_reads: int = 0
    absent_reads: int = 0
    killed_readers: int = 0
    wrong: int = 0
    misnamed: int = 0
    leaked: int = 0
    hung: int = 0
    missed: int = 0
    undecidable: int = 0
    spread: int = 0
    unexplained: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def done(self) -> int:
        """How many files were damaged."""
        return sum(counts.done for counts in self.by_kind.values())

    @property
    def rate(self) -> float:
        """Of the damage that a reader can see, the part that opening or `verify` found."""
        changed = sum(counts.changed for counts in self.by_kind.values())
        return 1.0 if changed == 0 else 1 - self.missed / changed

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was read, nothing missed, nothing spread, nothing left unexplained."""
        bad = self.wrong + self.misnamed + self.leaked + self.hung + self.spread + self.missed - self.undecidable
        return not (bad or self.unexplained)

    def take(self, damage: Damage, result: DamageResult) -> None:
        """Add the result of one damage."""
        self.by_kind.setdefault(damage.kind, DamageCounts()).take(result)
        if damage.kind == "flip":
            self.by_place.setdefault(damage.place, DamageCounts()).take(result)
            if not result.is_visible and not result.is_found and not is_explained(damage.place):
                self.unexplained[damage.place] += 1
        reading, verifying = result.reading, result.verifying
        self.damaged_reads += reading.damaged
        self.placed_reads += reading.placed
        self.absent_reads += len(reading.absent)
        self.killed_readers += reading.end not in {"done", "hung"}
        self.hung += (reading.end == "hung") + (verifying.end == "hung")
        self.wrong += len(reading.wrong)
        self.misnamed += len(reading.misnamed) + len(verifying.misnamed)
        self.leaked += len(reading.leaked) + len(verifying.leaked)
        missed = result.is_visible and not result.is_found
        has_spread = _has_spread(result)
        is_known = missed and is_undecidable(damage) and not reading.wrong
        self.missed += missed
        self.undecidable += is_known
        self.spread += has_spread
        raised = (*reading.misnamed, *reading.leaked, *verifying.misnamed, *verifying.leaked)
        is_bad = (
            (missed and not is_known) or has_spread or reading.wrong or raised or "hung" in {reading.end, verifying.end}
        )
        if is_bad and len(self.bad) < _BAD_MAX:
            self.bad.append(describe(damage, result))


def is_undecidable(damage: Damage) -> bool:
    """Whether bit 1 of the last commit's transaction id was cleared.

    Where that commit did not grow the file, the bytes are then those that LMDB leaves when writing a meta page fails
    and the process dies at once: a commit that was refused. Such a store opens, one commit back (DESIGN.md, 6).
    """
    if damage.kind != "flip" or damage.place != "live meta page: transaction id":
        return False
    patch = damage.patches[0]
    return patch.offset % 8 == 0 and not patch.data[0] & 2


def describe(damage: Damage, result: DamageResult) -> str:
    """Return a damage and its result in one line."""
    where = ", ".join(f"{patch.offset}: {'cut' if patch.cut else patch.data[:8].hex()}" for patch in damage.patches[:2])
    reading = result.reading
    found = result.verifying.refused or result.verifying.first or result.verifying.end
    if _has_spread(result):
        found = f"nothing, but after some commits: {result.later}"
    raised = (*reading.leaked, *result.verifying.leaked, *reading.misnamed, *result.verifying.misnamed)
    seen = [*reading.wrong, *raised, *(f"absent: {each}" for each in reading.absent)]
    first = seen[0] if seen else reading.end if reading.end != "done" else f"{reading.damaged} damaged"
    return f"{damage.kind} at {where} ({damage.place}): verify: {found}; reader: {first}"


def is_explained(place: str) -> bool:
    """Return whether `HARMLESS` explains why a flip at a place may change nothing for a reader."""
    page, _, part = place.partition(": ")
    return any(name in HARMLESS for name in (place, page, part))


# --- files and damage -------------------------------------------------------------


def sample_steps() -> tuple[Step, ...]:
    """Return the steps for a small store with trees, long strings, branches, tags and free pages.

    It has so many threads that the index has branch pages.
    """

    def commit(thread: str, number: int, size: int) -> Commit:
        message = {"id": number, "text": f"message {number} " * size, "seen": {"a", number}, "at": (number, 2.5, None)}
        return Commit(thread, ({"messages": [message], "findings": [f"{number}"] * size, "total": number},))

    return (
        *(commit("a", number, 3) for number in range(4)),
        Commit("b", ({"notes": {f"key {n}": f"value {n}" * 9 for n in range(40)}},), metadata={"step": "b"}),
        *(commit("b", number, 20) for number in range(3)),
        Commit("long", ({"findings": ["x" * 30_000], "notes": {"bytes": bytes(range(256)) * 12}},)),
        Tag("a", "good", 1),
        Fork("a", "side", at=2, update={"total": 5}),
        Rollback("b", 0),
        Retain(2, threads="b"),
        commit("a", 9, 5),
        *(Commit(f"{number:02} of many, with a long id" * 4, ({"total": number},)) for number in range(40)),
    )


def make_sample() -> bytes:
    """Return a small store file."""
    with tempfile.TemporaryDirectory(dir=log_directory()) as temporary:
        path = Path(temporary) / "sample.state"
        session = WorkloadSession(path, {"max_size_bytes": MAX_SIZE_BYTES}, SCHEMA)
        for step in sample_steps():
            session.do(step)
        session.close()
        return path.read_bytes()


def flips(data: bytes, count: int, generator: random.Random, *, even: bool) -> Iterator[Damage]:
    """Yield single flipped bits.

    Args:
        data: the file.
        count: the number of flips.
        generator: chooses the bits.
        even: whether all kinds of places are equally likely. Otherwise all bytes are.
    """
    pages = PageMap(data)
    places = list(pages.offsets().values())
    for _ in range(count):
        offset = generator.choice(generator.choice(places)) if even else generator.randrange(len(data))
        flipped = bytes((data[offset] ^ 1 << generator.randrange(8),))
        yield Damage("flip", str(pages.place(offset)), (Patch(offset, flipped),))


def larger_damage(data: bytes, count: int, generator: random.Random) -> Iterator[Damage]:
    """Yield bytes overwritten, runs and pages zeroed, files cut off, pages swapped and copied."""
    pages = len(data) // PAGE_SIZE_BYTES

    def page(number: int) -> bytes:
        return data[number * PAGE_SIZE_BYTES : (number + 1) * PAGE_SIZE_BYTES]

    for number in range(count):
        one, other = generator.sample(range(pages), 2)
        at, to = one * PAGE_SIZE_BYTES, other * PAGE_SIZE_BYTES
        offset = generator.randrange(len(data))
        damages = (
            Damage("byte", "", (Patch(offset, generator.randbytes(1)),)),
            Damage("zero run", "", (Patch(offset, bytes(min(generator.randrange(1, 64), len(data) - offset))),)),
            Damage("garbage", "", (Patch(offset, generator.randbytes(min(16, len(data) - offset))),)),
            Damage("zero page", "", (Patch(at, bytes(PAGE_SIZE_BYTES)),)),
            Damage("cut", "", (Patch(at if number % 2 else offset, b"", cut=True),)),
            Damage("swap", "", (Patch(at, page(other)), Patch(to, page(one)))),
            Damage("copy", "", (Patch(at, page(other)),)),
        )
        yield damages[number % len(damages)]


# --- the run ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """Some damage to one file, for one call of a worker."""

    sample: Path
    directory: Path
    damages: tuple[Damage, ...]
    seed: int


def run_batch(batch: Batch) -> list[DamageResult]:
    """Do every damage of a batch in this process, each to a new copy."""
    data = batch.sample.read_bytes()
    path = batch.directory / f"damaged-{os.getpid()}.state"
    generator = random.Random(batch.seed)
    return [look_at(data, path, each.patches, use=generator.randrange(_USED_OF) == 0) for each in batch.damages]


def check_corruption(
    *,
    flip_count: int = 2000,
    larger_count: int = 350,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CorruptionReport:
    """Damage a store file again and again.

    Args:
        flip_count: the number of flipped bits: one half anywhere, the other evenly over all kinds of places.
        larger_count: the number of other damages.
        seed: the seed of all choices.
        directory: the directory of the files. The default is in memory.
        workers: the number of processes. The default is the number of processors.
        progress: called with the numbers of damages done and of all.
    """
    started = time.monotonic()
    report = CorruptionReport()
    generator = random.Random(seed)
    data = make_sample()
    damages = [
        *flips(data, flip_count // 2, generator, even=False),
        *flips(data, flip_count - flip_count // 2, generator, even=True),
        *larger_damage(data, larger_count, generator),
    ]
    with ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory or log_directory())))
        sample = where / "sample"
        sample.write_bytes(data)
        batches = list(_batches(damages, sample, where))
        pool = stack.enter_context(WorkerPool([None] * (workers or worker_count())))
        done = 0
        for batch, results in pool.map(_RUN, batches, timeout_s=_TIMEOUT_S):
            if isinstance(results, Died):
                report.leaked += 1
                report.bad.append(f"a worker died: {results.reason}")
                continue
            for damage, result in zip(batch.damages, results, strict=True):
                report.take(damage, result)
            done += len(results)
            if progress is not None:
                progress(done, len(damages))
    report.duration_s = time.monotonic() - started
    return report


def _batches(damages: Sequence[Damage], sample: Path, directory: Path) -> Iterator[Batch]:
    for start in range(0, len(damages), _BATCH):
        yield Batch(sample, directory, tuple(damages[start : start + _BATCH]), start)
