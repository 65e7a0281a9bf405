"""The commands `statelog board claim`, `complete`, `fail`, `release` and `renew`, and `statelog lease ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statelog.cli.board import AGENT, KEY, board
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.values import parse_json, render, to_json
from statelog.documents import lease_document
from statelog.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_VALUE_CHARACTERS = 1 << 40

_TOKEN = click.option("--token", type=int, required=True, metavar="N", help="Token that `board claim` printed.")
_MAX_ATTEMPTS = click.option(
    "--max-attempts", type=int, metavar="N", help="Skip entries that were claimed this many times."
)
_DEAD = click.option(
    "--dead", metavar="PREFIX", help="With --max-attempts: move such entries to this prefix, such as `tasks/dead/`."
)


def _check_dead(max_attempts: int | None, dead: str | None) -> None:
    if dead is not None and max_attempts is None:
        message = "--dead needs --max-attempts, the number of claims after which an entry is moved"
        raise UsageError(message, argument="dead", value=dead)


@board.command(short_help="Claim an entry to work on.")
@STORE
@click.argument("pattern")
@click.option(
    "--lease", "lease_s", type=float, default=60.0, show_default=True, metavar="SECONDS", help="Duration of the claim."
)
@click.option("--wait", "wait_s", type=float, default=0.0, metavar="SECONDS", help="Wait up to this time for an entry.")
@_MAX_ATTEMPTS
@_DEAD
@AGENT
@AS_JSON
def claim(
    *,
    store: Path,
    pattern: str,
    lease_s: float,
    wait_s: float,
    max_attempts: int | None,
    dead: str | None,
    agent: str | None,
    as_json: bool,
) -> None:
    """Claim an entry of STORE that matches PATTERN: the oldest of those with the highest priority.

    The claim lasts for --lease seconds, even after the command has ended. `board complete`, `fail`, `release` and
    `renew` need its token. Exit code 3: there is no entry to claim.
    """
    _check_dead(max_attempts, dead)
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        shared = opened.board(agent=agent)
        made = shared.claim(pattern, lease_s=lease_s, wait_s=wait_s, max_attempts=max_attempts, dead=dead)
    if made is None:
        message = f"no entry to claim matches {pattern!r}"
        raise NotFoundError(message, pattern=pattern)
    if as_json:
        output.emit({"key": made.key, "token": made.token, "attempt": made.attempt, "value": to_json(made.value)})
        return
    for name, text in (("key", made.key), ("token", str(made.token)), ("attempt", str(made.attempt))):
        output.line(f"{name:<7}  {text}")
    output.line(f"value    {render(made.value, _VALUE_CHARACTERS)}")


@board.command(short_help="Complete a claimed entry.")
@STORE
@KEY
@_TOKEN
@click.option("--result", metavar="JSON", help="New value of the entry. Default: its current value.")
@click.option("--to", metavar="PREFIX", help="Store the result under this prefix, such as `tasks/done/`.")
@AGENT
@AS_JSON
def complete(
    *, store: Path, key: str, token: int, result: str | None, to: str | None, agent: str | None, as_json: bool
) -> None:
    """Complete the claim of KEY in STORE: delete the entry. With --to, store its result.

    Exit code 4: the claim has ended, and nothing was done.
    """
    output = Output(as_json=as_json)
    results = [] if result is None else [parse_json(result, "the result")]
    with open_for_writing(store) as opened:
        opened.board(agent=agent).claim_of(key, token).complete(*results, to=to)
    target = None if to is None else to + key.rpartition("/")[2]
    if as_json:
        output.emit({"key": key, "token": token, "to": target})
    else:
        output.say(f"{key} is completed" + ("" if target is None else f"; its result is {target}"))


@board.command(short_help="Report a failure of the work on a claimed entry.")
@STORE
@KEY
@_TOKEN
@click.option("--error", required=True, metavar="TEXT", help="Message that `board history` shows.")
@click.option("--retry-in", "retry_in_s", type=float, default=0.0, metavar="SECONDS", help="Not claimed before.")
@_MAX_ATTEMPTS
@_DEAD
@AGENT
@AS_JSON
def fail(
    *,
    store: Path,
    key: str,
    token: int,
    error: str,
    retry_in_s: float,
    max_attempts: int | None,
    dead: str | None,
    agent: str | None,
    as_json: bool,
) -> None:
    """Release KEY of STORE with an error. Others may claim the entry at once, or after --retry-in.

    With --max-attempts and --dead, as in `board claim`, an entry that has used up its attempts is moved instead.
    Exit code 4: the claim has ended, and nothing was done.
    """
    _check_dead(max_attempts, dead)
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        shared = opened.board(agent=agent)
        shared.claim_of(key, token, max_attempts=max_attempts, dead=dead).fail(error, retry_in_s=retry_in_s)
        is_dead = shared.get(key) is None
    target = None if dead is None or not is_dead else dead + key.rpartition("/")[2]
    if as_json:
        output.emit({"key": key, "token": token, "to": target})
    else:
        output.say(f"{key} has failed" + ("" if target is None else f"; it is {target} now"))


@board.command(short_help="Release a claimed entry unchanged.")
@STORE
@KEY
@_TOKEN
@click.option("--uncounted", is_flag=True, help="Do not count this claim as an attempt.")
@AGENT
@AS_JSON
def release(*, store: Path, key: str, token: int, uncounted: bool, agent: str | None, as_json: bool) -> None:
    """Release the claim of KEY of STORE. The entry is not changed, and others may claim it.

    Exit code 4: the claim has ended, and nothing was done.
    """
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        opened.board(agent=agent).claim_of(key, token).release(counts=not uncounted)
    if as_json:
        output.emit({"key": key, "token": token})
    else:
        output.say(f"{key} may be claimed again")


@board.command(short_help="Renew a claim.")
@STORE
@KEY
@_TOKEN
@click.option(
    "--lease", "lease_s", type=float, metavar="SECONDS", help="Duration from now. Default: the claim's duration."
)
@AGENT
@ABSOLUTE
@AS_JSON
def renew(
    *,
    store: Path,
    key: str,
    token: int,
    lease_s: float | None,
    agent: str | None,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """Renew the claim of KEY of STORE, so that it lasts longer.

    Exit code 4: the claim has ended, and nothing was done.
    """
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_writing(store) as opened:
        shared = opened.board(agent=agent)
        shared.claim_of(key, token).renew(lease_s)
        entry = shared.get(key)
    held = None if entry is None else entry.claim
    expires = None if held is None or held.token != token else held.expires
    if as_json:
        output.emit({"key": key, "token": token, "expires": None if expires is None else expires.isoformat()})
    else:
        output.say(f"{key} is claimed" + ("" if expires is None else f" until {output.time(expires)}"))


@click.group(short_help="Show leases and their holders.")
def lease() -> None:
    """Show the leases on the board of a store. A lease is a name that one agent holds at a time."""


@lease.command(name="ls", short_help="List leases.")
@STORE
@ABSOLUTE
@AS_JSON
def ls_leases(*, store: Path, absolute: bool | None, as_json: bool) -> None:
    """List the leases of STORE that were not released, including expired leases."""
    output = Output(as_json=as_json, absolute=absolute)
    with open_for_reading(store) as opened:
        found = opened.board().leases()
    if as_json:
        for each in found:
            output.emit(lease_document(each))
        return
    if not found:
        output.line("no leases")
        return
    rows = [
        (
            each.name,
            each.holder or "",
            str(each.token),
            "its time is up" if each.is_over else output.time(each.expires),
        )
        for each in found
    ]
    columns = ("name", "holder" if any(each.holder for each in found) else "", "token", "until")
    output.table(columns, rows, right=("token",), whole=("until",), name="name")
