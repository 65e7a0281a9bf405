"""The latest checkpoint is the present one of the store, whichever process changed the thread."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import IDS, NAMESPACES, THREADS, World, config, put_writes, puts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

import statelog
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.frozen import freeze, still
from statelog.adapters.langgraph.values.names import CheckpointName
from statelog.errors import ClosedError


class Run:
    """A run of a graph on one thread, as the saver sees it."""

    def __init__(self, saver, thread="t", namespace=""):
        self.saver = saver
        self.at = config(thread, namespace)
        self.number = 0

    def step(self, *, is_written=True):
        number = self.number = self.number + 1
        checkpoint = {
            **empty_checkpoint(),
            "id": f"1ef{number:05x}-0000-6000-8000-000000000000",
            "channel_values": {"n": number, "list": [f"a text of some length {each}" for each in range(number)]},
            "channel_versions": {"n": f"{number:032}.1", "list": f"{number:032}.2"},
        }
        if is_written and "checkpoint_id" in self.at["configurable"]:
            self.saver.put_writes(self.at, [("n", number)], f"task {number}")
        metadata = {"source": "loop", "step": number, "parents": {}}
        self.at = self.saver.put(self.at, checkpoint, metadata, checkpoint["channel_versions"])
        return self.at


@pytest.fixture(params=["commit", pytest.param("interval", marks=pytest.mark.soak)])
def saver(request, tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability=request.param) as opened:
        yield opened


@pytest.fixture
def begun(saver):
    """A run with several steps."""
    run = Run(saver)
    for _ in range(3):
        run.step()
    saver.get_tuple(config("t"))
    for _ in range(2):
        run.step()
    return run


def ask(saver, *, thread="t", namespace=""):
    """Return the latest checkpoint."""
    return saver.get_tuple(config(thread, namespace))


def anew(saver, *, thread="t", namespace=""):
    return StatelogSaver(saver.store).get_tuple(config(thread, namespace))


def test_the_last_put_checkpoint_is_the_latest(saver, begun):
    for _ in range(20):
        begun.step()
        found = ask(saver)
        assert found == anew(saver)
        assert found.config == begun.at
        assert found.checkpoint["channel_values"]["n"] == begun.number


def test_pending_writes_after_the_latest_checkpoint_are_returned(saver, begun):
    saver.put_writes(begun.at, [("n", 1), ("list", ["x" * 50] * 3)], "one")
    saver.put_writes(begun.at, [("n", 2)], "two")
    found = ask(saver)
    assert found == anew(saver)
    assert [write[0] for write in found.pending_writes] == ["one", "one", "two"]


def test_pending_writes_put_before_their_checkpoint_are_returned(saver, begun):
    later = f"1ef{begun.number + 1:05x}-0000-6000-8000-000000000000"
    saver.put_writes(config("t", "", later), [("n", "early")], "early")
    begun.step(is_written=False)
    found = ask(saver)
    assert found == anew(saver)
    assert found.pending_writes == [("early", "n", "early")]


def test_early_writes_of_another_saver_are_returned(saver, begun):
    later = f"1ef{begun.number + 2:05x}-0000-6000-8000-000000000000"
    StatelogSaver(saver.store).put_writes(config("t", "", later), [("n", "early")], "early")
    assert ask(saver) == anew(saver)
    for _ in range(2):
        begun.step()
        found = ask(saver)
        assert found == anew(saver)
    assert found.pending_writes == [("early", "n", "early")]


def test_early_writes_are_not_lost_among_many_others(saver, begun):
    for number in range(300):
        saver.put_writes(config(f"t{number}", "", IDS[0]), [("n", number)], "early")
    later = f"1ef{begun.number + 1:05x}-0000-6000-8000-000000000000"
    saver.put_writes(config("t", "", later), [("n", "early")], "early")
    begun.step(is_written=False)
    found = ask(saver)
    assert found == anew(saver)
    assert found.pending_writes == [("early", "n", "early")]


@pytest.mark.parametrize("ids", [(1, 2, 3), (1, 2, 5), (1, 3, 2)])
def test_writes_to_a_removed_checkpoint_are_returned_when_it_is_put_again(saver, ids):
    first, second, third = ids

    def put(parent, number, run):
        checkpoint = {**empty_checkpoint(), "id": f"1ef{number:05x}-0000-6000-8000-000000000000"}
        at = config("t", "", parent and f"1ef{parent:05x}-0000-6000-8000-000000000000")
        return saver.put(at, checkpoint, {"run_id": run, "step": number}, {})

    saver.get_tuple(config("t"))
    put(None, first, "r1")
    put(first, second, "r2")
    removed = put(first, third, "r3")
    saver.delete_for_runs(["r3"])
    saver.get_tuple(config("t"))
    saver.put_writes(removed, [("a", 9)], "w")
    put(second, third, "r4")
    assert saver.get_tuple(config("t")) == anew(saver)
    assert saver.get_tuple(removed).pending_writes == [("w", "a", 9)]


def test_the_latest_of_many_early_writes_is_returned(saver, begun):
    numbers = [begun.number + 1 + each for each in (40, 7, 39, 3, *range(8, 38))]
    for number in numbers:
        later = f"1ef{number:05x}-0000-6000-8000-000000000000"
        saver.put_writes(config("t", "", later), [("n", number)], "early")
    for _ in range(41):
        begun.step()
        found = ask(saver)
        assert found == anew(saver)
        assert len(found.pending_writes) == (begun.number in numbers)


def test_returned_values_belong_to_the_caller(saver, begun):
    first = ask(saver)
    first.checkpoint["channel_values"]["list"].append("mine")
    first.checkpoint["channel_versions"].clear()
    first.metadata["step"] = -7
    second = ask(saver)
    assert second == anew(saver)
    begun.step()
    assert ask(saver) == anew(saver)


def of_another_saver(saver, begun):
    other = Run(StatelogSaver(saver.store))
    other.number, other.at = begun.number, begun.at
    other.step()


def of_another_store(saver, _begun):
    with StatelogSaver.open(saver.store.path, durability=saver.store.durability) as other:
        checkpoint = {**empty_checkpoint(), "id": "1efffff0-0000-6000-8000-000000000000"}
        other.put(config("t"), checkpoint, {"source": "update", "step": 0, "parents": {}}, {})


def of_another_store_that_waits(saver, _begun):
    with StatelogSaver.open(saver.store.path, durability=saver.store.durability) as other:
        run = Run(other)
        run.number = 100
        run.step()
        for _ in range(20):
            run.step()


def of_another_process(saver, _begun):
    code = f"""
