"""Waiting tasks: they occupy no thread, no wake-up is lost, and a cancelled task keeps no entry."""

# ruff: noqa: ASYNC110, ASYNC222 - these tests look from outside at what sleeps, and at other processes

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time

import forks
import pytest

import statelog
from statelog import aio
from statelog.aio import waits
from statelog.errors import ClosedError, CorruptionError, LeaseHeldError
from statelog.storage.notify import slot_file
from statelog.store import claims
from statelog.store.session import session_of
from statelog.store.waiter_thread import waiter_thread_of

DEADLINE_S = 60


@pytest.fixture
def run(tmp_path):
    """Run a coroutine function with an open store, in time."""

    def run(main, **options):
        async def in_time():
            async with asyncio.timeout(DEADLINE_S), aio.open(tmp_path / "a.state", **options) as store:
                return await main(store)

        return asyncio.run(in_time())

    return run


async def asleep(store, count):
    """Wait until `count` tasks sleep and the OS thread has checked for each of them."""
    thread = waiter_thread_of(session_of(store.sync))
    while True:
        sleepers = [each for line in tuple(thread._lines.values()) for each in tuple(line.sleepers)]
        if sum(each.was_looked_for and not each.is_awake for each in sleepers) == count:
            return
        await asyncio.sleep(0.002)


def lines(store):
    return len(waiter_thread_of(session_of(store.sync))._lines)


async def begun(store, *coroutines):
    """Begin waiting tasks in order."""
    tasks = []
    for each in coroutines:
        tasks.append(asyncio.create_task(each))
        await asleep(store, len(tasks))
    return tasks


# --- how many, and in which order ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("patterns", [1, 50, 1000])
def test_a_thousand_tasks_wait_with_few_threads_and_each_gets_one_entry(run, patterns):
    async def main(store):
        board = store.board(agent="w")
        await board.set("warm", 1)
        before, got = threading.active_count(), []

        async def wait(number):
            claim = await board.claim(f"jobs-{number % patterns}/*", wait_s=DEADLINE_S)
            got.append((number % patterns, claim.key, claim.attempt))

        tasks = [asyncio.create_task(wait(number)) for number in range(1000)]
        await asleep(store, 1000)
        assert threading.active_count() <= before + 4

        def put():
            for number in range(1000):
                store.sync.board().set(f"jobs-{number % patterns}/{number}", number)

        await asyncio.to_thread(put)
        await asyncio.gather(*tasks)
        assert len({key for _number, key, _attempt in got}) == 1000
        assert all(key.startswith(f"jobs-{number}/") and attempt == 1 for number, key, attempt in got)
        await asyncio.sleep(0)
        assert await board.claim("**") is not None, "the first entry"

    run(main, durability="interval")


@pytest.mark.slow
def test_a_thousand_watchers_wait_with_few_threads_and_each_gets_its_event(run):
    async def main(store):
        board = store.board(agent="w")
        await board.set("warm", 1)
        before = threading.active_count()

        async def watch(number):
            return (await anext(board.watch(f"w{number}/*"))).key

        tasks = [asyncio.create_task(watch(number)) for number in range(1000)]
        await asleep(store, 1000)
        assert threading.active_count() <= before + 4

        def put():
            for number in range(1000):
                store.sync.board().set(f"w{number}/x", number)

        await asyncio.to_thread(put)
        assert await asyncio.gather(*tasks) == [f"w{number}/x" for number in range(1000)]

    run(main, durability="interval")


def test_the_task_that_came_first_is_served_first(run):
    async def main(store):
        board, order = store.board(agent="w"), []

        async def wait(number):
            await board.claim("jobs/*", wait_s=DEADLINE_S)
            order.append(number)

        tasks = await begun(store, *(wait(number) for number in range(10)))
        for number in range(10):
            await board.set(f"jobs/{number}", number)
            while len(order) <= number:
                await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)
        assert order == list(range(10))

    run(main)


