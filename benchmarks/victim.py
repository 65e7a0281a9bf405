"""A process that commits until it is killed: `python -m benchmarks.victim PATH`."""

from __future__ import annotations

import sys

import statelog

_COMMITS_BEFORE = 2000


def main(path: str) -> None:
    """Commit forever with `interval`. Print a line when the store has commits."""
    with statelog.open(path, durability="interval") as store:
        thread = store.thread("victim")
        step = 0
        while True:
            thread.commit({"step": step})
            step += 1
            if step == _COMMITS_BEFORE:
                sys.stdout.write("committing\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
