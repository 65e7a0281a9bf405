"""Runs workloads one after the other, each in its own folder, and shows their results."""

from __future__ import annotations

import difflib
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.workload import KEYS_DEFAULT, Bench, BenchWorkload, SkipError
from benchmarks.workloads import WORKLOADS
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from benchmarks.result import Result

SCALE_DEFAULT = 1.0
REPEATS_DEFAULT = 7


def run(
    names: Sequence[str] | None,
    *,
    workloads: Mapping[str, BenchWorkload] = WORKLOADS,
    directory: Path | None,
    scale: float = SCALE_DEFAULT,
    repeats: int = REPEATS_DEFAULT,
    keys: int = KEYS_DEFAULT,
    rows: Sequence[str] = (),
    peer_venv: Path | None = None,
    as_json: bool = False,
    console: Console,
) -> int:
    """Measure workloads, and print the results with all targets, met or missed.

    A workload that needs packages which are not installed is skipped, with a note.

    Args:
        names: the names of the workloads. None or an empty list means all.
        workloads: all known workloads.
        directory: a directory on the disk to measure. By default, the system's directory for temporary files. All files
            are removed at the end.
        scale: the factor of the sizes. The targets are for 1.
        repeats: the number of turns of compared sides.
        keys: the number of entries of a large board. The targets are for 1,000,000.
        rows: the rows to measure, in workloads with rows. Empty means all.
        peer_venv: the virtual environment of a peer, which is created if necessary and kept. By default, a temporary
            one.
        as_json: print one JSON object instead of tables.
        console: where to print.

    Returns:
        The exit code: 0 if all workloads ran, whether or not they met their targets; 1 if work was done incorrectly,
        such as a task that two processes claimed.

    Raises:
        UsageError: an unknown name or row, or a scale or number of repeats or keys that is not above 0.
    """
    selected = _select(names, workloads)
    _check_rows(rows, selected)
    skipped = [reason for workload in selected if (reason := workload.skip_reason())]
    runnable = [workload for workload in selected if not workload.skip_reason()]
    if not scale > 0 or repeats < 1 or keys < 1:
        message = f"scale, repeats and keys must be above 0, not {scale}, {repeats} and {keys}"
        raise UsageError(message)
    results: dict[BenchWorkload, Result] = {}
    with TemporaryDirectory(prefix="statelog-bench-", dir=directory) as folder:
        setting = report.Setting.of(Path(folder), scale=scale, repeats=repeats)
        if not as_json:
            report.print_setting(console, setting)
        with _progress(console, len(runnable), is_shown=not as_json) as progress:
            for workload in runnable:
                progress(workload.title)
                bench = Bench(Path(folder) / workload.name, scale, repeats, keys, tuple(rows), peer_venv)
                try:
                    results[workload] = measure(workload, bench)
                except SkipError as error:
                    skipped.append(f"{workload.name} skipped: {error}")
                    continue
                if not as_json:
                    report.print_sides(console, workload, results[workload])
    if as_json:
        console.print_json(data={**report.to_dict(setting, results), "skipped": skipped})
    else:
        if results:
            report.print_targets(console, results, scale=scale)
        for reason in skipped:
            console.print(reason, style="yellow", markup=False, highlight=False)
    return int(any(check.is_wrong for result in results.values() for check in result.checks))


def measure(workload: BenchWorkload, bench: Bench) -> Result:
    """Run one workload in a new folder, which is removed afterwards."""
    bench.directory.mkdir()
    try:
        return workload.measure(bench)
    finally:
        shutil.rmtree(bench.directory)


def _check_rows(rows: Sequence[str], workloads: Sequence[BenchWorkload]) -> None:
    known = [row for workload in workloads for row in workload.rows]
    for row in rows:
        if row not in known:
            message = f"no row {row!r} (there are {', '.join(known) or 'none'})"
            raise UsageError(message, row=row)


def _select(names: Sequence[str] | None, workloads: Mapping[str, BenchWorkload]) -> list[BenchWorkload]:
    for name in names or ():
        if name not in workloads:
            close = difflib.get_close_matches(name, workloads, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            message = f"no workload {name!r}{hint} (there are {', '.join(workloads)})"
            raise UsageError(message, name=name)
    return [workload for workload in workloads.values() if not names or workload.name in names]


class _Advance:
    """Advances the progress bar to the next workload."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total) if progress else None
        self._done = -1

    def __call__(self, title: str) -> None:
        self._done += 1
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=title, completed=self._done)


@contextmanager
def _progress(console: Console, total: int, *, is_shown: bool) -> Iterator[_Advance]:
    if not is_shown:
        yield _Advance(None, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Advance(progress, total)
