"""Eight processes on one file, one of them killed every second."""

import pytest

from statelog.testing.kills import check_kills

LONG_S = 20.0


@pytest.fixture
def show(capsys):
    """Print the report, also when the test passes."""

    def show_report(report):
        with capsys.disabled():
            print(f"\n{report.kills} kills, {report.commits:,} commits", end=", ")  # noqa: T201
            print(f"{report.unacknowledged} more, {report.reads:,} reads", end=", ")  # noqa: T201
            print(f"{report.expired:,} versions expired, {report.records:,} records")  # noqa: T201

    return show_report


@pytest.mark.slow
def test_killed_processes_lose_no_acknowledged_commit(tmp_path, show):
    report = check_kills(seconds=2, kill_interval_s=0.5, directory=tmp_path)
    show(report)
    assert report.bad == []
    assert report.kills >= 2
    assert report.commits > 0
    assert report.reads > 0


@pytest.mark.slow
def test_writers_that_acknowledge_too_early_are_detected(tmp_path):
    """Negative control."""
    report = check_kills(seconds=3, kill_interval_s=0.5, directory=tmp_path, acknowledges_early=True)
    assert not report.ok


@pytest.mark.soak
def test_killed_processes_lose_no_acknowledged_commit_in_a_long_run(tmp_path, show, soak_scale):
    seconds = max(LONG_S * soak_scale, 2)
    report = check_kills(seconds=seconds, directory=tmp_path)
    show(report)
    assert report.bad == []
    assert report.lost == 0
    assert report.kills >= seconds / 2
    assert report.readers_left == 0
