"""The contract of all adapters: the promises that every service of every adapter keeps.

Each service has a driver, a class in `FRAMEWORK_drivers.py`. Services of frameworks that are not installed are skipped.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from adapter_driver import NESTED
from forked import Nursery

import statelog

pytestmark = pytest.mark.filterwarnings("ignore")  # frameworks warn of each other

FRAMEWORKS = {
    "agent_framework": "agent_framework",
    "autogen": "autogen_core",
    "claude_agent_sdk": "claude_agent_sdk",
    "crewai": "crewai",
    "google_adk": "google.adk",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai.conversation_store",
    "strands": "strands",
}
SERVICES = [
    "agent_framework.Checkpoints",
    "agent_framework.Histories",
    "agent_framework.Sessions",
    "autogen.Cache",
    "autogen.Teams",
    "claude_agent_sdk.Projects",
    "claude_agent_sdk.Sessions",
    "claude_agent_sdk.Subpaths",
    "crewai.Flows",
    "crewai.Memories",
    "crewai.Questions",
    "crewai.Updates",
    "google_adk.Apps",
    "google_adk.Artifacts",
    "google_adk.Memories",
    "google_adk.Sessions",
    "google_adk.Users",
    "openai_agents.Sessions",
    "pydantic_ai.Conversations",
    "strands.History",
    "strands.Items",
    "strands.Snapshots",
]
NOT_UNDER_THE_CONTRACT = {
    "kit": "not an adapter",
    "langgraph": "tested by LangGraph's own conformance suite",
}
"""The folders in `adapters/` that have no drivers, each with the reason."""
ROOT = Path(__file__).parents[3]
LARGE = " ".join(map(str, range(300_000)))  # A store keeps one of several equal parts.


def driver_of(service):
    adapter, name = service.split(".")
    return getattr(importlib.import_module(f"{adapter}_drivers"), name)


def test_each_adapter_is_under_the_contract():
    packages = {path.parent.name for path in Path(statelog.__file__).parent.glob("adapters/*/__init__.py")}
    assert packages - NOT_UNDER_THE_CONTRACT.keys() == FRAMEWORKS.keys()
    assert {service.partition(".")[0] for service in SERVICES} == FRAMEWORKS.keys()


def test_each_guide_names_the_release_that_passed():
    lines = (ROOT / ".ci/frameworks/releases").read_text().splitlines()
    releases = {name: packages for name, *packages in map(str.split, lines)}
    assert releases.keys() == {*FRAMEWORKS, "langgraph"}
    for name, packages in releases.items():
        guide = " ".join((ROOT / f"statelog/adapters/{name}/GUIDE.md").read_text().split())
        for package, _, release in (each.partition("==") for each in packages):
            assert f"`{package}`" in guide
            assert f"Its tests passed with {release}." in guide


@pytest.fixture(params=SERVICES)
def service(request):
    pytest.importorskip(FRAMEWORKS[request.param.partition(".")[0]], exc_type=ImportError)
    return request.param


@pytest.fixture
def make(service):
    """The class of a service's driver."""
    return driver_of(service)


@pytest.fixture
def driver(make, store):
    return make(store)


def value(number):
    return {"n": number, "list": [*range(number)], "deep": {"z": number, "a": None}}


def kept(driver, *calls):
    """Return the values under a name after these calls of `add`. A call is a list of values."""
    return [each for values in (calls if driver.keeps_all else calls[-1:]) for each in values]


async def added(driver, name, *calls):
    for values in calls:
        await driver.add(name, *values)


# --- values and names ---------------------------------------------------------------------


def test_keys_keep_their_order(driver, make, store):
    async def main():
        await driver.add("s", NESTED)
        return await make(store).read("s")

    assert json.dumps(asyncio.run(main())) == json.dumps([NESTED])