@pytest.mark.slow
def test_a_lease_goes_to_tasks_and_threads_in_the_order_they_came(run):
    """Tasks and OS threads wait in turn. Those of one process do not overtake the others."""

    async def main(store):
        board, order, held = store.board(agent="w"), [], store.sync.board().lease("x", auto_renew=False)

        async def take(number):
            async with board.lease("x", wait_s=DEADLINE_S, auto_renew=False):
                order.append(number)

        def take_in_thread(number):
            with store.sync.board().lease("x", wait_s=DEADLINE_S, auto_renew=False):
                order.append(number)

        waiting_for = []
        for number in range(6):
            if number % 2:
                waiting_for.append(asyncio.create_task(asyncio.to_thread(take_in_thread, number)))
                await asyncio.sleep(0.2)
            else:
                waiting_for.append(asyncio.create_task(take(number)))
                await asleep(store, number // 2 + 1)
                await asyncio.sleep(0.1)
        held.release()
        await asyncio.gather(*waiting_for)
        assert order == list(range(6))

    run(main)


def test_a_lease_without_waiting_is_refused_while_a_task_waits(run):
    async def main(store):
        board = store.board(agent="w")
        held = store.sync.board().lease("x", auto_renew=False)

        async def take():
            async with board.lease("x", wait_s=DEADLINE_S):
                pass

        (task,) = await begun(store, take())
        with pytest.raises(LeaseHeldError):
            async with board.lease("x"):
                pass
        with pytest.raises(LeaseHeldError):
            async with board.lease("x", wait_s=0.05):
                pass
        held.release()
        await task
        async with board.lease("x"):
            pass

    run(main)


@pytest.mark.slow
def test_the_slot_of_a_line_is_freed_before_its_last_task_ends(run):
    """The slot of a line is freed before its last task ends."""

    async def main(store):
        board = store.board(agent="w")
        for _time in range(20):
            held = store.sync.board().lease("x", auto_renew=False)
            with pytest.raises(LeaseHeldError):
                async with board.lease("x", wait_s=0.02, auto_renew=False):
                    pass
            held.release()
            store.sync.board().lease("x", auto_renew=False).release()

    run(main)


@pytest.mark.slow
def test_more_lines_than_slots_are_served(run):
    async def main(store):
        board = store.board(agent="w")
        held = [store.sync.board().lease(f"l{number}", auto_renew=False) for number in range(150)]

        async def take(number):
            async with board.lease(f"l{number}", wait_s=DEADLINE_S, auto_renew=False):
                return number

        tasks = [asyncio.create_task(take(number)) for number in range(150)]
        tasks += [asyncio.create_task(board.claim(f"jobs-{number}/*", wait_s=DEADLINE_S)) for number in range(300)]
        await asleep(store, 450)
        for lease in held:
            lease.release()
        for number in range(300):
            store.sync.board().set(f"jobs-{number}/x", number)
        found = await asyncio.gather(*tasks)
        assert found[:150] == list(range(150))
        assert [claim.value for claim in found[150:]] == list(range(300))

    run(main)


# --- cancelled -------------------------------------------------------------------------------------


class Gate:
    """Holds a function of the pool up, before it is called or before it returns."""

    def __init__(self, monkeypatch, kind, name, *, is_behind):
        self.arrived, self.opened = threading.Event(), threading.Event()
        original = getattr(kind, name)

        def held_up(*args, **kwargs):
            result = original(*args, **kwargs) if is_behind else None
            self.arrived.set()
            assert self.opened.wait(DEADLINE_S)
            return result if is_behind else original(*args, **kwargs)

        monkeypatch.setattr(kind, name, held_up)

    async def reached(self):
        while not self.arrived.is_set():
            await asyncio.sleep(0.001)


PLACES = ["asleep", "woken", "before the look", "before the claim", "behind the claim", "before it is given back"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("is_held_up_again", [False, True])
def test_a_claim_of_a_cancelled_task_counts_for_nothing(run, monkeypatch, place, is_held_up_again):
    """The next in line gets the entry, wherever the task is cancelled."""

    async def main(store):
        board = store.board(agent="w")
        how = {"max_attempts": 1, "dead": "dead/", "wait_s": DEADLINE_S}
        gates = {
            "before the look": (claims.holders, "choose", False),
            "before the claim": (claims.ClaimAttempt, "take", False),
            "behind the claim": (claims.ClaimAttempt, "take", True),
            "before it is given back": (claims.Claim, "release", False),
        }
        first, second = await begun(store, board.claim("jobs/*", **how), board.claim("jobs/*", **how))
        with monkeypatch.context() as patch:
            if place == "woken":
                wake = waits._settle

                def settle(future, result):
                    wake(future, result)
                    first.cancel()  # before the task can continue

                patch.setattr(waits, "_settle", settle)
            gate = None
            if place in gates:
                kind, name, is_behind = gates[place]
                gate = Gate(patch, kind, name, is_behind=is_behind)
            behind = Gate(patch, claims.ClaimAttempt, "take", is_behind=True) if place == PLACES[-1] else None
            if place == "asleep":
                first.cancel()
            await board.set("jobs/1", "sweep")
            if behind is not None:
                await behind.reached()
                first.cancel()
                await asyncio.sleep(0.02)
                behind.opened.set()
            if gate is not None:
                await gate.reached()
                first.cancel()
                await asyncio.sleep(0.02)
                if is_held_up_again:
                    first.cancel()
                    await asyncio.sleep(0.02)
                gate.opened.set()
            with pytest.raises(asyncio.CancelledError):
                await first
        claim = await second
        assert claim.attempt == 1
        assert await board.list("dead/*") == []
        await claim.complete()
        assert lines(store) == 0 or await settled(store)

    run(main)


async def settled(store):
    """Wait until the thread has forgotten all lines."""
    while lines(store):
        await asyncio.sleep(0.01)
    return True


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_lease_of_a_cancelled_task_is_released_before_the_task_ends(run, monkeypatch, place):
    async def main(store):
        board = store.board(agent="w")

        async def take():
            async with board.lease("x", wait_s=DEADLINE_S):
                raise AssertionError("it was cancelled")

        with monkeypatch.context() as patch:
            gate = Gate(patch, claims.LeaseAttempt, "take", is_behind=place == "behind")
            task = asyncio.create_task(take())
            await gate.reached()
            task.cancel()
            await asyncio.sleep(0.02)
            gate.opened.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await board.leases() == []
        assert store.sync.board().leases() == []

    run(main)


def test_a_claim_that_does_not_wait_is_given_back_when_its_task_is_cancelled(run, monkeypatch):
    async def main(store):
        board = store.board(agent="w")
        await board.set("jobs/1", 1)
        with monkeypatch.context() as patch:
            gate = Gate(patch, claims.ClaimAttempt, "take", is_behind=True)
            task = asyncio.create_task(board.claim("jobs/*"))
            await gate.reached()
            task.cancel()
            await asyncio.sleep(0.01)
            gate.opened.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await board.claim("jobs/*")).attempt == 1

    run(main)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_are_cancelled_at_any_time_lose_no_entry(run, seed):
    chance = random.Random(seed)

    async def main(store):
        board, got, entries = store.board(agent="w"), {}, 60

        async def work():
            claim = await board.claim(["a/*", "b/*"], wait_s=DEADLINE_S, max_attempts=1, dead="dead/")
            got[claim.key] = claim.attempt

        def put():
            for number in range(entries):
                store.sync.board().set(f"{'ab'[number % 2]}/{number}", number)
                time.sleep(0.002)

        putting = asyncio.create_task(asyncio.to_thread(put))
        tasks = set()
        while len(got) < entries:
            tasks |= {asyncio.create_task(work()) for _ in range(6 - len(tasks))}
            await asyncio.sleep(chance.random() * 0.004)
            for task in chance.sample(sorted(tasks, key=id), 2):
                task.cancel()
            tasks = {task for task in tasks if not task.done()}
        await putting
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert set(got.values()) == {1}
        assert await board.list("dead/*") == []

    run(main, durability="interval")


# --- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_s", [1e-9, 0.001, 0.05])
def test_even_a_short_timeout_finds_available_entries(run, wait_s):
    async def main(store):
        board = store.board(agent="w")
        began_s = time.monotonic()
        assert await board.claim("jobs/*", wait_s=wait_s) is None
        assert time.monotonic() - began_s >= wait_s - 0.002
        await board.set("jobs/1", 1)
        assert (await board.claim("jobs/*", wait_s=wait_s)).key == "jobs/1"
        async with board.lease("x", wait_s=wait_s):
            with pytest.raises(LeaseHeldError):
                async with board.lease("x", wait_s=wait_s):
                    pass
        lsn = await store.last_lsn()
        assert await store.wait(lsn - 1, wait_s)
        assert await store.wait(lsn - 1, 0)
        assert not await store.wait(lsn, wait_s)

    run(main)


@pytest.mark.slow
def test_delays_and_claims_that_end_wake_a_task_without_a_commit(run):
    async def main(store):
        board = store.board(agent="w")
        (task,) = await begun(store, board.claim("jobs/*", wait_s=DEADLINE_S))
        await board.set("jobs/1", 1, delay_s=0.3)
        first = await task
        assert first.key == "jobs/1"
        await first.renew(0.3)
        again = await board.claim("jobs/*", wait_s=DEADLINE_S)
        assert (again.key, again.attempt) == ("jobs/1", 2)
        lease = store.sync.board().lease("x", ttl_s=0.3, auto_renew=False)
        async with board.lease("x", wait_s=DEADLINE_S) as taken:
            assert taken.token > lease.token

    run(main)


def test_a_task_whose_entry_another_process_claims_continues_to_wait(run, monkeypatch):
    async def main(store):
        board = store.board(agent="w")
        (task,) = await begun(store, board.claim("jobs/*", wait_s=DEADLINE_S))
        taken = []

        def forestalled(attempt):
            taken.append(claims.ClaimAttempt.take)
            with monkeypatch.context():
                return original(attempt) if len(taken) > 3 else None

        original = claims.ClaimAttempt.take
        monkeypatch.setattr(claims.ClaimAttempt, "take", forestalled)
        await board.set("jobs/1", 1)
        assert (await task).attempt == 1
        assert len(taken) == 4

    run(main)


# --- what goes wrong -----------------------------------------------------------------------------------


async def all_ways(store):
    board = store.board(agent="w")
    held = store.sync.board().lease("held", auto_renew=False)

    async def lease():
        async with board.lease("held", wait_s=DEADLINE_S):
            pass

    async def watch():
        async for _event in board.watch("nothing/*"):
            pass

    async def follow():
        async for _record in store.log(after=await store.last_lsn(), follow=True):
            pass

    ways = [
        lambda: board.claim("nothing/*", wait_s=DEADLINE_S),
        lease,
        watch,
        follow,
        lambda: store.wait(10**9, DEADLINE_S),
    ]
    tasks = [asyncio.create_task(ways[number % 5]()) for number in range(100)]
    await asleep(store, 100)
    return held, tasks


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_hundred_tasks_hear_that_the_store_is_closed(run, is_sync):
    async def main(store):
        _held, tasks = await all_ways(store)
        began_s = time.monotonic()
        if is_sync:
            store.sync.close()
        else:
            await store.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ended] == [ClosedError] * 100
        assert {each.path for each in ended} == {str(store.path)}
        assert time.monotonic() - began_s < 10
        with pytest.raises(ClosedError):
            await store.board().claim("x/*", wait_s=1)

    run(main)


