"""Eight processes on one file, one of them killed every second."""

import pytest

from statelog.testing.soak import check_soak

SOAK_S = 20.0


def show(report):
    print(
        f"\n{report.kills} kills, {report.commits:,} commits acknowledged, {report.unacknowledged} more; {report.reads:,}"
        f" reads, {report.expired:,} versions expired; {report.records:,} records, {report.readers_max} readers"
    )


def test_killed_processes_lose_nothing_acknowledged(tmp_path):
    report = check_soak(seconds=3, kill_interval_s=0.3, directory=tmp_path)
    show(report)
    assert report.bad == []
    assert report.kills >= 3
    assert report.commits > 0
    assert report.reads > 0


def test_writers_that_acknowledge_too_early_are_caught(tmp_path):
    """Negative control."""
    report = check_soak(seconds=3, kill_interval_s=0.15, directory=tmp_path, acknowledges_early=True)
    assert not report.ok


@pytest.mark.soak
def test_killed_processes_lose_nothing_acknowledged_for_long(tmp_path):
    report = check_soak(seconds=SOAK_S, directory=tmp_path)
    show(report)
    assert report.bad == []
    assert report.lost == 0
    assert report.kills >= SOAK_S / 2
    assert report.readers_left == 0
