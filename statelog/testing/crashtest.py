"""The tests of `statelog crashtest`: power cuts and kills on the user's disk.

Power cuts need a 64-bit Linux and a C compiler. Elsewhere the report says that they were left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.testing.kills import KillReport, check_kills
from statelog.testing.powerloss.campaign import PowerLossReport, check_power_loss
from statelog.testing.powerloss.controls import run_controls
from statelog.testing.powerloss.shim import is_supported

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES_DEFAULT = 20_000
_IMAGES_ALL = 100_000
SECONDS_DEFAULT = 20.0
_BAD_SHOWN = 6
_LINE_LENGTH_MAX = 400

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class CrashTestReport:
    """The results of the tests. A part is None until it has run.

    Attributes:
        controls: for each negative control, whether its fault was noticed.
        power_loss: the result of the power cuts.
        killed: the result of the kills.
        left_out: tests that this machine cannot run.
    """

    controls: dict[str, bool] = field(default_factory=dict)
    power_loss: PowerLossReport | None = None
    killed: KillReport | None = None
    left_out: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of cases that lost an acknowledged commit."""
        return sum(part.lost for part in (self.power_loss, self.killed) if part is not None)

    @property
    def wrong(self) -> int:
        """The number of cases with another fault, including negative controls that were not noticed."""
        parts = sum(part.wrong for part in (self.power_loss, self.killed) if part is not None)
        return parts + sum(not caught for caught in self.controls.values())

    @property
    def ok(self) -> bool:
        """Whether nothing was lost and no fault was found."""
        return not (self.lost or self.wrong)

    def bad(self) -> list[str]:
        """Return the first faults of each part, one bounded line each."""
        parts = [[f"control not caught: {name}" for name, caught in self.controls.items() if not caught]]
        if self.power_loss is not None:
            parts.append(
                [f"power cut, {each.workload}, cut {each.cut}: {each.message}" for each in self.power_loss.bad]
            )
        if self.killed is not None:
            parts.append([f"kill, {each}" for each in self.killed.bad])
        return [line[:_LINE_LENGTH_MAX] for part in parts for line in part[:_BAD_SHOWN]]

    def rows(self) -> list[tuple[str, int, str]]:
        """Return rows for display: name, count and remark."""
        rows: list[tuple[str, int, str]] = []
        if self.controls:
            of = f"of {len(self.controls)} deliberately faulty disks"
            rows.append(("controls caught", sum(self.controls.values()), of))
        if self.power_loss is not None:
            power = self.power_loss
            of = f"of {power.cuts_all:,} possible power cuts in {len(power.by_workload)} workloads"
            rows.append(("cuts", power.cuts, of))
            rows.append(("images", power.images, "distinct disk images that the cuts can leave"))
            rows.append(("second cuts", power.second_cuts, f"during recovery: {power.second_images:,} images"))
        if self.killed is not None:
            killed = self.killed
            rows.append(("kills", killed.kills, f"of 8 processes on one file; {killed.commits:,} commits acknowledged"))
        return [*rows, ("lost", self.lost, ""), ("wrong", self.wrong, "")]


def crashtest_steps(
    report: CrashTestReport,
    *,
    images: int = IMAGES_DEFAULT,
    seconds: float = SECONDS_DEFAULT,
    directory: Path | None = None,
    evidence: Path | None = None,
) -> Iterator[tuple[str, Callable[[Progress], None]]]:
    """Yield the name of each part and a function that runs it. The function puts its result into `report`.

    Args:
        report: the report to fill.
        images: the number of distinct images of power cuts. Below 100,000, the power is cut at proportionally fewer
            points, evenly spread. The report shows both numbers.
        seconds: the duration of the kills.
        directory: a directory on the disk to test. By default, the directory of temporary files.
        evidence: a directory for bad images.
    """
    where = directory or Path(tempfile.gettempdir())

    share = min(images / _IMAGES_ALL, 1.0)

    def controls(progress: Progress) -> None:
        report.controls = run_controls(where, progress=progress)

    def power_loss(progress: Progress) -> None:
        report.power_loss = check_power_loss(
            images=images, share=share, directory=where, evidence=evidence, progress=progress
        )

    def kills(progress: Progress) -> None:
        report.killed = check_kills(seconds=seconds, directory=where, progress=progress)

    if is_supported():
        yield "negative controls", controls
        yield "power cuts", power_loss
    else:
        report.left_out.append("power cuts: they need a 64-bit Linux and a C compiler")
    yield "killed processes", kills