def test_an_error_of_the_check_ends_the_wait(run, monkeypatch):
    """The task raises that error, whatever its type."""

    async def main(store):
        board = store.board(agent="w")
        tasks = await begun(store, *(board.claim("jobs/*", wait_s=DEADLINE_S) for _ in range(3)))

        def fail(*_arguments):
            raise CorruptionError("it is damaged")

        def stop(*_arguments):
            raise StopIteration

        with monkeypatch.context() as patch:
            patch.setattr(claims.holders, "choose", fail)
            patch.setattr(claims.ClaimAttempt, "take", stop)
            await board.set("jobs/1", 1)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in ended] == [RuntimeError] * 3
        assert [type(each.__cause__) for each in ended] == [StopIteration] * 3
        assert (await board.claim("jobs/*", wait_s=1)).attempt == 1, "the thread goes on"

    run(main)


def test_after_a_loop_is_closed_the_next_waiter_continues(run):
    async def main(store):
        board = store.board(agent="w")

        def leave_behind():
            loop = asyncio.new_event_loop()
            loop.create_task(board.claim("jobs/*", wait_s=DEADLINE_S))  # noqa: RUF006 - left behind
            loop.run_until_complete(asleep(store, 1))
            loop.close()

        await asyncio.to_thread(leave_behind)
        task = asyncio.create_task(board.claim("jobs/*", wait_s=DEADLINE_S))
        await asyncio.sleep(0.1)
        await board.set("jobs/1", 1)
        assert (await task).attempt == 1

    run(main)


