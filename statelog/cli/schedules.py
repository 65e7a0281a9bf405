"""`statelog schedules ...`: show, pause and end the schedules of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_schedule
from statelog.cli.documents import schedule_document
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Store
    from statelog.durable import Schedule

_NAME = click.argument("name", shell_complete=complete_schedule)


@click.group(short_help="Show, pause and end schedules of runs.")
def schedules() -> None:
    """Show, pause and end the schedules of a store. Workers start runs at the scheduled times."""


@schedules.command(short_help="List schedules.")
@STORE
@ABSOLUTE
@AS_JSON
def ls(*, store: Path, absolute: bool | None, as_json: bool) -> None:
    """List the schedules of STORE by name, with the next due time and the workflow of each."""
    from statelog import durable

    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = durable.schedules(opened)
    if as_json:
        for each in found:
            output.emit(schedule_document(each))
        return
    if not found:
        output.line("no schedules")
        return
    rows = [(each.name, _due_of(each, output), each.workflow, each.cron, each.timezone, each.queue) for each in found]
    columns = ("schedule", "due", "workflow", "cron", "timezone", "queue")
    output.table(columns, rows, whole=("due", "cron"), name="schedule")


def _due_of(schedule: Schedule, output: Output) -> str:
    if schedule.is_paused:
        return "paused"
    return "never" if schedule.due is None else output.time(schedule.due)


@schedules.command(short_help="Pause a schedule.")
@STORE
@_NAME
@ABSOLUTE
@AS_JSON
def pause(*, store: Path, name: str, absolute: bool | None, as_json: bool) -> None:
    """Pause schedule NAME of STORE until `schedules resume`. Runs that have begun continue."""
    from statelog import durable

    with open_for_writing(store) as opened:
        is_changed = durable.pause_schedule(opened, name)
        _tell(opened, name, Output(as_json=as_json, absolute=absolute), is_changed=is_changed)


@schedules.command(short_help="Resume a paused schedule.")
@STORE
@_NAME
@ABSOLUTE
@AS_JSON
def resume(*, store: Path, name: str, absolute: bool | None, as_json: bool) -> None:
    """Resume schedule NAME of STORE from now. Scheduled times during the pause are skipped."""
    from statelog import durable

    with open_for_writing(store) as opened:
        is_changed = durable.resume_schedule(opened, name)
        _tell(opened, name, Output(as_json=as_json, absolute=absolute), is_changed=is_changed)


@schedules.command(short_help="End a schedule.")
@STORE
@_NAME
@AS_JSON
def rm(*, store: Path, name: str, as_json: bool) -> None:
    """End schedule NAME of STORE. Runs that have begun continue. A program may create the schedule again."""
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        was_there = durable.unschedule(opened, name)
    if not was_there:
        raise NotFoundError(f"no schedule {name!r} in this store", schedule=name)
    if as_json:
        output.emit({"name": name})
    else:
        output.say(f"schedule {name} has ended")


def _tell(store: Store, name: str, output: Output, *, is_changed: bool) -> None:
    from statelog import durable

    found = next((each for each in durable.schedules(store) if each.name == name), None)
    if found is None:  # Another process has ended the schedule.
        raise NotFoundError(f"no schedule {name!r} in this store", schedule=name)
    if output.as_json:
        output.emit(schedule_document(found))
        return
    state = "is paused" if found.is_paused else f"is due {_due_of(found, output)}"
    output.say(f"schedule {name} {state}" + ("" if is_changed else ", as before"))
