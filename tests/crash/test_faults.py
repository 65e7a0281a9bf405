"""Every call fails in turn. A commit is stored, or refused and not stored, or reported as unknown."""

import errno

import pytest
from faultinjection import check_faults, standard_workloads
from faultinjection_case import Case
from faultinjection_full import check_full

from statelog.testing.powerloss.recorder import log_directory, read_files
from statelog.testing.powerloss.shim import Action, Fault, ShimLog, SystemCall, is_supported
from statelog.testing.powerloss.workers import Worker
from statelog.testing.powerloss.workloads import WorkloadSession

pytestmark = pytest.mark.skipif(not is_supported(), reason="failing calls need a 64-bit Linux and a C compiler")

WORKLOADS = {workload.name: workload for workload in standard_workloads()}


@pytest.fixture
def run_case(tmp_path):
    """Run a workload with one fault in another process."""
    watched = tmp_path / "watched"
    watched.mkdir()

    def run(workload, fault, *, rounds=0):
        base = tmp_path / "base"
        base.mkdir()
        session = WorkloadSession(base / "agent.state", workload.options, workload.schema)
        for step in workload.before or ():
            session.do(step)
        session.close()
        with ShimLog.create(tmp_path / "log") as log, Worker(log.environment(watched)) as worker:
            case = Case(workload, read_files(base), fault, rounds)
            return worker.call("faultinjection_case:run_case", case, timeout_s=600)

    return run


@pytest.fixture
def show(capsys):
    """Print the report, also when the test passes."""

    def show_report(report):
        with capsys.disabled():
            print(f"\n{report.faults:,} faults; steps {dict(report.endings)}", end="; ")  # noqa: T201
            print(f"{report.images:,} images afterwards; {report.duration_s:.0f} s")  # noqa: T201

    return show_report


@pytest.mark.slow
def test_a_failing_call_ends_in_one_of_three_ways(show):
    report = check_faults(every=800, rounds=1, workers=1)
    assert report.cases == -(-report.cases_all // 800)
    show(report)
    assert report.bad == []
    assert report.faults > 3


# The opening writes the shared state and its two locks. The first commit of a session: zeros of a new journal, of its
# half, its slot, the dirty flag, the disk reserve, the group, the pages. It flushes the directory (at opening), the
# data file, the slot, the directory, the dirty flag, the group.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "nth"),
    [
        (SystemCall.WRITE, 4),
        (SystemCall.WRITE, 5),
        (SystemCall.WRITE, 9),
        (SystemCall.WRITE, 10),
        (SystemCall.FLUSH, 5),
    ],
    ids=["zeros", "zeros of the half", "group", "pages", "flush of the dirty flag"],
)
def test_a_commit_is_refused_when_one_of_its_calls_fails_and_the_store_stays_usable(run_case, call, nth):
    result = run_case(WORKLOADS["commits"], Fault(call, error=errno.EIO, nth=nth))
    assert result.problem == ""
    assert result.strikes == 1
    assert {ending.value: count for ending, count in result.endings.items()} == {"refused": 1, "done": 6}
    assert not result.closed


@pytest.mark.slow
def test_a_commit_whose_group_is_not_flushed_is_of_unknown_outcome(run_case):
    """LMDB has made it, and others may have seen it: nothing can be written until the store is opened again."""
    result = run_case(WORKLOADS["commits"], Fault(SystemCall.FLUSH, error=errno.EIO, nth=6))
    assert result.problem == ""
    assert result.strikes == 1
    assert {ending.value: count for ending, count in result.endings.items()} == {"unknown": 1}
    assert result.closed


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2, 3], ids=["words", "writer lock", "lock of the flush"])
def test_an_opening_whose_control_page_cannot_be_written_is_refused(run_case, nth):
    result = run_case(WORKLOADS["commits"], Fault(SystemCall.WRITE, error=errno.EIO, nth=nth))
    assert result.problem == ""
    assert {ending.value: count for ending, count in result.endings.items()} == {"refused": 1}


@pytest.mark.slow
def test_retention_left_half_done_by_a_failure_and_a_power_cut_counts_as_begun(run_case):
    result = run_case(WORKLOADS["retention and deletion"], Fault(SystemCall.OPEN, error=errno.ENOSPC, nth=8), rounds=1)
    assert result.problem == ""
    assert result.strikes == 1
    assert result.images > 0


@pytest.mark.slow
@pytest.mark.parametrize("nth", [2, 3], ids=["data", "slot"])
def test_after_a_failed_flush_of_a_durable_snapshot_the_store_must_be_opened_again(run_case, nth):
    """The page cache is not reliable then, so the workload reopens the store before its last step."""
    result = run_case(WORKLOADS["commits"], Fault(SystemCall.FLUSH, error=errno.EIO, nth=nth))
    assert result.problem == ""
    assert {ending.value: count for ending, count in result.endings.items()} == {"refused": 5, "done": 2}


@pytest.mark.slow
def test_silently_dropped_writes_are_detected(run_case):
    """Negative control: a disk that reports a write that it has not made."""
    result = run_case(WORKLOADS["commits"], Fault(SystemCall.WRITE, Action.IGNORE, nth=10))
    assert result.problem


@pytest.mark.slow
def test_a_silently_dropped_flush_is_detected_by_a_later_power_cut(run_case):
    """Negative control: a disk that reports a flush that it has not made."""
    fault = Fault(SystemCall.FLUSH, Action.IGNORE, persistent=True)
    result = run_case(WORKLOADS["commits"], fault, rounds=2)
    assert "power cut" in result.problem


@pytest.mark.slow
def test_a_call_that_kills_is_reported_and_not_counted_as_an_ending(run_case):
    result = run_case(WORKLOADS["commits"], Fault(SystemCall.WRITE, Action.KILL, nth=4))
    assert "SIGKILL" in result.reason


@pytest.mark.slow
def test_a_case_whose_call_is_never_made_is_distinguished(run_case):
    result = run_case(WORKLOADS["commits"], Fault(SystemCall.WRITE, nth=10_000))
    assert result.strikes == 0
    assert result.problem == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quota", "disk"])
def test_a_full_store_can_be_read_and_emptied_and_used_again(kind):
    assert check_full(kind) == []


@pytest.mark.soak
def test_every_failing_call_ends_in_one_of_three_ways(show, soak_scale):
    report = check_faults(directory=log_directory(), every=max(round(1 / soak_scale), 1))
    show(report)
    assert report.bad == []
    assert report.ok
    assert report.faults > 1000 * min(soak_scale, 1)
    assert report.missed < report.faults / 20
