"""The store: opening, listing, the log, maintenance."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import xxhash
from hypothesis import given, settings

import statelog
from statelog import reducers
from statelog.errors import CorruptionError, StoreNotFoundError, UsageError
from statelog.store.session import StoreSession
from statelog.testing import SCHEMA, histories, perform_all


def dump_index(store):
    """Return the index byte for byte."""
    with store._engine.read() as view:
        return dict(view.transaction.scan_index(b""))


# --- opening -----------------------------------------------------------------------


def test_a_store_keeps_its_commits(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"x": [1, 2]})
    with statelog.open(path) as store:
        assert store.thread("t").state == {"x": [1, 2]}


def test_a_store_is_named_by_text_or_path(path):
    with statelog.open(str(path)) as store:
        assert store.path == path
        assert repr(store) == f"<Store {str(path)!r}>"
    assert repr(store).endswith(" closed>")


def test_a_missing_store_is_created_only_if_requested(path):
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreNotFoundError) as caught:
            statelog.open(path, **options)
        assert caught.value.path == str(path)
    assert list(path.parent.iterdir()) == []


def test_two_openings_in_one_process_are_one_store(path):
    with statelog.open(path) as first, statelog.open(path) as second:
        first.thread("t").commit({"x": 1})
        assert second.thread("t").commit({"y": 2}).version == 1
        assert first.thread("t").state == {"x": 1, "y": 2}
        first.close()
        assert second.thread("t").commit({"z": 3}).version == 2


def test_openings_that_disagree_are_refused(path):
    with statelog.open(path), pytest.raises(UsageError, match="as well"):
        statelog.open(path, durability="interval")


@pytest.mark.parametrize("options", [{"durability": "none"}, {"max_size_bytes": 1000}, {"max_size_bytes": 10**30}])
def test_invalid_options_are_refused(path, options):
    with pytest.raises(UsageError):
        statelog.open(path, **options)


@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_a_store_has_its_durability_as_an_attribute(path, durability):
    with statelog.open(path, durability=durability) as store:
        assert store.durability == durability
        assert not store.read_only


# --- threads -------------------------------------------------------------------------


def test_threads_are_listed_in_order_of_creation(store):
    before = datetime.now(UTC)
    for name in ("zebra", "ant", "münchen"):
        store.thread(name, schema={"n": reducers.add}).commit({"n": 1})
    store.thread("ant").fork("branch", update={"n": 1})
    infos = list(store.threads())
    assert [info.id for info in infos] == ["zebra", "ant", "münchen"]
    assert [(info.branches, info.versions) for info in infos] == [(1, 1), (2, 2), (1, 1)]
    assert all(info.channels == {"n": "add"} for info in infos)
    assert all(before - timedelta(seconds=1) <= info.created <= datetime.now(UTC) for info in infos)


def test_a_thread_without_a_commit_is_not_listed(store):
    thread = store.thread("nothing yet")
    assert thread.head is None
    assert list(store.threads()) == []
    assert store.last_lsn == 0


@pytest.mark.slow
def test_many_threads_are_listed_page_by_page(store):
    with store.transaction() as transaction:
        for number in range(600):
            transaction.thread(f"thread {number}").commit({"n": number})
    names = []
    for info in store.threads():
        names.append(info.id)
        if len(names) == 300:
            store.thread("late").commit({"n": -1})
    assert names == [f"thread {number}" for number in range(600)]


# --- the log --------------------------------------------------------------------------


def test_the_log_has_all_events_in_order(store):
    thread = store.thread("t", schema={"n": reducers.add})
    first = thread.commit({"n": 1}, metadata={"node": "plan"}, id="mine")
    thread.tag("here")
    thread.rollback(0)
    thread.fork("branch", at=0, update={"n": 2})
    store.thread("t", schema={"n": reducers.add, "more": reducers.append}).commit({"more": 1})
    thread.untag("here")
    records = list(store.log())
    assert [record.type for record in records] == [
        "thread",
        "checkpoint",
        "tag",
        "rollback",
        "fork",
        "checkpoint",
        "schema",
        "checkpoint",
        "tag",
    ]
    assert [record.lsn for record in records] == list(range(1, 10))
    assert {record.thread_id for record in records} == {"t"}
    bodies = [record.body for record in records]
    assert bodies[0]["channels"] == {"n": "add"}
    assert (bodies[1]["id"], bodies[1]["metadata"], bodies[1]["channels"]) == ("mine", {"node": "plan"}, ["n"])
    assert bodies[1]["state_digest"] == first.state_digest
    assert (bodies[2]["tag"], bodies[2]["target"]) == ("here", 2)
    assert bodies[3]["target"] == 2
    assert (bodies[4]["branch"], bodies[4]["parent"], bodies[4]["at"]) == ("branch", "main", 0)
    assert (bodies[5]["branch"], bodies[5]["version"]) == ("branch", 1)
    assert bodies[6]["channels"] == {"more": "append"}
    assert bodies[8]["target"] is None
    assert [record.continues for record in records] == [True, False, False, False, True, False, True, False, False]


def test_records_chain_and_the_times_of_a_threads_versions_ascend(store):
    for number in range(200):
        store.thread(f"thread {number % 3}").commit({"n": number})
    records = list(store.log())
    assert records[0].previous_digest == "00" * 20
    for before, after in pairwise(records):
        assert after.previous_digest == before.digest
    for number in range(3):
        times = [
            record.time for record in records if record.thread_id == f"thread {number}" and record.type == "checkpoint"
        ]
        assert times == sorted(set(times))
    assert store.last_lsn == len(records)


def test_the_log_is_read_from_anywhere(store):
    for number in range(100):
        store.thread("t").commit({"n": number})
    for after in (0, 1, 63, 64, 65, 100, 101, 5000):
        assert [record.lsn for record in store.log(after=after)] == list(range(after + 1, 102))


def test_the_log_is_followed(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    with ThreadPoolExecutor(1) as pool:
        started = threading.Event()

        def follow():
            seen = []
            for record in store.log(follow=True, timeout_s=10.0):
                seen.append(record.lsn)
                started.set()
                if record.lsn == 50:
                    return seen
            return seen

        future = pool.submit(follow)
        assert started.wait(10)
        for number in range(1, 49):
            thread.commit({"n": number})
        assert future.result(20) == list(range(1, 51))


def test_a_follower_of_a_new_store_gets_flushed_records(path):
    with statelog.open(path, durability="interval", interval_ms=60_000) as store:
        store.thread("t").commit({"n": 1})
        assert list(store.log(follow=True, timeout_s=0.05)) == []
        store.flush()
        assert len(list(store.log(follow=True, timeout_s=0.05))) == store.last_lsn


def test_following_ends_when_nothing_comes(store):
    store.thread("t").commit({"n": 0})
    assert [record.lsn for record in store.log(follow=True, timeout_s=0.05)] == [1, 2]


def test_commits_while_the_log_is_read_leave_no_gap(store):
    thread = store.thread("t")
    for number in range(150):
        thread.commit({"n": number})
    seen = []
    for record in store.log():
        seen.append(record.lsn)
        if len(seen) <= 100:
            thread.commit({"n": -1})
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 151


# --- several OS threads -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_many_threads_commit_concurrently_and_lose_no_commit(path, durability):
    schema = {"total": reducers.add, "log": reducers.append}
    with statelog.open(path, durability=durability) as store, ThreadPoolExecutor(16) as pool:

        def work(number):
            mine = store.thread(f"own {number}", schema=schema)
            shared = store.thread("shared", schema=schema)
            return [(mine.commit({"total": 1}), shared.commit({"total": 1, "log": number})) for _ in range(10)]

        made = [pair for pairs in pool.map(work, range(16)) for pair in pairs]
        assert len({checkpoint.lsn for pair in made for checkpoint in pair}) == 320
        assert store.thread("shared").state["total"] == 160
        assert sorted(store.thread("shared").state["log"]) == sorted(list(range(16)) * 10)
        assert [store.thread(f"own {number}").state["total"] for number in range(16)] == [10] * 16
        for _mine, shared in made:
            assert store.thread("shared").at(shared.version) == shared
        assert [record.lsn for record in store.log()] == list(range(1, store.last_lsn + 1))
        assert store.verify().problems == []


def test_one_failing_commit_among_many_fails_alone(store):
    thread = store.thread("t", schema={"total": reducers.add})
    thread.commit({"total": 0})

    def work(number):
        try:
            return thread.commit({"total": "text" if number % 4 == 0 else 1}).version
        except reducers.ReducerTypeError:
            return None

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(work, range(80 * 1)))
    assert versions.count(None) == 20
    assert sorted(version for version in versions if version is not None) == list(range(1, 61))
    assert thread.state["total"] == 60


# --- maintenance -----------------------------------------------------------------------------------


def test_verify_counts_records_and_nodes(store):
    for number in range(50):
        store.thread("t").commit({"n": list(range(number * 10))})
    report = store.verify()
    assert (report.ok, report.problems, report.records) == (True, [], 51)
    assert report.nodes > 50
    assert report.bytes > 5000
    shallow = store.verify(deep=False)
    assert (shallow.ok, shallow.records, shallow.nodes) == (True, 51, 0)


@pytest.mark.slow
def test_maintenance_reports_progress(store):
    with store.transaction() as transaction:
        for number in range(600):
            transaction.thread("t").commit({"n": number})
    for act in (store.verify, store.rebuild_index):
        seen = []
        act(progress=lambda done, of: seen.append((done, of)))  # noqa: B023 - called at once
        assert seen[-1] == (601, 601)
        assert seen == sorted(seen)
        assert len(seen) >= 2


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(histories(max_size=15))
def test_a_rebuilt_index_is_the_index_byte_for_byte(tmp_path_factory, history):
    with statelog.open(tmp_path_factory.mktemp("rebuild") / "a.state", durability="interval") as store:
        perform_all(history, store, schema=SCHEMA)
        before = dump_index(store)
        assert store.rebuild_index() == store.last_lsn
        assert dump_index(store) == before


def test_an_index_of_many_pages_is_rebuilt(store):
    thread = store.thread("t")
    for number in range(200):
        thread.commit({"n": number}, id=f"step {number}" if number % 7 == 0 else None)
        if number % 50 == 20:
            thread = thread.fork(f"branch {number}", at=number - 10)
    before = dump_index(store)
    store.rebuild_index()
    assert dump_index(store) == before


def test_a_lost_or_damaged_index_is_rebuilt_from_the_log(store):
    thread = store.thread("t")
    for number in range(100):
        thread.commit({"n": number})
    before = dump_index(store)

    def damage(transaction):
        for key in list(before)[::2]:
            transaction.delete_index(key)
        transaction.put_index(list(before)[1], b"nonsense")
        transaction.put_index(b"v" + bytes(16), b"nobody's")

    store._engine.care(damage)
    assert {problem.invariant for problem in store.verify().problems} == {"L4"}
    store.rebuild_index()
    assert dump_index(store) == before
    assert thread.commit({"n": 100}).version == 100


def test_a_damaged_record_stops_a_rebuild_and_keeps_the_index(store):
    for number in range(10):
        store.thread("t").commit({"n": number})
    before = dump_index(store)
    with store._engine.read() as view:
        record = bytearray(view.transaction.get_log(5))
    record[-1] ^= 1
    store._engine.care(lambda transaction: transaction.replace_logs({5: bytes(record)}))
    with pytest.raises(CorruptionError) as caught:
        store.rebuild_index()
    assert caught.value.lsn == 5
    assert dump_index(store) == before
    record[-1] ^= 1
    store._engine.care(lambda transaction: transaction.replace_logs({5: bytes(record)}))


# --- large values are stored once ---------------------------------------------------------


@pytest.mark.parametrize("size", [5000, 16_000, 20_000, 40_000, 100_000, 300_000])
@pytest.mark.parametrize("kind", [str, bytes])
def test_a_large_value_is_stored_once_over_all_threads(store, kind, size):
    value = os.urandom(size) if kind is bytes else os.urandom(size // 2).hex()
    first = store.thread("a").commit({"x": value})
    second = store.thread("b").commit({"y": {"inside": [value]}})
    sizes = {record.lsn: record.size_bytes for record in store.log()}
    assert sizes[first.lsn] >= size
    assert sizes[second.lsn] < 1000
    assert store.thread("b").state["y"] == {"inside": [value]}
    store.rebuild_index()
    third = store.thread("c").commit({"z": value})
    assert next(store.log(after=third.lsn - 1)).size_bytes < 1000


def test_two_values_of_equal_xxh3_128_are_two_values(store):
    # Two strings whose CBOR has the same XXH3-128. That is why identity is BLAKE2b.
    word, number = bytes.fromhex("cf8adcb0d294db8f"), bytes.fromhex("3075234f2d6b2470")
    texts = [(b"x" * 46 + pair + b"x" * 136).decode() for pair in (word + number, number + word)]
    checkpoints = [store.thread(f"thread {index}").commit({"x": text}) for index, text in enumerate(texts)]
    both = store.thread("both").commit({"x": texts})
    assert checkpoints[0].state_digest != checkpoints[1].state_digest
    assert [checkpoint.state["x"] for checkpoint in checkpoints] == texts
    assert both.state["x"] == texts
    swapped = store.thread("swapped").commit({"x": texts[::-1]})
    assert swapped.state_digest != both.state_digest
    assert swapped.state["x"] == texts[::-1]


def test_the_pair_has_equal_xxh3_128():
    word, number = bytes.fromhex("cf8adcb0d294db8f"), bytes.fromhex("3075234f2d6b2470")
    first, second = (b"\x78\xc6" + b"x" * 46 + pair + b"x" * 136 for pair in (word + number, number + word))
    assert first != second
    assert xxhash.xxh3_128_hexdigest(first) == xxhash.xxh3_128_hexdigest(second)


@pytest.mark.parametrize(("durability", "flushes"), [("commit", 0), ("interval", 3)])
def test_a_commit_with_durable_is_flushed(path, monkeypatch, durability, flushes):
    """It is flushed once. A commit that is flushed anyway does not depend on a failed flush of others."""
    asked = []
    flush = StoreSession.flush
    monkeypatch.setattr(StoreSession, "flush", lambda self: (asked.append(self), flush(self))[1])
    with statelog.open(path, durability=durability, interval_ms=60_000) as store:
        thread = store.thread("t")
        for number in range(3):
            thread.commit({"x": number}, durable=True)
            assert not store._engine.store_file.wal.is_dirty
        thread.commit({"x": 3})
        thread.commit({"x": 4}, durable=False)
        assert len(asked) == flushes
        with store.transaction() as transaction:
            transaction.thread("t").commit({"x": 5}, durable=True)
        assert not store._engine.store_file.wal.is_dirty


def test_thread_ids_are_listed_in_order_of_creation(path):
    with statelog.open(path) as store:
        store.board(agent="a").set("k", 1)
        for id in ("b", "a", "ab"):
            store.thread(id).commit({"n": 1})
        assert store.thread_ids() == [info.id for info in store.threads()] == ["b", "a", "ab"]
        assert store.thread_ids(containing="b") == ["b", "ab"]
        assert store.thread_ids(containing="%") == []
        with pytest.raises(UsageError, match="containing must be a str"):
            store.thread_ids(containing=None)