from statelog.adapters.langgraph import StatelogSaver
from langgraph.checkpoint.base import empty_checkpoint
with StatelogSaver.open({str(saver.store.path)!r}) as saver:
    checkpoint = {{**empty_checkpoint(), "id": "1efffff0-0000-6000-8000-000000000000"}}
    saver.put({{"configurable": {{"thread_id": "t", "checkpoint_ns": ""}}}}, checkpoint, {{"step": 0}}, {{}})
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def of_another_thread(saver, _begun):
    Run(saver, "another").step()


def of_a_lower_id(_saver, begun):
    begun.number = -1
    begun.step(is_written=False)


def of_another_store_before_one_of_its_own(saver, begun):
    of_another_store(saver, begun)
    begun.step()


def deletion(saver, _begun):
    saver.delete_thread("t")


def removal(saver, begun):
    saver.put(
        begun.at, {**empty_checkpoint(), "id": "1efffff0-0000-6000-8000-000000000000"}, {"run_id": "r", "step": 0}, {}
    )
    ask(saver)
    saver.delete_for_runs(["r"])


def pruning(saver, _begun):
    saver.prune(["t"])


def ending(saver, _begun):
    saver.prune(["t"], strategy="delete")


def of_another_store_after_another_thread(saver, begun):
    of_another_thread(saver, begun)
    begun.step()
    of_another_store(saver, begun)


