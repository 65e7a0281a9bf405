"""`statelog search`: finds texts in all threads, on the board, in LangGraph's store and in durable runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from statelog.cli.opened_stores import open_for_reading
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.paths import format_path
from statelog.search.hits import hit_document

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.search.hits import Hit


@click.command(short_help="Find texts in all threads and on the board.")
@STORE
@click.argument("query")
@click.option("--threads", metavar="PATTERN", help="Only threads whose ids match, such as 'chat-*'.")
@click.option("--where", metavar="PLACE", help="Only a path of threads, or board:, items:, runs: and a pattern.")
@click.option("--role", metavar="ROLE", help="Only messages of user, assistant, system or tool.")
@click.option("--since", metavar="TIME", help="Only texts committed from this time on (ISO 8601).")
@click.option("--until", metavar="TIME", help="Only texts committed before this time.")
@click.option("--branch", metavar="NAME", help="Only texts on this branch. Default: all branches.")
@click.option("--at", metavar="VERSION", help="A version or a time (ISO 8601) to search instead of now.")
@click.option("--history", is_flag=True, help="Search all existing versions.")
@click.option("--any", "is_any", is_flag=True, help="Match texts with any of the words.")
@click.option("--limit", type=int, default=10, show_default=True, metavar="COUNT", help="Maximum number of hits.")
@ABSOLUTE
@AS_JSON
def search(
    *, store: Path, query: str, is_any: bool, at: str | None, absolute: bool | None, as_json: bool, **conditions: Any
) -> None:
    """Find texts in STORE that have all words of QUERY, the best first.

    Text in double quotes is a phrase. * after a word matches any ending. Heads and current entries are searched. If a
    program has created an index beside the store, the command uses it. Otherwise it reads the whole store.
    """
    output = Output(as_json=as_json, absolute=absolute)
    match: Literal["any", "all"] = "any" if is_any else "all"
    with open_for_reading(store) as opened:
        hits = opened.search(query, match=match, at=_moment(at), **conditions)
    for note in hits.notes:
        output.hint(note)
    if as_json:
        for hit in hits:
            output.emit(hit_document(hit))
        return
    rows = [(_place(hit), hit.role, output.time(hit.time), hit.snippet) for hit in hits]
    output.table(("place", "role", "time", "text"), rows, whole=("time",))


def _moment(text: str | None) -> int | datetime | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is neither a version nor a time, such as 2026-10-01T12:00:00+00:00"
        raise click.BadParameter(message, param_hint="--at") from None


def _place(hit: Hit) -> str:
    """Return the location as arguments of `show`, the key of an entry or item, or the id of a run."""
    path = format_path(hit.path) if hit.path else ""
    names = {"entry": ("board", hit.key), "item": (hit.namespace, hit.key), "run": ("run", hit.run)}
    where = names.get(hit.kind, (hit.thread, f"{'' if hit.branch == 'main' else f'{hit.branch} '}{hit.version}"))
    return " ".join(part for part in (*where, path) if part)
