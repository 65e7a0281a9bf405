"""The least that a commit of this layout asks: LMDB's transaction and the journal's append, and nothing of ours around.

What a figure allows less than this for, no work on the rest can reach.
"""

from __future__ import annotations

import itertools
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog.bench.stores import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.bench.measure import Operation

LEAST = "LMDB and the journal alone"

_JOURNAL_SIZE_BYTES = 8 * 1024 * 1024
_PAGE_SIZE_BYTES = 700
"""Of a version page that is nearly full."""


@contextmanager
def least(directory: Path, group: bytes, *, is_flushed: bool) -> Iterator[Operation]:
    """Yield a commit of one record and one version page, both of random bytes, in tables of a store of its own.

    Args:
        directory: where its files go.
        group: what the journal gets; the record is about as large.
        is_flushed: whether it waits for the journal's flush.

    """
    lsns = itertools.count(1 << 32)
    places = itertools.cycle(range(0, _JOURNAL_SIZE_BYTES - len(group), len(group)))
    record, page = os.urandom(len(group)), os.urandom(_PAGE_SIZE_BYTES)
    descriptor = os.open(directory / "least", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, bytes(_JOURNAL_SIZE_BYTES), 0)
        os.fsync(descriptor)
        with opened(directory / "least.state", flush=False) as store:
            handles = store.engine.environment.handles

            def operation() -> None:
                transaction = handles.begin(write=True)
                transaction.put(struct.pack(">Q", next(lsns)), record, append=True, db=handles.log)
                transaction.put(b"v", page, db=handles.index)
                os.pwrite(descriptor, group, next(places))
                if is_flushed:
                    os.fdatasync(descriptor)
                transaction.commit()

            yield operation
    finally:
        os.close(descriptor)
