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
    """Return what the states of all checkpoints take, the long way."""
    size = 0
    for info in store.threads():
        for branch in store.thread(info.id).branches():
            for checkpoint in store.thread(info.id, branch=branch.name).history():
                if checkpoint.version > branch.base_version:
                    size += len(cbor.encode(checkpoint.state.to_python()))
    return size


def test_an_empty_store_has_nothing_but_its_file(store):
    found = store.statistics()
    assert (found.last_lsn, found.thread_count, found.checkpoint_count, found.nodes) == (0, 0, 0, 0)
    assert (found.threads, found.dedup_ratio) == ((), 0.0)
    assert found.file_size_bytes == store.path.stat().st_size
    assert found.pages_used + found.pages_free <= found.file_size_bytes // found.page_size_bytes + 1


def test_counts_are_those_of_threads_and_log(store):
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


def test_snapshots_are_measured_to_the_byte(store):
    fill(store)
    found = store.statistics()
    assert not found.snapshots_are_estimated
    assert found.snapshots_size_bytes == snapshots_size_bytes(store)
    assert found.dedup_ratio == found.snapshots_size_bytes / found.records_size_bytes


def test_of_many_checkpoints_an_even_sample_is_measured(store, monkeypatch):
    fill(store)
    monkeypatch.setattr(statistics, "STATES_MEASURED_MAX", 15)
    found = store.statistics()
    assert found.snapshots_are_estimated
    assert found.states_measured == 15
    assert found.snapshots_size_bytes == pytest.approx(snapshots_size_bytes(store), rel=0.1)


def test_measuring_stops_when_enough_nodes_were_visited(store, monkeypatch):
    fill(store)
    monkeypatch.setattr(statistics, "NODES_VISITED_MAX", 1)
    found = store.statistics()
    assert found.states_measured == 1
    assert found.snapshots_size_bytes == pytest.approx(snapshots_size_bytes(store), rel=0.5)


def test_of_a_long_log_an_even_sample_is_read(store, monkeypatch):
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


def test_progress_is_told_from_start_to_end(store):
    fill(store, steps=5)
    steps = []
    collect(store._engine, progress=lambda done, whole: steps.append(done / whole))
    assert steps == sorted(steps)
    assert steps[-1] == 1


def test_a_list_written_in_one_commit_is_measured_too(store):
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


def test_versions_that_retention_takes_meanwhile_are_no_damage(store):
    thread = store.thread("t")
    for number in range(60):
        thread.commit({"text": "x" * 5000 + str(number)})
    calls = []

    def retain(done, _total):
        if not calls and done:
            calls.append(store.retain(keep_last=1))

    store.statistics(progress=retain)
    assert calls[0].expired_versions == 59
