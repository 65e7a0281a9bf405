"""Power cuts of a run: recorded steps are stored, and at-most-once steps are not called again."""

from __future__ import annotations

import random

import pytest
from power_images import images, traced

import statelog
from statelog import durable
from statelog.durable.record import DONE
from statelog.durable.recorded import recorded_of
from statelog.durable.runs import find
from statelog.errors import RunNotFoundError
from statelog.testing.powerloss.shim import is_supported

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

IMAGES = 25

CHILD = """
import sys, statelog
from statelog import durable
from statelog.durable.probes import probe
from statelog.testing.powerloss.shim import mark

def effect(what):
    mark(f"called {durable.current_step().idempotency_key.split('/')[1]}".encode())
    return what

@durable.workflow
def trip(run):
    for number in range(3):
        run.step(effect, number)
        run.step_with(durable.StepOptions(semantics="at_most_once"), effect, "charge")
        run.commit({"n": number})
    run.gate("pay")

def passed(moment, _run, items):
    if moment == "after" and not isinstance(items, str):
        for item in items:
            mark(f"recorded {item['p']} {item['s']}".encode())

probe.set(passed)
with statelog.open(sys.argv[1], durability=sys.argv[2]) as store:
    durable.run(store, trip, id="trip")
    mark(b"suspended")
"""


def recorded(store):
    try:
        return {(item["p"], item["s"]) for item in recorded_of(store, find(store, "trip").value).items()}
    except RunNotFoundError:
        return set()


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_recorded_results_and_at_most_once_calls_survive_a_power_cut(tmp_path, durability):
    trace = traced(tmp_path, CHILD, durability)
    every = list(images(trace))
    looked, lost = 0, 0
    for number, (image, said) in enumerate(random.Random(2).sample(every, min(IMAGES, len(every)))):
        if not said:
            continue
        directory = tmp_path / str(number)
        directory.mkdir()
        image.write(directory)
        with statelog.open(directory / "a.state", durability=durability) as store:
            found = recorded(store)
            for what, *facts in said:
                if what == "recorded":
                    looked += 1
                    lost += (facts[0], int(facts[1])) not in found
                elif what == "called" and int(facts[0]) % 3 == 1:
                    assert any(place == facts[0] for place, _stage in found), "it would be called again"
                elif what == "suspended" and durability == "commit":
                    assert durable.gates(store, pending=True)[0].name == "pay"
            assert store.verify().problems == []
    assert looked > IMAGES
    assert (lost == 0) == (durability == "commit")


@pytest.mark.slow
def test_every_step_of_the_child_is_recorded_in_the_end(tmp_path):
    """The records with which the marks are compared exist."""
    traced(tmp_path, CHILD, "commit")
    with statelog.open(tmp_path / "a.state") as store:
        assert len([1 for _place, stage in recorded(store) if stage == DONE]) == 9
