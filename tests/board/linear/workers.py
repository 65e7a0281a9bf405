"""Processes that make random calls of the board, and one that kills them."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from pathlib import Path

from calls import Diary, read_diary
from models import ATTEMPTS_MAX, DEAD, DIRECTORY, DONE, GUARD
from wrong import BOARDS

import statelog
from statelog import reducers
from statelog.errors import AlreadyExistsError, ConflictError

FORKING = multiprocessing.get_context("forkserver")
"""A process that has imported everything forks for each that is started, which takes a tenth of the time."""

FORKING.set_forkserver_preload(["statelog", __name__])

KEYS = ("a", "b", "b/c", "d")
TASKS = tuple(f"{DIRECTORY}{number}" for number in range(5))
LEASES_S = (60.0, 60.0, 60.0, 0.02)
"""Most claims are for longer than a run takes; some end while their holder works on."""

START_S = 60.0
"""Longer than this no process takes to begin."""

GO = "go"
"""This file is there once all have begun: or the first ones were through before the last."""


# --- one process -------------------------------------------------------------------------------


class Worker:
    """A process that calls the board at random."""

    def __init__(self, store, diary, seed, what, wrap):
        self.store, self.diary, self.random = store, diary, random.Random(seed)
        self.wrap = wrap
        self.versions = dict.fromkeys(KEYS, 0)
        self.claims, self.leases = [], []
        self.count = 0
        ways = {
            "entries": (self.register,),
            "claims": (self.register, self.task, self.claim, self.end_claim),
            "leases": (self.guard,),
            "all": (self.register, self.task, self.claim, self.end_claim, self.guard),
        }
        self.ways = ways[what]

    def run(self, count):
        for _ in range(count):
            self.random.choice(self.ways)()

    def board(self):
        return self.wrap(self.store.board(agent=self.diary.next_caller()))

    def call(self, name, work, **about):
        """Record the call, make it, and record and return its answer."""
        self.diary.invoke(name, about)
        try:
            made, result = work(self.board())
        except ConflictError as error:
            made, result = None, {"refused": type(error).__name__, **_version_of(error)}
        self.diary.respond(result)
        return made

    def value(self):
        self.count += 1
        return self.random.randrange(1 << 40) if self.random.random() < 0.5 else self.count

    def register(self):
        key, value = self.random.choice(KEYS), self.value()
        name = self.random.choice(["get", "get", "set", "cas", "cas", "create", "update", "delete"])
        if name == "get":
            entry = self.call("get", lambda board: _got(board.get(key)), key=key)
            self.versions[key] = entry.version if entry else 0
        elif name == "delete":
            self.call("delete", lambda board: _was_there(board.delete(key)), key=key)
        elif name == "cas":
            expected = self.versions[key]
            work = lambda board: _set(board.cas(key, value, expected_version=expected))  # noqa: E731 - of one line
            self.call("cas", work, key=key, value=value, expected=expected)
        elif name == "update":
            self.call("update", lambda board: _set(board.update(key, reducers.add, value)), key=key, value=value)
        else:
            self.call(name, lambda board: _set(getattr(board, name)(key, value)), key=key, value=value)

    def task(self):
        key, value = self.random.choice(TASKS), self.value()
        name = self.random.choice(["set", "create", "create", "create", "get", "delete"])
        if name == "get":
            self.call("get", lambda board: _got(board.get(key)), key=key)
        elif name == "delete":
            self.call("delete", lambda board: _was_there(board.delete(key)), key=key)
        else:
            self.call(name, lambda board: _set(getattr(board, name)(key, value)), key=key, value=value)

    def claim(self):
        lease_s = self.random.choice(LEASES_S)
        wanted = {"lease_s": lease_s, "max_attempts": ATTEMPTS_MAX, "dead": DEAD}
        work = lambda board: _claimed(board.claim(f"{DIRECTORY}*", **wanted))  # noqa: E731 - of one line
        claim = self.call("claim", work, lease_ns=int(lease_s * 1e9))
        if claim is not None:
            self.claims.append((claim, lease_s))

    def end_claim(self):
        if not self.claims:
            return self.claim()
        claim, lease_s = self.random.choice(self.claims)
        name = self.random.choice(["complete", "complete", "fail", "release", "renew"])
        about = {"key": claim.key, "token": claim.token}
        value = self.value()
        if name == "complete":
            return self.end(claim, name, lambda: claim.complete(value, to=DONE), **about, value=value)
        if name == "fail":
            return self.end(claim, name, lambda: claim.fail("no luck"), **about)
        if name == "release":
            return self.end(claim, name, claim.release, **about)
        return self.call(name, lambda _board: (claim.renew(), {}), **about, lease_ns=int(lease_s * 1e9))

    def end(self, claim, name, work, **about):
        self.call(name, lambda _board: (work(), {}), **about)
        self.claims = [each for each in self.claims if each[0] is not claim]

    def guard(self):
        """Take the lease, write with it as a fence, and release it. Or read what was written."""
        name = self.random.choice(["get", "lease", "fenced", "commit", "unlease"])
        if name == "get":
            return self.call("get", lambda board: _got(board.get(GUARD)), key=GUARD)
        if name == "lease" or not self.leases:
            ttl_s, about = self.random.choice([0.003, 0.02]), {"wait_s": 0.002, "auto_renew": False}
            work = lambda board: _leased(board.lease(GUARD, ttl_s=ttl_s, **about))  # noqa: E731 - of one line
            lease = self.call("lease", work, lease_ns=int(ttl_s * 1e9))
            self.leases += [lease] * (lease is not None)
            return None
        lease, value = self.random.choice(self.leases), self.value()
        if name == "fenced":
            work = lambda board: _set(board.set(GUARD, value, fence=lease))  # noqa: E731 - of one line
            return self.call(name, work, key=GUARD, value=value, token=lease.token)
        if name == "commit":
            thread, about = self.store.thread(GUARD), {"fence": lease, "metadata": {"agent": self.diary.next_caller()}}
            work = lambda _board: _committed(thread.commit({"value": value}, **about))  # noqa: E731 - of one line
            return self.call(name, work, value=value, token=lease.token)
        self.leases.remove(lease)
        return self.call(name, lambda _board: (lease.release(), {}), token=lease.token)


def _version_of(error):
    for name in ("actual_version", "version"):
        if hasattr(error, name):
            return {"version": getattr(error, name)}
    assert not isinstance(error, AlreadyExistsError)
    return {}


def _set(entry):
    return entry, {"version": entry.version, "value": entry.value}


def _got(entry):
    return entry, {"version": entry.version if entry else 0, "value": entry.value if entry else None}


def _was_there(was_there):
    return None, {"was_there": was_there}


def _claimed(claim):
    if claim is None:
        return None, {"key": None}
    return claim, {"key": claim.key, "value": claim.value, "attempt": claim.attempt, "token": claim.token}


def _leased(lease):
    return lease, {"token": lease.token}


def _committed(checkpoint):
    return checkpoint, {"version": checkpoint.lsn}


def main(path, diary, process, seed, count, what, board):
    """Run such a process. `board` names the fault of the board in a negative control."""
    durability = ("interval", "commit")[int(process) % 2]
    with statelog.open(path, durability=durability) as store:
        worker = Worker(store, Diary(diary, process), int(seed), what, BOARDS[board])
        while not Path(diary).with_name(GO).exists():
            time.sleep(0.001)
        worker.run(int(count))


# --- the process that kills them ------------------------------------------------------------------


class Run:
    """Four processes on one store, and their calls when they are done."""

    def __init__(self, directory, *, seed, count, what, kill_s=None, processes=4, board="right"):
        self.directory, self.random = Path(directory), random.Random(seed)
        self.path = self.directory / "board.state"
        self.what, self.board, self.kill_s = what, board, kill_s
        self.kills, self.started = 0, 0
        self.running, self.left = {}, {}
        with statelog.open(self.path):
            pass
        try:
            for _ in range(processes):
                self.start(count // processes)
            self.wait()
        finally:
            for process in self.running.values():
                process.kill()
                process.join()
        self.calls = [call for name in range(self.started) for call in read_diary(self.diary(name), name)]

    def diary(self, name):
        return self.directory / f"{name}.diary"

    def remove(self):
        """Remove the store and the diaries."""
        self.calls.clear()
        shutil.rmtree(self.directory)

    def has_begun(self, name):
        return self.diary(name).exists() and self.diary(name).stat().st_size > 0

    def start(self, count):
        name, self.started = self.started, self.started + 1
        about = (self.path, self.diary(name), name, self.random.randrange(1 << 30), count, self.what, self.board)
        self.running[name] = FORKING.Process(target=main, args=tuple(map(str, about)))
        self.running[name].start()
        self.left[name] = count

    def wait(self):
        """Wait until all calls are made. Sometimes kill a process, and start another that makes its remaining calls."""
        deadline = time.monotonic() + START_S
        while not all(self.diary(name).exists() for name in self.running):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        (self.directory / GO).touch()
        next_kill = time.monotonic() + (self.kill_s or 0)
        while self.running:
            time.sleep(0.005)
            for name, process in list(self.running.items()):
                if process.exitcode is not None:
                    assert process.exitcode == 0
                    del self.running[name]
            busy = [name for name in self.running if self.has_begun(name)]
            if self.kill_s and busy and time.monotonic() > next_kill:
                self.kill(self.random.choice(busy))
                next_kill = time.monotonic() + self.kill_s * self.random.uniform(0.2, 1.8)

    def kill(self, name):
        process = self.running.pop(name)
        self.kills += process.exitcode is None
        process.kill()
        process.join()
        left = self.left[name] - len(read_diary(self.diary(name), name))
        if left > 0:
            self.start(left)
