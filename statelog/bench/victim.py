"""A process that commits until it is killed: `python -m statelog.bench.victim PATH [JOURNAL_SIZE_BYTES]`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import statelog
from statelog.bench.journals import Journaled, look_into
from statelog.limits import JOURNALED_RECORDS_MAX
from statelog.storage.journal import held

_COMMITS_BEFORE = 3
_COMMITS_BETWEEN = 500


def main(path: str) -> None:
    """Commit for ever, durably; say so once there is something to lose."""
    with statelog.open(path) as store:
        thread = store.thread("victim")
        step = 0
        while True:
            thread.commit({"step": step})
            step += 1
            if step == _COMMITS_BEFORE:
                _tell()


def fill(path: str, size_bytes: int) -> None:
    """Fill the journal with small records up to a size, or as many as it takes; say so, and wait to be killed.

    Pages may be held without end here: else an epoch ended long before the journal of a small store is full.
    """
    vars(held).update(INTERVAL_HELD_PAGES_MAX=1 << 30, HELD_PAGES_BOUND=1 << 31)
    with statelog.open(path, durability="interval") as store:
        thread = store.thread("victim")
        step = last = 0
        found = Journaled(0, 0, 0)
        while found.size_bytes + last <= size_bytes and found.records + _COMMITS_BETWEEN < JOURNALED_RECORDS_MAX:
            for _ in range(_COMMITS_BETWEEN):
                thread.commit({"step": step})
                step += 1
            before, found = found, look_into(Path(path))
            last = found.size_bytes - before.size_bytes
        _tell()
        time.sleep(3600)


def _tell() -> None:
    sys.stdout.write("committing\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        fill(sys.argv[1], int(sys.argv[2]))
    else:
        main(sys.argv[1])
