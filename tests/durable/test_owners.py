"""A run whose process was killed is taken over at once, by one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import forks
import pytest

import statelog
from statelog import durable
from statelog.durable import owners

_PROGRAM = """
import os, sys, statelog
from statelog import durable

@durable.step(name="wait")
def wait():
    print("two", flush=True)
    input()

@durable.workflow(name="w")
def flow(run):
    run.step(print, "one", flush=True)
    run.step(wait)

@durable.workflow(name="parent")
def parent(run):
    return run.child(flow, id="kid")

@durable.workflow
def telling(run):
    run.step(print, "one", flush=True)
    run.emit("told")

def hear(message):
    wait()

if "telling" in sys.argv:
    durable.run(statelog.open(sys.argv[1]), telling, id="evt-1", outbox=[hear])
durable.run(statelog.open(sys.argv[1]), parent if "parent" in sys.argv else flow, id="evt-1")
"""


@pytest.fixture
def begun(path, request):
    """Start a process that is in the middle of a step."""
    command = [sys.executable, "-c", _PROGRAM, path, getattr(request, "param", "flow")]
    child = forks.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert [child.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
    yield child
    child.kill()
    child.communicate()


@durable.workflow(name="w")
def flow(run):
    run.step(print, "one", flush=True)
    return run.step_with(durable.StepOptions(name="wait"), lambda: "done")


@durable.workflow
def parent(run):
    return run.child(flow, id="kid")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="told by /proc")
def test_a_killed_process_is_taken_over_at_once(path, begun):
    begun.kill()
    begun.wait()
    with statelog.open(path) as store:
        assert durable.run(store, flow, id="evt-1").value == "done"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="told by /proc")
@pytest.mark.parametrize("begun", ["parent"], indirect=True)
def test_a_child_of_a_killed_process_is_taken_over_with_its_parent(path, begun):
    begun.kill()
    begun.wait()
    with statelog.open(path) as store:
        assert durable.run(store, parent, id="evt-1").value == "done"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="told by /proc")
@pytest.mark.parametrize("begun", ["telling"], indirect=True)
@pytest.mark.parametrize("run", ["evt-1", None])
def test_messages_of_a_killed_process_are_taken_over_at_once(path, begun, run):
    begun.kill()
    begun.wait()
    heard = []
    with statelog.open(path) as store:
        durable.deliver(store, [lambda message: heard.append(message.topic)], run=run)
    assert heard == ["told"]


def test_a_stopped_process_keeps_its_run(path, begun):
    os.kill(begun.pid, signal.SIGSTOP)
    with statelog.open(path) as store:
        assert durable.run(store, flow, id="evt-1").status == "running"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="told by /proc")
def test_a_dead_owner_is_recognised_by_more_than_its_process_id():
    place, process_id, started, image = owners.me().split(":")
    assert not owners.is_gone(owners.me())
    assert owners.is_gone(f"{place}:{process_id}:{started}:other")
    assert owners.is_gone(f"{place}:1:1:{image}")
    for strange in (None, "", "me", f"elsewhere:1:1:{image}", f"{place}:x:1:{image}"):
        assert not owners.is_gone(strange)