@pytest.mark.slow
def test_two_loops_in_two_threads_share_a_store(run):
    async def main(store):
        board, got = store.board(agent="w"), []

        async def work():
            for _ in range(50):
                claim = await board.claim("jobs/*", wait_s=DEADLINE_S)
                got.append(claim.key)
                await claim.complete()

        async def several():
            await asyncio.gather(*(work() for _ in range(2)))

        other = asyncio.create_task(asyncio.to_thread(asyncio.run, several()))
        here = asyncio.create_task(several())
        for number in range(200):
            await board.set(f"jobs/{number}", number)
        await asyncio.gather(other, here)
        assert len(set(got)) == len(got) == 200

    run(main, durability="interval")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_opens_the_store_again_and_waits_by_itself(run, tmp_path):
    async def main(store):
        board = store.board(agent="w")
        (task,) = await begun(store, board.claim("mine/*", wait_s=DEADLINE_S))
        child = os.fork()
        if child == 0:
            try:
                thread = threading.Thread(target=lambda: asyncio.run(in_child()))
                thread.start()
                thread.join(DEADLINE_S)
            finally:
                os._exit(0)

        async def in_parent():
            while not await board.list("ready/*"):
                await asyncio.sleep(0.01)
            await board.set("childs/1", 1)
            while not await board.list("done/*"):
                await asyncio.sleep(0.01)

        await in_parent()
        os.waitpid(child, 0)
        await board.set("mine/1", 1)
        assert (await task).attempt == 1

    async def in_child():
        async with aio.open(tmp_path / "a.state") as store:
            board = store.board(agent="child")
            task = asyncio.create_task(board.claim("childs/*", wait_s=DEADLINE_S))
            await asleep(store, 1)
            await board.set("ready/1", 1)
            claim = await task
            await claim.complete(to="done/")

    run(main)


