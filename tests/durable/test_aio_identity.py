"""The identity of a call on the event loop does not depend on the order in which other calls complete."""

from __future__ import annotations

import asyncio
import contextlib
import random
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelog import aio
from statelog.aio import durable
from statelog.aio.durable import host
from statelog.durable.execution import Execution
from statelog.durable.run import Run
from statelog.errors import NondeterminismError


class CrashError(Exception):
    """Simulates the death of a process."""


class Chance:
    """The durations of calls, in turns of the loop. They differ in each execution."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    async def delay(self, turns=6):
        for _ in range(self._random.randrange(turns)):
            await asyncio.sleep(0)


# --- programs: lists of (kind, number or programs), each step with a unique name ---------------------

_leaves = st.tuples(st.sampled_from(["steps", "together", "map"]), st.integers(1, 3))
PROGRAMS = st.recursive(
    st.lists(_leaves, max_size=2),
    lambda inner: st.lists(
        _leaves
        | st.tuples(
            st.sampled_from(["group", "gather", "limited", "chain", "branches", "beside"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=3,
    ),
    max_leaves=8,
)


class Performer:
    """Performs a program."""

    def __init__(self, chance):
        self._chance = chance

    async def _step(self, number):
        await self._chance.delay()
        return number

    async def perform(self, run, program, label):
        await self._chance.delay()
        beside = []
        for number, (kind, what) in enumerate(program):
            at = f"{label}/{number}"
            if kind == "steps":
                for each in range(what):
                    await run.step_with(durable.StepOptions(name=f"{at}.{each}"), self._step, each)
            elif kind == "together":
                await asyncio.gather(
                    *[run.step_with(durable.StepOptions(name=f"{at}.{each}"), self._step, each) for each in range(what)]
                )
            elif kind == "map":
                await run.map_with(durable.StepOptions(name=at), self._step, range(what), concurrency=2)
            elif kind == "branches":
                await run.gather(*[run.branch(self.perform, each, f"{at}{i}") for i, each in enumerate(what)])
            elif kind == "beside":
                beside += [asyncio.create_task(self.perform(run, each, f"{at}{i}")) for i, each in enumerate(what)]
            else:
                await getattr(self, f"_{kind}")(run, what, at)
        await asyncio.gather(*beside)

    async def _group(self, run, programs, at):
        async with asyncio.TaskGroup() as group:
            for number, each in enumerate(programs):
                group.create_task(self.perform(run, each, f"{at}{number}"))

    async def _gather(self, run, programs, at):
        await asyncio.gather(*[self.perform(run, each, f"{at}{number}") for number, each in enumerate(programs)])

    async def _limited(self, run, programs, at):
        limits = [asyncio.Semaphore(1), asyncio.Semaphore(1)]

        async def one(number, program):
            async with limits[number % 2]:
                await self.perform(run, program, f"{at}{number}")

        await asyncio.gather(*[one(number, each) for number, each in enumerate(programs * 2)])

    async def _chain(self, run, programs, at):
        tasks = []

        async def one(number, program):
            if number > 1:
                await tasks[number - 2]
            await self.perform(run, program, f"{at}{number}")

        for number, each in enumerate(programs * 2):
            tasks.append(asyncio.create_task(one(number, each)))
        await asyncio.gather(*tasks)


# --- executions -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def crashing(records):
    """Simulate the death of the process after a number of records."""
    real, left = Execution.commit, [records]

    def commit(self, *items, **how):
        left[0] -= 1
        if left[0] < 0:
            raise self.stopped(CrashError())
        return real(self, *items, **how)

    with mock.patch.object(Execution, "commit", commit):
        yield


async def execute(store, program, seed, id):
    async def body(run):
        await Performer(Chance(seed)).perform(run, program, "")

    return await durable.run(store, durable.workflow(name="w")(body), id=id)


async def identities(store, program, seed, id):
    """Execute a program to its end, and return the names of its steps by their places."""
    info = await execute(store, program, seed, id)
    assert (info.status, info.error) == ("completed", None)
    return {each.place: each.name for each in await durable.steps(store, id)}


async def crashed(store, program, seeds, records, id):
    """Execute a program with a crash after a number of records. Return its identities."""
    with crashing(records), contextlib.suppress(CrashError):
        await execute(store, program, seeds[0], id)
    return await identities(store, program, seeds[1], id)


def on_loop(path, body):
    async def main():
        async with aio.open(path, durability="interval") as store:
            return await asyncio.wait_for(body(store), 60)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def module_path(tmp_path_factory):
    return tmp_path_factory.mktemp("identity") / "agent.state"


IDS = iter(range(10**9))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    program=PROGRAMS,
    seeds=st.lists(st.integers(0, 10**6), min_size=3, max_size=3),
    records=st.integers(0, 30),
)
def test_call_identities_do_not_depend_on_completion_order_or_crashes(module_path, program, seeds, records):
    """D6."""

    async def body(store):
        whole, cut = f"run-{next(IDS)}", f"run-{next(IDS)}"
        expected = await identities(store, program, seeds[0], whole)
        assert await crashed(store, program, seeds[1:], records, cut) == expected

    on_loop(module_path, body)


DEPENDENT = [("chain", [[("steps", 1)], [("steps", 2)]]), ("limited", [[("steps", 1)], [("steps", 2)]])]
MIXED = [("together", 3), ("beside", [[("steps", 2)]]), ("group", [[("steps", 1)], [("map", 2)]]), ("steps", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("program", [DEPENDENT, MIXED], ids=["dependent", "mixed"])
def test_call_identities_survive_a_crash_after_each_record(path, program):
    async def body(store):
        expected = await identities(store, program, 0, "whole")
        for records in range(len(expected) + 1):
            seeds = (2 * records + 1, 2 * records + 2)
            assert await crashed(store, program, seeds, records, f"cut-{records}") == expected

    on_loop(path, body)


def differs(path, program):
    """Return True if identities differ between executions, or a crash is not survived."""

    async def body(store):
        expected = await identities(store, program, 0, "whole")
        for records in range(len(expected)):
            seeds = (2 * records + 1, 2 * records + 2)
            try:
                if await crashed(store, program, seeds, records, f"cut-{records}") != expected:
                    return True
            except NondeterminismError:
                return True
        return False

    return on_loop(path, body)


def test_identities_by_completion_order_are_detected_as_different(path):
    chance = Chance(7)

    def do(self, make):
        scope = self._scope()

        async def work():
            await chance.delay()
            return await make(scope.take())

        return self._host.operate(lambda: self._guard(scope, work))

    with mock.patch.object(Run, "_do", do):
        assert differs(path, [("together", 3), ("steps", 1)])


def test_tasks_numbered_by_their_first_call_are_detected_as_different(path):
    with mock.patch.object(host, "numbered_tasks", contextlib.nullcontext):
        assert differs(path, DEPENDENT)


def test_the_task_factory_of_the_loop_is_restored_after_the_runs(path):
    made = []

    def factory(loop, coroutine, **how):
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **how)

    async def body(store):
        asyncio.get_running_loop().set_task_factory(factory)
        await asyncio.gather(*[identities(store, MIXED, 0, f"run-{number}") for number in range(2)])
        assert asyncio.get_running_loop().get_task_factory() is factory
        assert any("perform" in repr(each) for each in made)

    on_loop(path, body)
