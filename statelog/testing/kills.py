"""Kills one of the processes that share a store every second, and checks that no acknowledged commit is lost.

Each writer commits to its own threads, and acknowledges each commit. Readers check that each head is a whole commit,
and that the log is whole. A keeper removes old versions. At the end, the store must have every acknowledged commit
once.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import statelog
from statelog.errors import StoreNotFoundError
from statelog.log.care.replay import open_engine
from statelog.testing.killing_roles import SCHEMA, pair_of, thread_of, write_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from statelog.store.store import Store

_BOOT = """
import sys
sys.path.append(sys.argv.pop(1))
from statelog.testing import killing_roles
killing_roles.run(sys.argv[1:])
"""

_ROLES = ("writer", "writer", "writer", "writer", "reader", "reader", "reader", "keeper")
_WRITERS = _ROLES.count("writer")
_STUCK_S = 20.0
"""If no commit is made for this time, a lock was not released. A commit on a busy machine may take a second or two."""

_START_S = 60.0
_OPEN_S_MAX = 10.0

_READERS_MAX = 4 * len(_ROLES)
"""The maximum number of used reader slots. Each process uses one or two. Slots of dead processes stay in use until
the next process opens the store."""

_BAD_MAX = 50


@dataclass(slots=True)
class KillReport:
    """The results of the kills.

    Attributes:
        kills: the number of killed processes, without those killed at the end.
        commits: the number of acknowledged commits.
        unacknowledged: the number of commits in the store whose writers were killed before they acknowledged them.
        reads: the number of times that a reader has read all threads and the log.
        expired: the number of removed versions.
        readers_max: the most slots of LMDB's reader table in use at one time, including slots of dead processes.
        readers_left: the slots in use after all processes were killed and the store was opened again.
        records: the number of records in the log at the end.
        lost: the number of acknowledged commits that are missing.
        wrong: the number of other faults.
        bad: descriptions of the faults.
        duration_s: the duration of the test.
    """

    kills: int = 0
    commits: int = 0
    unacknowledged: int = 0
    reads: int = 0
    expired: int = 0
    readers_max: int = 0
    readers_left: int = 0
    records: int = 0
    lost: int = 0
    wrong: int = 0
    bad: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, and no fault was found."""
        return not (self.lost or self.wrong)

    def blame(self, words: str, *, lost: int = 0) -> None:
        """Record a fault, or the number of lost commits."""
        self.lost += lost
        self.wrong += not lost
        if len(self.bad) < _BAD_MAX:
            self.bad.append(words)


