from __future__ import annotations

import operator
import random

import pytest

import statelog
from statelog import reducers
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.store import statistics
from statelog.store.statistics import collect


def fill(store, steps=60):
    """Commit values of every shape: lists and dicts beyond one chunk, long strings, small ones."""
    chance = random.Random(7)
    schema = {"list": operator.add, "dict": reducers.merge, "keyed": reducers.upsert("id"), "set": reducers.union}
    thread = store.thread("a", schema={**schema, "any": reducers.replace})
    for step in range(steps):
        thread.commit(
            {
                "list": [{"text": "y" * chance.randint(1, 300)}, step],
                "dict": {f"key {step}": list(range(step))},
                "keyed": [{"id": str(step % 40), "text": "z" * step}],
                "set": {step, str(step)},
                "any": {"deep": [b"q" * step] * step, "pair": (1, "w" * 20_000)},
            }
        )
    thread.fork("b", at=steps // 3).commit({"list": [1]})
    store.thread("c").commit({"q": 1})
    return thread


def snapshots_size_bytes(store):
    """Return the size of the states of all checkpoints, computed directly."""
    size = 0
    for info in store.threads():
        for branch in store.thread(info.id).branches():
            for checkpoint in store.thread(info.id, branch=branch.name).history():
                if checkpoint.version > branch.base_version:
                    size += len(cbor.encode(checkpoint.state.to_python()))
    return size


def test_statistics_of_an_empty_store_show_only_its_file(store):
    found = store.statistics()
    assert (found.last_lsn, found.thread_count, found.checkpoint_count, found.nodes) == (0, 0, 0, 0)
    assert (found.threads, found.dedup_ratio) == ((), 0.0)
    assert found.file_size_bytes == store.path.stat().st_size
    assert found.pages_used + found.pages_free <= found.file_size_bytes // found.page_size_bytes + 1


@pytest.mark.slow
def test_counts_equal_those_of_threads_and_log(store):
    fill(store)
    found = store.statistics()
    records = list(store.log())
    assert found.last_lsn == len(records)
    assert (found.thread_count, found.branch_count, found.checkpoint_count) == (2, 3, 62)
    assert found.records_size_bytes == sum(record.size_bytes for record in records)
    for thread in found.threads:
        own = [record for record in records if record.thread_id == thread.id]
        assert (thread.records, thread.records_size_bytes) == (len(own), sum(record.size_bytes for record in own))
    assert {thread.id: (thread.branches, thread.checkpoints) for thread in found.threads} == {"a": (2, 61), "c": (1, 1)}
    assert found.nodes == store.verify().nodes
    assert found.tables["log"].entries == len(records)


@pytest.mark.slow
def test_snapshots_are_measured_to_the_byte(store):
    fill(store)
    found = store.statistics()
    assert not found.snapshots_are_estimated
    assert found.snapshots_size_bytes == snapshots_size_bytes(store)
    assert found.dedup_ratio == found.snapshots_size_bytes / found.records_size_bytes


@pytest.mark.slow
def test_an_even_sample_of_many_checkpoints_is_measured(store, monkeypatch):
    fill(store)
    monkeypatch.setattr(statistics, "STATES_MEASURED_MAX", 15)
    found = store.statistics()
    assert found.snapshots_are_estimated
    assert found.states_measured == 15
    assert found.snapshots_size_bytes == pytest.approx(snapshots_size_bytes(store), rel=0.1)


@pytest.mark.slow
def test_measuring_stops_when_enough_nodes_were_visited(store, monkeypatch):
    fill(store)
    monkeypatch.setattr(statistics, "NODES_VISITED_MAX", 1)
    found = store.statistics()
    assert found.states_measured == 1
    assert found.snapshots_size_bytes == pytest.approx(snapshots_size_bytes(store), rel=0.5)


def test_an_even_sample_of_a_long_log_is_read(store, monkeypatch):
    thread = store.thread("a")
    for step in range(100):
        thread.commit({"x": f"{step} " + "y" * 2000})
        store.thread(f"other {step % 2}").commit({"x": step})
    exact = store.statistics()
    monkeypatch.setattr(statistics, "RECORDS_READ_MAX", 50)
    found = store.statistics()
    assert (found.records_are_estimated, found.records_read) == (True, 50)
    assert found.records_size_bytes == pytest.approx(exact.records_size_bytes, rel=0.3)
    assert found.threads[0].id == "a"
    assert found.threads[0].records == pytest.approx(101, rel=0.5)
    assert store.statistics() == found


def test_only_the_largest_threads_are_listed(store, monkeypatch):
    for number in range(5):
        store.thread(f"t{number}").commit({"x": "y" * 100 * number})
    monkeypatch.setattr(statistics, "THREADS_LISTED_MAX", 2)
    found = store.statistics()
    assert found.thread_count == 5
    assert [thread.id for thread in found.threads] == ["t4", "t3"]


def test_progress_is_reported_from_start_to_end(store):
    fill(store, steps=5)
    steps = []
    collect(store._engine, progress=lambda done, whole: steps.append(done / whole))
    assert steps == sorted(steps)
    assert steps[-1] == 1


def test_a_list_written_in_one_commit_is_measured(store):
    store.thread("t").commit({"items": [{"n": number, "text": "x" * 80} for number in range(500)]})
    assert store.statistics().snapshots_size_bytes == snapshots_size_bytes(store)


def test_a_version_whose_record_is_missing_is_damage(path):
    with statelog.open(path) as store:
        fill(store, steps=3)

        def work(transaction):
            key, payload = next(transaction.scan_index(b"v"))
            transaction.put_index(key, payload[:8] + (999).to_bytes(8) + payload[16:])

        store._engine.care(work)
        with pytest.raises(CorruptionError, match="record 999 is missing"):
            store.statistics()


def test_versions_that_retention_removes_concurrently_are_not_damage(store):
    thread = store.thread("t")
    for number in range(60):
        thread.commit({"text": "x" * 5000 + str(number)})
    calls = []

    def retain(done, _total):
        if not calls and done:
            calls.append(store.prune(keep_last=1))

    store.statistics(progress=retain)
    assert calls[0].expired_versions == 59


def append_messages(store, count=300, thread_id="a"):
    """Commit messages of a few hundred bytes, one by one, to a list."""
    chance = random.Random(count)
    thread = store.thread(thread_id, schema={"list": operator.add})
    for number in range(count):
        thread.commit({"list": [f"{number} " + "y" * chance.randint(1, 600)]}, durable=False)
    return thread


def write_long_values(store):
    thread = store.thread("a")
    for size_bytes in range(2100, 12000, 40):
        thread.commit({"text": "x" * size_bytes}, durable=False)


def write_tiny_values(store):
    for number in range(2000):
        store.thread(f"thread {number % 20}").commit({"n": number}, id=f"{number * 7919 % 2003:032}", durable=False)


def retain(store):
    append_messages(store)
    store.prune(keep_last=1)


def retain_by_policy(store):
    store.set_retention(keep_last=3)
    append_messages(store)


def delete(store):
    for number in range(8):
        append_messages(store, 60, f"thread {number}")
    for number in range(0, 8, 2):
        store.delete_thread(f"thread {number}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "write", [append_messages, write_long_values, write_tiny_values, retain, retain_by_policy, delete]
)
def test_the_freed_bytes_of_a_compaction_are_predicted(store, write):
    write(store)
    found = store.statistics()
    report = store.compact()
    assert found.compacted_size_bytes == pytest.approx(report.size_after_bytes, abs=0.02 * report.size_before_bytes)
    assert report.size_after_bytes < 0.9 * report.size_before_bytes  # The present size is then a worse estimate.
    assert found.reclaimable_size_bytes == found.file_size_bytes - found.compacted_size_bytes


@pytest.mark.slow
def test_the_freed_bytes_are_predicted_from_a_sample_of_a_long_log(store, monkeypatch):
    append_messages(store, 1000)
    monkeypatch.setattr(statistics, "RECORDS_READ_MAX", 200)
    monkeypatch.setattr(statistics, "INDEX_ENTRIES_READ_MAX", 20)
    found = store.statistics()
    report = store.compact()
    assert found.compacted_size_bytes == pytest.approx(report.size_after_bytes, abs=0.1 * report.size_before_bytes)


@pytest.mark.slow
def test_compaction_removes_exactly_the_unreached_bytes(store, monkeypatch):
    retain_by_policy(store)
    found = store.statistics()
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "SWEPT_RECORDS_MAX", 1)
        assert store.statistics().unreached_size_bytes is None
    assert store.compact().vacuumed_nodes > 0
    after = store.statistics()
    assert found.unreached_size_bytes == found.records_size_bytes - after.records_size_bytes
    assert after.unreached_size_bytes == 0


