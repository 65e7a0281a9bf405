"""Builds the images of some cuts of a recording, and examines each one. This is the work of a worker process.

The worker is also recorded. So its recovery of an image can be cut again, and the images of this "second cut" are
examined in the same way.
"""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.testing.powerloss.disk import Disk
from statelog.testing.powerloss.images import random_choice, systematic_choices
from statelog.testing.powerloss.oracle import Expectation, Lane, judge, look, remove_all
from statelog.testing.powerloss.recorder import Recording
from statelog.testing.powerloss.shim import DIRECTORY_VARIABLE, ShimLog, mark
from statelog.testing.powerloss.trace import read_trace
from statelog.testing.powerloss.workers import find_function
from statelog.testing.powerloss.workloads import STORE_NAME, Workload, WorkloadSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.testing.powerloss.contents import Contents
    from statelog.testing.powerloss.disk import Choice, Image, Unit
    from statelog.testing.powerloss.images import Mode
    from statelog.testing.powerloss.oracle import ImageFinding

_BAD_MAX = 20
"""The maximum number of bad images that are described. Further ones are only counted."""

_EVENT_LENGTH_MAX = 120

_SECOND = (4, 1, 0)
"""`units_max`, `rounds` and `second_of` of the task for a second cut. The last is 0, so there is no third cut."""

_REOPENED_OF = 8
_GARBAGE_OF = 16
"""One image in this many gets garbage in its mapped files. One in `_REOPENED_OF` is reopened after a commit."""

_GARBAGE_SIZE_BYTES_MAX = 3 * 65536


@dataclass(frozen=True, slots=True)
class Task:
    """Some cuts of one recording.

    Attributes:
        recording: the file with the pickled recording.
        start: the first cut. Cut n is after n events.
        stop: the cut after the last one.
        seed: the seed of all random choices.
        units_max: the maximum number of units to single out at a cut. 0 means only random images.
        rounds: the number of random images for each cut with uncertain changes.
        second_of: of this many images, one is cut again during its recovery. 0 means none.
        evidence: a directory for bad images.
        until_bad: end the task after the first cut with a bad image.
    """

    recording: Path
    start: int
    stop: int
    seed: int
    units_max: int
    rounds: int
    second_of: int
    evidence: Path | None
    until_bad: bool = False


@dataclass(frozen=True, slots=True)
class BadImage:
    """An image that breaks the guarantees.

    Attributes:
        workload: the name of the workload.
        cut: the number of events before the cut.
        event: the last event before the cut.
        how: the changes that reached the disk.
        lost: True if something acknowledged is missing, False for another fault.
        message: a description of the fault.
        evidence: the directory of the image, if the image is kept.
    """

    workload: str
    cut: int
    event: str
    how: str
    lost: bool
    message: str
    evidence: Path | None


@dataclass(slots=True)
class Tally:
    """Counts of examined and bad images. `images` also counts equal images, which have one digest in `digests`."""

    cuts: int = 0
    images: int = 0
    digests: set[bytes] = field(default_factory=set)
    second_cuts: int = 0
    second_images: int = 0
    second_digests: set[bytes] = field(default_factory=set)
    lost: int = 0
    wrong: int = 0
    bad: list[BadImage] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.cuts += other.cuts
        self.images += other.images
        self.digests |= other.digests
        self.second_cuts += other.second_cuts
        self.second_images += other.second_images
        self.second_digests |= other.second_digests
        self._add_bad(other)

    def add_second(self, other: Tally) -> None:
        """Add the counts of a second cut."""
        self.second_cuts += other.cuts
        self.second_images += other.images
        self.second_digests |= other.digests
        self._add_bad(other)

    def _add_bad(self, other: Tally) -> None:
        self.lost += other.lost
        self.wrong += other.wrong
        self.bad += other.bad[: max(_BAD_MAX - len(self.bad), 0)]


