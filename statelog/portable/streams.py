"""Export and import of whichever kind: what `Store.export` and `Store.import_` call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import ReadOnlyError, UsageError
from statelog.portable.frames import LOG, FrameReader
from statelog.portable.log_export import export_log
from statelog.portable.log_import import LogImporter
from statelog.portable.thread_export import export_threads
from statelog.portable.thread_import import ThreadImporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.log.engine import Engine
    from statelog.portable.frames import Source, Target
    from statelog.portable.reports import ExportReport, ImportReport


def export_store(
    engine: Engine,
    target: Target,
    *,
    threads: Iterable[str] | None = None,
    since: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Write a store, or some of its threads, to a target; see `Store.export`."""
    if isinstance(since, bool) or not isinstance(since, int) or since < 0:
        message = f"an LSN is an int from 0, not {since!r}"
        raise UsageError(message, argument="since", value=since)
    if threads is None:
        return export_log(engine, target, since=since, progress=progress)
    if since:
        message = "`since` is for the whole log: threads are exported whole, and imported as far as they are new"
        raise UsageError(message, argument="since", value=since)
    if isinstance(threads, str):
        message = "`threads` is several thread ids, not one text"
        raise UsageError(message, argument="threads", value=threads)
    return export_threads(engine, target, list(threads), progress=progress)


def import_stream(
    engine: Engine, source: Source, *, progress: Callable[[int, int], None] | None = None
) -> ImportReport:
    """Take an export into a store; see `Store.import_`."""
    if engine.environment.read_only:
        message = f"{engine.environment.path} is open read-only"
        raise ReadOnlyError(message, path=str(engine.environment.path))
    reader = FrameReader(source)
    if reader.header.kind == LOG:
        return LogImporter(engine, reader, progress).run()
    return ThreadImporter(engine, reader, progress).run()
