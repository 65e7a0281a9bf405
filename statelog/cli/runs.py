"""`statelog runs ...`: shows and controls the runs of workflows."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.completion import complete_place, complete_run
from statelog.cli.documents import difference_document, run_document
from statelog.cli.modules import import_here
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.runtree import draw_run, outcome_of, tree_document
from statelog.cli.values import parse_json, render, to_json
from statelog.errors import ExecutionError, NondeterminismError, RunEndedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from statelog import Store
    from statelog.durable import RunInfo, StepInfo, Workflow
    from statelog.errors import StatelogError

_OUTCOME_CHARACTERS = 80
_RUN = click.argument("run", shell_complete=complete_run)
_WITH = click.option(
    "--with",
    "module",
    metavar="MODULE[:NAME]",
    help="Execute the run in this process with the workflows of this module.",
)


@click.group(short_help="Show runs of workflows, and what they wait for.")
def runs() -> None:
    """Show, start, resume, retry, cancel and fork the runs of a store.

    MODULE is the name of an importable Python module, installed or in the current directory. MODULE:NAME is one of its
    workflows. The command imports the module, which executes its code.
    """


@runs.command(short_help="List runs.")
@STORE
@click.option(
    "--status", metavar="STATUS", help="Only runs with this status: queued, running, suspended, parked, completed, ..."
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Maximum number of runs.")
@ABSOLUTE
@AS_JSON
def ls(
    *, store: Path, status: str | None, workflow: str | None, limit: int, absolute: bool | None, as_json: bool
) -> None:
    """List the runs of STORE, newest first."""
    from statelog import durable

    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = durable.runs(opened, status=status, workflow=workflow)[::-1]
    if as_json:
        for info in found[:limit]:
            output.emit(run_document(info))
        return
    if not found:
        output.line("no runs")
        return
    rows = [
        (info.id, output.time(info.created), info.status, info.workflow, outcome_of(info, output, _OUTCOME_CHARACTERS))
        for info in found[:limit]
    ]
    columns = ("run", "created", "status", "workflow", "outcome")
    output.table(columns, rows, whole=("created", "status"), name="run")
    if len(found) > limit:
        output.hint(f"there are {len(found):,}: use --limit to show more")


@runs.command(short_help="Draw the steps of a run.")
@STORE
@_RUN
@click.option("--full", is_flag=True, help="Shorten nothing.")
@ABSOLUTE
@AS_JSON
def show(*, store: Path, run: str, full: bool, absolute: bool | None, as_json: bool) -> None:
    """Draw the recorded steps of RUN in STORE as a tree: times, attempts, results, gates, children, compensations.

    Each line begins with the step's place, an argument of `runs fork --at`.
    """
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        if as_json:
            output.emit(tree_document(opened, run))
        else:
            draw_run(output, opened, run, is_full=full)


@runs.command(short_help="Begin a run.")
@STORE
@click.argument("workflow", metavar="MODULE:NAME")
@click.argument("arguments", metavar="[JSON]...", nargs=-1)
@click.option("--kwargs", metavar="JSON", help="Keyword arguments, a JSON object.")
@click.option("--id", "run", metavar="RUN", help="Id of the run. A repeated id does not start a second run.")
@click.option("--thread", metavar="THREAD", help="Thread that the run writes to. Default: the run's own thread.")
@click.option("--queue", default="default", show_default=True, metavar="NAME", help="Queue in which the run waits.")
@click.option("--partition", metavar="NAME", help="Partition of the queue.")
@click.option("--priority", type=int, default=0, metavar="N", help="Runs with a higher priority begin first.")
@click.option("--delay", "delay_s", type=float, default=0.0, metavar="SECONDS", help="Begin after this time.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="Fail if the run takes longer.")
@click.option("--dedup-key", metavar="KEY", help="Start no other run while a run with this key is open.")
@click.option(
    "--debounce",
    "debounce_s",
    type=float,
    metavar="SECONDS",
    help="With --dedup-key: wait this time; the last start wins.",
)
@AS_JSON
def start(
    *,
    store: Path,
    workflow: str,
    arguments: tuple[str, ...],
    kwargs: str | None,
    run: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Start a run of a workflow in STORE. The next free worker executes it.

    The module is imported to find the workflow and the names of its arguments. A JSON argument that begins with a dash
    must follow `--`. If MODULE has only one workflow, its NAME may be left out.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    given = [parse_json(each, "an argument") for each in arguments]
    named = {} if kwargs is None else parse_json(kwargs, "--kwargs")
    made = _workflow_of(workflow)
    _check_kwargs(named, taken=("id", *how))
    with open_for_writing(store) as opened:
        info = durable.start(opened, made, *given, id=run, **how, **named).info
    _tell(output, info)


def _workflow_of(text: str) -> Workflow:
    """Return the workflow of a MODULE or MODULE:NAME. Raises UsageError."""
    found = workflows_of(text)
    if len(found) > 1:
        names = ", ".join(sorted(each.name for each in found))
        message = f"module {text} has {len(found)} workflows: write {text}:NAME for one of {names}"
        raise UsageError(message, argument="workflow", value=text)
    return found[0]


def _check_kwargs(named: Any, taken: Collection[str]) -> None:
    if not isinstance(named, dict) or not all(isinstance(each, str) for each in named):
        raise UsageError("--kwargs must be a JSON object of keyword arguments", argument="kwargs", value=named)
    both = sorted(set(named).intersection(taken))
    if both:
        message = f"--kwargs has {both[0]!r}, which is an option of `start`: pass it as a positional argument"
        raise UsageError(message, argument="kwargs", value=both[0])


@runs.command(short_help="Send a run a message.")
@STORE
@_RUN
@click.argument("message", metavar="JSON")
@click.option("--topic", default="default", show_default=True, metavar="NAME", help="Of `run.recv`.")
@click.option(
    "--key",
    "--idempotency-key",
    "key",
    metavar="TEXT",
    help="Ignore this message if one with the same key was sent before.",
)
@AS_JSON
def send(*, store: Path, run: str, message: str, topic: str, key: str | None, as_json: bool) -> None:
    """Send a message to RUN of STORE. The store keeps it until the run receives it with `run.recv`.

    Exit code 4: the run has ended.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    parsed = parse_json(message, "the message")
    with open_for_writing(store) as opened:
        durable.send(opened, run, parsed, topic=topic, idempotency_key=key)
    if as_json:
        output.emit({"run": run, "topic": topic})
    else:
        output.say(f"{run} receives the message when it asks for topic {topic}")


