"""Forked children: client libraries have no threads there, so each call of a fleet raises an error at once."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from statelog.errors import ForkedError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")

_CHILD_S_MAX = 30


def fork(work):
    """Run work in a child. Return its report, its pid, and a function that ends it."""
    read_end, write_end = os.pipe()
    wait_end, end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_CHILD_S_MAX)  # A hanging child is killed, so its report is incomplete.
        try:
            os.close(end)
            for name, request in work.items():
                try:
                    request()
                    told = "done"
                except BaseException as error:  # noqa: BLE001 - told to the process that waits
                    told = type(error).__name__
                os.write(write_end, f"{name}: {told}\n".encode())
            os.close(write_end)
            os.read(wait_end, 1)
        finally:
            os._exit(0)
    os.close(write_end)
    os.close(wait_end)
    with os.fdopen(read_end) as told:
        return dict(line.rstrip("\n").split(": ") for line in told), child, end


def open_and_close(fleet):
    fleet.open("other").close()


def follow(fleet):
    with fleet.follow("t"):
        pass


@pytest.mark.slow
def test_calls_in_a_forked_child_are_refused_and_its_parent_continues(archive, machine, tmp_path):
    fleet = machine("a", archive)
    with fleet.open("t", acknowledge="remote") as store, fleet.follow("t") as copy:
        store.thread("chat").commit({"n": 1})
        requests = {
            "open": lambda: open_and_close(fleet),
            "stores": fleet.stores,
            "status": lambda: fleet.status("t"),
            "check": fleet.check,
            "gc": lambda: fleet.gc("t"),
            "purge": lambda: fleet.purge("t"),
            "delete": lambda: fleet.delete("t"),
            "restore": lambda: fleet.restore("t", tmp_path / "restored"),
            "follow": lambda: follow(fleet),
            "commit": lambda: store.thread("chat").commit({"n": 2}),
            "commit locally": lambda: store.thread("chat").commit({"n": 2}, durable=False),
            "wait": lambda: store.remote.wait(timeout_s=1),
            "told": store.remote.status,
            "base": store.remote.base,
            "wait for the copy": lambda: copy.remote.wait(99, timeout_s=1),
            "wait for all": copy.remote.wait,
        }
        closing = {"close the copy": copy.close, "close": store.close}
        holds, may_end = threading.Event(), threading.Event()  # The thread of the store may hold the lock at that time.
        holder = threading.Thread(target=hold, args=(store.remote._changed, holds, may_end))
        holder.start()
        holds.wait()
        told, child, end = fork(requests | closing)
        may_end.set()
        holder.join()
        assert told == dict.fromkeys(requests, ForkedError.__name__) | dict.fromkeys(closing, "done")
        store.thread("chat").commit({"n": 3})
    with fleet.open("t", timeout_s=5) as store:  # The child still lives and has the parent's files open.
        assert store.thread("chat").state["n"] == 3
    os.close(end)
    assert os.waitpid(child, 0)[1] == 0
    assert fleet.check() == []


def hold(lock, holds, may_end):
    with lock:
        holds.set()
        may_end.wait()


def test_a_forked_child_that_does_not_use_the_fleet_gets_no_error():
    told, child, end = fork({"nothing": lambda: None, "wrong": lambda: 1 / 0})
    os.close(end)
    assert told == {"nothing": "done", "wrong": "ZeroDivisionError"}
    assert os.waitpid(child, 0)[1] == 0
