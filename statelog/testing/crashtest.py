"""What depends on a disk of the user's, power cuts and kills: what `statelog crashtest` runs.

Power cuts need a 64-bit Linux and a C compiler; elsewhere they are left out, and the report says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.testing.killing import KillReport, check_kills
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
    """What all of it came to; a part is None until it has run.

    Attributes:
        controls: for each store that breaks its promise on purpose, whether that was noticed.
        power_loss: images of power cuts.
        killed: processes.
        left_out: what this machine cannot do.

    """

    controls: dict[str, bool] = field(default_factory=dict)
    power_loss: PowerLossReport | None = None
    killed: KillReport | None = None
    left_out: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Cases in which something acknowledged was not there."""
        return sum(part.lost for part in (self.power_loss, self.killed) if part is not None)

    @property
    def wrong(self) -> int:
        """Cases in which something else was wrong; a control not caught is one."""
        parts = sum(part.wrong for part in (self.power_loss, self.killed) if part is not None)
        return parts + sum(not caught for caught in self.controls.values())

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, and nothing wrong."""
        return not (self.lost or self.wrong)

    def bad(self) -> list[str]:
        """Return the first things of each part that were wrong, a line each, of bounded length."""
        parts = [[f"control not caught: {name}" for name, caught in self.controls.items() if not caught]]
        if self.power_loss is not None:
            parts.append(
                [f"power cut, {each.workload}, cut {each.cut}: {each.message}" for each in self.power_loss.bad]
            )
        if self.killed is not None:
            parts.append([f"kill, {each}" for each in self.killed.bad])
        return [line[:_LINE_LENGTH_MAX] for part in parts for line in part[:_BAD_SHOWN]]

    def rows(self) -> list[tuple[str, int, str]]:
        """Return what to show: what, how many, and a remark."""
        rows: list[tuple[str, int, str]] = []
        if self.controls:
            of = f"of {len(self.controls)} disks that break their promise on purpose"
            rows.append(("controls caught", sum(self.controls.values()), of))
        if self.power_loss is not None:
            power = self.power_loss
            of = f"of {power.cuts_all:,} points of {len(power.by_workload)} workloads where the power can fail"
            rows.append(("cuts", power.cuts, of))
            rows.append(("images", power.images, "distinct, of what the disk may hold then"))
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
    """Yield the name of each part and a function that runs it, and puts what it came to into `report`.

    Args:
        report: filled part by part.
        images: of power cuts, distinct ones. With fewer than 100,000 the power is cut at as many fewer points,
            evenly spread. The report tells how many of how many.
        seconds: how long processes are killed.
        directory: on the disk to be tried; that of temporary files if left out.
        evidence: where bad images are kept.

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
