"""Export and import of both kinds: the implementation of `Store.export` and `Store.import_`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from statelog.errors import ReadOnlyError, UsageError
from statelog.limits import THREAD_ID_SIZE_BYTES_MAX
from statelog.log.names import check_name
from statelog.portable.frames import LOG, FrameReader
from statelog.portable.log_export import export_log
from statelog.portable.log_import import LogImporter
from statelog.portable.thread_export import export_threads
from statelog.portable.thread_import import ThreadImporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.engine import Engine
    from statelog.portable.frames import ExportSource, ExportTarget
    from statelog.portable.reports import ExportReport, ImportReport


def export_store(
    engine: Engine,
    target: ExportTarget,
    *,
    threads: Iterable[str] | None = None,
    since: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Write a store, or some of its threads, to a target; see `Store.export`."""
    if isinstance(since, bool) or not isinstance(since, int) or since < 0:
        message = f"`since` must be a non-negative int, not {since!r}"
        raise UsageError(message, argument="since", value=since)
    if threads is None:
        return export_log(engine, target, since=since, progress=progress)
    if since:
        message = (
            "`since` applies only to an export of the log. An import of threads skips the events that the store already"
            " has"
        )
        raise UsageError(message, argument="since", value=since)
    if isinstance(threads, str | bytes) or not isinstance(threads, Iterable):
        message = f"`threads` must be a collection of thread ids, not {threads!r}"
        raise UsageError(message, argument="threads", value=threads)
    thread_ids = list(threads)
    for thread_id in thread_ids:
        if thread_id != "":  # An empty id is not valid, and is reported as not found.
            check_name("thread id", thread_id, size_bytes_max=THREAD_ID_SIZE_BYTES_MAX)
    return export_threads(engine, target, thread_ids, progress=progress)


def import_stream(
    engine: Engine,
    source: ExportSource,
    *,
    upto: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import an export into a store; see `Store.import_`."""
    if engine.store_file.read_only:
        message = f"{engine.store_file.path} is open read-only"
        raise ReadOnlyError(message, path=str(engine.store_file.path))
    reader = FrameReader(source)
    if reader.header.kind == LOG:
        return LogImporter(engine, reader, progress, upto=upto).run()
    if upto is not None:
        message = "`upto` applies only to an export of a log: an export of threads has no LSNs"
        raise UsageError(message, argument="upto", value=upto)
    return ThreadImporter(engine, reader, progress).run()
