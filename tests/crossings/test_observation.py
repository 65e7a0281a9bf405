"""`observe` shows everything that users can tell apart, and the same of equal stores."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal

import numpy as np
import pytest
from pydantic import SecretStr

import statelog
from statelog import durable, reducers
from statelog.errors import UsageError
from statelog.format import cbor
from statelog.portable.event_builder import TIME_KEY
from statelog.testing import differences, observe


@durable.workflow
def trip(run, city):
    run.emit("told", city)
    run.set_event("progress", 1)
    run.step(book, city)
    return run.gate("approve", payload=city).approved


def book(city):
    durable.current_step().stream({"part": city})
    return f"to {city}"


def fill(store):
    """Have a store show one of everything."""
    board = store.board(agent="ann")
    chat = store.thread("chat", schema={"messages": reducers.append})
    for number in range(4):
        chat.commit({"messages": [number]}, metadata={"n": number})
    chat.fork("try", at=1, update={"messages": ["other"]})
    chat.tag("good", 2)
    store.thread("old").commit({"x": 1})
    store.delete_thread("old")
    store.set_retention(keep_last=50, threads="chat*")
    board.set("tasks/1", {"n": 1}, priority=3)
    board.set("tasks/1", {"n": 2})
    board.set("gone", 1)
    board.delete("gone")
    board.claim("tasks/*", lease_s=60)
    board.set_retention("**", keep_last=100)
    board.lease("name", auto_renew=False)
    durable.run(store, trip, "Rome", id="trip-1", thread="trip")
    durable.send(store, "trip-1", "hello")
    durable.schedule(store, "nightly", trip, "Oslo", cron="0 3 * * *")


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        fill(opened)
        yield opened


def copied(store, path):
    target = io.BytesIO()
    store.export(target)
    copy = statelog.open(path)
    copy.import_(io.BytesIO(target.getvalue()))
    return copy


def test_every_part_of_a_full_store_shows_something(store):
    observed = observe(store, deleted=["old", "never"])
    assert [name for name, shown in observed.items() if not shown] == []
    assert [name for name, shown in observed["durable"].items() if not shown] == []
    assert observed["deleted"] == ["old"]
    [run] = observed["durable"]["runs"]
    assert run["steps"]
    assert run["stream"]


def test_an_observation_is_plain_data(store):
    json.dumps(observe(store), default=lambda value: value.hex() if isinstance(value, bytes) else 1 / 0)


def test_a_store_observes_as_itself_again(store):
    assert observe(store) == observe(store)


def test_observing_writes_nothing(store):
    last = store.last_lsn
    observe(store)
    assert store.last_lsn == last


def test_an_imported_copy_observes_equal(store, tmp_path):
    with copied(store, tmp_path / "copy.state") as copy:
        assert differences(observe(store), observe(copy)) == []
        assert observe(store) == observe(copy)


def test_a_read_only_store_can_be_observed(store):
    before = observe(store)
    store.close()
    with statelog.open(store.path, read_only=True) as reader:
        assert observe(reader) == before


CHANGES = {
    "a commit": lambda store: store.thread("chat").commit({"messages": [5]}),
    "a rollback to the state that is there": lambda store: store.thread("chat").rollback(-1),
    "a tag": lambda store: store.thread("chat").tag("bad", 1),
    "a tag moved": lambda store: store.thread("chat").tag("good", 3),
    "an untag": lambda store: store.thread("chat").untag("good"),
    "a branch without versions": lambda store: store.thread("chat").fork("third"),
    "an expired version": lambda store: store.expire([store.thread("chat").at(0)]),
    "a policy": lambda store: store.set_retention(keep_last=51, threads="chat*"),
    "a policy for threads to come": lambda store: store.set_retention(keep_last=51, threads="z*"),
    "a deleted thread": lambda store: store.delete_thread("trip"),
    "an entry": lambda store: store.board().set("tasks/2", 1),
    "an entry set to what it was": lambda store: store.board().set("tasks/1", {"n": 2}, priority=3),
    "an entry that went": lambda store: store.board().delete("tasks/1"),
    "history of an entry": lambda store: store.board().prune("tasks/*", keep_last=1),
    "history of an entry that is gone": lambda store: store.board().prune("gone", max_age=1e-9),
    "a claim given back": lambda store: store.board().claim_of("tasks/1", token(store)).release(),
    "a claim renewed": lambda store: store.board().claim_of("tasks/1", token(store)).renew(),
    "a policy of the board": lambda store: store.board().set_retention("x/*", keep_last=1),
    "another lease": lambda store: store.board().lease("other", auto_renew=False),
    "an answer": lambda store: durable.answer(store, durable.gates(store)[0].id, approved=True),
    "mail": lambda store: durable.send(store, "trip-1", "again"),
    "a cancelled run": lambda store: durable.cancel(store, "trip-1"),
    "another run": lambda store: durable.start(store, trip, "Oslo", id="trip-2"),
    "a schedule that ended": lambda store: durable.unschedule(store, "nightly"),
    "a delivered message": lambda store: durable.deliver(store, [durable.subscription(lambda _message: None)]),
}


def token(store):
    return store.board().get("tasks/1").claim.token


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_is_observed(store, name):
    before = observe(store)
    CHANGES[name](store)
    after = observe(store)
    assert before != after
    assert differences(before, after)


def test_without_lsns_differences_in_the_log_alone_are_left_out(tmp_path):
    stores = [statelog.open(tmp_path / f"{number}.state") for number in range(2)]
    stores[1].thread("before").commit({})
    stores[1].delete_thread("before")
    for store in stores:
        store.thread("chat").commit({"x": 1}, id="first")
    first, second = (observe(store, lsns=False) for store in stores)
    assert first == second
    assert observe(stores[0]) != observe(stores[1])


def test_without_lsns_the_first_time_of_an_imported_version_is_left_out(tmp_path):
    """An import to a host whose clock is behind keeps it in metadata."""
    with statelog.open(tmp_path / "a.state") as store:
        thread = store.thread("chat")
        thread.commit({"x": 1}, id="first", metadata={"kept": 1})
        before = observe(store, lsns=False)
        thread.commit({"x": 1}, id="second", metadata={"kept": 1, TIME_KEY: thread.head.time})
        first, second = observe(store, lsns=False)["threads"][0]["branches"][0]["versions"]
    assert first["metadata"] == second["metadata"] == {"kept": 1}
    assert before["threads"][0]["branches"][0]["versions"][0]["metadata"] == {"kept": 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (0.0, -0.0),
        ("1", 1),
        ([1], (1,)),
        (None, "None"),
        ({"float": "1.0"}, 1.0),
        (b"x", "x"),
    ],
)
def test_values_that_python_finds_alike_are_told_apart(tmp_path, one, other):
    observed = []
    for number, value in enumerate([one, other]):
        with statelog.open(tmp_path / f"{number}.state") as store:
            store.board().set("a", value)
            observed.append(observe(store)["board"][0]["entry"]["value"])
    assert observed[0] != observed[1] or type(observed[0]) is not type(observed[1])


def test_a_value_that_is_not_equal_to_itself_is_observed_equal(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        store.board().set("a", math.nan)
        assert observe(store) == observe(store)


def test_differences_name_the_thread_the_version_and_the_field(store, tmp_path):
    with copied(store, tmp_path / "copy.state") as copy:
        copy.thread("chat").commit({"messages": [9]})
        lines = differences(observe(store), observe(copy), ("here", "there"))
    assert any(line.startswith("threads[chat].branches[main].head_version: here has 3, there has 4") for line in lines)


class Order:
    """A class that Python cannot compare, and shows by its place in memory."""

    def __init__(self, number):
        self.number = number


ODD = [
    np.array([1.0, float("nan")]),
    np.arange(5000),
    np.array(["x"]),
    Decimal("sNaN"),
    complex("nan"),
    Order(7),
    [Order({"a": Order(1)})],
    {(1, 2): Order(3), 2**20_000: 1},
    {2**20_000, "a"},
    2**20_000,
]


@pytest.fixture
def orders(monkeypatch):
    for name in ("_codecs_by_type", "_codecs_by_name"):
        monkeypatch.setattr(cbor, name, dict(getattr(cbor, name)))
    statelog.register_codec(Order, name="order", encode=lambda order: order.number, decode=Order)
    statelog.register_codec(SecretStr, name="token", encode=SecretStr.get_secret_value, decode=SecretStr)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("value", ODD, ids=lambda each: type(each).__name__)
def test_a_copy_of_any_value_observes_equal_and_another_value_does_not(tmp_path, value):
    with statelog.open(tmp_path / "a.state") as store, statelog.open(tmp_path / "b.state") as other:
        store.thread("t").commit({"v": value}, metadata={"v": [value]})
        store.board().set("k", value)
        other.thread("t").commit({"v": [value]})
        copied(store, tmp_path / "c.state")
        with statelog.open(tmp_path / "c.state") as copy:
            assert differences(observe(store), observe(copy)) == []
        assert differences(observe(store), observe(other))


@pytest.mark.usefixtures("orders")
def test_a_value_of_a_codec_is_observed_as_it_is_stored_and_a_secret_by_its_digest(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        store.board().set("a", Order(7))
        store.board().set("b", {"order": 7})
        store.board().set("c", SecretStr("sk-12345"))
        shown = [each["entry"]["value"] for each in observe(store)["board"]]
    assert shown[:2] == [{"codec": ["order", 7]}, {"order": 7}]
    assert "sk-12345" not in repr(shown)


@pytest.mark.parametrize("thing", [None, "a.state", 3])
def test_objects_that_are_not_open_stores_are_refused(thing):
    with pytest.raises(UsageError) as caught:
        observe(thing)
    assert (caught.value.argument, caught.value.value) == ("store", thing)