def of_more_than_is_looked_at(saver, _begun):
    for number in range(300):
        saver.store.thread("beside").commit({"n": number})


def of_another_store_between_two_of_its_own_behind_another_thread(saver, begun):
    of_another_thread(saver, begun)
    begun.step()
    of_another_store(saver, begun)
    begun.number = 0xFFFFE
    begun.step()


CHANGES = [
    of_another_saver, of_another_store, of_another_store_that_waits, of_another_process,
    of_another_store_after_another_thread, of_more_than_is_looked_at,
    of_another_store_between_two_of_its_own_behind_another_thread,
    of_another_store_before_one_of_its_own, of_a_lower_id, deletion, removal, pruning, ending,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_asked", [False, True])
def test_every_other_kind_of_commit_is_seen(saver, begun, change, is_asked):
    if is_asked:
        assert ask(saver) == anew(saver)
    change(saver, begun)
    found = ask(saver)
    assert found == anew(saver)


def in_another_process(saver, _begun):
    code = f"""
import statelog
with statelog.open({str(saver.store.path)!r}) as store:
    store.thread("elsewhere").commit({{"n": 1}})
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def in_another_store(saver, _begun):
    with statelog.open(saver.store.path, durability=saver.store.durability) as store:
        for number in range(3):
            store.thread("elsewhere").commit({"n": number}, id=f"{store.last_lsn}")


@pytest.mark.parametrize("change", [of_another_thread, in_another_process, in_another_store])
def test_commits_to_other_threads_do_not_change_it(saver, begun, change):
    for _ in range(3):
        change(saver, begun)
        assert ask(saver) == anew(saver)
        begun.step()
        assert ask(saver) == anew(saver)
        change(saver, begun)
        begun.step()
        change(saver, begun)
        begun.step()
        saver.put_writes(begun.at, [("n", begun.number)], "one")
        change(saver, begun)
        saver.put_writes(begun.at, [("n", begun.number)], "two")
        found = ask(saver)
        assert found == anew(saver)
        assert found.config == begun.at
        assert [write[0] for write in found.pending_writes] == ["one", "two"]


def test_namespaces_are_distinguished(saver, begun):
    child = Run(saver, "t", "child:1")
    child.step()
    saver.get_tuple(config("t", "child:1"))
    child.step()
    found = ask(saver, namespace="child:1")
    assert found == anew(saver, namespace="child:1")
    assert ask(saver) == anew(saver)
    begun.step()
    assert ask(saver) == anew(saver)


@pytest.mark.usefixtures("begun")
def test_a_closed_store_is_refused(saver):
    saver.store.close()
    with pytest.raises(ClosedError):
        saver.get_tuple(config("t"))


others = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(("ask", "ask", "ask", "beside", "store", "runs", "keep_latest", "delete", "copy")),
        "thread": st.sampled_from(THREADS),
        "by": st.integers(0, 1),
    }
)


def apply(step, world, savers, number):
    kind, thread = step["kind"], step["thread"]
    saver = savers[step.get("by", number % 2)]
    if kind in ("put", "put_writes"):
        world.savers = (saver,)
        world.apply(step)
    elif kind == "beside":
        saver.store.thread("beside").commit({"n": number})
    elif kind == "store":
        with statelog.open(saver.store.path, durability=saver.store.durability) as store:
            store.thread("beside").commit({"n": number})
    elif kind == "runs":
        saver.delete_for_runs(["run-1"])
    elif kind == "copy":
        saver.copy_thread(thread, f"copy {number}") if saver.get_tuple(config(thread)) else None
    elif kind != "ask":
        saver.prune([thread], strategy=kind)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(puts | puts | put_writes | others, max_size=20), st.sampled_from(["commit", "interval"]))
def test_a_long_lived_saver_gives_the_same_answers_as_a_new_one(history, durability):
    with tempfile.TemporaryDirectory() as folder, statelog.open(Path(folder) / "s", durability=durability) as store:
        savers = (StatelogSaver(store), StatelogSaver(store))
        world = World()
        for number, step in enumerate(history):
            apply(step, world, savers, number)
            if step["kind"] == "ask":
                for namespace in NAMESPACES:
                    asked = config(step["thread"], namespace)
                    assert savers[step["by"]].get_tuple(asked) == StatelogSaver(store).get_tuple(asked)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(("put", "put", "put_writes", "error", "ask", "early")), max_size=40))
def test_during_a_run_a_saver_gives_the_same_answers_as_a_new_one(history):
    with tempfile.TemporaryDirectory() as folder, StatelogSaver.open(Path(folder) / "s") as saver:
        run = Run(saver)
        run.step()
        for number, kind in enumerate(history):
            if kind == "put":
                run.step(is_written=bool(number % 2))
            elif kind == "ask":
                assert ask(saver) == anew(saver)
            elif kind == "early":
                saver.put_writes(config("t", "", IDS[number % len(IDS)]), [("n", number)], "early")
            else:
                channel = "__error__" if kind == "error" else "n"
                saver.put_writes(run.at, [(channel, number)], f"task {number}")
        assert ask(saver) == anew(saver)


INTERRUPTED = """
import random, signal, sys, time
from langgraph.checkpoint.base import empty_checkpoint
from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import UsageError

made, refused, at, number = 0, 0, {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, 0

def put():
    global number
    number += 1
    values = {"list": [f"a text of some length {each}" for each in range(20)]}
    checkpoint = {**empty_checkpoint(), "id": f"1ef{number:05x}-0000-6000-8000-000000000000", "channel_values": values,
                  "channel_versions": {"list": str(number)}}
    return saver.put(at, checkpoint, {"step": number}, {"list": str(number)})

def interrupt(*_):
    global made, refused
    try:
        put()
        made += 1
        assert saver.get_tuple({"configurable": {"thread_id": "t"}})
    except UsageError:  # it interrupts a commit
        refused += 1

with StatelogSaver.open(sys.argv[1]) as saver:
    signal.signal(signal.SIGALRM, interrupt)
    end = time.monotonic() + 3
    while time.monotonic() < end or made <= 50:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 4e-4))
        at = put()
        saver.get_tuple({"configurable": {"thread_id": "t"}})
    signal.setitimer(signal.ITIMER_REAL, 0)
    asked = {"configurable": {"thread_id": "t"}}
    assert saver.get_tuple(asked) == StatelogSaver(saver.store).get_tuple(asked)