def test_a_value_that_cannot_be_stored_is_refused_with_its_whole_call(driver, store):
    if not driver.unstorable:
        pytest.skip("the service takes bytes or texts")

    async def main():
        await driver.add("s", value(1))
        before = await driver.everything(), store.last_lsn
        error, message = driver.unstorable_error
        for bad in driver.unstorable:
            for name in ("s", "new"):
                with pytest.raises(error, match=message):
                    await driver.add(name, value(2), {"first": 1, "k": [bad]})
                assert (await driver.everything(), store.last_lsn) == before
        await driver.add("s", value(3))
        return await driver.read("s")

    assert asyncio.run(main()) == kept(driver, [value(1)], [value(3)])


def test_a_name_that_is_not_a_text_is_refused_and_nothing_is_written(driver, store):
    error, message = driver.no_name_error
    for name in driver.no_names:
        calls = [driver.add(name, value(1))]
        if not driver.reads_any_name:
            calls += [driver.read(name)] if driver.delete is None else [driver.read(name), driver.delete(name)]
        for call in calls:
            with pytest.raises(error, match=message):
                asyncio.run(call)
    assert store.last_lsn == 0


def test_names_of_any_length_and_script_are_distinct(driver):
    names = [each for name in driver.names for each in (name, f"{name}.")]

    async def main():
        for number, name in enumerate(names):
            await driver.add(name, value(number))
        assert [await driver.read(name) for name in names] == [[value(number)] for number in range(len(names))]
        await driver.everything(names)
        if driver.delete is not None:
            await driver.delete(names[0])
            assert await driver.read(names[0]) == []
            assert await driver.read(names[1]) == [value(1)]

    asyncio.run(main())


# --- stores that refuse -------------------------------------------------------------------


def test_closed_read_only_and_full_stores_raise_and_are_unchanged(make, path):
    async def main():
        with statelog.open(path, max_size_bytes=1 << 20) as store:
            driver = make(store)
            await driver.add("s", value(1))
            before = await driver.everything(), store.last_lsn
            for name in ("s", "new"):
                with refused(driver.full):
                    await driver.add(name, value(2), {"text": LARGE})
            assert (await driver.everything(), store.last_lsn) == before
        for call in (driver.read("s"), driver.everything(), *calls(driver)):
            with refused(driver.closed):
                await call
        with statelog.open(path, read_only=True) as store:
            driver = make(store)
            for call in calls(driver):
                with refused(driver.read_only):
                    await call
            assert await driver.everything() == before[0]

    def refused(expected):
        error, message = expected
        return pytest.raises(error, match=message)

    def calls(driver):
        made = [driver.add("s", value(2)), driver.add("new", value(2)), *driver.further_calls()]
        return made if driver.delete is None else [*made, driver.delete("s")]

    asyncio.run(main())


# --- several writers ----------------------------------------------------------------------


def test_fifty_tasks_on_two_stores_lose_nothing(make, store, path):
    """Two opened stores on one file, as two processes have."""

    async def main(other):
        drivers = [make(store), make(other)]
        calls = [drivers[n % 2].add("s", value(2 * n), value(2 * n + 1)) for n in range(50)]
        calls += [drivers[n % 2].add(f"of {n}", value(n)) for n in range(10)]
        await asyncio.gather(*calls)
        for each in drivers:
            assert [await each.read(f"of {n}") for n in range(10)] == [[value(n)] for n in range(10)]
            await each.everything()
        first, second = [await each.read("s") for each in drivers]
        assert first == second
        return drivers[0], first

    with statelog.open(path) as other:
        driver, found = asyncio.run(main(other))
    pairs = [*zip(found[::2], found[1::2], strict=True)]
    assert all(pair == (value(pair[0]["n"]), value(pair[0]["n"] + 1)) for pair in pairs)
    numbers = sorted(pair[0]["n"] for pair in pairs)
    if driver.keeps_all and driver.reads_all:
        assert numbers == [*range(0, 100, 2)]
    else:
        assert len(numbers) == (5 if driver.keeps_all else 1)


