"""Reports of exports and imports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The contents of an export.

    Attributes:
        kind: "log" (unchanged records) or "threads" (events of some threads).
        records: number of records or events.
        threads: ids of the requested threads; None for all threads.
        since: the LSN before its first record.
        last_lsn: LSN of its last record.
        size_bytes: size of the stream.
    """

    kind: str
    records: int
    threads: int | None
    since: int
    last_lsn: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import.

    Attributes:
        kind: "log" or "threads", the kind of the export.
        records_read: number of records or events in the export.
        records_added: number of those records or events that were new to the store.
        threads: ids of the threads of a "threads" export, in its order.
        last_lsn: last LSN of the store now.
    """

    kind: str
    records_read: int
    records_added: int
    threads: tuple[str, ...]
    last_lsn: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageReport:
    """The contents of an image.

    Attributes:
        last_lsn: last LSN of the image.
        size_bytes: size of the image.
    """

    last_lsn: int
    size_bytes: int
