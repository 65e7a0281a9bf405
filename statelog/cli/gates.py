"""`statelog gates`, `statelog queue` and `statelog outbox`: list and answer gates, list queues, deliver messages."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_gate, complete_run
from statelog.cli.documents import delivery_document, gate_document, message_document, status_of
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.text import count
from statelog.cli.values import parse_json, render
from statelog.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.durable import Gate, Message

_VALUE_CHARACTERS = 80
_WIDE = 110
"""The minimum width of a terminal that shows two columns of times."""


@click.group(short_help="Show and answer gates.")
def gates() -> None:
    """Show the gates of a store, where runs wait for an answer, and answer them."""


@gates.command(short_help="List gates.")
@STORE
@click.option("--run", metavar="RUN", help="Only gates of this run.")
@click.option("--all", "show_all", is_flag=True, help="Also gates that are no longer waiting.")
@ABSOLUTE
@AS_JSON
def ls(*, store: Path, run: str | None, show_all: bool, absolute: bool | None, as_json: bool) -> None:
    """List the gates of STORE that wait for an answer, the oldest first."""
    from statelog import durable

    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        if run is not None:
            durable.get_run(opened, run)
        found = durable.gates(opened, pending=None if show_all else True, run=run)
    if as_json:
        for gate in found:
            output.emit(gate_document(gate))
        return
    if not found:
        output.line("no gates" if show_all else "no gates are waiting")
        return
    has_end = any(gate.due for gate in found)
    is_wide = output.width >= _WIDE or not has_end
    rows = [
        (
            gate.id,
            gate.name,
            output.time(gate.opened) if is_wide else "",
            _state_of(gate) if show_all else "",
            "" if gate.due is None else output.time(gate.due),
            render(gate.payload, _VALUE_CHARACTERS),
        )
        for gate in found
    ]
    shown = {"opened": is_wide, "status": show_all, "until": has_end}
    columns = ("gate", "name", *(name if is_shown else "" for name, is_shown in shown.items()), "payload")
    output.table(columns, rows, whole=("gate", "opened", "status", "until"))


def _state_of(gate: Gate) -> str:
    if gate.status != "answered":
        return gate.status
    return ("approved" if gate.approved else "rejected") + (f" by {gate.by}" if gate.by else "")


@gates.command(name="answer", short_help="Answer a gate.")
@STORE
@click.argument("gate", shell_complete=complete_gate)
@click.option("--approve/--reject", "approved", default=None, help="The answer.")
@click.option("--payload", metavar="JSON", help="Value passed to the workflow with the answer.")
@click.option("--by", metavar="NAME", help="Who answers.")
@AS_JSON
def answer_(
    *, store: Path, gate: str, approved: bool | None, payload: str | None, by: str | None, as_json: bool
) -> None:
    """Answer GATE of STORE; `gates ls` lists gates. A worker or `runs resume` continues the run.

    Exit code 4: the gate was answered before, has timed out, or its run has ended.
    """
    from statelog import durable

    if approved is None:
        raise UsageError("give the answer, --approve or --reject", argument="approve")
    output = Output(as_json=as_json)
    given = None if payload is None else parse_json(payload, "the payload")
    with open_for_writing(store) as opened:
        made = durable.answer(opened, gate, approved=approved, payload=given, by=by)
    if as_json:
        output.emit(gate_document(made))
    else:
        output.say(f"{made.id} is {_state_of(made)}; run {made.run} continues when a worker takes it up")


# --- queues ----------------------------------------------------------------------------------


_COUNTS = ("waiting", "delayed", "running", "suspended")


@click.group(short_help="Show queues of runs.")
def queue() -> None:
    """Show the queues in which runs of a store wait for a worker."""


@queue.command(name="ls", short_help="List queues.")
@STORE
@AS_JSON
def ls_queues(*, store: Path, as_json: bool) -> None:
    """List the queues of STORE with counts of queued, delayed, running and suspended runs."""
    from statelog.durable import queues

    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = queues(opened)
    if as_json:
        for each in found:
            output.emit(asdict(each))
        return
    if not found:
        output.line("no queues: no runs are waiting")
        return
    rows = [(each.name, *(f"{getattr(each, name):,}" for name in _COUNTS)) for each in found]
    output.table(("queue", *_COUNTS), rows, right=_COUNTS, name="queue")


@click.group(short_help="Show and deliver messages of runs.")
def outbox() -> None:
    """Show and deliver the undelivered messages that runs of a store have emitted."""


@outbox.command(name="ls", short_help="List messages.")
@STORE
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Maximum number of messages.")
@ABSOLUTE
@AS_JSON
def ls_messages(*, store: Path, limit: int, absolute: bool | None, as_json: bool) -> None:
    """List the undelivered messages of STORE, oldest first, and the parked ones."""
    from statelog import durable

    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = durable.outbox(opened)
    if as_json:
        for message in found[:limit]:
            output.emit(message_document(message))
        return
    if not found:
        output.line("no messages")
        return
    has_parked = any(message.is_parked for message in found[:limit])
    rows = [_row(message, output, with_place=has_parked) for message in found[:limit]]
    columns = ("run", "place" if has_parked else "", "topic", "time", "status", "attempts", "payload")
    output.table(columns, rows, right=("attempts",), whole=("place", "time", "status"), name="run")
    if len(found) > limit:
        output.hint(f"there are {len(found):,}: use --limit to show more")


def _row(message: Message, output: Output, *, with_place: bool) -> tuple[str, ...]:
    payload = render(message.payload, _VALUE_CHARACTERS)
    time, status = output.time(message.time), status_of(message)
    place = message.place if with_place else ""
    return message.run, place, message.topic, time, status, str(message.attempts), payload


@outbox.command(short_help="Redeliver a parked message.")
@STORE
@click.argument("run", shell_complete=complete_run)
@click.argument("place")
@AS_JSON
def redeliver(*, store: Path, run: str, place: str, as_json: bool) -> None:
    """Redeliver a parked message of RUN in STORE with all attempts renewed. `outbox ls` shows its PLACE.

    A worker or `outbox deliver` delivers the message. Subscribers that have received it do not receive it again.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        durable.redeliver(opened, run, place)
    if as_json:
        output.emit({"run": run, "place": place})
    else:
        output.say(f"{place} of {run} waits again")


