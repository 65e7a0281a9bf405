"""`statelog retain` and `statelog delete`: remove old versions or whole threads."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.opened_stores import open_for_writing
from statelog.cli.options import AS_JSON, STORE, THREAD
from statelog.cli.output import Output
from statelog.cli.text import count, format_size, parse_age
from statelog.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Store
    from statelog.log.care.vacuum import RetentionReport


@click.command(short_help="Remove old versions.")
@STORE
@click.option(
    "--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep this many of the newest versions of each branch."
)
@click.option("--max-age", metavar="AGE", help="Keep versions younger than this: 90s, 15m, 12h, 30d, 8w.")
@click.option(
    "--threads", default="*", show_default=True, metavar="GLOB", help="Only threads whose id matches this pattern."
)
@click.option("--keep-tags/--no-keep-tags", default=True, show_default=True, help="Whether tagged versions are kept.")
@click.option(
    "--as-policy",
    is_flag=True,
    help="Also store the rule for matching threads, present and future. Commits apply it.",
)
@AS_JSON
def retain(
    *,
    store: Path,
    keep_last: int | None,
    max_age: str | None,
    threads: str,
    keep_tags: bool,
    as_policy: bool,
    as_json: bool,
) -> None:
    """Remove versions in STORE that neither rule keeps. Heads and branch points always stay.

    Without a rule, the stored policies of the threads are applied in full; with --as-policy they are deleted.
    Later commits reuse the space. `compact` makes the file smaller.
    """
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened, output.progress("retaining"):
        age_s = _parse_age(max_age)
        _sweep_for_adapters(opened)
        try:
            remove = opened.set_retention if as_policy else opened.prune
            report = remove(keep_last=keep_last, max_age=age_s, threads=threads, keep_tags=keep_tags)
        except UsageError as error:
            if error.facts.get("argument") != "keep_last":
                raise
            message = f"retain needs --keep-last or --max-age: no thread of {store} has a stored policy"
            raise UsageError(message, **error.facts) from None
    fitting, versions = count(report.threads, "thread"), count(report.expired_versions, "version")
    _tell(output, store, report, f"{fitting}: {versions} expired", as_json=as_json)
    if not report.threads and threads != "*":
        output.note(
            f"no thread's id matches {threads!r}" + (": the policy applies to future threads" if as_policy else "")
        )


@click.command(short_help="Delete a thread for good.")
@STORE
@THREAD
@AS_JSON
def delete(*, store: Path, thread: str, as_json: bool) -> None:
    """Delete THREAD in STORE. Its id cannot be used until the thread is re-created. `compact` erases its bytes."""
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened, output.progress("deleting"):
        report = opened.delete_thread(thread)
    versions = count(report.expired_versions, "version")
    _tell(output, store, report, f"deleted {thread!r}: {versions}", as_json=as_json)


def _sweep_for_adapters(store: Store) -> None:
    with suppress(ImportError):
        from statelog.adapters.langgraph.saver.write_sweep import sweep_after_retention

        sweep_after_retention(store)


def _parse_age(text: str | None) -> float | None:
    age_s = None if text is None else parse_age(text)
    if text is not None and age_s is None:
        message = f"--max-age: {text!r} is not an age such as 90s, 15m, 12h, 30d or 8w"
        raise UsageError(message)
    return age_s


def _tell(output: Output, store: Path, report: RetentionReport, what: str, *, as_json: bool) -> None:
    if as_json:
        output.emit({"path": str(store), **asdict(report)})
        return
    output.say(f"{what}, {format_size(report.freed_bytes)} of records freed")
    if report.pending_records:
        output.line(f"{count(report.pending_records, 'record')} could not be erased yet: run the command again")
