"""`statelog board ...`: the entries that agents share. The commands for claims are in `claims`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_key
from statelog.cli.documents import entry_document, event_document
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, INCLUDE_QUARANTINED, STORE
from statelog.cli.output import Output
from statelog.cli.text import escape, shorten
from statelog.cli.values import parse_json, render
from statelog.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Entry, Event

_VALUE_CHARACTERS = 200
_VALUE_FULL_CHARACTERS = 1 << 40

_EVENT_REST_CHARACTERS = 63
"""The width of an event's line without its key, if the value is shortened as far as possible."""

_EVENT_VALUE_CHARACTERS_MIN = 12
_KEY_CHARACTERS_MIN = 16
_KEY_CHARACTERS_MAX = 40
_AGENT_CHARACTERS = 8

KEY = click.argument("key", shell_complete=complete_key)
AGENT = click.option("--agent", metavar="NAME", help="Name of the agent that writes.")
_TTL = click.option("--ttl", "ttl_s", type=float, metavar="SECONDS", help="Expire the entry after this time.")


@click.group(short_help="Show and change the entries that agents share.")
def board() -> None:
    """Show and change the entries of a store's board. A KEY is a path such as `tasks/7`; a value is JSON."""


@board.command(short_help="List entries.")
@STORE
@click.argument("pattern", default="**")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Maximum number of entries.")
@click.option("--after", default="", metavar="KEY", help="Show only keys that sort after this key.")
@click.option("--before", default="", metavar="KEY", help="Show only keys that sort before this key.")
@click.option("--reverse", is_flag=True, help="Show the keys in descending order.")
@click.option("--no-values", is_flag=True, help="Do not read or show the values.")
@INCLUDE_QUARANTINED
@ABSOLUTE
@AS_JSON
def ls(
    *,
    store: Path,
    pattern: str,
    limit: int,
    after: str,
    before: str,
    reverse: bool,
    no_values: bool,
    include_quarantined: bool,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """List the entries of STORE that match PATTERN: * and ? match in a segment, ** matches any number of segments."""
    output = Output(as_json=as_json, absolute=absolute)
    bounds = {"after": after, "before": before}
    with open_for_reading(store) as opened:
        found = opened.board(include_quarantined=include_quarantined).list(
            pattern, limit=limit, reverse=reverse, values=not no_values, **bounds
        )
    if as_json:
        for entry in found:
            output.emit(entry_document(entry, has_value=not no_values))
        return
    if not found:
        output.line("no entries")
        return
    rows = [
        (
            entry.key,
            output.time(entry.time),
            str(entry.version),
            entry.agent or "",
            "" if no_values else render(entry.value, 80),
        )
        for entry in found
    ]
    has_agents = any(entry.agent for entry in found)
    columns = ("key", "time", "version", "agent" if has_agents else "", "" if no_values else "value")
    output.table(columns, rows, right=("version",), whole=("time",), name="key")


@board.command(short_help="Show one entry.")
@STORE
@KEY
@click.option("--at", type=int, metavar="LSN", help="Show the value after this record of the log.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
@INCLUDE_QUARANTINED
@AS_JSON
def get(*, store: Path, key: str, at: int | None, full: bool, include_quarantined: bool, as_json: bool) -> None:
    """Show the value of KEY in STORE."""
    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        entry = opened.board(include_quarantined=include_quarantined).get(key, at=at)
    if entry is None:
        message = f"no entry {key!r}" + ("" if at is None else f" behind record {at}")
        raise NotFoundError(message, key=key)
    if as_json:
        output.emit(entry_document(entry))
    else:
        output.block(render(entry.value, _VALUE_FULL_CHARACTERS if full else _VALUE_CHARACTERS))


@board.command(name="set", short_help="Set an entry.")
@STORE
@KEY
@click.argument("value", metavar="JSON")
@_TTL
@click.option("--priority", type=int, default=0, metavar="N", help="Entries with a higher priority are claimed first.")
@click.option("--delay", "delay_s", type=float, metavar="SECONDS", help="Allow claims only after this time.")
@AGENT
@AS_JSON
def set_(
    *,
    store: Path,
    key: str,
    value: str,
    ttl_s: float | None,
    priority: int,
    delay_s: float | None,
    agent: str | None,
    as_json: bool,
) -> None:
    """Set KEY in STORE, at any version. The store must exist."""
    with open_for_writing(store) as opened:
        made = opened.board(agent=agent).set(key, parse_json(value), ttl_s=ttl_s, priority=priority, delay_s=delay_s)
    _tell(made, as_json=as_json)


@board.command(short_help="Set an entry if it has a version.")
@STORE
@KEY
@click.argument("value", metavar="JSON")
@click.option("--expected-version", type=int, required=True, metavar="VERSION", help="0: the entry must not exist.")
@_TTL
@AGENT
@AS_JSON
def cas(
    *,
    store: Path,
    key: str,
    value: str,
    expected_version: int,
    ttl_s: float | None,
    agent: str | None,
    as_json: bool,
) -> None:
    """Set KEY in STORE if it has the expected version. Otherwise change nothing."""
    with open_for_writing(store) as opened:
        entry = opened.board(agent=agent).cas(key, parse_json(value), expected_version=expected_version, ttl_s=ttl_s)
    _tell(entry, as_json=as_json)


@board.command(short_help="Show the history of an entry.")
@STORE
@KEY
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Maximum number of events.")
@ABSOLUTE
@AS_JSON
def history(*, store: Path, key: str, limit: int, absolute: bool | None, as_json: bool) -> None:
    """Show the events of KEY in STORE, newest first."""
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = opened.board().history(key, limit)
    if as_json:
        for entry in found:
            output.emit(entry_document(entry))
        return
    if not found:
        output.line(f"{key!r} has no history")
        return
    rows = [
        (
            str(entry.version),
            output.time(entry.time),
            entry.kind if entry.schema_version == 1 else f"{entry.kind}, schema {entry.schema_version}",
            entry.agent or "",
            "" if entry.kind in ("delete", "expire") else render(entry.value, 80),
        )
        for entry in found
    ]
    columns = ("version", "time", "what", "agent" if any(entry.agent for entry in found) else "", "value")
    output.table(columns, rows, right=("version",), whole=("time", "what"))


@board.command(short_help="Roll entries back to an earlier record.")
@STORE
@click.argument("prefix")
@click.option(
    "--to",
    type=int,
    required=True,
    metavar="LSN",
    help="Restore the entries as they were after this record of the log.",
)
@AGENT
@AS_JSON
def rollback(*, store: Path, prefix: str, to: int, agent: str | None, as_json: bool) -> None:
    """Restore all entries of STORE whose keys begin with PREFIX. An empty PREFIX means every entry."""
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        before = opened.last_lsn
        changed = opened.board(agent=agent).rollback(prefix, to=to)
    if as_json:
        output.emit({"changed": changed, "undo_to": before})
    else:
        output.say(f"{len(changed):,} entries are as they were after record {to}; undo: rollback to {before}")


@board.command(short_help="Print the events of entries as they happen.")
@STORE
@click.argument("pattern", default="**")
@click.option("--after", metavar="CURSOR", help="Begin after this cursor, or after this record of the log.")
@click.option("--follow/--no-follow", default=True, help="Wait for more events at the end, until Ctrl-C (the default).")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="Stop after this time without an event.")
@AS_JSON
def watch(
    *, store: Path, pattern: str, after: str | None, follow: bool, timeout_s: float | None, as_json: bool
) -> None:
    """Print the events of the entries of STORE that match PATTERN, in order.

    Without --after the command prints events from now on. With --no-follow it begins after the last event that
    retention removed. --json has the cursor of each event. An entry's expiry becomes an event when a writing process
    notices it.
    """
    output = Output(as_json=as_json, absolute=True)  # Print times, because a printed age soon becomes wrong.
    begin = int(after) if after is not None and after.isascii() and after.isdigit() else after
    with (
        open_for_reading(store) as opened,
        opened.board().watch(pattern, after=begin, follow=follow, timeout_s=timeout_s) as events,
    ):
        for event in events:
            if as_json:
                output.emit(event_document(event))
            else:
                sys.stdout.write(_format_event(event, output) + "\n")
            if follow:
                sys.stdout.flush()


def _format_event(event: Event, output: Output) -> str:
    """Return an event as one line. Columns have fixed widths, because later events are not known yet."""
    assert event.time is not None
    key_width = min(max(output.width - _EVENT_REST_CHARACTERS, _KEY_CHARACTERS_MIN), _KEY_CHARACTERS_MAX)
    key = shorten(escape(event.key or ""), key_width)
    agent = escape(shorten(event.agent or "", _AGENT_CHARACTERS))
    start = f"{output.time(event.time)}  {event.kind:<8}  {key:<{key_width}}  {agent:<{_AGENT_CHARACTERS}}"
    if event.kind in ("delete", "expire", "dead"):
        return start.rstrip()
    return f"{start}  {render(event.new, max(output.width - len(start) - 2, _EVENT_VALUE_CHARACTERS_MIN))}"


@board.command(short_help="Delete an entry.")
@STORE
@KEY
@click.option("--expected-version", type=int, metavar="VERSION", help="Delete only this version.")
@AGENT
@AS_JSON
def delete(*, store: Path, key: str, expected_version: int | None, agent: str | None, as_json: bool) -> None:
    """Delete KEY from STORE. `board history` still shows its earlier values.

    Exit code 3: the entry does not exist. Exit code 4: the entry has a different version.
    """
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        was_there = opened.board(agent=agent).delete(key, expected_version=expected_version)
    if not was_there:
        raise NotFoundError(f"no entry {key!r}", key=key)
    if as_json:
        output.emit({"key": key})
    else:
        output.say(f"{key} is deleted")


def _tell(entry: Entry, *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    if as_json:
        output.emit(entry_document(entry))
    else:
        output.say(f"{entry.key} is at version {entry.version}")
