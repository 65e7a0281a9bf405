"""Shows results as tables for people, or as JSON for programs."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from benchmarks.result import AT_LEAST, AT_MOST, EXACTLY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from benchmarks.result import Result, Side, TargetCheck
    from benchmarks.workload import BenchWorkload

_NOT_TOLD = "-"
_WORDS = {AT_MOST: "at most", AT_LEAST: "at least", EXACTLY: "exactly"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The machine and the settings of the measurements."""

    scale: float
    repeats: int
    directory: str
    filesystem: str
    system: str
    python: str
    switch_interval_s: float

    @classmethod
    def of(cls, directory: Path, *, scale: float, repeats: int) -> Setting:
        """Return the setting of measurements in `directory`."""
        return cls(
            scale=scale,
            repeats=repeats,
            directory=str(directory),
            filesystem=filesystem_of(directory),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            switch_interval_s=sys.getswitchinterval(),
        )


def filesystem_of(directory: Path) -> str:
    """Return Linux's name for the type of a folder's file system, or "unknown" on another system."""
    best, kind = Path(), "unknown"
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kind
    for line in lines:
        _device, place, type_, *_rest = line.split(" ")
        mount = Path(place.encode().decode("unicode_escape"))
        if directory.resolve().is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, type_
    return kind


def to_dict(setting: Setting, results: Mapping[BenchWorkload, Result]) -> dict[str, Any]:
    """Return everything as plain values for JSON."""
    found = [
        {"name": workload.name, "title": workload.title, "durability": workload.durability, **result.to_dict()}
        for workload, result in results.items()
    ]
    return {**asdict(setting), "results": found}


def print_setting(console: Console, setting: Setting) -> None:
    """Print the setting."""
    console.print(
        f"Python {setting.python}, {setting.system}, {setting.filesystem} in {setting.directory},"
        f" scale {setting.scale:g}, {setting.repeats} repeats",
        highlight=False,
    )
    if setting.filesystem in ("tmpfs", "ramfs"):
        console.print("This file system is memory: flushes cost nothing. Give a directory on a disk.", style="yellow")


def print_sides(console: Console, workload: BenchWorkload, result: Result) -> None:
    """Print the measurements of one workload."""
    console.print(Text.from_markup(f"\n[bold]{workload.title}[/bold]"))
    console.print(Text.from_markup(f"[dim]{workload.name}; durability: {workload.durability}[/dim]"))
    table = Table()
    table.add_column("side", overflow="fold")
    for column in ("p50", "p99", "processor", "per s", "written", "pages", "file"):
        table.add_column(column, justify="right", no_wrap=True)
    for side in result.sides:
        table.add_row(*_cells(side))
    if result.sides:
        console.print(table)
    for note in result.notes:
        console.print(note, style="dim", highlight=False)
    for check in result.checks:
        console.print(Text.from_markup(_sentence(check)))


def _cells(side: Side) -> tuple[str, ...]:
    return (
        side.name,
        _time(side.p50_us),
        _time(side.p99_us),
        _NOT_TOLD if side.processor_p50_us is None else _time(side.processor_p50_us),
        f"{side.per_second:,.0f}",
        _NOT_TOLD if side.written_bytes is None else _size(side.written_bytes),
        _NOT_TOLD if side.written_pages is None else f"{side.written_pages:.1f}",
        _NOT_TOLD if side.file_size_bytes is None else _size(side.file_size_bytes),
    )


def _sentence(check: TargetCheck) -> str:
    word = "[green]met[/green]" if check.is_met else "[bold red]missed[/bold red]"
    return f"  {word}: {check.what} {_value(check, check.value)}, {_target(check)}"


def print_targets(console: Console, results: Mapping[BenchWorkload, Result], *, scale: float) -> None:
    """Print all targets, met and missed."""
    table = Table(title="Targets", title_justify="left")
    table.add_column("workload", no_wrap=True)
    table.add_column("what", overflow="fold")
    for column in ("measured", "target", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for workload, result in results.items():
        for check in result.checks:
            met = "[green]met[/green]" if check.is_met else "[bold red]missed[/bold red]"
            table.add_row(workload.name, check.what, _value(check, check.value), _target(check), Text.from_markup(met))
    checks = [check for result in results.values() for check in result.checks]
    console.print()
    console.print(table)
    console.print(f"{sum(check.is_met for check in checks)} of {len(checks)} targets met", highlight=False)
    if scale < 1:
        console.print(f"Sizes were shrunk by {scale:g}: the targets are made for scale 1.", style="yellow")


def _target(check: TargetCheck) -> str:
    return f"{_WORDS[check.relation]} {_value(check, check.target)}"


def _value(check: TargetCheck, value: float) -> str:
    return f"{value:.2f}x" if check.unit == "x" else f"{value:.1f} {check.unit}"


def _time(time_us: float) -> str:
    return f"{time_us:.1f} us" if time_us < 1000 else f"{time_us / 1000:.2f} ms"


def _size(size_bytes: float) -> str:
    for unit, factor in (("MB", 1e6), ("KB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes:.0f} B"