@runs.command(short_help="Resume a run.")
@STORE
@_RUN
@_WITH
@AS_JSON
def resume(*, store: Path, run: str, module: str | None, as_json: bool) -> None:
    """Resume RUN of STORE, even if it is parked. A waiting run checks its condition again.

    A worker executes the run. With --with, this process executes it until it ends or waits. Exit code 13: the run has
    failed.
    """
    from statelog import durable

    _go_on(store, run, module, durable.resume, as_json=as_json)


@runs.command(short_help="Retry a failed run.")
@STORE
@_RUN
@_WITH
@AS_JSON
def retry(*, store: Path, run: str, module: str | None, as_json: bool) -> None:
    """Continue the failed RUN of STORE from its recorded steps, after a repair of its code.

    The failed steps are called again. A worker executes the run. With --with, this process executes it
    until it ends or waits. Exit code 13: the run has failed again.
    """
    from statelog import durable

    _go_on(store, run, module, durable.retry, as_json=as_json)


def _go_on(store: Path, run: str, module: str | None, change: Callable[[Store, str], object], *, as_json: bool) -> None:
    """Change a run so that it can continue. If a module is given, execute the run in this process."""
    from statelog import durable
    from statelog.durable.starts import drive_here

    output = Output(as_json=as_json)
    known = {} if module is None else {each.name: each for each in workflows_of(module)}
    with open_for_writing(store) as opened:
        info = durable.get_run(opened, run)
        if known and info.workflow not in known:
            message = f"run {run!r} belongs to workflow {info.workflow!r}; {module} has {', '.join(sorted(known))}"
            raise UsageError(message, argument="with", value=module)
        change(opened, run)
        if known:
            with _quiet():
                drive_here(opened, known[info.workflow], run, wait_s=0.0, is_patient=False)
        info = durable.get_run(opened, run)
    _tell(output, info)
    if known and info.has_ended:
        info.result()


