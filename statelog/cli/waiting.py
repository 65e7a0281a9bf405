"""`statelog gates`, `statelog queue` and `statelog outbox`: what waits for a person, for a worker, or to be sent."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_gate, complete_run
from statelog.cli.documents import delivery_document, gate_document, message_document, status_of
from statelog.cli.opening import open_for_reading, open_for_writing
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
"""Columns of text that have room for two times."""


@click.group(short_help="Show and answer what waits for a person.")
def gates() -> None:
    """Show the gates of a store, where runs wait for an answer, and answer them."""


@gates.command(short_help="List gates.")
@STORE
@click.option("--run", metavar="RUN", help="Only those of this run.")
@click.option("--all", "show_all", is_flag=True, help="Also those that wait no more.")
@ABSOLUTE
@AS_JSON
def ls(*, store: Path, run: str | None, show_all: bool, absolute: bool | None, as_json: bool) -> None:
    """List the gates of STORE that wait for an answer, the oldest first."""
    from statelog import durable

    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        if run is not None:
            durable.get(opened, run)
        found = durable.gates(opened, pending=None if show_all else True, run=run)
    if as_json:
        for gate in found:
            output.emit(gate_document(gate))
        return
    if not found:
        output.line("no gates" if show_all else "no gates wait")
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
@click.option("--payload", metavar="JSON", help="What the workflow gets with it.")
@click.option("--by", metavar="NAME", help="Who answers.")
@AS_JSON
def answer_(
    *, store: Path, gate: str, approved: bool | None, payload: str | None, by: str | None, as_json: bool
) -> None:
    """Answer GATE of STORE, as `gates ls` has it: its run goes on when a worker takes it up, or by `runs resume`.

    Exit code 4: it was answered before, its time is up, or its run has ended.
    """
    from statelog import durable

    if approved is None:
        raise UsageError("an answer is --approve or --reject", argument="approve")
    output = Output(as_json=as_json)
    given = None if payload is None else parse_json(payload, "the payload")
    with open_for_writing(store) as opened:
        made = durable.answer(opened, gate, approved=approved, payload=given, by=by)
    if as_json:
        output.emit(gate_document(made))
    else:
        output.say(f"{made.id} is {_state_of(made)}; run {made.run} goes on when a worker takes it up")


# --- queues ----------------------------------------------------------------------------------


_COUNTS = ("waiting", "delayed", "running", "suspended")


@click.group(short_help="Show what waits for a worker.")
def queue() -> None:
    """Show the queues of a store, in which runs wait for a worker."""


@queue.command(name="ls", short_help="List queues.")
@STORE
@AS_JSON
def ls_queues(*, store: Path, as_json: bool) -> None:
    """List the queues of STORE: how many of their runs wait for a worker or a time, are driven, or are suspended."""
    from statelog.durable import queues

    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        found = queues(opened)
    if as_json:
        for each in found:
            output.emit(asdict(each))
        return
    if not found:
        output.line("no queues: no run waits")
        return
    rows = [(each.name, *(f"{getattr(each, name):,}" for name in _COUNTS)) for each in found]
    output.table(("queue", *_COUNTS), rows, right=_COUNTS, name="queue")


@click.group(short_help="Show and deliver what runs have emitted.")
def outbox() -> None:
    """Show the messages that runs of a store have emitted and that are not delivered yet, and deliver them."""


@outbox.command(name="ls", short_help="List messages.")
@STORE
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many.")
@ABSOLUTE
@AS_JSON
def ls_messages(*, store: Path, limit: int, absolute: bool | None, as_json: bool) -> None:
    """List the messages of STORE that are not delivered yet, the oldest first, and those that are parked."""
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
        output.hint(f"there are {len(found):,}: --limit says how many are shown")


def _row(message: Message, output: Output, *, with_place: bool) -> tuple[str, ...]:
    payload = render(message.payload, _VALUE_CHARACTERS)
    time, status = output.time(message.time), status_of(message)
    place = message.place if with_place else ""
    return message.run, place, message.topic, time, status, str(message.attempts), payload


@outbox.command(short_help="Have a parked message wait again.")
@STORE
@click.argument("run", shell_complete=complete_run)
@click.argument("place")
@AS_JSON
def redeliver(*, store: Path, run: str, place: str, as_json: bool) -> None:
    """Redeliver a parked message of RUN of STORE, with a full number of attempts. `outbox ls` shows its PLACE.

    A worker delivers the message, or `outbox deliver`. Subscribers that have received it do not receive it again.
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
@click.option("--url", required=True, metavar="URL", help="Where they go, signed as Standard Webhooks says.")
@click.option("--secret-env", required=True, metavar="NAME", help="Environment variable that has the secret, whsec_...")
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="Only these topics; may be given again.")
@AS_JSON
def deliver(*, store: Path, url: str, secret_env: str, topics: tuple[str, ...], as_json: bool) -> None:
    """Deliver what runs of STORE have emitted to a URL, and tell what is left.

    What fits no --topic leaves the outbox, too, undelivered: give the topics that workers deliver there. The secret is
    not given here, where other users could see it: --secret-env names a variable that has it.
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
        output.say(f"{sent}; {done.waiting:,} wait, {done.parked:,} were parked now")


def _secret(variable: str) -> str:
    """Return the secret. Raises UsageError, which does not repeat the name: it may be the secret itself."""
    held = os.environ.get(variable)
    if not held:
        message = (
            "--secret-env names an environment variable that has the secret; there is none of that name, or it is empty"
        )
        raise UsageError(message, argument="secret_env")
    return held
