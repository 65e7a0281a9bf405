"""A full store, because of its quota or a full disk.

Reads still work, and writes raise StoreFullError. Deleting and retention work, too, and free space for new writes.
"""

from __future__ import annotations

import errno
import os
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import statelog
from statelog.errors import StatelogError, StoreFullError
from statelog.testing.powerloss.contents import read_contents
from statelog.testing.powerloss.examine import own_log
from statelog.testing.powerloss.oracle import remove_all
from statelog.testing.powerloss.recorder import log_directory
from statelog.testing.powerloss.shim import DIRECTORY_VARIABLE, Action, Fault, ShimLog, SystemCall
from statelog.testing.powerloss.workers import Died, Worker
from statelog.testing.powerloss.workloads import STORE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.store.store import Store

Kind = Literal["quota", "disk"]

_QUOTA_BYTES = 2 << 20
_FIRST_COMMITS = 120
_COMMITS_MAX = 2000
_COMMITS_AFTER = 20
_LOG_BYTES = 1 << 28
_TIMEOUT_S = 120.0
_DISK_FULL = Fault(SystemCall.GROW, Action.FAIL, errno.ENOSPC, persistent=True)


def check_full(kind: Kind, *, directory: str | os.PathLike[str] | None = None) -> list[str]:
    """Fill a store, and return what does not work then as it should.

    Args:
        kind: "quota": of the store; "disk": no file can grow.
        directory: for the store; in memory if left out.

    Raises:
        UsageError: this machine cannot make calls fail.
    """
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=log_directory())))
        watched = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory or log_directory())))
        log = stack.enter_context(ShimLog.create(temporary / "log", capacity_bytes=_LOG_BYTES))
        worker = stack.enter_context(Worker(log.environment(watched)))
        answer = worker.call(f"{__name__}:run_full", kind, timeout_s=_TIMEOUT_S)
        return [answer.reason] if isinstance(answer, Died) else list(answer)


def run_full(kind: Kind) -> list[str]:
    """Fill a store in this process, whose calls can fail."""
    log = own_log()
    directory = Path(os.environ[DIRECTORY_VARIABLE])
    with log.paused():
        remove_all(directory)
    log.reset()
    path = directory / STORE_NAME
    with statelog.open(path, max_size_bytes=_QUOTA_BYTES if kind == "quota" else None) as store:
        scenario = _Scenario(store)
        if kind == "disk":
            scenario.commit(_FIRST_COMMITS)
            log.arm(_DISK_FULL)
        scenario.run()
        log.disarm()
        if kind == "disk":
            scenario.must("a commit once the disk has room again", lambda: scenario.commit(_FIRST_COMMITS, "again"))
        scenario.check_sound()
    with statelog.open(path) as store:
        scenario.store = store
        scenario.check_sound()
    return scenario.problems


class _Scenario:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.problems: list[str] = []
        self._random = random.Random(0)

    def run(self) -> None:
        """Fill the store, and do what should still work."""
        self.must("a commit of another thread, before", lambda: self.store.thread("other").commit({"n": 0}))
        if self._fill() == _COMMITS_MAX:
            self.problems.append("it never got full")
        before = read_contents(self.store)
        self.must("reading", lambda: [dict(each.state) for each in self.store.thread("full").history()])
        self.check_sound()
        if read_contents(self.store) != before:
            self.problems.append("a refused commit changed something")
        self.must("retention", lambda: self.store.prune(keep_last=2, threads="full"))
        self.must("commits in the space that retention freed", lambda: self.commit(_COMMITS_AFTER))
        self._fill()
        self.must("deletion", lambda: self.store.delete_thread("full"))
        self.must("commits in the space that deletion freed", lambda: self.commit(_COMMITS_AFTER, "again"))
        self.check_sound()

    def commit(self, count: int, thread: str = "full") -> None:
        """Commit some kilobytes, `count` times."""
        for _ in range(count):
            text = self._random.randbytes(2000).hex()
            self.store.thread(thread).commit({"text": text})

    def must(self, what: str, act: Callable[[], object]) -> None:
        """Do what should work."""
        try:
            act()
        except StatelogError as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")

    def check_sound(self) -> None:
        """Verify the store."""
        self.problems += [f"verify: {problem.message}" for problem in self.store.verify().problems[:3]]

    def _fill(self) -> int:
        """Commit until it is refused; return how often that was."""
        for number in range(_COMMITS_MAX):
            try:
                self.commit(1)
            except StoreFullError:
                return number
            except StatelogError as error:
                self.problems.append(f"a commit to the full store: {type(error).__name__}: {error}")
                return number
        return _COMMITS_MAX
