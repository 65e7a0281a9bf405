"""`statelog stat`, `anchor`, `verify` and `rebuild-index`: the health of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_thread
from statelog.cli.documents import statistics_document
from statelog.cli.opened_stores import open_for_reading, open_for_writing
from statelog.cli.options import AS_JSON, EXPECT, STORE
from statelog.cli.output import Output
from statelog.cli.sizes import print_sizes
from statelog.cli.text import count, format_duration, format_policy, format_size
from statelog.cli.verification import verify_in_child
from statelog.errors import CorruptionError
from statelog.format.anchor import decode_anchor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from statelog.cli.verification import Verification
    from statelog.storage.statistics import ReaderStatistics
    from statelog.store.statistics import StoredPolicy, StoreStatistics

_THREADS_SHOWN = 20
_READERS_SHOWN = 3


@click.command(short_help="Show sizes and counts.")
@STORE
@click.argument("thread", required=False, shell_complete=complete_thread)
@click.option("--sizes", is_flag=True, help="Show the size of each thread's state, or of each channel of THREAD.")
@AS_JSON
def stat(*, store: Path, thread: str | None, sizes: bool, as_json: bool) -> None:
    """Show sizes and counts of STORE: free space, shared space, and readers that hold space.

    With --sizes: the size of the state at the head of each thread, or of each channel of THREAD. `shared` is the part
    in records of other branches and threads.

    The space that `compact` would free is an estimate. While a process reads, pages freed since its read began are not
    reused. A process that has just written counts as a reader for a second. In the table, `lent` is the size that
    other threads share with this thread: at least that much remains when this thread is deleted.

    In a large store, the figures of records, snapshots and sharing are marked estimates from an even sample.
    """
    output = Output(as_json=as_json)
    if thread is not None and not sizes:
        raise click.UsageError("THREAD needs --sizes")
    if sizes:
        with open_for_reading(store) as opened:
            print_sizes(output, opened, thread, as_json=as_json)
        return
    with open_for_reading(store) as opened, output.progress("counting"):
        statistics = opened.statistics()
    if as_json:
        output.emit({"path": str(store), **statistics_document(statistics)})
    else:
        _print_statistics(output, statistics)


def _print_statistics(output: Output, statistics: StoreStatistics) -> None:
    about = "about " if statistics.records_are_estimated else ""
    guess = "about " if statistics.snapshots_are_estimated else ""
    alike = "about " if statistics.sharing_is_estimated else ""
    page_size, pages = statistics.page_size_bytes, statistics.pages_used + statistics.pages_free
    whole = format_size(statistics.snapshots_size_bytes)
    counts = (
        count(statistics.thread_count, "thread"),
        count(statistics.branch_count, "branch"),
        count(statistics.checkpoint_count, "checkpoint"),
        count(statistics.last_lsn, "record"),
    )
    facts = {
        "file": f"{format_size(statistics.file_size_bytes)} of at most {format_size(statistics.map_size_bytes)}",
        "pages": f"{pages:,} of {format_size(page_size)}, {statistics.pages_free:,} of them free",
        "compact": _describe_compaction(statistics),
        "readers": _describe_readers(statistics.readers_by_process),
        "contents": ", ".join(counts),
        "records": f"{about}{format_size(statistics.records_size_bytes)}, {about}{count(statistics.nodes, 'node')}",
        "sharing": f"{guess}{whole} if every state were stored whole, {statistics.dedup_ratio:.1f} times the records",
        "shared": f"{alike}{format_size(statistics.shared_size_bytes)} that heads of branches share with other branches"
        " and threads",
    }
    if statistics.unowned_size_bytes:
        facts["records"] += f"; {about}{format_size(statistics.unowned_size_bytes)} that belong to no existing thread"
    if statistics.policies:
        facts["policies"] = "; ".join(map(_describe_policy, statistics.policies))
    if not statistics.wakes_reach:
        facts["wake-ups"] = "do not arrive from every process: waiters poll every 50 ms"
    for name, fact in facts.items():
        output.say(f"{name:<10}{fact}", indent=10)
    output.line()
    output.table(
        ("table", "entries", "depth", "pages"),
        [
            (name, f"{table.entries:,}", str(table.depth), f"{table.pages:,}")
            for name, table in statistics.tables.items()
        ],
        right=("entries", "depth", "pages"),
    )
    if statistics.threads:
        output.line()
        _print_threads(output, statistics, about)


def _describe_compaction(statistics: StoreStatistics) -> str:
    bound = "" if statistics.unreached_size_bytes is not None else "at least "
    size = format_size(statistics.reclaimable_size_bytes)
    return f"would free {bound}{size} of {format_size(statistics.file_size_bytes)}"


def _describe_readers(readers: Sequence[ReaderStatistics]) -> str:
    if not readers:
        return "none"
    told = [
        f"process {each.process_id}, {count(each.commits_behind, 'commit')} behind" for each in readers[:_READERS_SHOWN]
    ]
    more = [f"{len(readers) - len(told)} more"] if len(readers) > len(told) else []
    return f"{sum(each.reads for each in readers)}: {'; '.join(told + more)}"


def _describe_policy(stored: StoredPolicy) -> str:
    which = stored.pattern or f"the thread with id digest {stored.id_digest}"
    return f"{which} to come: {format_policy(stored.policy) or 'all versions'}"


def _print_threads(output: Output, statistics: StoreStatistics, about: str) -> None:
    output.table(
        ("thread", "branches", "checkpoints", "records", "record bytes", "lent"),
        [
            (
                thread.id,
                f"{thread.branches:,}",
                f"{thread.checkpoints:,}",
                f"{about}{thread.records:,}",
                f"{about}{format_size(thread.records_size_bytes)}",
                format_size(thread.lent_size_bytes) if thread.lent_size_bytes else "",
            )
            for thread in statistics.threads[:_THREADS_SHOWN]
        ],
        right=("branches", "checkpoints", "records", "record bytes", "lent"),
        name="thread",
    )
    if statistics.thread_count > _THREADS_SHOWN:
        output.hint(f"the {_THREADS_SHOWN} largest of {statistics.thread_count:,} threads")


@click.command(short_help="Print an anchor of the history.")
@STORE
@AS_JSON
def anchor(*, store: Path, as_json: bool) -> None:
    """Print an anchor of STORE: 106 digits that identify its history up to the last record on the disk.

    Keep the anchor where people who can write STORE cannot change it. Pass it to `--expect` of `verify` or `export`.
    Exit code 7 then means: STORE is an earlier copy, or its records differ.
    """
    output = Output(as_json=as_json)
    with open_for_reading(store) as opened:
        data = opened.anchor()
    if as_json:
        found = decode_anchor(data)
        facts = {"lsn": found.lsn, "digest": found.chain.hex(), "store_id": found.store_id.hex()}
        output.emit({"path": str(store), "anchor": data.hex(), **facts})
    else:
        output.line(data.hex())


@click.command(short_help="Check every invariant.")
@STORE
@click.option(
    "--shallow", is_flag=True, help="Check only records and index, not the nodes in records or the pages of the file."
)
@EXPECT
@AS_JSON
def verify(*, store: Path, shallow: bool, expect: bytes | None, as_json: bool) -> None:
    """Check every invariant of STORE; exit with 7 if one does not hold.

    A child process reads the file, because a damaged file may kill its reader.
    """
    output = Output(as_json=as_json)
    with output.progress("verifying") as progress:
        try:
            found = verify_in_child(store, deep=not shallow, expect=expect, progress=progress)
        except CorruptionError as error:
            if as_json:
                output.emit({"path": str(store), "ok": False, "error": error.message})
            raise
    if as_json:
        output.emit(
            {
                "path": str(store),
                "ok": found.ok,
                "deep": not shallow,
                "records": found.records,
                "nodes": found.nodes,
                "bytes": found.bytes,
                "removed_since_anchor": found.removed_since_anchor,
                "unnamed": found.unnamed,
                "problems": found.problems,
                "duration_s": round(found.duration_s, 6),
            }
        )
    else:
        _print_verification(output, found)
    if not found.ok:
        problems = count(len(found.problems), "problem")
        message = f"{store} is damaged: {problems}, the first: {found.problems[0]['message']}"
        raise CorruptionError(message, path=str(store))


def _print_verification(output: Output, found: Verification) -> None:
    if found.ok:
        output.line(f"sound: {describe_verification(found)}")
        if found.removed_since_anchor:
            output.line(f"{count(found.removed_since_anchor, 'record')} up to the anchor removed since then")
        if found.unnamed:
            output.line(f"{count(found.unnamed, 'record')} removed by an older release: no record lists them")
        return
    rows = [
        (
            problem["invariant"],
            str(problem["lsn"] or ""),
            "" if problem["node"] is None else str(problem["node"]),
            problem["message"],
        )
        for problem in found.problems
    ]
    output.table(
        ("invariant", "record", "node", "problem"), rows, right=("record", "node"), whole=("invariant",), wrap=True
    )


def describe_verification(found: Verification) -> str:
    """Return the counts of checked records and nodes, the bytes and the duration."""
    return (
        f"{count(found.records, 'record')}, {count(found.nodes, 'node')}, {format_size(found.bytes)}"
        f" in {format_duration(found.duration_s)}"
    )


@click.command("rebuild-index", short_help="Rebuild the index from the log.")
@STORE
@AS_JSON
def rebuild_index(*, store: Path, as_json: bool) -> None:
    """Rebuild the index of STORE from its log, in one transaction.

    The index depends only on the log, so this repairs any damage to the index.
    """
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened, output.progress("rebuilding the index") as progress:
        records = opened.rebuild_index(progress)
    if as_json:
        output.emit({"path": str(store), "records": records})
    else:
        output.line(f"the index is rebuilt from {count(records, 'record')}")
