"""Checkpoints: immutable, complete, and tied to their store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import pytest

import statelog
from statelog import reducers
from statelog.errors import CheckpointNotFoundError, UsageError
from statelog.format import cbor


@pytest.fixture
def thread(store):
    return store.thread("t", schema={"n": reducers.add, "text": reducers.replace})


def test_a_checkpoint_has_all_its_attributes(thread):
    before = datetime.now(UTC)
    made = thread.commit({"n": 1}, {"text": "x"}, metadata={"node": "plan", "cost": 0.5})
    assert (made.thread_id, made.branch, made.version, made.lsn, made.kind) == ("t", "main", 0, 2, "commit")
    assert made.metadata == {"node": "plan", "cost": 0.5}
    assert made.channels_written == ("n", "text")
    assert made.state == {"n": 1, "text": "x"}
    assert made.parent is None
    assert before - timedelta(seconds=1) <= made.time <= datetime.now(UTC) + timedelta(seconds=1)
    assert made.time.tzinfo is UTC
    assert (len(made.digest), len(made.state_digest)) == (40, 40)
    assert repr(made) == f"<Checkpoint 't' branch 'main' version 0 id {made.id}: n, text>"


def test_a_default_id_has_lsn_and_digest(thread):
    made = thread.commit({"n": 1})
    assert made.id == f"{made.lsn}~{made.digest[:16]}"
    assert thread.at(made.id) == made


def test_a_callers_id_is_the_id(thread):
    made = thread.commit({"n": 1}, id="step 1")
    assert made.id == "step 1"
    assert thread.at("step 1") == made
    with pytest.raises(CheckpointNotFoundError):
        thread.at(f"{made.lsn}~{'0' * 16}")


def test_a_checkpoint_is_immutable(thread):
    made = thread.commit({"n": 1, "text": "first"})
    digest = made.digest
    for number in range(50):
        thread.commit({"n": 1, "text": f"text {number}"})
    thread.rollback(10)
    assert made.state == {"n": 1, "text": "first"}
    assert (made.digest, made.version) == (digest, 0)
    assert made.metadata is not made.metadata
    made.metadata["changed"] = True
    assert made.metadata == {}


def test_parents_lead_back_to_the_first_checkpoint(thread):
    for number in range(40):
        thread.commit({"text": str(number)})
    line, checkpoint = [], thread.head
    while checkpoint is not None:
        line.append(checkpoint.state["text"])
        checkpoint = checkpoint.parent
    assert line == [str(number) for number in range(39, -1, -1)]


def test_the_digest_covers_parent_state_time_id_and_metadata(thread):
    first = thread.commit({"n": 1}, metadata={"k": [1]})
    second = thread.commit({"n": 1}, id="mine")
    for made, parent, caller_id in ((first, None, None), (second, bytes.fromhex(first.digest), "mine")):
        time_us = (made.time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        body = cbor.encode([parent, bytes.fromhex(made.state_digest), time_us, caller_id, made.metadata])
        assert made.digest == blake2b(body, digest_size=20, person=b"stlg-checkpt-1").hexdigest()


def test_equal_checkpoints_are_the_same_record(store, thread):
    made = thread.commit({"n": 1})
    other = store.thread("u", schema={"n": reducers.add}).commit({"n": 1})
    assert made == thread.head == thread.at(0)
    assert hash(made) == hash(thread.at(0))
    assert made != other
    assert made.state_digest == other.state_digest
    assert made != "something else"
    assert len({made, thread.head, other}) == 2


def test_ancestors_are_found_at_any_distance(store):
    thread = store.thread("t")
    made = [thread.commit({"n": number}) for number in range(130)]
    for generations in (0, 1, 2, 3, 7, 31, 32, 64, 100, 129):
        assert made[-1].ancestor(generations) == made[129 - generations]
    assert made[-1].ancestor(130) is None
    assert made[0].ancestor(1) is None


def test_ancestors_lead_through_rollbacks_and_branches(store):
    thread = store.thread("t")
    made = [thread.commit({"n": number}) for number in range(50)]
    back = thread.rollback(20)
    branch = thread.fork("b", update={"n": "b"})
    own = [branch.commit({"n": -number}) for number in range(30)]
    assert own[-1].ancestor(30) == branch.at(back.version + 1)
    assert own[-1].ancestor(31) == back
    assert own[-1].ancestor(32) == made[20]
    assert own[-1].ancestor(52) == made[0]


@pytest.mark.parametrize("lengths", [(0, 0), (1, 1), (5, 40), (40, 5), (33, 64)])
def test_the_common_ancestor_of_two_branches_is_their_last_shared_checkpoint(store, lengths):
    thread = store.thread("t")
    made = [thread.commit({"n": number}) for number in range(40)]
    branches = [thread.fork(name, at=25) for name in ("left", "right")]
    for branch, length in zip(branches, lengths, strict=True):
        for number in range(length):
            branch.commit({"n": number})
    left, right = (branch.head for branch in branches)
    assert left.common_ancestor(right) == made[25]
    assert left.common_ancestor(thread.head) == made[25]
    assert left.common_ancestor(left) == left
    assert made[10].common_ancestor(left) == made[10]


def test_threads_have_no_common_ancestor(store):
    with pytest.raises(UsageError):
        store.thread("a").commit({"n": 1}).common_ancestor(store.thread("b").commit({"n": 1}))


def test_a_rollback_has_its_own_kind_and_parent(thread):
    first = thread.commit({"n": 1})
    thread.commit({"n": 1})
    back = thread.rollback(0)
    assert (back.kind, back.parent, back.channels_written) == ("rollback", first, ())


def test_times_ascend_even_if_the_clock_does_not(store, monkeypatch):
    thread = store.thread("t")
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    times = [thread.commit({"n": number}).time for number in range(10)]
    assert times == sorted(set(times))
    assert times[-1] - times[0] == timedelta(microseconds=9)
    monkeypatch.setattr("time.time_ns", lambda: 1_600_000_000_000_000_000)
    assert thread.commit({"n": 10}).time == times[-1] + timedelta(microseconds=1)
    assert thread.at(times[5]).version == 5


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_the_size_of_a_state_is_the_size_of_its_values(path, count):
    with statelog.open(path) as store:
        made = store.thread("t").commit({"items": [f"item {n}" for n in range(count)], "text": "x" * 5000})
        whole = len(cbor.encode(made.state.to_python()))
        assert whole - 100 <= made.state_size_bytes <= whole + 100
