"""SIGKILL during a trip and during its rollback. The result is that of a trip that was never killed."""

from __future__ import annotations

import os
import random
from collections import Counter

import durable_trip
import pytest

import statelog
from statelog import durable
from statelog.durable.record import DONE, TRIED
from statelog.durable.recorded import recorded_of
from statelog.durable.runs import find
from statelog.errors import RunNotFoundError, StoreNotFoundError
from statelog.testing import POINTS
from statelog.testing.crash import job_of
from statelog.testing.nursery import Born

POINTS_PASSED = [
    point for point in POINTS if point.startswith(("commit.", "journal.")) and point != "commit.between_works"
]
TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=[True, False], ids=["booked", "rolled back"])
def never_killed(request, tmp_path_factory):
    """Return whether the trip is approved, its result, its calls with their numbers, and its boundaries."""
    directory = tmp_path_factory.mktemp("never")
    path, effects = directory / "a.state", directory / "effects"
    boundaries = durable_trip.drive(path, effects, request.param)
    return request.param, outcome(path), calls_in(effects), boundaries


def outcome(path):
    with statelog.open(path) as store:
        assert store.verify().problems == []
        info = durable.get_run(store, durable_trip.RUN)
        thread = store.thread(durable_trip.RUN)
        messages = [e.value["topic"] for e in durable_trip.own_board(store).list("durable/outbox/**")]
        history = [(each.version, each.state.to_python().get("hotel")) for each in thread.history()]
        board = [(entry.key, entry.value) for entry in store.board().list("**")]
        return info.status, info.value, info.error, info.parked, thread.state.to_python(), history, board, messages


def calls_in(effects):
    return Counter(effects.read_text().split()) if effects.exists() else Counter()


def in_flight(path, calls):
    """Return the steps that were called but not recorded."""
    try:
        with statelog.open(path) as store:
            value = find(store, durable_trip.RUN).value
            if durable.get_run(store, durable_trip.RUN).has_ended:
                return Counter()
            items = recorded_of(store, value).items()
    except (StoreNotFoundError, RunNotFoundError):
        return calls
    return calls - Counter(f"{durable_trip.RUN}/{item['p']}" for item in items if item["s"] in (TRIED, DONE))


def killed(directory, approved, *, kill_at=0, fault=None):
    """Kill a trip. Return whether it was killed, the path of its store, and the steps in flight."""
    directory.mkdir()
    path, effects = directory / "a.state", directory / "effects"
    environment = {name: value for name, value in os.environ.items() if name != "STATELOG_FAULT"}
    if fault is not None:
        environment["STATELOG_FAULT"] = f"{fault}:kill"
    child = Born(job_of(durable_trip.drive, (str(path), str(effects), approved, kill_at)), environment)
    try:
        _out, words = child.communicate(TIMEOUT_S)
    finally:
        child.close()
    assert child.returncode in (0, -9), words.decode()
    return child.returncode == -9, path, effects, in_flight(path, calls_in(effects))


def check_kill(directory, never_killed, **how):
    approved, expected, counts, _boundaries = never_killed
    was_killed, path, effects, flying = killed(directory, approved, **how)
    durable_trip.drive(path, effects, approved)
    assert outcome(path) == expected, how
    again = calls_in(effects) - counts
    once = f"{durable_trip.RUN}/11"
    assert again - flying == Counter(), how
    assert again[once] == 0, how
    assert counts - calls_in(effects) - Counter([once]) == Counter(), how
    return was_killed


def test_a_trip_calls_twelve_steps(never_killed):
    approved, found, counts, boundaries = never_killed
    assert len(counts) == (12 if approved else 9 + 2)
    assert found[0] == ("completed" if approved else "failed")
    assert boundaries > 30


@pytest.mark.slow
def test_a_kill_at_a_boundary_changes_nothing(tmp_path, never_killed):
    for at in range(1, never_killed[-1] + 1, 6):
        assert check_kill(tmp_path / str(at), never_killed, kill_at=at)


@pytest.mark.slow
def test_a_kill_at_a_fault_point_changes_nothing(tmp_path, never_killed):
    chance = random.Random(1)
    kills = [check_kill(tmp_path / point, never_killed, fault=f"{point}:{chance.randrange(2, 25)}") for point in FEW]
    assert sum(kills) > len(FEW) // 2


FEW = POINTS_PASSED[::2]


@pytest.mark.soak
def test_a_kill_at_every_boundary_changes_nothing(tmp_path, never_killed):
    for at in range(1, never_killed[-1] + 1):
        assert check_kill(tmp_path / str(at), never_killed, kill_at=at)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS_PASSED)
def test_a_kill_at_every_pass_of_a_fault_point_changes_nothing(tmp_path, never_killed, point, soak_scale):
    passes = range(1, 200, max(round(1 / soak_scale), 1))
    assert sum(check_kill(tmp_path / str(at), never_killed, fault=f"{point}:{at}") for at in passes) > 0