@outbox.command(short_help="Deliver messages to a URL.")
@STORE
@click.option(
    "--url", required=True, metavar="URL", help="Target of the messages, which are signed as Standard Webhooks."
)
@click.option("--secret-env", required=True, metavar="NAME", help="Environment variable with the secret, whsec_...")
@click.option(
    "--topic", "topics", multiple=True, metavar="PATTERN", help="Only topics that match. The option can be repeated."
)
@AS_JSON
def deliver(*, store: Path, url: str, secret_env: str, topics: tuple[str, ...], as_json: bool) -> None:
    """Deliver the messages of STORE to a URL and show how many remain.

    Messages that match no --topic are removed undelivered, so give the same topics as the workers. The secret comes
    from an environment variable, because other users can see a command line.
    """
    from statelog import durable

    output = Output(as_json=as_json)
    webhook = durable.Webhook(url, _secret(secret_env), topics=topics or ("**",))
    with open_for_writing(store) as opened, output.hints_of("statelog.durable"):
        done = durable.deliver(opened, [webhook])
    if as_json:
        output.emit(delivery_document(done))
    else:
        sent = f"{count(done.sent, 'message')} sent, {done.refused:,} refused"
        output.say(f"{sent}; {done.waiting:,} waiting, {done.parked:,} newly parked")


def _secret(variable: str) -> str:
    """Return the secret in an environment variable. A UsageError omits `variable`, which may be the secret itself."""
    held = os.environ.get(variable)
    if not held:
        message = "--secret-env must name an environment variable with the secret; the variable is not set, or is empty"
        raise UsageError(message, argument="secret_env")
    return held
