"""Records workloads, and examines distinct images of them in parallel until there are enough."""

from __future__ import annotations

import math
import pickle
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.testing.powerloss.disk import Disk
from statelog.testing.powerloss.examine import BadImage, Tally, Task
from statelog.testing.powerloss.recorder import Recording, log_directory, record
from statelog.testing.powerloss.shim import ShimLog
from statelog.testing.powerloss.workers import Died, WorkerPool, worker_count
from statelog.testing.powerloss.workloads import Workload, standard_workloads

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

_RUN = "statelog.testing.powerloss.examine:run_task"
_TASK_TIMEOUT_S = 300.0
_TASK_IMAGES = 400
"""The approximate number of images in a task. A task takes only seconds, so that a campaign can end soon."""

_UNITS_MAX = 12
_SECOND_OF = 50
_FEW_UNITS = 3
_WORKER_LOG_BYTES = 1 << 28
_STALE = 0.02
"""If a smaller share of a pass's images is new, practically all images have been examined."""


@dataclass(slots=True)
class PowerLossReport:
    """The results of power cuts.

    Attributes:
        cuts: the number of points of the recordings at which the power was cut.
        cuts_all: the number of all points of the recordings.
        images: the number of distinct images that were examined.
        built: the number of images, including equal ones.
        second_cuts: the number of points of recoveries at which the power was cut again.
        second_images: the number of distinct images of second cuts.
        lost: the number of images that lack something acknowledged.
        wrong: the number of images that have wrong contents, cannot be opened, or kill or hang the process.
        bad: some of the lost and wrong images.
        by_workload: the number of distinct images of each workload.
        bad_by_workload: the number of lost and wrong images of each workload.
        duration_s: the duration of the campaign.
    """

    cuts: int = 0
    cuts_all: int = 0
    images: int = 0
    built: int = 0
    second_cuts: int = 0
    second_images: int = 0
    lost: int = 0
    wrong: int = 0
    bad: list[BadImage] = field(default_factory=list)
    by_workload: dict[str, int] = field(default_factory=dict)
    bad_by_workload: dict[str, int] = field(default_factory=dict)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing acknowledged was lost, and no other fault was found."""
        return not (self.lost or self.wrong)


class _Campaign:
    """The recordings, and the results so far."""

    def __init__(
        self,
        recordings: Sequence[Recording],
        directory: Path,
        *,
        thorough: bool,
        share: float,
        until_bad: bool,
        seed: int,
        evidence: Path | None,
    ) -> None:
        self.tallies = [Tally() for _ in recordings]
        self._distinct: set[bytes] = set()
        self._recordings = recordings
        self._seed = seed
        self._evidence = evidence
        self._until_bad = until_bad
        self._units_max, self._second_of = (_UNITS_MAX, _SECOND_OF) if thorough else (_FEW_UNITS, 0)
        self._paths = []
        for number, recording in enumerate(recordings):
            path = directory / f"recording-{number}"
            path.write_bytes(pickle.dumps(recording))
            self._paths.append(path)
        self._units = [_count_units(recording) for recording in recordings]
        is_cut = iter(spread(sum(map(len, self._units)), share))
        self._is_cut = [[next(is_cut) for _count in units] for units in self._units]
        """For each recording, a flag for each of its points: whether the power is cut there."""
        self.passes = 0

    @property
    def images(self) -> int:
        """The number of distinct images so far, of all recordings together, without images of second cuts."""
        return len(self._distinct)

    def tasks(self, wanted: int) -> list[Task]:
        """Return the tasks of one pass: in the first pass the systematic images, later about `wanted` random ones."""
        self.passes += 1
        is_first = self.passes == 1
        chosen = list(zip(self._units, self._is_cut, strict=True))
        cuts = sum(1 for units, here in chosen for count, is_cut in zip(units, here, strict=True) if count and is_cut)
        rounds = 1 if is_first else max(wanted // max(cuts, 1), 1)
        tasks = []
        for path, (units, here) in zip(self._paths, chosen, strict=True):
            start = weight = 0
            for cut, count in enumerate(units):
                if not here[cut]:
                    start = cut + 1
                    continue
                weight += (rounds if count else 0) + (2 * min(count, self._units_max) + 2 if is_first else 0)
                if weight >= _TASK_IMAGES or cut == len(units) - 1 or not here[cut + 1]:
                    tasks.append(self._task(path, start, cut + 1, rounds, is_first=is_first))
                    start, weight = cut + 1, 0
        return tasks

    def _task(self, path: Path, start: int, stop: int, rounds: int, *, is_first: bool) -> Task:
        seed = self._seed * 1_000_003 + self.passes
        units_max = self._units_max if is_first else 0
        return Task(path, start, stop, seed, units_max, rounds, self._second_of, self._evidence, self._until_bad)

    def is_wanted(self, task: Task) -> bool:
        """Return False if the task's recording has a bad image, and one is enough (`until_bad`)."""
        return not (self._until_bad and self.tallies[self._paths.index(task.recording)].bad)

    def take(self, task: Task, result: Tally | Died) -> None:
        """Add the result of a task."""
        number = self._paths.index(task.recording)
        if isinstance(result, Died):
            name = self._recordings[number].workload.name
            bad = BadImage(name, task.start, "", f"cuts {task.start} to {task.stop}", False, result.reason, None)  # noqa: FBT003
            result = Tally(wrong=1, bad=[bad])
        if self.passes > 1:
            result.cuts = 0  # Count the cuts only in the first pass.
        self.tallies[number].add(result)
        self._distinct |= result.digests

    def report(self, duration_s: float) -> PowerLossReport:
        """Return the results so far."""
        whole = Tally()
        names = [recording.workload.name for recording in self._recordings]
        for tally in self.tallies:
            whole.add(tally)
        return PowerLossReport(
            cuts=whole.cuts,
            cuts_all=sum(map(len, self._units)),
            images=self.images,
            built=whole.images,
            second_cuts=whole.second_cuts,
            second_images=len(whole.second_digests),
            lost=whole.lost,
            wrong=whole.wrong,
            bad=whole.bad,
            by_workload={name: len(tally.digests) for name, tally in zip(names, self.tallies, strict=True)},
            bad_by_workload={name: tally.lost + tally.wrong for name, tally in zip(names, self.tallies, strict=True)},
            duration_s=duration_s,
        )


