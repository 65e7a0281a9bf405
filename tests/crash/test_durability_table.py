"""The table of durability in GUARANTEES.md: losses by a power cut, and flushes of a commit, in each mode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statelog import reducers
from statelog.testing.history import Commit
from statelog.testing.powerloss import Workload, examine_recordings, openings, record
from statelog.testing.powerloss.controls import forget_one_flush
from statelog.testing.powerloss.shim import is_supported
from statelog.testing.powerloss.trace import FlushEnd, WriteFlushed

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

COMMITS = 6
OPENERS = {"commit": "statelog:open", "interval": f"{openings.__name__}:{openings.open_unhurried.__name__}"}
MODES = tuple(OPENERS)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Record only commits to an existing store, in each mode."""
    steps = tuple(Commit("a", ({"n": 1, "log": [f"{number} " * 300]},)) for number in range(COMMITS))
    before = tuple(Commit("a", ({"n": 1},)) for _ in range(3))
    schema = {"n": reducers.add, "log": reducers.extend}
    left = tuple(replace(step, durable=number % 3 == 2) for number, step in enumerate(steps))
    recorded = {
        mode: record(
            Workload(mode, (steps,), before, durability=mode, schema=schema, opener=OPENERS[mode]),
            tmp_path_factory.mktemp(mode),
        )
        for mode in MODES
    }
    recorded["left"] = record(
        Workload("left", (left,), before, schema=schema, opener=OPENERS["interval"]), tmp_path_factory.mktemp("left")
    )
    return recorded


def flushes(recording):
    """Return the number of flushes per commit, between the first acknowledgement and the last."""
    progress = list(recording.progress())
    events = [
        event for event, each in zip(recording.trace.events, progress, strict=False) if 1 <= each.done[0] < COMMITS
    ]
    assert WriteFlushed not in map(type, events)
    return list(map(type, events)).count(FlushEnd) / (COMMITS - 1)


@pytest.mark.slow
def test_a_commit_flushes_once(recordings):
    assert flushes(recordings["commit"]) == 1


@pytest.mark.slow
def test_with_interval_a_commit_flushes_nothing(recordings):
    """A timer flushes, at most a second later."""
    assert flushes(recordings["interval"]) < 0.5


@pytest.mark.slow
def test_a_power_cut_loses_no_acknowledged_commit(recordings):
    report = examine_recordings([recordings["commit"]], images=1, share=1 / 6)
    assert report.bad == []
    assert report.images >= 20
    assert report.second_images > 0


@pytest.mark.slow
def test_a_power_cut_loses_at_most_unflushed_commits_and_corrupts_nothing(recordings):
    report = examine_recordings([recordings["interval"]], images=1, share=1 / 3)
    assert report.bad == []
    assert report.images >= 20
    assert report.second_images > 0


@pytest.mark.slow
def test_a_commit_that_leaves_its_flush_is_durable_with_the_next_that_does_not(recordings):
    assert 0.2 <= flushes(recordings["left"]) <= 0.6  # A timer also flushes, a second later.
    report = examine_recordings([recordings["left"]], images=1, share=1 / 6)
    assert report.bad == []
    assert report.images >= 10
    steps = tuple(replace(step, durable=None) for step in recordings["left"].workload.lanes[0])
    strict = replace(recordings["left"], workload=replace(recordings["left"].workload, lanes=(steps,)))
    assert examine_recordings([strict], images=1, thorough=False, until_bad=True, workers=1).lost > 0, (
        "a negative control"
    )


@pytest.mark.slow
def test_a_power_cut_loses_unflushed_writes(recordings):
    """Negative control: checked against the guarantee of the other mode, it is detected."""
    lenient = recordings["interval"]
    strict = replace(lenient, workload=replace(lenient.workload, durability="commit"))
    report = examine_recordings([strict], images=1, thorough=False, until_bad=True, workers=1)
    assert report.lost > 0


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "nth"), [("commit", 4), ("interval", 1)])
def test_a_mode_that_omits_a_flush_is_detected(recordings, mode, nth):
    """Negative control: a flush of a commit, or that of the first durable snapshot, is left out."""
    report = examine_recordings(
        [forget_one_flush(recordings[mode], nth)], images=1, thorough=False, until_bad=True, workers=1
    )
    assert report.bad != []
