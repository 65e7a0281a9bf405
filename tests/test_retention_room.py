"""Retention where there is no room left."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

import statelog
from statelog import reducers
from statelog.errors import StoreFullError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "threads", "quota"), [(700, 1, 2_000_000), (700, 1, 8_000_000), (250, 20, 2_000_000), (5000, 2, 4_000_000)]
)
def test_a_full_store_of_lists_that_grow_is_emptied_by_retention(
    tmp_path: Path, size: int, threads: int, quota: int
) -> None:
    """Most of each record stays: what is rewritten takes nearly as much room as it frees."""
    with statelog.open(tmp_path / "s", durability="interval", max_size_bytes=quota) as store:
        opened = [store.thread(f"t{number}", schema={"log": reducers.extend}) for number in range(threads)]
        with contextlib.suppress(StoreFullError):
            for number in itertools.count():
                opened[number % threads].commit({"log": [f"{number} ".ljust(2 * size, "x")]})
        used = store.statistics().pages_used
        assert store.prune(keep_last=2).expired_versions > 50
        assert [len(list(thread.history())) for thread in opened] == [2] * threads
        assert store.statistics().pages_used <= used + 1  # the removals take a page
        for thread in opened:
            thread.commit({"log": ["more"]})
        store.delete_thread("t0")
        assert store.verify().ok
