"""Two processes read 5, and both add one. The result is 7, because `update` adds in the commit.

    python -m statelog.examples.board_counter [FILE]

With `set`, one of the two additions is lost, because each process writes 6.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import statelog
from statelog import reducers

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

WAIT_S: Final = 60.0


def count(path: str, name: str, both_have_read: Barrier) -> None:
    """Read both counters, wait until the other process has also read them, and add one."""
    with statelog.open(path) as store:
        board = store.board(agent=name)
        read = [board.get(key) for key in ("counts/set", "counts/update")]
        values = [0 if entry is None else entry.value for entry in read]
        # Print in one call, so that the lines of the two processes do not mix.
        sys.stdout.write(f"{name} reads {values[0]} and {values[1]}\n")
        sys.stdout.flush()
        both_have_read.wait(WAIT_S)
        board.set("counts/set", values[0] + 1)  # This overwrites a newer value.
        board.update("counts/update", reducers.add, 1)  # This adds to the present value.


def main(path: str) -> None:
    """Let two processes count."""
    context = multiprocessing.get_context("spawn")
    both_have_read = context.Barrier(2)
    with statelog.open(path) as store:
        board = store.board(agent="main")
        for key in ("counts/set", "counts/update"):
            board.set(key, 5)
        children = [context.Process(target=count, args=(path, name, both_have_read)) for name in ("ann", "bob")]
        for child in children:
            child.start()
        for child in children:
            child.join(WAIT_S)
        counts = {entry.key: entry.value for entry in board.list("counts/*")}
        print(f"with set: {counts['counts/set']}, with update: {counts['counts/update']}")
        assert [child.exitcode for child in children] == [0, 0]
        assert counts == {"counts/set": 6, "counts/update": 7}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(str(Path(directory) / "counter.state"))