def spread(count: int, share: float) -> list[bool]:
    """Choose a share of `count` items, evenly spread, and at least one. Return for each item whether it is chosen."""
    return [math.ceil((number + 1) * share) > math.ceil(number * share) for number in range(count)]


def _count_units(recording: Recording) -> list[int]:
    disk = Disk(recording.trace)
    counts = [len(disk.units())]
    for at, event in enumerate(recording.trace.events):
        disk.apply(at, event)
        counts.append(len(disk.units()))
    return counts


def examine_recordings(
    recordings: Sequence[Recording],
    *,
    images: int,
    share: float = 1.0,
    thorough: bool = True,
    until_bad: bool = False,
    seconds: float | None = None,
    seed: int = 0,
    directory: Path | None = None,
    evidence: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PowerLossReport:
    """Examine images of recordings.

    Args:
        recordings: at least one recording.
        images: the number of distinct images. The systematic images are examined in any case. The campaign ends early
            if there are no more images.
        share: the share of the points at which the power is cut, evenly spread.
        thorough: single out up to 12 units at each cut, and cut recoveries again. Otherwise, single out up to 3 units.
        until_bad: stop examining a recording after its first bad image.
        seconds: the maximum duration.
        seed: the seed of all random choices.
        directory: the directory of the images. By default, they are in memory.
        evidence: a directory for bad images.
        workers: the number of processes. By default, one for each processor.
        progress: called with (images done, images wanted).
    """
    started = time.monotonic()
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=log_directory())))
        scratch = temporary
        if directory is not None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        campaign = _Campaign(
            recordings, temporary, thorough=thorough, share=share, until_bad=until_bad, seed=seed, evidence=evidence
        )
        environments = []
        for number in range(workers or worker_count()):
            watched = scratch / f"images-{number}"
            watched.mkdir()
            log = ShimLog.create(temporary / f"log-{number}", capacity_bytes=_WORKER_LOG_BYTES)
            environments.append(stack.enter_context(log).environment(watched))
        pool = stack.enter_context(WorkerPool(environments))
        for _ in _passes(campaign, pool, images, progress):
            if seconds is not None and time.monotonic() - started > seconds:
                break
        return campaign.report(time.monotonic() - started)


def _passes(
    campaign: _Campaign, pool: WorkerPool, images: int, progress: Callable[[int, int], None] | None
) -> Iterator[None]:
    """Run passes until there are enough images. Yield after each task."""
    while True:
        before = campaign.images
        tasks = campaign.tasks(images - before)
        for task, result in pool.map(_RUN, tasks, timeout_s=_TASK_TIMEOUT_S, is_wanted=campaign.is_wanted):
            if result is not None:
                campaign.take(task, result)
            if progress is not None:
                progress(min(campaign.images, images), images)
            yield
            if campaign.passes > 1 and campaign.images >= images:
                break
        found = campaign.images - before
        if campaign.images >= images or (campaign.passes > 1 and found < _STALE * (images - before)):
            return


def check_power_loss(
    workloads: Sequence[Workload] | None = None,
    *,
    images: int = 2000,
    share: float = 1.0,
    seconds: float | None = None,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    evidence: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PowerLossReport:
    """Record workloads, cut the power at every point of them, and examine what is left.

    Args:
        workloads: the workloads. By default, the standard ones.
        images: the number of distinct images; see `examine_recordings`.
        share: the share of the points at which the power is cut.
        seconds: the maximum duration.
        seed: the seed of all random choices.
        directory: a directory on the disk to test, for the workloads and the images. By default, they are in memory,
            with the same writes and flushes.
        evidence: a directory for bad images.
        workers: the number of processes. By default, one for each processor.
        progress: called with (images done, images wanted).

    Raises:
        UsageError: this machine cannot record.
    """
    where = log_directory() if directory is None else Path(directory)
    recordings = []
    for workload in standard_workloads() if workloads is None else workloads:
        with tempfile.TemporaryDirectory(dir=where) as temporary:
            recordings.append(record(workload, Path(temporary)))
    return examine_recordings(
        recordings,
        images=images,
        share=share,
        seconds=seconds,
        seed=seed,
        directory=where,
        evidence=evidence,
        workers=workers,
        progress=progress,
    )
