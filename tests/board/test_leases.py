"""Leases: one holder, and a fence that refuses late writes."""

import threading
import time
from datetime import UTC, datetime

import pytest
from waiting import until

import statelog
from statelog.board import clocks
from statelog.errors import LeaseHeldError, LeaseLostError, LimitError, UsageError
from statelog.log.kinds.entries import Claimed


def test_a_lease_has_one_holder_and_is_free_after_its_block(store):
    board = store.board(agent="a")
    with board.lease("thread/42", ttl_s=30) as lease:
        with pytest.raises(LeaseHeldError) as caught:
            store.board(agent="b").lease("thread/42")
        assert (caught.value.name, caught.value.holder) == ("thread/42", "a")
        [info] = board.leases()
        assert (info.name, info.token, info.holder, info.is_over) == ("thread/42", lease.token, "a", False)
        assert board.get("thread/42") is None
    assert board.leases() == []
    with board.lease("thread/42") as again:
        assert again.token > lease.token


def test_a_lease_and_an_entry_of_the_same_name_are_independent(store):
    board = store.board()
    board.set("x", 1)
    with board.lease("x"):
        board.claim("x").complete()
        board.set("x", 2)
    assert [entry.key for entry in board.list()] == ["x"]


def _fenced(store, fence):
    thread = store.thread("t")
    yield lambda: thread.commit({"n": 1}, fence=fence)
    yield lambda: thread.edit(lambda state: state.update(n=2), fence=fence)
    yield lambda: thread.rollback(0, fence=fence)
    yield lambda: thread.fork(f"b{time.monotonic_ns()}", fence=fence)
    yield lambda: _mount(thread, fence)
    board = store.board()
    yield lambda: board.set("k", 1, fence=fence)
    yield lambda: board.update("n", statelog.reducers.add, 1, fence=fence)
    yield lambda: board.delete("k", fence=fence)
    yield lambda: board.create(f"k{time.monotonic_ns()}", 1, fence=fence)
    yield lambda: board.cas("c", 1, expected_version=board.get("c").version if board.get("c") else 0, fence=fence)
    yield lambda: board.rollback("", to=0, fence=fence)


def _mount(thread, fence):
    with thread.mount(fence=fence) as state:
        state["n"] = time.monotonic()


@pytest.mark.parametrize("kind", ["lease", "claim"])
def test_every_fenced_write_succeeds_only_while_the_fence_holds(store, kind):
    board = store.board()
    store.thread("t").commit({"n": 0})
    board.set("work/task", 1)
    fence = board.lease("name", ttl_s=30) if kind == "lease" else board.claim("work/task")
    calls = list(_fenced(store, fence))
    for call in calls[:-1]:
        call()
    fence.release()
    last = store.last_lsn
    for call in calls:
        with pytest.raises(LeaseLostError) as caught:
            call()
        assert caught.value.token == fence.token
    assert store.last_lsn == last


def test_a_fence_is_checked_at_the_end_of_a_transaction(store):
    lease = store.board().lease("x", ttl_s=30)
    with pytest.raises(LeaseLostError), store.transaction() as tx:
        _commit_and_lose(store, tx, lease)
    assert store.thread("t").version == -1


def _commit_and_lose(store, tx, lease):
    tx.thread("t").commit({"n": 1}, fence=lease)
    threading.Thread(target=lease.release).start()
    while store.board().leases():
        time.sleep(0.001)


def test_a_fence_of_another_store_or_of_another_type_is_refused(store, tmp_path):
    with statelog.open(tmp_path / "other.state") as other, other.board().lease("x") as lease:
        for fence in (lease, "lease", 7):
            with pytest.raises(UsageError) as caught:
                store.board().set("k", 1, fence=fence)
            assert caught.value.argument == "fence"


@pytest.mark.slow
def test_a_lease_is_renewed_until_its_block_ends(store):
    with store.board().lease("x", ttl_s=1.5):
        expires = store.board().leases()[0].expires
        until(lambda: datetime.now(UTC) > expires)
        with pytest.raises(LeaseHeldError):
            store.board().lease("x")


def test_without_renewal_another_takes_over_and_the_end_of_the_block_raises(store):
    lease = store.board().lease("x", ttl_s=0.05, auto_renew=False)
    with pytest.raises(LeaseLostError), lease:
        assert store.board().lease("x", wait_s=5).token > lease.token
    lease = store.board().lease("y", ttl_s=0.01, auto_renew=False)
    time.sleep(0.02)
    store.board().lease("y").release()
    with pytest.raises(ZeroDivisionError), lease:
        raise ZeroDivisionError


def test_a_late_holder_continues_if_no_other_took_over(store):
    lease = store.board().lease("x", ttl_s=0.01, auto_renew=False)
    time.sleep(0.02)
    assert store.board().leases()[0].is_over
    store.board().set("k", 1, fence=lease)
    lease.renew()
    lease.release()
    with pytest.raises(UsageError, match="was released"):
        lease.renew()


def test_leases_leave_no_history(store):
    for _ in range(20):
        with store.board().lease("x", auto_renew=False) as lease:
            lease.renew()
    store.compact()
    said = [record for record in store.log() if record.type == "entry" and record.body]
    assert said == []
    assert store.verify().problems == []


class FakeClock(clocks.ProcessClocks):
    def __init__(self, *, tag=b"12345678", boot=0, wall=0):
        super().__init__()
        self.fake_tag, self.boot, self.wall = tag, boot, wall

    @property
    def tag(self):
        return self.fake_tag

    def boot_us(self):
        return self.boot

    def wall_us(self):
        return self.wall


def test_in_the_same_boot_only_the_boot_clock_counts():
    claim = Claimed(1, b"12345678", 100, 5, 50)
    assert FakeClock(boot=60, wall=10**15).left_us(claim) == 40
    assert FakeClock(boot=101, wall=0).left_us(claim) == -1


def test_in_another_boot_or_namespace_the_wall_clock_counts_for_at_most_one_lease_duration():
    claim = Claimed(1, b"otherone", 10**15, 1000, 50)
    clock = FakeClock(boot=7, wall=990)
    assert clock.left_us(claim) == 10
    clock.wall = 1001
    assert clock.left_us(claim) == -1
    set_back = FakeClock(boot=0, wall=-(10**12))
    assert set_back.left_us(claim) == 50
    set_back.boot = 51
    assert set_back.left_us(claim) == -1


@pytest.mark.parametrize("name", ["", "a//b", "a/*", "durable/x", 3])
def test_invalid_names_are_refused(store, name):
    with pytest.raises((UsageError, TypeError)):
        store.board().lease(name)


@pytest.mark.parametrize("size", [398, 399, 400])
def test_a_waiter_works_with_names_of_every_allowed_size(store, size):
    name = "n" * size
    lease = store.board(agent="a").lease(name, ttl_s=30)
    with pytest.raises(LeaseHeldError):
        store.board(agent="b").lease(name)
    release = threading.Timer(0.2, lease.release)
    release.start()
    store.board(agent="b").lease(name, wait_s=20).release()
    release.join()
    with pytest.raises(LimitError):
        store.board().lease("n" * 401)
