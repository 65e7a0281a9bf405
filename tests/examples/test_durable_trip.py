"""The trip: its worker is killed in six ways, and no service is called twice but the one in flight."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import statelog
from statelog import durable
from statelog.examples.durable_trip import SERVICES


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Run the program, once; return its store and the table that it has printed."""
    path = tmp_path_factory.mktemp("trip") / "trip.state"
    command = [sys.executable, "-W", "error", "-m", "statelog.examples.durable_trip", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=os.environ)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    table = ended.stdout.split("\n\n")[1].splitlines()[1:]
    return path, {line[:18].strip(): line[18:].split() for line in table}


def calls(row):
    return {service: int(count) for service, count in zip(SERVICES, row, strict=False) if count != "-"}


ONCE = {"model": 1, "flight": 1, "hotel": 1, "search": 3, "charge": 1}


@pytest.mark.slow
def test_a_service_is_called_once_wherever_the_worker_is_killed_but_in_it(done):
    _path, table = done
    assert [calls(table[each]) for each in ("nowhere", "between steps", "at the gate")] == [ONCE] * 3


@pytest.mark.slow
def test_a_step_in_flight_is_called_again_and_no_other(done):
    _path, table = done
    assert calls(table["in a step"]) == ONCE | {"hotel": 2}


@pytest.mark.slow
def test_a_payment_in_flight_is_not_made_again_but_looked_up(done):
    _path, table = done
    assert calls(table["in the payment"]) == ONCE | {"find-charge": 1}


def test_a_compensation_in_flight_is_called_again_and_the_others_once(done):
    _path, table = done
    undone = {"model": 1, "flight": 1, "hotel": 1, "search": 3, "cancel-hotel": 2, "cancel-flight": 1}
    assert calls(table["in a compensation"]) == undone
    assert table["in a compensation"][-1] == "failed"


def test_stores_are_whole_after_kills(done):
    path, _table = done
    with statelog.open(path, read_only=True) as store:
        assert [info.status for info in durable.runs(store)] == ["completed"] * 5 + ["failed"]
        assert store.verify().problems == []