@runs.command(short_help="Cancel a run and compensate its steps.")
@STORE
@_RUN
@AS_JSON
def cancel(*, store: Path, run: str, as_json: bool) -> None:
    """Cancel RUN of STORE and its children. They stop at their next operation, and their steps are compensated.

    A worker or `runs resume --with` does this. A run that has not begun ends at once.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        is_open = durable.cancel(opened, run)
        info = durable.get_run(opened, run)
    if not is_open:
        message = f"run {run!r} has ended: its status is {info.status}"
        raise RunEndedError(message, run=run, status=info.status)
    if as_json:
        output.emit(run_document(info))
    elif info.has_ended:
        output.say(f"{run} is cancelled: it had not begun")
    else:
        output.say(f"{run} stops at its next operation and undoes its steps when a worker takes it up")


@runs.command(short_help="Remove an ended run.")
@STORE
@_RUN
@AS_JSON
def purge(*, store: Path, run: str, as_json: bool) -> None:
    """Remove the ended RUN of STORE, with its gates, events, messages and streams. Its thread stays.

    Afterwards, a new run may have the same id.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        durable.purge_run(opened, run)
    if as_json:
        output.emit({"run": run})
    else:
        output.say(f"{run} is removed; its thread stays")


@runs.command(short_help="Start a run from a step of another run.")
@STORE
@_RUN
@click.option(
    "--at",
    required=True,
    metavar="PLACE",
    shell_complete=complete_place,
    help="First step that is not copied: its place from `runs show`, or its name.",
)
@click.option("--id", "new", required=True, metavar="NEW", help="Id of the new run and name of its branch.")
@click.option("--args", metavar="JSON", help="Arguments of the new run, a JSON list. Default: the arguments of RUN.")
@click.option(
    "--kwargs", metavar="JSON", help="Keyword arguments of the new run, a JSON object. Default: those of RUN."
)
@click.option(
    "--replace",
    multiple=True,
    metavar="PLACE=JSON",
    shell_complete=complete_place,
    help="Use this result instead of the call at this place. The option can be repeated.",
)
@AS_JSON
def fork(
    *,
    store: Path,
    run: str,
    at: str,
    new: str,
    args: str | None,
    kwargs: str | None,
    replace: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start run NEW of STORE with the steps that RUN recorded before PLACE, in a new branch of RUN's thread."""
    from statelog import durable

    output = Output(as_json=as_json)
    given = None if args is None else parse_json(args, "--args")
    named = None if kwargs is None else parse_json(kwargs, "--kwargs")
    replaced = _replaced(replace)
    with open_for_writing(store) as opened:
        info = durable.fork(opened, run, at=at, id=new, args=given, kwargs=named, replace=replaced).info
    if as_json:
        output.emit(run_document(info))
    else:
        output.say(f"{new} continues {run} from before {at}, in branch {info.branch} of {info.thread}")


def _replaced(given: tuple[str, ...]) -> dict[str, Any]:
    """Parse PLACE=JSON strings, and return the replaced results, keyed by place. Raises UsageError."""
    found: dict[str, Any] = {}
    for text in given:
        place, sign, value = text.partition("=")
        if not sign or not place:
            raise UsageError(f"--replace must be PLACE=JSON, not {text!r}", argument="replace", value=text)
        if place in found:
            raise UsageError(f"--replace names {place!r} twice", argument="replace", value=text)
        found[place] = parse_json(value, f"--replace {place}")
    return found


@runs.command(short_help="Show the differences between two runs.")
@STORE
@_RUN
@click.argument("other", metavar="OTHER", shell_complete=complete_run)
@AS_JSON
def compare(*, store: Path, run: str, other: str, as_json: bool) -> None:
    """Show the steps in which RUN and OTHER of STORE differ, in order."""
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = durable.compare_runs(opened, run, other)
    if as_json:
        for each in found:
            output.emit(difference_document(each))
    elif not found:
        output.line("the runs are the same")
    else:
        rows = [(each.place or "", each.what, _shown(each.left), _shown(each.right)) for each in found]
        output.table(("place", "differs", run, other), rows, whole=("place", "differs"), name="difference")


def _shown(step: StepInfo | None) -> str:
    """Return a step and its outcome as one line."""
    if step is None:
        return ""
    outcome = step.error or (render(step.result, _OUTCOME_CHARACTERS) if step.status == "done" else step.status)
    return f"{step.kind} {step.name}: {outcome}"


@runs.command(short_help="Check that open runs can continue with a module.")
@STORE
@click.argument("module", metavar="MODULE[:NAME]")
@AS_JSON
def check(*, store: Path, module: str, as_json: bool) -> None:
    """Replay the open runs of STORE with the workflows of MODULE, without changes to STORE. Use it before a deploy.

    Code outside of steps is executed. Exit code 13: some runs could not continue with this code, or MODULE lacks their
    workflow. Runs of async workflows are only counted.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    workflows = workflows_of(module)
    asynchronous = {each.name for each in workflows if each.is_async}
    with open_for_reading(store) as opened, _quiet():
        found = durable.check_replay(opened, workflows)
        present = [info for info in durable.runs(opened) if not info.has_ended]
    skipped = [info.id for info in present if info.workflow in asynchronous]
    if as_json:
        differs = [
            {"run": run, "error": _difference(error), "kind": type(error).__name__, "facts": to_json(error.facts)}
            for run, error in found.items()
        ]
        output.emit({"open": len(present), "differs": differs, "skipped": skipped})
    else:
        for error in found.values():
            output.say(_difference(error), indent=2)
        if skipped:
            output.say(f"{len(skipped):,} of async workflows were not replayed")
    if found:
        message = f"{len(found):,} of {len(present):,} open runs could not continue with {module}"
        raise ExecutionError(message, runs=list(found))
    if not as_json:
        output.say(f"{len(present) - len(skipped):,} open runs replay with {module}")


def _difference(error: StatelogError) -> str:
    """Describe how a run would stop. This rewords the message of `error`, which says that the run has stopped."""
    if not isinstance(error, NondeterminismError):
        return error.message
    facts = error.facts
    does = "ends without it" if facts["called"] is None else f"calls {facts['called']}"
    does = "calls it with different arguments" if facts["called"] == facts["recorded"] else does
    return f"run {facts['run']!r} has recorded {facts['recorded']} at place {facts['place']}; this code {does}"


def _tell(output: Output, info: RunInfo) -> None:
    if output.as_json:
        output.emit(run_document(info))
        return
    outcome = outcome_of(info, output, _OUTCOME_CHARACTERS)
    output.say(f"{info.id}: {info.status}" + (f", {outcome}" if outcome else ""))


# --- the code of workflows -------------------------------------------------------------------


def workflows_of(text: str) -> list[Workflow]:
    """Return the workflows of MODULE or MODULE:NAME. Raises UsageError if the module or workflow does not exist."""
    from statelog.durable import Workflow

    name, _colon, attribute = text.partition(":")
    with _quiet():
        held = vars(import_here(name))
    if attribute or text.endswith(":"):
        made = held.get(attribute)
        if not isinstance(made, Workflow):
            what = f"has no {attribute!r}" if made is None else f"has a {type(made).__name__} as {attribute!r}"
            message = f"module {name} {what}: a workflow is declared with @durable.workflow"
            raise UsageError(message, argument="module", value=text)
        return [made]
    found = list(dict.fromkeys(each for each in held.values() if isinstance(each, Workflow)))
    if not found:
        message = f"module {name} has no workflows: declare one with @durable.workflow"
        raise UsageError(message, argument="module", value=text)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send the output of workflows to stderr, and hide the log line of a failed run: the command reports its error."""
    log, handler = logging.getLogger("statelog.durable"), logging.NullHandler()
    log.addHandler(handler)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        log.removeHandler(handler)
