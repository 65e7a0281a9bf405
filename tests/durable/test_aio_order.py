"""An async workflow gets its events in the order of the record, so a replay takes the same branches."""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from contextlib import nullcontext, suppress

import pytest
from executed import CALLS

from statelog import aio
from statelog import durable as threaded
from statelog.aio import durable
from statelog.aio.durable import host, order
from statelog.errors import NondeterminismError
from statelog.testing.durable import crash_everywhere, skipping_clock
from statelog.testing.durable.lives import Life
from statelog.testing.durable.stories import RUN, StoryPlan, kill_in, new_story

S = 0.05


async def ask(name, seconds=0.0):
    CALLS.append(name)
    await asyncio.sleep(seconds)
    return name


async def flaky(name):
    CALLS.append(name)
    raise ConnectionError(name)


async def beside(run, name, seconds=0.0):
    return await run.step(ask, name, seconds)


def two(run):
    return [asyncio.create_task(run.step(ask, name, seconds)) for name, seconds in (("slow", 4 * S), ("fast", 0))]


# --- what a replay sees -------------------------------------------------------------------------------


async def ended_before_it_is_cancelled(run):
    task = asyncio.create_task(beside(run, "price"))
    await run.step(ask, "main", 2 * S)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return "no price"


async def heartbeat(run):
    async def beat():
        while True:
            await run.step(ask, "beat")
            await run.sleep(S / 2)

    task = asyncio.create_task(beat())
    await run.step(ask, "work", 2 * S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return "worked"


async def waits_for_a_time(run):
    tasks = two(run)
    done, _late = await asyncio.wait(tasks, timeout=2 * S)
    await run.step(ask, "what is there")
    await asyncio.gather(*tasks)
    return len(done)


async def waits_for_the_first(run):
    tasks = two(run)
    done, _late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    names = [task.result() for task in done]
    await asyncio.gather(*tasks)
    return names


async def as_completed(run):
    return [await each for each in asyncio.as_completed(two(run))]


async def shielded(run):
    task = asyncio.ensure_future(run.step(ask, "slow", 4 * S))
    try:
        found = await asyncio.wait_for(asyncio.shield(task), S)
    except TimeoutError:
        found = "none yet"
    await run.step(ask, found)
    return [found, await task]


async def nested(run):
    """The first of two chains of tasks has ended when the step of the second chain ends."""

    async def deep(name, levels):
        return await (asyncio.wait_for(deep(name, levels - 1), 60) if levels else beside(run, name))

    task = asyncio.create_task(deep("deep", 5))
    await run.step(ask, "main", 2 * S)
    is_done = task.done()
    return is_done, await asyncio.gather(asyncio.shield(task))


WAYS = [ended_before_it_is_cancelled, heartbeat, waits_for_a_time, waits_for_the_first, as_completed, shielded, nested]


def workflow(way, seen):
    @durable.workflow(name="go")
    async def go(run):
        found = await way(run)
        seen.append(found)
        await run.gate("approve")
        await run.step(ask, f"order at {found}")
        return found

    return go


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("release", ["this", "an earlier one"])
def test_a_replay_takes_the_recorded_branch(tmp_path, monkeypatch, way, release):
    """Earlier releases did not record timers."""
    seen = []
    go = workflow(way, seen)

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            with monkeypatch.context() as earlier:
                if release != "this":
                    earlier.setattr(host, "recorded_timers", nullcontext)
                await durable.run(store, go, id="a")
            calls = list(CALLS)
            assert await durable.check_replay(store, [go]) == {}
            [gate] = await durable.gates(store, pending=True)
            await durable.answer(store, gate.id, approved=True)
            return calls, await durable.run(store, go, id="a")

    calls, info = asyncio.run(main())
    assert (info.status, info.error) == ("completed", None)
    assert [calls, f"order at {seen[0]}"] == [CALLS[:-1], CALLS[-1]]
    assert all(each == seen[0] for each in seen)


@pytest.mark.slow
def test_no_call_is_made_before_the_whole_record_is_replayed(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "LATE_S", 0.1)

    @durable.workflow(name="go")
    async def before(run):
        await asyncio.gather(beside(run, "a"), beside(run, "b"))
        await run.recv()

    @durable.workflow(name="go")
    async def after(run):
        await asyncio.gather(asyncio.Event().wait(), beside(run, "b"), beside(run, "c"))

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await durable.run(store, before, id="a")
            assert type((await durable.check_replay(store, [after]))["a"]) is NondeterminismError
            await durable.send(store, "a", 1)
            with pytest.raises(NondeterminismError, match=r"has recorded step 'ask' at place t0\.0"):
                await durable.run(store, after, id="a")
            return (await durable.run(store, before, id="a")).status

    assert asyncio.run(main()) == "completed"
    assert sorted(CALLS) == ["a", "b"]


# --- timers --------------------------------------------------------------------------------------------


async def gate(run):
    async with asyncio.timeout(3600):
        return (await run.gate("never")).approved


async def mail(run):
    return await asyncio.wait_for(run.recv("notes"), 3600)


async def retried(run):
    again = durable.Retry(attempts=9, first_delay_s=7200, max_delay_s=7200, jitter=False)
    async with asyncio.timeout(3600):
        return await run.step_with(durable.StepOptions(retry=again), flaky, "a")


async def slept(run):
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(run.gate("never"))
        await asyncio.sleep(3600)
        waiting.cancel()


def late(way):
    @durable.workflow(name="go")
    async def go(run):
        with suppress(TimeoutError):
            await way(run)
        await run.step(ask, "late")
        return (await run.gate("approve")).approved

    return go


SUSPENDED = [(gate, True), (mail, True), (retried, True), (slept, True), (gate, False), (mail, False), (slept, False)]


@pytest.mark.parametrize(("way", "suspends"), SUSPENDED, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_timer_of_the_workflow_wakes_a_waiting_run(tmp_path, way, suspends):
    """The clock skips, so an hour passes at once, and the replay does not take an hour."""
    go = late(way)

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            with skipping_clock(store.sync, suspends=suspends) as clock:
                info = await durable.run(store, go, id="a")
                if suspends:
                    assert 3500 < info.due.timestamp() - clock.now_us() / 1e6 <= 3600
                    assert "time" in info.waiting_for
                    clock.advance(1800)
                    assert (await durable.run(store, go, id="a")).due == info.due
                    assert CALLS in ([], ["a"])
                    clock.advance(1800)
                    await durable.run(store, go, id="a")
            assert CALLS[-1] == "late"
            [opened] = await durable.gates(store, pending=True)
            await durable.answer(store, opened.id, approved=True)
            return (await durable.run(store, go, id="a")).value

    assert asyncio.run(main()) is True
    assert CALLS.count("late") == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", [gate, mail], ids=lambda each: each.__name__)
def test_a_timer_survives_a_kill_at_every_boundary(tmp_path, way):
    assert len(crash_everywhere(late(way), answers={"approve": True}, how=["kill"], directory=tmp_path)) >= 8


def test_a_timer_is_not_a_step_and_a_fork_before_a_cancelled_call_repeats_the_call(tmp_path):
    @durable.workflow(name="go")
    async def go(run):
        try:
            async with asyncio.timeout(S):
                return await run.step(ask, "a", 60 if not CALLS else 0)
        except TimeoutError:
            return "late"

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            assert (await durable.run(store, go, id="a")).value == "late"
            assert [each.kind for each in await durable.steps(store, "a")] == ["step"]
            await durable.fork(store, "a", at="0", id="b")
            await durable.resume_all(store, [go])
            return (await durable.get_run(store, "b")).value

    assert asyncio.run(main()) == "a"


# --- random workflows, killed anywhere ----------------------------------------------------------


async def work(name, _log, seconds, fails):
    await asyncio.sleep(seconds)
    if fails:
        raise ValueError(name)
    return name


def work_in_a_thread(name, _log, _seconds, fails):
    if fails:
        raise ValueError(name)
    return name


LEAVES = ["step", "step", "step", "thread", "sleep", "timer", "retry", "gate", "mail"]
NODES = [
    "sequence",
    "gather",
    "group",
    "timeout",
    "wait_for",
    "cancel",
    "first",
    "completed",
    "shield",
    "branch",
    "any",
]


def grow(rng, depth, name="n"):
    """Return a tree that describes what a workflow does."""
    kind = rng.choice(NODES if depth else LEAVES)
    children = [grow(rng, depth - 1 - rng.randrange(depth), f"{name}{number}") for number in range(2)] if depth else []
    return {
        "kind": kind,
        "name": name,
        "children": children,
        "seconds": rng.choice([0, 0, 0.001, 0.003, 0.01]),
        "timeout": rng.choice([0.001, 0.004, 0.012]),
        "fails": rng.random() < 0.15,
    }


class Play:
    """A workflow that executes a tree. The arguments of each call contain what all tasks have seen so far.

    So a replay that delivers one event in a different order calls a step with different arguments.
    """

    def __init__(self, run):
        self.run, self.log = run, []

    async def do(self, tree):
        name = tree["name"]
        try:
            found = await getattr(self, tree["kind"])(tree, *tree["children"])
        except asyncio.CancelledError:
            self.log.append(f"{name} cut")
            raise
        except Exception as error:
            self.log.append(f"{name} {type(error).__name__}")
            raise
        self.log.append(f"{name} {found}")
        return found

    def seen(self):
        return zlib.crc32(repr(self.log).encode())

    async def step(self, tree, function=work, **how):
        return await self.run.step_with(
            durable.StepOptions(**how), function, tree["name"], self.seen(), tree["seconds"], tree["fails"]
        )

    async def thread(self, tree):
        return await self.step(tree, work_in_a_thread)

    async def retry(self, tree):
        return await self.step(tree, retry=durable.Retry(attempts=2, first_delay_s=0.002, jitter=False))

    async def sleep(self, tree):
        await self.run.sleep(tree["seconds"])

    async def timer(self, tree):
        await asyncio.sleep(tree["seconds"])

    async def gate(self, _tree):
        return (await self.run.gate("answered", self.seen())).approved

    async def mail(self, tree):
        return await self.run.recv(tree["name"], timeout_s=0.01)

    async def sequence(self, _tree, *children):
        return [await self.do(child) for child in children]

    async def gather(self, _tree, *children):
        return await asyncio.gather(*(self.do(child) for child in children), return_exceptions=True)

    async def group(self, _tree, *children):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.do(child)) for child in children]
        return [task.result() for task in tasks]

    async def timeout(self, tree, *children):
        try:
            async with asyncio.timeout(tree["timeout"]):
                return [await self.do(child) for child in children]
        except TimeoutError:
            return "late"

    async def wait_for(self, tree, child, *_other):
        try:
            return await asyncio.wait_for(self.do(child), tree["timeout"])
        except TimeoutError:
            return "late"

    async def cancel(self, _tree, child, other):
        task = asyncio.create_task(self.do(child))
        try:
            await self.do(other)
        finally:
            task.cancel()
            [found] = await asyncio.gather(task, return_exceptions=True)
        return repr(found)

    async def first(self, tree, *children):
        tasks = [asyncio.create_task(self.do(child)) for child in children]
        how = {"return_when": asyncio.FIRST_COMPLETED} if tree["fails"] else {"timeout": tree["timeout"]}
        done, _late = await asyncio.wait(tasks, **how)
        self.log.append([task in done for task in tasks])
        return repr(await asyncio.gather(*tasks, return_exceptions=True))

    async def completed(self, _tree, *children):
        tasks = [asyncio.create_task(self.do(child)) for child in children]
        for each in asyncio.as_completed(tasks):
            try:
                self.log.append(repr(await each))
            except ValueError as error:
                self.log.append(repr(error))

    async def shield(self, tree, child, *_other):
        task = asyncio.create_task(self.do(child))
        try:
            return await asyncio.wait_for(asyncio.shield(task), tree["timeout"])
        except TimeoutError:
            return await asyncio.gather(task, return_exceptions=True)

    async def branch(self, tree, child, *_other):
        beside = self.run.start(work, f"{tree['name']} beside", 0, 0, fails=False)
        return await self.run.gather(self.run.branch(lambda _run: self.do(child)), beside)

    async def any(self, tree, *_children):
        what = tree["name"], self.seen()
        begun = [self.run.start(work, *what, seconds, fails=False) for seconds in (tree["seconds"], 0.003)]
        return await (await self.run.wait_any(*begun))