class Examiner:
    """Examines images of one recording, in the recorded directory of this process."""

    def __init__(self, recording: Recording, *, depth: int = 0) -> None:
        self._recording = recording
        self._depth = depth
        self._progress = list(recording.progress())
        self._findings = {} if depth else _findings_of(recording)
        self._interned: dict[ImageFinding, ImageFinding] = {}
        self._directory = Path(os.environ[DIRECTORY_VARIABLE])
        if recording.workload.setup:
            find_function(recording.workload.setup)()

    def run(self, task: Task) -> Tally:
        """Examine the cuts of a task."""
        tally = Tally()
        generator = random.Random(f"{task.seed} {task.start} {self._depth}")  # noqa: S311 - each run must get the same numbers
        disk = Disk(self._recording.trace)
        events = self._recording.trace.events
        for cut in range(len(events) + 1):
            if cut:
                disk.apply(cut - 1, events[cut - 1])
            if not task.start <= cut < task.stop:
                continue
            tally.cuts += 1
            units = disk.units()
            for mode, choice in _choices(units, generator, task):
                image = disk.image(units, choice)
                self._examine(tally, task, cut, image, _Made(units, mode, choice), generator)
            if task.until_bad and tally.bad:
                break
        return tally

    def _examine(self, tally: Tally, task: Task, cut: int, image: Image, made: _Made, generator: random.Random) -> None:
        digest = image.digest
        tally.images += 1
        tally.digests.add(digest)
        finding = self._findings.get(digest)
        if finding is None:
            is_second = task.second_of > 0 and generator.randrange(task.second_of) == 0
            finding = self._look_twice(tally, task, image, generator) if is_second else self._look(image, generator)
            self._findings[digest] = self._interned.setdefault(finding, finding)
        verdict = judge(finding, self._progress[cut], self._recording.expectation)
        if verdict is None:
            return
        tally.lost += verdict.lost
        tally.wrong += not verdict.lost
        if len(tally.bad) < _BAD_MAX:
            event = "" if cut == 0 else _shorten(repr(self._recording.trace.events[cut - 1]))
            name, message = self._recording.workload.name, verdict.message
            kept = None if task.evidence is None else _keep(image, task.evidence, f"{name}, {made}: {message}")
            tally.bad.append(BadImage(name, cut, event, str(made), verdict.lost, message, kept))

    # --- one image ------------------------------------------------------------------

    def _look(self, image: Image, generator: random.Random) -> ImageFinding:
        log = own_log()
        with log.paused():
            self._put(image, generator)
            return look(
                self._directory / STORE_NAME,
                self._recording.workload.durability,
                self._recording.expectation,
                key=self._recording.workload.key,
                finish=self._finish if generator.randrange(_REOPENED_OF) == 0 else None,
            )

    def _finish(self, step: int) -> None:
        """Repeat the step with the number `step` in the workload's only lane."""
        workload = self._recording.workload
        session = WorkloadSession(self._directory / STORE_NAME, {"key": workload.key}, workload.schema)
        refused = session.do(workload.lanes[0][step - 1])
        session.close()
        assert refused is None, f"step {step}, repeated: {refused}"

    def _put(self, image: Image, generator: random.Random) -> None:
        remove_all(self._directory)
        image.write(self._directory)
        for name in self._recording.trace.unspecified:
            if generator.randrange(_GARBAGE_OF) == 0:
                garbage = generator.randbytes(generator.randrange(_GARBAGE_SIZE_BYTES_MAX))
                (self._directory / name).write_bytes(garbage)

    def _look_twice(self, tally: Tally, task: Task, image: Image, generator: random.Random) -> ImageFinding:
        """Examine an image, record this examination, and then examine images of the new recording."""
        log = own_log()
        with log.paused():
            remove_all(self._directory)
            image.write(self._directory)
        log.reset()
        steps: list[Contents] = []

        def on_step(number: int, contents: Contents) -> None:
            mark(f"done 0 {number}".encode())
            steps.append(contents)
            mark(f"begin 0 {number + 1}".encode())

        mark(b"begin 0 0")
        recording = self._recording
        path = self._directory / STORE_NAME
        finding = look(
            path, recording.workload.durability, recording.expectation, key=recording.workload.key, on_step=on_step
        )
        if finding.problem:
            return finding
        trace = read_trace(log.records(), image.as_base())
        expectation = Expectation((Lane(None, tuple(steps)),), None)
        workload = Workload(
            f"{recording.workload.name}, second cut",
            ((),),
            durability=recording.workload.durability,
            key=recording.workload.key,
        )
        again = Task(task.recording, 0, len(trace.events) + 1, generator.randrange(2**32), *_SECOND, task.evidence)
        found = Examiner(Recording(workload, trace, expectation), depth=self._depth + 1).run(again)
        tally.add_second(found)
        return finding


@dataclass(frozen=True, slots=True)
class _Made:
    """Describes for reports how an image was made."""

    units: tuple[Unit, ...]
    mode: Mode
    choice: Choice

    def __str__(self) -> str:
        there, torn = [], []
        for position, (unit, level) in enumerate(zip(self.units, self.choice.levels, strict=True)):
            if level:
                there.append(f"{unit}" + (f" ({level} of {unit.levels})" if unit.levels > 1 else ""))
            if position in self.choice.torn:
                torn.append(f"{unit} (sectors {self.choice.torn[position]:08b})")
        there_text = ", ".join(there) if there else "nothing"
        return f"{self.mode.value}: of {len(self.units)}, {there_text}" + (f"; torn {', '.join(torn)}" if torn else "")


def _choices(units: tuple[Unit, ...], generator: random.Random, task: Task) -> Iterator[tuple[Mode, Choice]]:
    if task.units_max:
        yield from systematic_choices(units, generator, units_max=task.units_max)
    if units:
        for _ in range(task.rounds):
            yield random_choice(units, generator)


def _keep(image: Image, evidence: Path, words: str) -> Path:
    kept = evidence / image.digest.hex()
    if kept.exists():
        return kept
    kept.mkdir(parents=True)
    image.write(kept)
    (kept / "what.txt").write_text(f"{words}\n", encoding="utf-8", errors="backslashreplace")
    return kept


def _shorten(text: str) -> str:
    return text if len(text) <= _EVENT_LENGTH_MAX else f"{text[:_EVENT_LENGTH_MAX]}..."


@cache
def own_log() -> ShimLog:
    """Return the log of this process."""
    log = ShimLog.attached()
    assert log is not None, "a worker that examines is itself recorded"
    return log


_known: list[tuple[Workload, Expectation, frozenset[str], dict[bytes, ImageFinding]]] = []


def _findings_of(recording: Recording) -> dict[bytes, ImageFinding]:
    """Return the findings, keyed by image digest. Recordings that differ only in their events share one dict.

    For example, a disk that forgets a flush shares it with the good disk, because most of their images are equal.
    """
    workload, expectation = replace(recording.workload, name=""), recording.expectation
    for *same, findings in _known:
        if same == [workload, expectation, recording.trace.unspecified]:
            return findings
    _known.append((workload, expectation, recording.trace.unspecified, {}))
    return _known[-1][-1]


@cache
def _examiner(recording: Path) -> Examiner:
    with own_log().paused():
        return Examiner(pickle.loads(recording.read_bytes()))  # noqa: S301 - the parent has written the data


def run_task(task: Task) -> Tally:
    """Examine the cuts of a task in this process."""
    return _examiner(task.recording).run(task)