"""


def test_a_put_by_an_interrupting_handler_succeeds_or_is_refused(tmp_path):
    subprocess.run([sys.executable, "-c", INTERRUPTED, str(tmp_path / "s")], check=True, timeout=300)


class Interrupted(OrderedDict):
    """Calls a function in the middle of a change, like a signal handler."""

    call = None

    def move_to_end(self, key):
        super().move_to_end(key)
        self.interrupt()

    def get(self, key, default=None):
        found = super().get(key, default)
        self.interrupt()
        return found

    def interrupt(self):
        call, self.call = self.call, None
        if call is not None:
            call()


def test_the_cache_of_a_saver_can_change_during_a_change(saver, begun):
    bases, frozen = saver._bases, saver._frozen
    (of, ((id, base), *_)), *_ = bases._lately.items()
    known = still(freeze(["a"]), ["a"])
    frozen.put(b"one", known)
    bases._lately, frozen._lists = Interrupted(bases._lately), Interrupted(frozen._lists)
    bases._lately.call, frozen._lists.call = begun.step, lambda: frozen.put(b"another", known)

    def change():
        bases.keep(CheckpointName(*of, id), base)
        assert frozen.get(b"one") is known

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert bases._lately.call is None
    assert frozen._lists.call is None
    assert ask(saver) == anew(saver)