def played(seed):
    tree = grow(random.Random(seed), 3)

    @durable.workflow(name=f"random {seed}")
    async def go(run):
        play = Play(run)
        try:
            await play.do(tree)
        except Exception as error:  # noqa: BLE001 - seen as any other event
            play.log.append(type(error).__name__)
        await run.gate("answered", play.seen())
        return play.log

    return go


@pytest.fixture
def _no_noise(caplog, monkeypatch):
    """Ignore tasks that a kill has ended, and do not wait long if a replay differs."""
    caplog.set_level(logging.CRITICAL, "asyncio")
    monkeypatch.setattr(order, "LATE_S", 3.0)


def check_played(seed, directory, kills):
    """Kill a workflow at some boundaries (None: at each), and again after it continues. No replay may differ."""
    go = played(seed)
    plan = StoryPlan(go, (), {}, {go.name: go}, {"answered": True}, {}, None, directory)
    with new_story(plan) as story:
        story.begin()
        life = Life(story.effects)
        story.live(life)
        assert durable_status(story) == ("completed", None)
    numbers = range(1, len(life.passed) + 1)
    for number in numbers if kills is None else random.Random(seed).sample(numbers, min(kills, len(numbers))):
        with new_story(plan) as story:
            story.begin()
            kill_in(story, number)
            kill_in(story, number)
            story.live(Life(story.effects))
            assert durable_status(story) == ("completed", None), f"seed {seed} killed at boundary {number}"


def durable_status(story):
    info = threaded.get_run(story.store, RUN)
    return info.status, info.error


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kills"), [(3, None), *((seed, 2) for seed in range(7))])
@pytest.mark.usefixtures("_no_noise")
def test_a_random_workflow_replays_as_it_ran(tmp_path, seed, kills):
    check_played(seed, tmp_path, kills)


@pytest.mark.soak
@pytest.mark.usefixtures("_no_noise")
def test_many_random_workflows_replay_as_they_ran(tmp_path, soak_scale):
    for seed in range(100, 100 + int(200 * soak_scale)):
        check_played(seed, tmp_path, kills=None)