def test_independent_threads_share_no_bytes(store):
    for thread_id in "ab":
        append_messages(store, 50, thread_id)
    found = store.statistics()
    assert (found.shared_size_bytes, [thread.lent_size_bytes for thread in found.threads]) == (0, [0, 0])


def test_a_fork_shares_its_first_state_even_after_versions_expired(store):
    thread = append_messages(store, 50)
    state_size_bytes = len(cbor.encode(thread.state.to_python()))
    thread.fork("b")
    assert store.statistics().shared_size_bytes == state_size_bytes
    thread.commit({"list": ["x" * 3000]})
    store.thread("a", branch="b", schema={"list": operator.add}).commit({"list": ["z" * 3000]})
    store.prune(keep_last=1)
    assert store.statistics().shared_size_bytes == pytest.approx(
        state_size_bytes, rel=0.1
    )  # Without the end of the list.


@pytest.mark.slow
def test_a_copy_shares_with_its_source_until_one_of_them_is_deleted(store):
    state_size_bytes = len(cbor.encode(append_messages(store, 50).state.to_python()))
    store.copy_thread("a", "b")
    store.copy_thread("a", "c")
    found = store.statistics()
    assert found.shared_size_bytes == 2 * state_size_bytes
    assert {each.id: each.lent_size_bytes for each in found.threads} == {"a": state_size_bytes, "b": 0, "c": 0}
    store.delete_thread("a")
    assert store.statistics().shared_size_bytes == state_size_bytes
    store.compact()
    assert store.statistics().shared_size_bytes == state_size_bytes
    store.delete_thread("b")
    assert store.statistics().shared_size_bytes == 0


def test_remains_of_a_deleted_thread_in_its_copy_count_as_unowned(store):
    state_size_bytes = len(cbor.encode(append_messages(store, 50).state.to_python()))
    store.copy_thread("a", "b")
    store.delete_thread("a")
    found = store.statistics()
    assert [each.id for each in found.threads] == ["b"]
    assert found.unowned_size_bytes + found.threads[0].records_size_bytes == found.records_size_bytes
    assert found.unowned_size_bytes > state_size_bytes > found.threads[0].records_size_bytes
