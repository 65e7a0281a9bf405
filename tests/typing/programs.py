"""Right and wrong programs. `test_programs.py` has mypy and pyright read them; nothing runs them.

A line that both must refuse ends with `# error`, and they refuse no other. What follows the word is said by one alone.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from typing import Annotated, Any, TypedDict, assert_type

import pydantic

import statelog
from statelog import aio, durable, reducers
from statelog.aio import durable as aio_durable
from statelog.store.mount import Mount
from statelog.store.views import MapView


class Research(TypedDict):
    step_count: int
    findings: Annotated[list[str], operator.add]


class Draft(TypedDict, total=False):
    step_count: int
    findings: Annotated[list[str], reducers.extend]


class Model(pydantic.BaseModel):
    x: int


@dataclasses.dataclass
class Record:
    x: int = 0


def read_a_state_as_its_typed_dict(store: statelog.Store) -> int:
    thread = store.thread("t", schema=Research)
    assert_type(thread.state["step_count"], int)
    assert_type(thread.state["findings"], list[str])
    assert_type(copy.deepcopy(thread.state), Research)
    thread.state["stpe"]  # error
    text: str = thread.state["step_count"]  # error
    return thread.state["step_count"] + len(text)


def read_with_a_versioned_schema(store: statelog.Store) -> None:
    research = statelog.versioned(Research, name="research", version=2)
    assert_type(store.thread("t", schema=research).state, Research)
    anything = statelog.versioned({"n": int}, name="anything", version=1)
    assert_type(store.thread("t", schema=anything).at(0).stored, MapView)


def read_a_checkpoint(thread: statelog.Thread[Research]) -> None:
    assert_type(thread.at(3).state["step_count"], int)
    assert_type(thread.commit({"step_count": 1}).state["step_count"], int)
    assert_type(thread.fork("b").state["step_count"], int)
    assert_type([checkpoint.state["step_count"] for checkpoint in thread.history()], list[int])
    head = thread.head
    copy.copy(head.state)  # error
    if head is not None:
        assert_type(head.state["step_count"], int)
        head.state["stpe"]  # error


def write_some_of_the_keys_that_a_schema_requires(store: statelog.Store) -> None:
    thread = store.thread("t", schema=Research)
    thread.commit({"step_count": 1})
    thread.commit({"step_count": 1}, {"findings": ["a"]}, metadata={"node": "plan"})
    thread.commit(5)  # error
    thread.commit({"step_count": 1}, metadata=3)  # error


def write_to_a_schema_that_requires_no_key(store: statelog.Store) -> None:
    thread = store.thread("t", schema=Draft)
    thread.commit({"step_count": 1})
    thread.commit({"findings": ["a"]}, {"step_count": 1})
    thread.commit({"stpe": 1})  # error
    thread.commit({"step_count": "one"})  # error
    thread.commit({"findings": [1]})  # error
    assert_type(thread.state.get("step_count"), int | None)
    thread.state["step_count"]  # error: pyright
    if "step_count" in thread.state:
        assert_type(thread.state["step_count"], int)


def write_with_a_type_of_ones_own(thread: statelog.Thread[Research, Draft]) -> None:
    thread.commit({"step_count": 1})
    thread.commit({"stpe": 1})  # error
    assert_type(thread.state["step_count"], int)


def take_a_thread_as_an_argument(thread: statelog.Thread[Research]) -> None:
    thread.commit({"step_count": 1})
    assert_type(thread.state["step_count"], int)


def take_any_thread(thread: statelog.Thread) -> None:
    thread.commit({"step_count": 1})


def give_threads(store: statelog.Store) -> None:
    take_a_thread_as_an_argument(store.thread("t", schema=Research))
    take_any_thread(store.thread("t", schema=Research))
    take_any_thread(store.thread("t", schema=Draft))
    take_any_thread(store.thread("t", schema=Model))
    take_any_thread(store.thread("t"))
    write_with_a_type_of_ones_own(store.thread("t", schema=Research))
    other = store.thread("t", schema=Model)
    take_a_thread_as_an_argument(other)  # error
    annotated: statelog.Thread[dict[str, Any]] = store.thread("t")
    take_any_thread(annotated)


def change_a_mount(store: statelog.Store) -> None:
    with store.thread("t", schema=Research).mount() as state:
        state["step_count"] += 1
        state["findings"].append("a")
        state.update({"step_count": 1})
        state["stpe"] = 1  # error
        state["step_count"] = "one"  # error
        state.step_count = 1  # error


def change_a_mount_without_a_schema(store: statelog.Store) -> None:
    with store.thread("t").mount() as state:
        assert_type(state, Mount)
        state["anything"] = 1


def edit(thread: statelog.Thread[Research]) -> None:
    def change(state: Research) -> None:
        state["step_count"] += 1

    thread.edit(change)
    thread.edit(lambda state: state.update(step_count=1))


def go_without_a_schema(store: statelog.Store) -> None:
    thread = store.thread("t")
    thread.commit({"anything": object()})
    assert_type(thread.state, MapView)
    assert_type(thread.state.to_python(), dict[str, Any])
    assert_type(thread.commit({}).state, MapView)
    store.thread("t", schema={"n": int, "log": reducers.extend}).commit({"n": 1})
    thread.comit({})  # error


def use_models_and_dataclasses(store: statelog.Store) -> None:
    model = store.thread("m", schema=Model)
    model.commit({"x": 1}, Model(x=1))
    model.commit(Record())  # error
    assert_type(model.state, MapView)
    annotated: statelog.Thread[Model] = model
    take_any_thread(annotated)
    record = store.thread("r", schema=Record)
    record.commit(Record(1), {"x": 2})
    assert_type(record.state, MapView)


def use_transactions_and_snapshots(store: statelog.Store) -> None:
    with store.transaction() as transaction:
        assert_type(transaction.thread("t", schema=Research).state["step_count"], int)
        transaction.thread("t", schema=Draft).commit({"stpe": 1})  # error
    with store.snapshot() as snapshot:
        assert_type(snapshot.thread("t", schema=Research).state["step_count"], int)


async def use_asyncio(path: str) -> None:
    async with aio.open(path) as store:
        thread = store.thread("t", schema=Research)
        checkpoint = await thread.commit({"step_count": 1})
        assert_type(checkpoint.state["step_count"], int)
        assert_type((await thread.state)["step_count"], int)
        assert_type(await thread.state_of(checkpoint).to_python(), Research)
        async with thread.mount() as state:
            state["step_count"] += 1
            state["stpe"] = 1  # error
        await store.thread("t", schema=Draft).commit({"stpe": 1})  # error
        async with store.transaction() as transaction:
            await transaction.thread("t", schema=Draft).commit({"stpe": 1})  # error
        assert_type(await store.thread("t").state, dict[str, Any])
        assert_type(await store.thread("m", schema=Model).state, dict[str, Any])


def charge(amount: int, *, currency: str = "EUR") -> str:
    return f"{amount} {currency}"


async def ask(question: str) -> list[str]:
    return [question]


@durable.step(retry=durable.Retry(attempts=3))
def book(city: str) -> int:
    return len(city)


class Hotel:
    @durable.step
    def book(self, city: str) -> int:
        return len(city)


@durable.workflow
def trip(run: durable.Run, city: str, nights: int = 1) -> list[str]:
    assert_type(run.step(charge, 840), str)
    assert_type(run.step(charge, 840, currency="CHF"), str)
    run.step(charge, "840")  # error
    run.step(charge, 840, "CHF")  # error
    run.step(charge, 840, timeout_s=5)  # error
    run.step(charge)  # error
    assert_type(run.step(book, city), int)
    assert_type(run.step(book.options(timeout_s=5, compensate=print), city), int)
    run.step(book.options(timeout_s=5), 5)  # error
    book.options(timeout=5)  # error
    assert_type(run.step(Hotel().book, city), int)
    run.step(Hotel().book, 5)  # error
    assert_type(run.step_with(durable.StepOptions(timeout_s=5), charge, 840), str)
    run.step_with(durable.StepOptions(timeout_s=5), charge, "840")  # error
    durable.StepOptions(semantics="once")  # error
    assert_type(run.map(charge, [1, 2]), list[str])
    run.map(charge, ["one"])  # error
    branch = run.start(charge, 840)
    assert_type(branch.result(), str)
    run.start(charge)  # error
    assert_type(run.gate("approve").approved, bool)
    assert_type(run.child(trip, city), list[str])
    return [run.step(charge, nights)]


@aio_durable.workflow
async def asking(run: aio_durable.Run, question: str) -> int:
    assert_type(await run.step(ask, question), list[str])
    assert_type(await run.step(charge, 840), str)
    await run.step(ask, 5)  # error
    assert_type(await run.step_with(durable.StepOptions(timeout_s=5), ask, question), list[str])
    assert_type(await run.map(ask, ["a"]), list[list[str]])
    assert_type(await run.start(ask, "a"), list[str])
    assert_type(await run.child(trip, question), list[str])
    return len(question)


def test_a_workflow(run: durable.Run) -> None:
    trip(run, "Rome", nights=2)
    trip(run, 5)  # error
    trip(run)  # error


def run_workflows(store: statelog.Store) -> None:
    info = durable.run(store, trip, "Rome", id="evt-1")
    assert_type(info, durable.RunInfo[list[str]])
    assert_type(info.value, list[str] | None)
    assert_type(durable.start(store, trip, "Rome").result(), list[str])
    durable.start(store, charge)  # error
    anything: durable.RunInfo = durable.get_run(store, "evt-1")
    anything.result().whatever()


async def run_workflows_on_the_loop(store: aio.Store) -> None:
    assert_type((await aio_durable.run(store, asking, "why?")).result(), int)
    assert_type(await (await aio_durable.start(store, asking, "why?")).result(), int)
