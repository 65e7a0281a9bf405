"""`statelog runs ...`: what runs have done, what they wait for, and what a person does to them."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.completion import complete_place, complete_run
from statelog.cli.documents import difference_document, run_document
from statelog.cli.modules import import_here
from statelog.cli.opening import open_for_reading, open_for_writing
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
    "--with", "module", metavar="MODULE[:NAME]", help="Drive it here, with the workflows of this module."
)


@click.group(short_help="Show runs of workflows, and what they wait for.")
def runs() -> None:
    """Show, start, resume, retry, cancel and fork the runs of a store.

    MODULE is a Python module as in `import`, from the current directory or installed; MODULE:NAME is one workflow of
    it. Importing it executes it.
    """


@runs.command(short_help="List runs.")
@STORE
@click.option("--status", metavar="STATUS", help="Only those: queued, running, suspended, parked, completed, ...")
@click.option("--workflow", metavar="NAME", help="Only those of this workflow.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many.")
@ABSOLUTE
@AS_JSON
def ls(
    *, store: Path, status: str | None, workflow: str | None, limit: int, absolute: bool | None, as_json: bool
) -> None:
    """List the runs of STORE, the newest first."""
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
        output.hint(f"there are {len(found):,}: --limit says how many are shown")


@runs.command(short_help="Draw what a run has done.")
@STORE
@_RUN
@click.option("--full", is_flag=True, help="Shorten nothing.")
@ABSOLUTE
@AS_JSON
def show(*, store: Path, run: str, full: bool, absolute: bool | None, as_json: bool) -> None:
    """Draw what RUN of STORE has recorded, as a tree: times, attempts, results, gates, children, compensations.

    In front of a call stands its place, which `runs fork --at` takes.
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
@click.option("--kwargs", metavar="JSON", help="Arguments by name, a JSON object.")
@click.option("--id", "run", metavar="RUN", help="Id of the run: the same id is the same run.")
@click.option("--thread", metavar="THREAD", help="The thread that it writes to. That of the run, if left out.")
@click.option("--queue", default="default", show_default=True, metavar="NAME", help="In which it waits.")
@click.option("--partition", metavar="NAME", help="Of the queue.")
@click.option("--priority", type=int, default=0, metavar="N", help="Runs of a higher one begin first.")
@click.option("--delay", "delay_s", type=float, default=0.0, metavar="SECONDS", help="It begins after so long.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="It fails if it takes longer.")
@click.option("--dedup-key", metavar="KEY", help="While a run with this key is open, no other begins.")
@click.option("--debounce", "debounce_s", type=float, metavar="SECONDS", help="With --dedup-key: the last one counts.")
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
    """Start a run of a workflow in STORE. The next free worker takes it up.

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
        raise UsageError("--kwargs is a JSON object, by the names of arguments", argument="kwargs", value=named)
    both = sorted(set(named).intersection(taken))
    if both:
        message = f"--kwargs has {both[0]!r}, which is an option of the start: give the argument by its position"
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
    help="Of two messages with the same key the second is passed over.",
)
@AS_JSON
def send(*, store: Path, run: str, message: str, topic: str, key: str | None, as_json: bool) -> None:
    """Send a message to RUN of STORE, which receives it by `run.recv`. The message is kept until then.

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
        output.say(f"{run} has the message when it asks for topic {topic}")


@runs.command(short_help="Have a run go on.")
@STORE
@_RUN
@_WITH
@AS_JSON
def resume(*, store: Path, run: str, module: str | None, as_json: bool) -> None:
    """Have RUN of STORE go on: a parked one, too; one that waits looks whether it still has to.

    A worker takes it up. With --with it is driven in this process, as far as it goes; exit code 13: it has failed.
    """
    from statelog import durable

    _go_on(store, run, module, durable.resume, as_json=as_json)


@runs.command(short_help="Have a run that failed go on.")
@STORE
@_RUN
@_WITH
@AS_JSON
def retry(*, store: Path, run: str, module: str | None, as_json: bool) -> None:
    """Continue the failed RUN of STORE from its recorded steps, after its code was repaired.

    The steps that made it fail are called again. A worker takes up the run. With --with, this process drives the run
    until it ends or waits. Exit code 13: the run has failed again.
    """
    from statelog import durable

    _go_on(store, run, module, durable.retry, as_json=as_json)


def _go_on(store: Path, run: str, module: str | None, change: Callable[[Store, str], object], *, as_json: bool) -> None:
    """Change a run so that it can continue. If a module is given, drive the run in this process."""
    from statelog import durable
    from statelog.durable.starting import drive_here

    output = Output(as_json=as_json)
    known = {} if module is None else {each.name: each for each in workflows_of(module)}
    with open_for_writing(store) as opened:
        info = durable.get(opened, run)
        if known and info.workflow not in known:
            message = f"run {run!r} is of workflow {info.workflow!r}; {module} has {', '.join(sorted(known))}"
            raise UsageError(message, argument="with", value=module)
        change(opened, run)
        if known:
            with _quiet():
                drive_here(opened, known[info.workflow], run, wait_s=0.0, is_patient=False)
        info = durable.get(opened, run)
    _tell(output, info)
    if known and info.has_ended:
        info.result()


@runs.command(short_help="Have a run stop, and undo what it did.")
@STORE
@_RUN
@AS_JSON
def cancel(*, store: Path, run: str, as_json: bool) -> None:
    """Cancel RUN of STORE and its children. They stop at the next operation, and their steps are undone.

    A worker does this, or `runs resume --with`. A run that has not begun ends at once.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        is_open = durable.cancel(opened, run)
        info = durable.get(opened, run)
    if not is_open:
        message = f"run {run!r} has ended: its status is {info.status}"
        raise RunEndedError(message, run=run, status=info.status)
    if as_json:
        output.emit(run_document(info))
    elif info.has_ended:
        output.say(f"{run} is cancelled: it had not begun")
    else:
        output.say(f"{run} stops at its next operation, and undoes what it did, when a worker takes it up")


@runs.command(short_help="Remove a run that has ended.")
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
        durable.purge(opened, run)
    if as_json:
        output.emit({"run": run})
    else:
        output.say(f"{run} is removed; its thread stays")


@runs.command(short_help="Begin a run from the middle of another.")
@STORE
@_RUN
@click.option(
    "--at",
    required=True,
    metavar="PLACE",
    shell_complete=complete_place,
    help="The step before which it leaves: its place, as `runs show` has it, or its name.",
)
@click.option("--id", "new", required=True, metavar="NEW", help="Id of the new run, and name of its branch.")
@click.option("--args", metavar="JSON", help="A JSON list: arguments of the workflow, instead of those of RUN.")
@click.option("--kwargs", metavar="JSON", help="A JSON object: arguments by name, instead of those of RUN.")
@click.option(
    "--replace",
    multiple=True,
    metavar="PLACE=JSON",
    shell_complete=complete_place,
    help="A result for NEW, instead of making the call at this place. The option can be repeated.",
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
    """Begin run NEW of STORE with what RUN has recorded before PLACE, in a branch of its thread."""
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
        output.say(f"{new} goes on from {run} before {at}, in branch {info.branch} of {info.thread}")


def _replaced(given: tuple[str, ...]) -> dict[str, Any]:
    """Return the results of PLACE=JSON texts by place. Raises UsageError."""
    found: dict[str, Any] = {}
    for text in given:
        place, sign, value = text.partition("=")
        if not sign or not place:
            raise UsageError(f"--replace is PLACE=JSON, not {text!r}", argument="replace", value=text)
        if place in found:
            raise UsageError(f"--replace names {place!r} twice", argument="replace", value=text)
        found[place] = parse_json(value, f"--replace {place}")
    return found


@runs.command(short_help="Show the differences of two runs.")
@STORE
@_RUN
@click.argument("other", metavar="OTHER", shell_complete=complete_run)
@AS_JSON
def compare(*, store: Path, run: str, other: str, as_json: bool) -> None:
    """Show in which calls RUN and OTHER of STORE differ, the first difference first."""
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = durable.compare(opened, run, other)
    if as_json:
        for each in found:
            output.emit(difference_document(each))
    elif not found:
        output.line("the runs did the same")
    else:
        rows = [(each.place or "", each.what, _shown(each.left), _shown(each.right)) for each in found]
        output.table(("place", "differs", run, other), rows, whole=("place", "differs"), name="difference")


def _shown(step: StepInfo | None) -> str:
    """Return a call and its outcome as one line."""
    if step is None:
        return ""
    outcome = step.error or (render(step.result, _OUTCOME_CHARACTERS) if step.status == "done" else step.status)
    return f"{step.kind} {step.name}: {outcome}"


@runs.command(short_help="Tell whether open runs go by some code.")
@STORE
@click.argument("module", metavar="MODULE[:NAME]")
@AS_JSON
def check(*, store: Path, module: str, as_json: bool) -> None:
    """Replay the open runs of STORE with the workflows of MODULE, and change nothing: before a deploy.

    What a workflow does outside of its steps happens. Exit code 13: some runs would stop with this code, or are of a
    workflow that MODULE does not have. Runs of async workflows are counted, and not replayed.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    workflows = workflows_of(module)
    asynchronous = {each.name for each in workflows if each.is_async}
    with open_for_reading(store) as opened, _quiet():
        found = durable.check(opened, workflows)
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
            output.say(f"{len(skipped):,} of async workflows: not replayed")
    if found:
        message = f"{len(found):,} of {len(present):,} open runs would not go on with {module}"
        raise ExecutionError(message, runs=list(found))
    if not as_json:
        output.say(f"{len(present) - len(skipped):,} open runs replay with {module}")


def _difference(error: StatelogError) -> str:
    """Return how a run would stop; unlike the message of the error, which says that it has."""
    if not isinstance(error, NondeterminismError):
        return error.message
    facts = error.facts
    does = "ends without it" if facts["called"] is None else f"calls {facts['called']}"
    does = "calls it with other arguments" if facts["called"] == facts["recorded"] else does
    return f"run {facts['run']!r} has recorded {facts['recorded']} at place {facts['place']}; this code {does}"


def _tell(output: Output, info: RunInfo) -> None:
    if output.as_json:
        output.emit(run_document(info))
        return
    outcome = outcome_of(info, output, _OUTCOME_CHARACTERS)
    output.say(f"{info.id}: {info.status}" + (f", {outcome}" if outcome else ""))


# --- the code of workflows -------------------------------------------------------------------


def workflows_of(text: str) -> list[Workflow]:
    """Return the workflows of MODULE, or that of MODULE:NAME. Raises UsageError: there is none, or no such module."""
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
        message = f"module {name} has no workflows: they are declared with @durable.workflow"
        raise UsageError(message, argument="module", value=text)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Have what workflows print go to stderr; why a run has stopped is told once, as the command's error."""
    log, handler = logging.getLogger("statelog.durable"), logging.NullHandler()
    log.addHandler(handler)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        log.removeHandler(handler)
