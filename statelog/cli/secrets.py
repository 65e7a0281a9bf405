"""`statelog secrets`: finds and removes the secrets in a store."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.text import count, format_duration, format_size
from statelog.errors import StoreLockedError, StoreReplacedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Guard, Store
    from statelog.guard import SecretFound

_WAIT_S = 60.0
_PAUSE_S = 0.1

_RULES = click.option("--rule", "rules", multiple=True, metavar="RULE", help="Only secrets that this rule finds.")
_FINGERPRINTS = click.option(
    "--fingerprint", "fingerprints", multiple=True, metavar="HEX", help="Only the secret with this fingerprint."
)
_FIELDS = click.option(
    "--field", "fields", multiple=True, metavar="PATH", help="Path whose values are secrets, such as **.password."
)
_ENGINE = click.option(
    "--engine",
    type=click.Choice(["rules", "kingfisher"]),
    default="rules",
    help="kingfisher adds hundreds of rules. It takes seconds to start and scans every text. Install it with"
    " pip install 'statelog[kingfisher]'.",
)


@click.group(short_help="Find and remove secrets.")
def secrets() -> None:
    """Find the secrets in a store and remove them from every version."""


@secrets.command("scan", short_help="List the secrets in a store.")
@STORE
@click.option("--thread", "threads", multiple=True, metavar="THREAD", help="Only this thread.")
@_RULES
@_FINGERPRINTS
@_FIELDS
@_ENGINE
@AS_JSON
def scan(
    *,
    store: Path,
    threads: tuple[str, ...],
    rules: tuple[str, ...],
    fingerprints: tuple[str, ...],
    fields: tuple[str, ...],
    engine: str,
    as_json: bool,
) -> None:
    """List the secrets in all versions of STORE. The list shows the location of each secret, never its text."""
    output = Output(as_json=as_json)
    guard = _guard(fields, engine, rules, fingerprints)
    with open_for_reading(store) as opened, output.progress("scanning"):
        found = _found(opened, guard, rules, fingerprints, threads or None)
    _list(output, found, as_json=as_json)
    if not as_json:
        output.say(_counted(found))


@secrets.command("purge", short_help="Remove secrets from every version.")
@STORE
@_RULES
@_FINGERPRINTS
@_FIELDS
@_ENGINE
@click.option("--dry-run", is_flag=True, help="List the secrets that would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Do it.")
@AS_JSON
def purge(
    *,
    store: Path,
    rules: tuple[str, ...],
    fingerprints: tuple[str, ...],
    fields: tuple[str, ...],
    engine: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Replace the secrets in all versions of STORE with redactions, for good.

    Other processes that have STORE open must open it again. After a crash, either the old or the new file is there.
    The disk needs room for both files. If another process compacts or purges STORE, the command waits for up to a
    minute and searches again.
    """
    output = Output(as_json=as_json)
    if not (yes or dry_run):
        message = "this rewrites the history of the store for good: give --yes, or --dry-run"
        raise UsageError(message, argument="--yes")
    guard = _guard(fields, engine, rules, fingerprints)
    until_s = time.monotonic() + _WAIT_S
    while True:
        try:
            with open_for_writing(store) as opened:
                with output.progress("scanning"):
                    found = _found(opened, guard, rules, fingerprints, None)
                if dry_run:
                    _list(output, found, as_json=as_json)
                    return
                with output.progress("purging") as progress:
                    report = opened.purge(found, guard=guard, progress=progress)
            break
        except (StoreLockedError, StoreReplacedError):
            if time.monotonic() >= until_s:
                raise
            time.sleep(_PAUSE_S)
    if as_json:
        output.emit({"path": str(store), "secrets": len(_distinct(found)), **asdict(report)})
        return
    before, after = format_size(report.size_before_bytes), format_size(report.size_after_bytes)
    places, duration = count(report.redactions, "place"), format_duration(report.duration_s)
    output.line(f"purged {_counted(found)}: {places} redacted, {before} -> {after} in {duration}")


def _guard(fields: tuple[str, ...], engine: str, rules: tuple[str, ...], fingerprints: tuple[str, ...]) -> Guard | None:
    """Check the filters of a search and return its guard. Raises UsageError, GuardError."""
    from statelog import Guard, guard
    from statelog.guard.secrets import FIELD, check_rules

    for each in fingerprints:
        if not re.fullmatch("[0-9a-f]{8}", each):
            message = f"a fingerprint has 8 hexadecimal digits, not {each!r}"
            raise UsageError(message, argument="--fingerprint", value=each)
    if engine == "rules":
        check_rules({*rules} - {FIELD})
    if engine == "kingfisher":
        from statelog.guard.kingfisher import KingfisherSecrets

        return Guard(secrets=KingfisherSecrets(fields=fields))
    return Guard(secrets=guard.Secrets(fields=fields)) if fields else None


def _found(
    store: Store,
    guard: Guard | None,
    rules: tuple[str, ...],
    fingerprints: tuple[str, ...],
    threads: tuple[str, ...] | None,
) -> list[SecretFound]:
    return [
        each
        for each in store.find_secrets(guard=guard, threads=threads)
        if (not rules or each.rule in rules) and (not fingerprints or each.fingerprint in fingerprints)
    ]


def _list(output: Output, found: list[SecretFound], *, as_json: bool) -> None:
    for each in found:
        if as_json:
            output.emit(asdict(each))
        else:
            version = "" if each.version is None else f" version {each.version}"
            thread = "" if each.thread is None else f" {each.thread}"
            output.line(f"{each.rule} {each.fingerprint}{thread}{version} {each.path}")


def _distinct(found: list[SecretFound]) -> set[tuple[str, str]]:
    return {(each.rule, each.fingerprint) for each in found}


def _counted(found: list[SecretFound]) -> str:
    return count(len(_distinct(found)), "secret")