def test_a_change_by_another_store_is_seen(make, store, path):
    async def main(other):
        one, two = make(store), make(other)
        await one.add("s", value(1))
        assert await one.read("s") == await two.read("s") == [value(1)]
        await two.add("s", value(2))
        assert await one.read("s") == kept(one, [value(1)], [value(2)])
        if two.delete is not None:
            await two.delete("s")
            assert await one.read("s") == []
            await two.add("s", value(3))
            assert await one.read("s") == [value(3)]

    with statelog.open(path) as other:
        asyncio.run(main(other))


# --- deletion -----------------------------------------------------------------------------


def test_a_deleted_name_is_empty_and_can_be_used_again(driver):
    if driver.delete is None:
        pytest.skip("the service does not delete")

    async def main():
        await added(driver, "s", [value(1)], [value(2)])
        await driver.add("t", value(3))
        for _twice in range(2):
            await driver.delete("s")
            assert await driver.read("s") == []
        await driver.everything()
        await driver.add("s", value(4))
        return await driver.read("s"), await driver.read("t")

    assert asyncio.run(main()) == ([value(4)], [value(3)])


def test_a_name_can_be_used_again_after_its_thread_was_deleted(driver, path):
    """The thread is deleted by another store."""
    if not driver.thread_ids("s"):
        pytest.skip("no single thread has the values of a name")

    async def main(other):
        for thread in driver.thread_ids("s"):
            await added(driver, "s", [value(1)], [value(2)])
            assert await driver.read("s") != []
            other.delete_thread(thread)
            assert await driver.read("s") == []
            await driver.add("s", value(3))
            assert await driver.read("s") == [value(3)]

    with statelog.open(path) as other:
        asyncio.run(main(other))


# --- kills --------------------------------------------------------------------------------


async def add(driver):
    await driver.add("s", value(5), value(6))


async def add_new(driver):
    await driver.add("new", value(5), value(6))


async def delete(driver):
    await driver.delete("s")


async def add_in_two_commits(driver):
    """Do what `add` must not do."""
    await driver.add("s", value(5))
    await driver.add("t", value(6))


WORK = ("add", "add_new", "delete", "delete_one")


def made(path, service):
    async def make(driver):
        for name in ("s", "t"):
            await added(driver, name, [value(0), value(1)], [value(2)])

    with statelog.open(path) as store:
        asyncio.run(make(driver_of(service)(store)))


def killed(path, service, work, begin, end):
    with statelog.open(path) as store:
        driver = driver_of(service)(store)
        begin()
        asyncio.run(globals()[work](driver) if work in globals() else getattr(driver, work)())
        end()


@pytest.fixture(scope="module")
def nurseries():
    """Return the process of an adapter, which has imported the framework."""
    with ExitStack() as stack:
        yield cache(lambda adapter: stack.enter_context(Nursery(__file__, f"{adapter}_drivers")))


@pytest.fixture
def nursery(nurseries, service):
    return nurseries(service.partition(".")[0])


def deaths_left_all_or_nothing(nursery, folder, service, work):
    def look(store):
        return asyncio.run(driver_of(service)(store).everything())

    arguments = [service, work]
    return nursery.check_whole("killed", folder, look, before="made", before_arguments=[service], arguments=arguments)


@pytest.mark.parametrize("work", WORK)
def test_a_killed_call_has_done_all_or_nothing(nursery, tmp_path, service, work):
    if work not in driver_of(service).kills:
        pytest.skip("not among the kills of this driver: each takes time")
    counts = deaths_left_all_or_nothing(nursery, tmp_path, service, work)
    assert all(count > 2 for count in counts), "killed before the commit, and after it"


def test_a_call_in_two_commits_is_caught(nursery, tmp_path, service):
    if not driver_of(service).kills:
        pytest.skip("not among the kills of this driver: each takes time")
    with pytest.raises(AssertionError, match="Death"):
        deaths_left_all_or_nothing(nursery, tmp_path, service, "add_in_two_commits")
