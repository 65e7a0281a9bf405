"""Power cuts at every point of all writes of a store. It has exactly the acknowledged commits."""

from dataclasses import replace

import pytest
from broken_stores import RECOVERIES, STORES, examine_broken

import statelog
from statelog.testing.history import Commit
from statelog.testing.powerloss import Workload, check_power_loss, examine_recordings, record, standard_workloads
from statelog.testing.powerloss.campaign import spread
from statelog.testing.powerloss.controls import (
    control_recordings,
    flushes_of,
    forget_one_flush,
    renamed,
    run_controls,
)
from statelog.testing.powerloss.recorder import log_directory
from statelog.testing.powerloss.shim import is_supported
from statelog.testing.powerloss.trace import Create, DirectoryFlushEnd, FlushEnd, Unlink, Write
from statelog.testing.powerloss.workloads import STORE_NAME

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

WORKLOADS = {workload.name: workload for workload in standard_workloads()}
QUICK = ("creation", "commit", "key", "interval reopened", "refused commits")
"""The workloads of the fast test. The soak test runs all workloads."""
CHECKPOINTING = ("epochs", "checkpoints under way", "checkpoints under way in two processes", "pin holder killed")
RECORDED = (*QUICK, "interval", *CHECKPOINTING)
SOAK_IMAGES = 100_000
QUICK_CONTROLS = (
    "journal never flushed",
    "one flush of the journal dropped",
    "data never flushed",
    "creation without directory sync",
)
"""One of each kind: a flush of the journal, the data and the directory that is forgotten."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    return {name: record(WORKLOADS[name], tmp_path_factory.mktemp("recorded")) for name in RECORDED}


@pytest.fixture(scope="module")
def controls(tmp_path_factory, evidence):
    recordings = control_recordings(tmp_path_factory.mktemp("controls"), QUICK_CONTROLS)
    assert {*recordings} == {*QUICK_CONTROLS}
    return examine_recordings(
        [*recordings.values()], images=1, thorough=False, until_bad=True, evidence=evidence, workers=1
    )


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture
def show(capsys):
    """Print the report, also when the test passes."""

    def show_report(report):
        names = ", ".join(f"{name} {count:,}" for name, count in report.by_workload.items())
        with capsys.disabled():
            print(f"\n{report.cuts:,} cuts, {report.images:,} distinct images ({names})")  # noqa: T201
            second = f"{report.second_cuts:,} second cuts, {report.second_images:,} images"
            print(f"{second} of them; {report.duration_s:.0f} s")  # noqa: T201

    return show_report


@pytest.mark.slow
def test_a_power_cut_loses_no_acknowledged_commit(recordings, show):
    report = examine_recordings([recordings[name] for name in QUICK], images=1, share=1 / 16)
    show(report)
    assert report.bad == []
    assert report.ok
    assert report.images >= 75
    assert report.second_images > 0


@pytest.mark.slow
def test_every_write_and_flush_is_a_cut(tmp_path):
    workload = WORKLOADS["commit"]
    recording = record(replace(workload, lanes=tuple(lane[:2] for lane in workload.lanes)), tmp_path)
    events = recording.trace.events
    report = examine_recordings([recording], images=1, thorough=False, workers=1)
    assert report.cuts == report.cuts_all == len(events) + 1
    assert {Write, FlushEnd, Create, DirectoryFlushEnd, Unlink} <= {type(event) for event in events}


@pytest.mark.slow
def test_a_share_of_the_cuts_is_spread_over_all_of_them(recordings):
    report = examine_recordings(
        [recordings["commit"], recordings["epochs"]], images=1, share=1 / 16, thorough=False, workers=1
    )
    assert report.cuts == -(-report.cuts_all // 16)
    assert all(report.by_workload.values())
    assert spread(10, 0.3) == [True, False, False, True, False, False, True, False, False, False]
    assert [sum(spread(count, share)) for count, share in [(7, 1e-9), (7, 1.0), (0, 0.5)]] == [1, 7, 0]


@pytest.mark.slow
def test_a_clean_close_is_a_cut_like_any_other(recordings):
    """The dirty flag is cleared and the WAL removed; before, the flag was set."""
    events = recordings["commit"].trace.events
    marks = [event.data for event in events if isinstance(event, Write) and event.offset == 4096 - 64]
    assert [mark[:8] for mark in marks] == [b"stlguse1", bytes(8)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTING)
def test_a_recording_has_many_epochs(recordings, name):
    slots = [
        event
        for event in recordings[name].trace.events
        if isinstance(event, Write) and event.offset in (0, 4096) and event.data.startswith(b"stlgjrn2")
    ]
    assert len(slots) >= 3


def test_a_recording_shows_when_each_step_was_acknowledged(recordings):
    progress = list(recordings["commit"].progress())
    assert progress[0].done == progress[0].begun == (0,)
    assert progress[-1].done == progress[-1].begun == (len(WORKLOADS["commit"].lanes[0]),)
    assert all(each.done[0] <= each.begun[0] <= each.done[0] + 1 for each in progress)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK_CONTROLS)
def test_a_disk_that_breaks_its_guarantee_is_detected(controls, name):
    assert controls.bad_by_workload[name] > 0
    assert controls.lost > 0


@pytest.mark.soak
def test_every_disk_that_breaks_its_guarantee_is_detected():
    assert [name for name, is_caught in run_controls().items() if not is_caught] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "meta pages not restored" else pytest.mark.soak)
        for name in (*STORES, *RECOVERIES)
    ],
)
def test_a_store_that_breaks_its_guarantee_is_detected(name, tmp_path):
    assert examine_broken(name, tmp_path)


@pytest.mark.slow
def test_a_bad_image_is_kept_as_evidence(controls, evidence):
    bad = controls.bad[0]
    assert bad.evidence.parent == evidence
    assert (bad.evidence / STORE_NAME).exists()
    assert (bad.evidence / "what.txt").read_text().startswith(bad.workload)


@pytest.mark.slow
def test_each_single_flush_is_needed(recordings):
    """The first and the last of eight commits are tested, each with a flush of the journal."""
    flushes = len(flushes_of(recordings["commit"], of_journal=True))
    without = [renamed(forget_one_flush(recordings["commit"], nth), str(nth)) for nth in (flushes - 7, flushes)]
    report = examine_recordings(without, images=1, thorough=False, until_bad=True, workers=1)
    assert [name for name, bad in report.bad_by_workload.items() if not bad] == []


@pytest.mark.slow
def test_an_image_that_two_recordings_share_counts_once(recordings):
    twins = [renamed(recordings["interval"], name) for name in ("one", "the other")]
    report = examine_recordings(twins, images=150, share=1 / 6, thorough=False, workers=1)
    assert 150 <= report.images < sum(report.by_workload.values())


@pytest.mark.slow
def test_users_can_test_their_own_workload():
    steps = tuple(Commit("mine", ({"n": n},)) for n in range(3))
    report = check_power_loss([Workload("mine", (steps,), schema={"n": statelog.reducers.add})], images=100, workers=1)
    assert report.ok
    assert report.by_workload["mine"] > 50


@pytest.mark.soak
def test_images_of_every_operation_of_a_store_are_sound(show, soak_scale):
    images = int(SOAK_IMAGES * soak_scale)
    report = check_power_loss(images=images, share=min(soak_scale, 1.0), directory=log_directory())
    show(report)
    assert report.bad == []
    assert report.ok
    assert report.images >= images
