"""Opens stores for measurements, with access to their engine, and without flushes if requested."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog.log.care.replay import open_engine
from statelog.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.log.engine import Engine
    from statelog.storage.options import Durability


class BenchStore(Store):
    """A store with access to its engine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.engine = engine


@contextmanager
def opened(path: Path, *, durability: Durability = "commit", flush: bool = True) -> Iterator[BenchStore]:
    """Open a store like `statelog.open`. Without `flush`, nothing is flushed, which is faster."""
    store = BenchStore(open_engine(path, durability=durability, flush=flush))
    with store:
        yield store
