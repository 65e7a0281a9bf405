"""`statelog salvage`: a new store of what a damaged file still has, made by a child process.

The child reads the damaged file page by page, without mapping it: nothing in it should be able to
kill the child. If something does all the same, the caller learns of it and lives on.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.exits import INTERNAL, ChildError
from statelog.cli.options import AS_JSON
from statelog.cli.output import Output
from statelog.cli.processes import last_line, signal_name, start_module
from statelog.cli.text import count
from statelog.errors import CorruptionError, StatelogError
from statelog.portable.salvage import salvage as salvage_file

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

_PROGRESS_INTERVAL_S = 0.1
_VERSIONS_SHOWN = 20
_RANGES_SHOWN = 10


@click.command(short_help="Make a new store of what a damaged file still has.")
@click.argument("damaged", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@AS_JSON
def salvage(*, damaged: Path, new: Path, as_json: bool) -> None:
    """Read DAMAGED, and make the store NEW of every record that is still whole.

    What is lost is listed: LSNs, and the versions of threads that cannot be had any more.
    Exit code 0: nothing is lost. 7: NEW is there, and something is lost. Another: there is no NEW.
    """
    output = Output(as_json=as_json)
    with output.progress("salvaging") as progress:
        report = _salvage_in_child(damaged, new, progress)
    if as_json:
        output.emit(report)
    else:
        _print_report(output, report)
    if not report["complete"]:
        records = count(sum(last - first + 1 for first, last in report["lost"]), "record")
        message = f"{new} is made, but {records} and {count(report['losses'], 'version')} of {damaged} are lost"
        raise CorruptionError(message, path=str(damaged))


def _print_report(output: Output, report: Mapping[str, Any]) -> None:
    output.line(f"recovered: {report['recovered']:,} of {count(report['records'], 'record')}")
    if report["lost"]:
        shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in report["lost"][:_RANGES_SHOWN]]
        more = len(report["lost"]) - len(shown)
        output.line(f"lost LSNs: {', '.join(shown)}{f', and {more:,} more ranges' if more else ''}")
    if report["names_made_up"]:
        output.line(f"names made up for lost ones: {', '.join(report['names_made_up'])}")
    if report["versions_lost"]:
        output.line()
        rows = [
            (
                each["thread"] or "",
                each["branch"] or "",
                "" if each["version"] is None else str(each["version"]),
                str(each["lsn"]),
                each["why"],
            )
            for each in report["versions_lost"][:_VERSIONS_SHOWN]
        ]
        output.table(("thread", "branch", "version", "record", "why it is lost"), rows, right=("version", "record"))
    if report["losses"] > _VERSIONS_SHOWN:
        output.hint(f"the first {_VERSIONS_SHOWN} of {report['losses']:,}; --json lists them all")


def _salvage_in_child(damaged: Path, new: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as errors:
        child = start_module(__name__, str(damaged), str(new), errors=errors)
        try:
            last = _follow(child, progress)
        finally:
            child.kill()
            child.wait()
        if "report" in last:
            report: dict[str, Any] = last["report"]
            return report
        if "error" in last:
            raise ChildError(last["error"], last["exit_code"])
        if child.returncode < 0:
            message = f"{damaged}: reading it ended the salvaging process with {signal_name(child.returncode)}"
            raise CorruptionError(message, path=str(damaged))
        message = f"salvage ended with {child.returncode}: {last_line(errors)}"
        raise ChildError(message, INTERNAL)


def _follow(child: subprocess.Popen[str], progress: Callable[[int, int], None]) -> Mapping[str, Any]:
    """Pass progress on until the child's output ends; return its last word, once it is gone."""
    last: Mapping[str, Any] = {}
    assert child.stdout is not None
    with child.stdout as lines:
        for line in lines:
            try:
                last = json.loads(line)
            except ValueError:  # cut off where it died
                break
            if "progress" in last:
                progress(*last["progress"])
    child.wait()
    return last


# --- the child --------------------------------------------------------------------


def _serve(damaged: Path, new: Path) -> dict[str, Any]:
    last_s = 0.0

    def progress(done: int, whole: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _PROGRESS_INTERVAL_S:
            last_s = time.monotonic()
            _say({"progress": [done, whole]})

    try:
        report = salvage_file(damaged, new, progress=progress)
    except StatelogError as error:
        return {"error": error.message, "exit_code": error.exit_code}
    document = {
        "path": report.path,
        "new_path": report.new_path,
        "complete": report.is_complete,
        "records": report.records,
        "recovered": report.recovered,
        "lost": report.lost,
        "losses": report.losses,
        "versions_lost": [asdict(each) for each in report.versions_lost],
        "names_made_up": report.names_made_up,
    }
    return {"report": document}


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # dying is not expected, and needs no core dump
    with contextlib.suppress(BrokenPipeError):
        _say(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
