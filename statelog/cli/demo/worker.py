"""One process of the demo's agent: opens the file, finds the next step and continues.

It runs as a module and writes its events to stdout, one JSON object per line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.cli.demo.review import THREAD_ID, Review, begin, next_step, review_step
from statelog.cli.demo.sources import STEPS
from statelog.cli.opened_stores import open_store
from statelog.errors import StatelogError

if TYPE_CHECKING:
    import statelog

_STUCK_S = 60.0
"""How long the step that will be killed hangs, in seconds. The parent kills it at once."""


def _say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def _work(path: Path, hang_in_step: int) -> None:
    started = time.perf_counter()
    with open_store(path) as store:
        thread = store.thread(THREAD_ID, schema=Review)
        first = next_step(thread)
        _say("opened", process=os.getpid(), next_step=first, duration_s=time.perf_counter() - started)
        if first == 0:
            head = begin(thread)
            _say("planned", plan=head.state["plan"].to_python(), version=head.version)
            first = 1
        for step in range(first, STEPS + 1):
            _review(thread, step, is_last=step == hang_in_step)


def _review(thread: statelog.Thread, step: int, *, is_last: bool) -> None:
    started = time.perf_counter()

    def halfway(parsed: int, files: int) -> None:
        if is_last:
            _say("inside", step=step, parsed=parsed, files=files)
            time.sleep(_STUCK_S)

    made = review_step(thread, step, halfway=halfway)
    package = made.metadata["package"]
    counts = made.state["packages"][package]
    _say(
        "step",
        step=step,
        package=package,
        **counts,
        version=made.version,
        duration_s=time.perf_counter() - started,
    )


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        try:
            _work(Path(sys.argv[1]), int(sys.argv[2]))
        except StatelogError as error:
            _say("error", message=error.message, exit_code=error.exit_code)
