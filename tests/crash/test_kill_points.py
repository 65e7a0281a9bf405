"""SIGKILL at every named point. Acknowledged commits are stored, and the others completely or not at all."""

from __future__ import annotations

import subprocess
import sys

import forks
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.errors import UsageError
from statelog.storage import store_file
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.lmdb_file import LmdbFile
from statelog.storage.wal.dirty_flag import read_dirty_flag
from statelog.testing import (
    FURTHER_COMMIT,
    POINTS,
    SCHEMA,
    Child,
    Commit,
    Copy,
    Fork,
    Rollback,
    Tag,
    Together,
    Untag,
    assert_recovered,
    crash_at,
    histories,
    writes_to,
)

COMMIT_POINTS = [point for point in POINTS if point.startswith("commit.")]
JOURNAL_POINTS = [point for point in POINTS if point.startswith(("journal.", "checkpoint."))]
RECOVERY_POINTS = [point for point in POINTS if point.startswith("recovery.")]
CREATION_POINTS = [point for point in POINTS if point.startswith("creation.")]


def step(number):
    return {"steps": number, "total": number, "findings": [f"finding {number} " * 20], "text": "x" * 3000}


HISTORY = (
    Commit("a", (step(0),), metadata={"node": "plan"}),
    Commit("a", (step(1), {"total": 5}), id="first"),
    Commit("b", ({"messages": [{"id": n, "text": "y" * 90} for n in range(100)]},)),
    Together((Commit("a", (step(2),)), Commit("b", ({"notes": {"k": ["v"] * 300}},)), Tag("a", "before"))),
    Together((Commit("a", (step(99),)),), abandoned=True),
    Rollback("a", 0),
    Fork("a", "other", at=1, update={"query": "z" * 70_000}),
    Commit("a", ({"query": "other branch"},), branch="other"),
    Untag("a", "before"),
    Copy("a", "copy"),
    Together((Commit("copy", (step(3),)), Copy("copy", "copy of the copy"), Rollback("copy", 0))),
    Commit("b", ({"messages": [{"id": 5, "text": "changed"}, reducers.Remove(7)]},)),
)


@pytest.mark.parametrize("occurrence", [1, 7, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_kill_in_a_commit_loses_no_acknowledged_commit(path, point, occurrence):
    result = crash_at(path, HISTORY, point=point, occurrence=occurrence, schema=SCHEMA)
    assert result.killed


@pytest.mark.parametrize("durability", ["commit", "interval"])
@pytest.mark.parametrize("point", JOURNAL_POINTS)
def test_a_kill_at_any_point_of_the_journal_loses_no_acknowledged_commit(path, point, durability):
    occurrence = 4 if point in {"journal.before_append", "journal.after_append"} else 1
    result = crash_at(path, HISTORY, point=point, occurrence=occurrence, schema=SCHEMA, durability=durability)
    # With "interval" no commit flushes; its timer may.
    assert result.killed or (durability, point) == ("interval", "journal.after_flush")
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, f"{path.name}-lock"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "again"),
    [
        pytest.param(point, again, marks=[] if again in (point, RECOVERY_POINTS[-1]) else pytest.mark.soak)
        for point in RECOVERY_POINTS
        for again in RECOVERY_POINTS
    ],
)
def test_a_kill_in_a_recovery_of_a_killed_recovery_loses_no_commit(path, point, again):
    with Child(path, HISTORY, schema=SCHEMA, fault="commit.after_delivery:6") as child:
        assert child.wait() is True
    for where in (point, again):
        with Child(path, (), schema=SCHEMA, fault=f"{where}:1") as recovering:
            killed = recovering.wait()
        assert killed or point == "recovery.before_unlink"  # It clears the dirty flag, so nothing is left to recover.
    assert assert_recovered(path, HISTORY, child.acknowledged, schema=SCHEMA) == child.acknowledged + 1