VICTIM = """
import asyncio, sys
from statelog import aio
from statelog.store import claims

def stuck(_attempt):
    print("called", flush=True)
    import time
    time.sleep(60)

claims.ClaimAttempt.take = stuck

async def main():
    async with aio.open(sys.argv[1]) as store:
        board = store.board()
        tasks = [asyncio.create_task(board.claim("jobs/*", wait_s=60)) for _ in range(3)]
        await asyncio.sleep(0.3)
        print("waits", flush=True)
        await asyncio.gather(*tasks)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_called", [True, False])
@pytest.mark.parametrize("heir", ["task", "thread"])
def test_when_a_process_is_killed_the_next_waiter_continues(run, tmp_path, is_called, heir):
    """The process is killed after it was notified, or before."""

    async def main(store):
        board = store.board(agent="w")
        command = [sys.executable, "-c", VICTIM, str(tmp_path / "a.state")]
        with forks.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            assert await asyncio.to_thread(victim.stdout.readline) == "waits\n"
            if heir == "task":
                (task,) = await begun(store, board.claim("jobs/*", wait_s=DEADLINE_S))
            else:
                task = asyncio.create_task(asyncio.to_thread(store.sync.board().claim, "jobs/*", wait_s=DEADLINE_S))
                await asyncio.sleep(0.3)
            if is_called:
                await board.set("jobs/1", 1)
                assert await asyncio.to_thread(victim.stdout.readline) == "called\n"
            victim.kill()
        began_s = time.monotonic()
        if not is_called:
            await board.set("jobs/1", 1)
        assert (await task).attempt == 1
        assert time.monotonic() - began_s < 5

    run(main)


def test_without_a_wake_file_tasks_go_by_the_log(run, monkeypatch):
    monkeypatch.setattr(slot_file, "map_wake_file", lambda *_arguments, **_options: None)

    async def main(store):
        board = store.board(agent="w")
        held = store.sync.board().lease("x", auto_renew=False)

        async def take():
            async with board.lease("x", wait_s=DEADLINE_S):
                return 1

        async def watch():
            return await anext(board.watch("jobs/*"))

        tasks = [
            asyncio.create_task(each)
            for each in (board.claim("jobs/*", wait_s=DEADLINE_S), take(), watch(), store.wait(10, DEADLINE_S))
        ]
        await asleep(store, 4)
        await board.set("jobs/1", 1)
        held.release()
        for number in range(12):
            await board.set(f"other/{number}", 1)
        claim, lease, event, has_grown = await asyncio.gather(*tasks)
        assert (claim.key, lease, event.key, has_grown) == ("jobs/1", 1, "jobs/1", True)

    run(main)


# --- events and records --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_watching_tasks_get_each_event_once_and_in_order(run, durability):
    async def main(store):
        board, seen = store.board(agent="w"), {}

        async def watch(number):
            seen[number] = []
            async for event in board.watch(f"a/{number % 10}/*"):
                seen[number].append(event.new)
                if len(seen[number]) == 20:
                    return

        tasks = [asyncio.create_task(watch(number)) for number in range(100)]
        await asleep(store, 100)
        for number in range(200):
            await board.set(f"a/{number % 10}/{number % 3}", number)
        await asyncio.gather(*tasks)
        assert all(seen[number] == list(range(number % 10, 200, 10)) for number in range(100))

    run(main, durability=durability)


@pytest.mark.slow
def test_a_watching_task_gets_expiries_and_progress(run):
    async def main(store):
        board, kinds = store.board(agent="w"), []

        async def watch():
            kinds.extend([event.kind async for event in board.watch("a/*", timeout_s=1.5, progress_s=0.4)])

        (task,) = await begun(store, watch())
        await board.set("a/1", 1, ttl_s=0.3)
        await task
        assert kinds[:2] == ["set", "expire"]
        assert kinds.count("progress") >= 1

    run(main)


PUT = "import statelog, sys; b = statelog.open(sys.argv[1]).board(); b.set('a/1', 1); b.set('b/1', 1)"


@pytest.mark.slow
def test_tasks_wait_for_commits_of_other_processes(run, tmp_path):
    async def main(store):
        board = store.board(agent="w")

        events = board.watch("b/*")
        claiming, watching = await begun(store, board.claim("a/*", wait_s=DEADLINE_S), anext(events))
        await asyncio.to_thread(forks.run, [sys.executable, "-c", PUT, str(tmp_path / "a.state")], check=True)
        assert (await claiming).key == "a/1"
        assert (await watching).key == "b/1"

    run(main)


@pytest.mark.slow
def test_the_thread_ends_without_waiters_and_starts_again(run):
    async def main(store):
        board = store.board(agent="w")
        for _ in range(2):
            (task,) = await begun(store, board.claim("jobs/*", wait_s=DEADLINE_S))
            assert waiter_thread_of(session_of(store.sync))._thread is not None
            await board.set("jobs/1", 1)
            await (await task).complete()
            while waiter_thread_of(session_of(store.sync))._thread is not None:
                await asyncio.sleep(0.05)

    run(main)


@pytest.mark.slow
def test_tasks_of_a_read_only_store_wait_for_other_processes(tmp_path):
    path = tmp_path / "a.state"
    with statelog.open(path) as writer:
        writer.board().set("a/1", 1)

    async def main():
        async with asyncio.timeout(DEADLINE_S), aio.open(path, read_only=True) as store:
            task = asyncio.create_task(store.wait(await store.last_lsn(), DEADLINE_S))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(forks.run, [sys.executable, "-c", PUT, str(path)], check=True)
            assert await task

    asyncio.run(main())


def test_a_wait_whose_check_raises_does_not_end_as_if_a_record_had_come(run, monkeypatch):
    async def main(store):
        file = session_of(store.sync).engine.store_file
        monkeypatch.setattr(file, "flushed_lsn", fails)
        with pytest.raises(CorruptionError, match="the check failed"):
            await store.wait(10**9, DEADLINE_S)

    def fails():
        message = "the check failed"
        raise CorruptionError(message)

    run(main)