class _Process:
    """One of the processes of the test, from its start to its end."""

    def __init__(self, killing: _Killing, role: str, number: int) -> None:
        self.role = role
        self.number = number
        root = str(Path(statelog.__file__).resolve().parents[1])
        argument = str(number if role.endswith("writer") else _WRITERS)
        self.process = subprocess.Popen(  # noqa: S603 - the command is this interpreter
            [sys.executable, "-P", "-c", _BOOT, root, role, str(killing.path), argument],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._listener = threading.Thread(target=self._listen, args=(killing,))
        self._listener.start()

    def _listen(self, killing: _Killing) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    killing.hear(self, line.decode(errors="replace").strip())

    def kill(self) -> None:
        """Kill the process, and read the rest of its output."""
        self.process.kill()
        self.process.wait()
        self._listener.join()


class _Killing:
    def __init__(self, path: Path, report: KillReport) -> None:
        self.path = path
        self.report = report
        self.acknowledged = [-1] * _WRITERS
        self.heard_at_s = time.monotonic()
        self._lock = threading.Lock()

    def hear(self, process: _Process, line: str) -> None:
        """Process a line of a process's output."""
        word, _, rest = line.partition(" ")
        with self._lock:
            if word == "w":
                self._hear_commit(process.number, int(rest.split()[0]))
            elif word == "r":
                self.report.reads += int(rest)
            elif word == "k":
                self.report.expired += int(rest)
            else:
                self.report.blame(rest)

    def _hear_commit(self, writer: int, n: int) -> None:
        self.heard_at_s = time.monotonic()
        self.report.commits += 1
        missing = n - self.acknowledged[writer] - 1
        if missing not in {0, 1}:
            self.report.blame(f"writer {writer} committed {n} after {self.acknowledged[writer]}")
        self.report.unacknowledged += missing == 1
        self.acknowledged[writer] = n


def check_kills(
    *,
    seconds: float = 120.0,
    directory: str | os.PathLike[str] | None = None,
    kill_interval_s: float = 1.0,
    seed: int | None = None,
    acknowledges_early: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> KillReport:
    """Run eight processes on one store, kill one of them from time to time, and check the store at the end.

    Args:
        seconds: the duration, after all processes have begun.
        directory: a directory on the disk to test. By default, a temporary one.
        kill_interval_s: the time between two kills.
        seed: the seed that selects the killed processes.
        acknowledges_early: writers acknowledge a commit before doing it. This is a negative control, which the harness
            must notice.
        progress: called with (tenths of seconds done, tenths in all).
    """
    started = time.monotonic()
    report = KillReport()
    generator = random.Random(seed)  # noqa: S311 - the numbers only select the process to kill
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        killing = _Killing(Path(temporary) / "killed.state", report)
        roles = ["early writer" if acknowledges_early and role == "writer" else role for role in _ROLES]
        processes = [_Process(killing, role, number) for number, role in enumerate(roles)]
        try:
            _kill_now_and_then(killing, processes, generator, seconds, kill_interval_s, progress)
        finally:
            for process in processes:
                process.process.kill()
            for process in processes:
                process.kill()
        _look_at_end(killing)
    report.duration_s = time.monotonic() - started
    return report


def _kill_now_and_then(
    killing: _Killing,
    processes: list[_Process],
    generator: random.Random,
    seconds: float,
    kill_interval_s: float,
    progress: Callable[[int, int], None] | None,
) -> None:
    report = killing.report
    if not _await_writers(killing):
        report.blame(f"not every writer had committed after {_START_S:g} s")
        return
    begun = time.monotonic()
    next_kill = begun + kill_interval_s
    while (now := time.monotonic()) < begun + seconds:
        if progress is not None:
            progress(int(10 * (now - begun)), int(10 * seconds))
        if now - killing.heard_at_s > _STUCK_S:
            report.blame(f"no commit for {_STUCK_S:g} s: a lock was not released")
            return
        if now >= next_kill:
            next_kill += kill_interval_s
            place = generator.randrange(len(processes))
            _replace(killing, processes, place)
            report.kills += 1
        for place, process in enumerate(processes):
            if process.process.poll() is not None:  # The process has reported the reason.
                report.blame(f"{process.role} {process.number} ended with {process.process.returncode}")
                _replace(killing, processes, place)
        time.sleep(min(0.05, kill_interval_s / 4))


def _await_writers(killing: _Killing) -> bool:
    """Wait until every writer has committed. Starting a process takes longer than a commit."""
    deadline = time.monotonic() + _START_S
    while min(killing.acknowledged) < 0 and not killing.report.wrong:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _replace(killing: _Killing, processes: list[_Process], place: int) -> None:
    killed = processes[place]
    killed.kill()
    killing.report.readers_max = max(killing.report.readers_max, _count_readers(killing.path)[1])
    processes[place] = _Process(killing, killed.role, killed.number)


def _count_readers(path: Path) -> tuple[int, int]:
    """Return the current and the maximum number of used reader slots. Both are 0 if the store does not exist."""
    try:
        store_file = open_engine(path, read_only=True).store_file
    except StoreNotFoundError:
        return 0, 0
    try:
        return store_file.statistics().readers, store_file.lmdb_file.handles.raw.info()["num_readers"]
    finally:
        store_file.close()


def _look_at_end(killing: _Killing) -> None:
    report = killing.report
    begun = time.monotonic()
    report.readers_left = _count_readers(killing.path)[0]
    with statelog.open(killing.path) as store:
        store.thread("after the kills").commit({"works": True})
        if time.monotonic() - begun > _OPEN_S_MAX:
            report.blame("opening the store had to wait for a lock of a dead process")
        if report.readers_left:
            report.blame(f"dead processes still hold {report.readers_left} reader slots")
        if report.readers_max > _READERS_MAX:
            report.blame(f"the reader table grew to {report.readers_max}")
        for problem in store.verify().problems[:_BAD_MAX]:
            report.blame(f"{problem.invariant}, record {problem.lsn}: {problem.message}")
        lsns = [record.lsn for record in store.log()]
        report.records = len(lsns)
        if lsns != list(range(1, len(lsns) + 1)):
            report.blame("LSNs have gaps")
        for number, acknowledged in enumerate(killing.acknowledged):
            _look_at_writer(store, number, acknowledged, report)


def _look_at_writer(store: Store, number: int, acknowledged: int, report: KillReport) -> None:
    """Check that a writer's thread has every version up to `acknowledged`, each once, and at most one more."""
    thread = store.thread(thread_of(number), schema=SCHEMA)
    found = [(each.version, each.id, each.metadata["n"]) for each in thread.history()]
    versions = [version for version, _id, _n in found]
    last = thread.version
    if last < acknowledged:
        report.blame(
            f"writer {number}: version {acknowledged} was acknowledged, but the last version is {last}",
            lost=acknowledged - last,
        )
    if last > acknowledged + 1:
        report.blame(
            f"writer {number}: version {acknowledged} was the last one acknowledged, but version {last} exists"
        )
    report.unacknowledged += last == acknowledged + 1
    if versions != list(range(last, -1, -1)) or any(
        id_ != f"{number}-{n}" or version != n for version, id_, n in found
    ):
        report.blame(f"writer {number}: its versions differ from its commits")
    for version in range(0, last + 1, max(last // 50, 1)):
        state = thread.at(version).state
        expected = write_of(version)
        if state["n"] != version or state["sum"] != version + 1 or state["twice"] != expected["twice"]:
            report.blame(f"writer {number}: version {version} is {state}")
    pair = store.thread(pair_of(number), schema=SCHEMA)
    if last >= 0 and (pair.state["n"] != last - last % 5 or pair.version != last // 5):
        report.blame(f"writer {number}: its second thread has {pair.state}, its first one is at {last}")
