"""The commands `statelog board claim`, those that end or renew a claim, and `statelog lease ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statelog.cli.board import AGENT, KEY, board
from statelog.cli.opening import open_for_reading, open_for_writing
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.values import parse_json, render, to_json
from statelog.documents import lease_document
from statelog.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_VALUE_CHARACTERS = 1 << 40

_TOKEN = click.option("--token", type=int, required=True, metavar="N", help="What `board claim` has printed.")
_MAX_ATTEMPTS = click.option(
    "--max-attempts", type=int, metavar="N", help="Leave entries alone that were claimed so often."
)
_DEAD = click.option(
    "--dead", metavar="PREFIX", help="With --max-attempts: move such entries there, as to `tasks/dead/`."
)


def _check_dead(max_attempts: int | None, dead: str | None) -> None:
    if dead is not None and max_attempts is None:
        message = "--dead needs --max-attempts: it says after how many claims an entry moves there"
        raise UsageError(message, argument="dead", value=dead)


@board.command(short_help="Claim an entry, to work on it.")
@STORE
@click.argument("pattern")
@click.option(
    "--lease", "lease_s", type=float, default=60.0, show_default=True, metavar="SECONDS", help="It lasts so long."
)
@click.option("--wait", "wait_s", type=float, default=0.0, metavar="SECONDS", help="Wait so long for an entry.")
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
    `renew` need its token. Exit code 3: there was nothing to claim.
    """
    _check_dead(max_attempts, dead)
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        shared = opened.board(agent=agent)
        made = shared.claim(pattern, lease_s=lease_s, wait_s=wait_s, max_attempts=max_attempts, dead=dead)
    if made is None:
        message = f"there is nothing to claim of {pattern!r}"
        raise NotFoundError(message, pattern=pattern)
    if as_json:
        output.emit({"key": made.key, "token": made.token, "attempt": made.attempt, "value": to_json(made.value)})
        return
    for name, text in (("key", made.key), ("token", str(made.token)), ("attempt", str(made.attempt))):
        output.line(f"{name:<7}  {text}")
    output.line(f"value    {render(made.value, _VALUE_CHARACTERS)}")


@board.command(short_help="Say that the work on a claimed entry is done.")
@STORE
@KEY
@_TOKEN
@click.option("--result", metavar="JSON", help="What becomes of the value; it stays as it is, if left out.")
@click.option("--to", metavar="PREFIX", help="Set the result below it, as below `tasks/done/`.")
@AGENT
@AS_JSON
def complete(
    *, store: Path, key: str, token: int, result: str | None, to: str | None, agent: str | None, as_json: bool
) -> None:
    """Complete the claim of KEY of STORE: delete the entry, and with --to keep its result.

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


@board.command(short_help="Say that the work on a claimed entry has failed.")
@STORE
@KEY
@_TOKEN
@click.option("--error", required=True, metavar="TEXT", help="What went wrong, for `board history`.")
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
    """Give KEY of STORE back with an error: others may claim it, at once or after --retry-in.

    With --max-attempts and --dead, as in `board claim`, an entry that was claimed so often moves instead. Exit code 4:
    the claim has ended, and nothing was done.
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


@board.command(short_help="Give a claimed entry back as it was.")
@STORE
@KEY
@_TOKEN
@click.option("--uncounted", is_flag=True, help="Its attempts are as if it had not been claimed.")
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


@board.command(short_help="Have a claim last longer.")
@STORE
@KEY
@_TOKEN
@click.option("--lease", "lease_s", type=float, metavar="SECONDS", help="It lasts so long from now; as before, else.")
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


@click.group(short_help="Show who holds which name.")
def lease() -> None:
    """Show the leases of the board of a store, which are names that agents hold."""


@lease.command(name="ls", short_help="List leases.")
@STORE
@ABSOLUTE
@AS_JSON
def ls_leases(*, store: Path, absolute: bool | None, as_json: bool) -> None:
    """List the leases of STORE that were not released, including those whose time is up."""
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
