"""What exports and imports tell when they are done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export holds.

    Attributes:
        kind: "log" (records as they are) or "threads" (events of some threads).
        records: records, or events, in it.
        threads: threads that were asked for; None for all.
        since: LSN behind which it begins.
        last_lsn: LSN up to which it goes.
        size_bytes: of the stream.

    """

    kind: str
    records: int
    threads: int | None
    since: int
    last_lsn: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        kind: "log" or "threads", as that of the export.
        records_read: records, or events, in the export.
        records_added: those of them that were not in the store yet.
        threads: ids of the threads of a "threads" export, in its order.
        last_lsn: last LSN of the store now.
        size_bytes: of the stream.

    """

    kind: str
    records_read: int
    records_added: int
    threads: tuple[str, ...]
    last_lsn: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageReport:
    """What an image is of.

    Attributes:
        last_lsn: its last LSN.
        size_bytes: of all of it.

    """

    last_lsn: int
    size_bytes: int