@pytest.mark.parametrize("count", [1, *(pytest.param(count, marks=pytest.mark.soak) for count in (2, 3, 4, 7))])
@pytest.mark.parametrize("point", ["commit.before_begin", "commit.before_lmdb_commit", *JOURNAL_POINTS])
def test_a_pin_holder_killed_anywhere_disturbs_no_other_process(path, point, count):
    """Two processes commit in turn. One is killed, and its pin is lost. The other continues, and is killed, too."""
    mine = tuple(Commit("mine", (step(number),)) for number in range(12))
    theirs = tuple(Commit("theirs", (step(number),)) for number in range(12))
    with Child(path, mine, schema=SCHEMA, fault="commit.after_delivery:12") as other:
        other.await_acknowledged(2)
        with Child(path, theirs, schema=SCHEMA, fault=f"{point}:{count}") as child:
            child.wait()
        assert other.wait() is True
    with statelog.open(path) as store:
        assert store.verify().problems == []
        assert len(list(store.thread("mine").history())) == len(mine)
        found = len(list(store.thread("theirs").history())) if "theirs" in {each.id for each in store.threads()} else 0
        assert child.acknowledged <= found <= child.acknowledged + 1


OWNER = """
import sys, time, statelog
store = statelog.open(sys.argv[1])
for number in range(8):
    store.thread("mine").commit({"n": number, "text": "x" * 3000})
print("done", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("owner", [store_file, LmdbFile], ids=["before the recovery", "before LMDB opens it"])
def test_the_holder_of_the_pin_can_die_while_another_process_opens_the_store(path, tmp_path, monkeypatch, owner):
    """LMDB forgets the readers of dead processes. So does the shared state."""
    name = "recover" if owner is store_file else "open"
    plain = getattr(owner, name)

    def kill_before(*arguments):
        first.kill()
        first.wait()
        return plain(*arguments)

    with forks.Popen([sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"done\n"
        monkeypatch.setattr(owner, name, kill_before)
        with statelog.open(path) as store:
            monkeypatch.undo()
            copy = commit_and_copy(store, path, tmp_path)
    for each in (copy, path):
        with statelog.open(each) as store:
            assert store.verify().problems == []
            assert [store.thread(name).state["n"] for name in ("mine", "theirs")] == [7, 4]


def commit_and_copy(store, path, tmp_path):
    """Return a copy of a store in use, as a kill would leave it."""
    for number in range(5):
        store.thread("theirs").commit({"n": number, "text": "y" * 3000})
    with path.open("rb") as file:
        assert read_dirty_flag(file.fileno()), "without it nobody looks at the journal after a loss of power"
    copy = tmp_path / "copy.state"
    journal_path(copy).write_bytes(journal_path(path).read_bytes())
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("point", [point for point in JOURNAL_POINTS if "unlink" not in point])
def test_a_writer_can_die_at_its_beginning_while_another_process_has_the_store_open(path, tmp_path, point):
    with statelog.open(path) as store:
        with Child(path, HISTORY[:1], schema=SCHEMA, fault=f"{point}:1") as child:
            assert child.wait() is True
        copy = commit_and_copy(store, path, tmp_path)
    for each in (copy, path):
        with statelog.open(each) as store:
            assert store.verify().problems == []
            assert store.thread("theirs").state["n"] == 4
            assert len(list(store.thread("a").history())) >= child.acknowledged


@pytest.mark.parametrize("point", ["commit.after_put_log", "commit.before_lmdb_commit", "commit.after_lmdb_commit"])
def test_a_kill_in_a_commit_without_a_flush_loses_no_acknowledged_commit(path, point):
    result = crash_at(path, HISTORY, point=point, occurrence=4, schema=SCHEMA, durability="interval")
    assert result.killed


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_kill_in_a_commit_to_a_store_with_a_key_loses_no_acknowledged_commit(path, point):
    result = crash_at(path, HISTORY, point=point, occurrence=3, schema=SCHEMA, key="the key of a killed store")
    assert result.killed


@pytest.mark.parametrize("point", CREATION_POINTS)
def test_a_kill_in_creation_leaves_a_store_or_nothing(path, point):
    result = crash_at(path, HISTORY[:1], point=point, schema=SCHEMA)
    assert result.killed
    assert result.acknowledged == 0
    names = {entry.name for entry in path.parent.iterdir()}
    assert names == {path.name, f"{path.name}-lock"}, "the next opening removes what a killed creation left"


def test_a_commit_made_by_lmdb_exists_although_unacknowledged(path):
    result = crash_at(path, HISTORY, point="commit.after_lmdb_commit", occurrence=3, schema=SCHEMA)
    assert result.killed
    assert result.recovered == result.acknowledged + 1


def test_a_commit_not_made_by_lmdb_does_not_exist(path):
    result = crash_at(path, HISTORY, point="commit.before_lmdb_commit", occurrence=3, schema=SCHEMA)
    assert result.killed
    assert result.recovered == result.acknowledged


@pytest.mark.slow
def test_a_child_that_never_reaches_the_point_finishes(path):
    result = crash_at(path, HISTORY, point="commit.after_begin", occurrence=1000, schema=SCHEMA)
    assert (result.killed, result.acknowledged) == (False, len(HISTORY))


@pytest.mark.slow
def test_a_store_stays_usable_after_repeated_kills(path):
    done = ()
    for round_number, point in enumerate(COMMIT_POINTS):
        more = tuple(Commit(f"thread {number}", (step(round_number),)) for number in range(5))
        with Child(path, more, schema=SCHEMA, fault=f"{point}:2") as child:
            assert child.wait() is True
        recovered = assert_recovered(path, done + more, len(done) + child.acknowledged, schema=SCHEMA)
        done = (*(done + more)[:recovered], FURTHER_COMMIT)
    assert len(done) > len(COMMIT_POINTS)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 10, suppress_health_check=list(HealthCheck))
@given(
    history=histories(min_size=3),
    point=st.sampled_from(COMMIT_POINTS),
    occurrence=st.integers(1, 6),
    durability=st.sampled_from(["commit", "interval"]),
)
def test_any_history_survives_a_kill_anywhere(tmp_path_factory, history, point, occurrence, durability):
    path = tmp_path_factory.mktemp("crash") / "agent.state"
    crash_at(path, history, point=point, occurrence=occurrence, schema=SCHEMA, durability=durability)


# --- the harness itself ---------------------------------------------------------------


def test_a_workload_that_acknowledges_before_it_commits_is_detected(path):
    with pytest.raises(AssertionError):
        crash_at(path, HISTORY, point="commit.before_lmdb_commit", occurrence=3, schema=SCHEMA, acknowledges_early=True)


@pytest.mark.slow
def test_a_store_with_additional_data_is_detected(path):
    with Child(path, HISTORY, schema=SCHEMA) as child:
        assert child.wait() is False
    with pytest.raises(AssertionError, match="records in the log"):
        assert_recovered(path, HISTORY[:2], 1, schema=SCHEMA)


@pytest.mark.slow
def test_a_store_with_a_different_value_is_detected(path):
    with Child(path, HISTORY[:1], schema=SCHEMA) as child:
        assert child.wait() is False
    other = (Commit("a", (step(1),), metadata={"node": "plan"}),)
    with pytest.raises(AssertionError, match="state"):
        assert_recovered(path, other, 1, schema=SCHEMA)


def test_a_missing_store_is_detected(path):
    with pytest.raises(AssertionError, match="no file"):
        assert_recovered(path, HISTORY, 1, schema=SCHEMA)


def test_an_unknown_point_is_refused(path):
    with pytest.raises(UsageError, match=r"commit\.before_begin"):
        crash_at(path, HISTORY, point="commit.nowhere")


def test_writes_to_every_channel_can_be_sent_to_a_child():
    assert all(writes_to(channel) is not None for channel in SCHEMA)
