"""Reads records of the log, some of which may be damaged."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.log.reader import LogRecord
    from statelog.store.store import Store


def read_records(store: Store, after: int, until: int) -> Iterator[tuple[int, LogRecord | StatelogError]]:
    """Yield the LSNs above `after` up to `until`, each with its record or the error that reading it raised."""
    while after < until:
        try:
            for record in islice(store.log(after), until - after):
                after = record.lsn
                yield after, record
        except StatelogError as error:
            after += 1
            yield after, error
        else:
            return
