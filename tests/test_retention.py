"""Retention and deletion: what is kept is complete, and what is removed is gone."""

from __future__ import annotations

import contextlib
import operator
import random
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cutting import CutError, care_cut_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.errors import (
    CheckpointNotFoundError,
    ExpiredError,
    UsageError,
)
from statelog.log.care import retention, vacuum
from statelog.log.care.mark import Marks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = {"log": operator.add, "value": reducers.replace, "files": reducers.merge}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[statelog.Store]:
    with statelog.open(tmp_path / "a.state", durability="interval") as opened:
        yield opened
        report = opened.verify()
        assert report.ok, report.problems[:3]
        # L4: the index does not depend on removed data
        opened.rebuild_index()
        report = opened.verify()
        assert report.ok, report.problems[:3]


def fill(thread: statelog.Thread, count: int) -> None:
    for number in range(count):
        thread.commit({"log": [f"entry {number} " + "x" * 80], "value": f"{number} " + "y" * 3000})


def versions(thread: statelog.Thread) -> list[int]:
    return [checkpoint.version for checkpoint in thread.history()]


def test_keep_last_keeps_so_many_and_frees_the_rest(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 100)
    before = sum(record.size_bytes for record in store.log())
    state = thread.state.to_python()
    report = store.prune(keep_last=10)
    assert (report.threads, report.expired_versions) == (1, 90)
    assert versions(thread) == list(range(99, 89, -1))
    assert thread.state.to_python() == state
    assert sum(record.size_bytes for record in store.log()) < before / 4
    assert [record.lsn for record in store.log()] == list(range(1, 104))
    removed = [lsn for record in store.log() if record.type == "removal" for lsn in record.body["removed"]]
    assert sorted(removed) == list(range(2, 92))


def test_expired_version_is_not_found_by_any_name(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    named = thread.commit({"value": 0}, id="mine")
    fill(thread, 5)
    store.prune(keep_last=1)
    for target in (0, "mine", named.time, named):
        with pytest.raises(CheckpointNotFoundError):
            thread.at(target)
    with pytest.raises(CheckpointNotFoundError):
        thread.rollback(0)
    thread.commit({"value": 1}, id="mine")


def test_view_of_an_expired_version_says_so(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"files": {f"f{i}": "z" * 200 + str(i) for i in range(300)}})
    old = thread.at(0)
    thread.commit({"files": reducers.Overwrite({})})
    thread.commit({"value": 1})
    store.prune(keep_last=1)
    store._engine.cache.clear()  # it may still have what was read just now
    with pytest.raises(ExpiredError):
        old.state["files"].to_python()


def test_tags_heads_fork_points_and_pins_stay(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 40)
    thread.tag("release", 5)
    thread.fork("what-if", at=12, update={"value": "other"})
    pinned = thread.at(20)
    store.prune(keep_last=1, pinned=[pinned])
    assert versions(thread) == [39, 20, 12, 5]
    assert thread.at("release").state["value"].startswith("5 ")
    assert versions(thread.checkout("what-if")) == [13, 12, 5]
    store.prune(keep_last=1, keep_tags=False)
    assert versions(thread) == [39, 12]
    with pytest.raises(CheckpointNotFoundError):
        thread.at("release")


def test_max_age_keeps_the_young(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 5)
    store.prune(max_age=timedelta(hours=1))
    assert versions(thread) == [4, 3, 2, 1, 0]
    time.sleep(0.01)
    store.prune(max_age=0)
    assert versions(thread) == [4]


def test_only_threads_of_the_pattern_are_touched(store: statelog.Store) -> None:
    for name in ("chat-1", "chat-2", "job-1"):
        fill(store.thread(name, schema=SCHEMA), 4)
    assert store.prune(keep_last=1, threads="chat-*").threads == 2
    assert [len(versions(store.thread(name))) for name in ("chat-1", "chat-2", "job-1")] == [1, 1, 4]


def test_a_rollback_keeps_the_values_of_its_target(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 10)
    wanted = thread.at(3).state.to_python()
    thread.rollback(3)
    store.prune(keep_last=1)
    assert thread.state.to_python() == wanted


@pytest.mark.slow
def test_a_time_finds_the_last_kept_version(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 200)
    times = [checkpoint.time for checkpoint in thread.history()][::-1]
    for version in (7, 70, 71, 150):
        thread.tag(f"v{version}", version)
    store.prune(keep_last=2)
    assert [thread.at(times[v]).version for v in (7, 50, 70, 100, 160, 199)] == [7, 7, 70, 71, 150, 199]
    with pytest.raises(CheckpointNotFoundError):
        thread.at(times[6])


@pytest.mark.slow
def test_policy_is_applied_as_the_thread_commits(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"value": 0})
    store.set_retention(keep_last=3, threads="t")
    fill(thread, 300)
    assert len(versions(thread)) < 3 + 2 * 64
    assert len(thread.state["log"]) == 300
    store.set_retention()
    fill(thread, 200)
    assert len(versions(thread)) >= 200


def test_retain_without_a_rule_applies_the_policies_of_the_threads(store: statelog.Store) -> None:
    threads = {name: store.thread(name, schema=SCHEMA) for name in ("three", "seven", "none")}
    for thread in threads.values():
        thread.commit({"value": 0})
    store.set_retention(keep_last=3, threads="three")
    store.set_retention(keep_last=7, threads="seven")
    for thread in threads.values():
        fill(thread, 20)
    assert store.prune().threads == 2
    assert [len(versions(thread)) for thread in threads.values()] == [3, 7, 21]
    assert store.prune(threads="seven").threads == 1
    with pytest.raises(UsageError):
        store.prune(threads="none")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transactions", "rollbacks"])
def test_policy_is_applied_whatever_makes_the_versions(store: statelog.Store, kind: str) -> None:
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"value": 0})
    store.set_retention(keep_last=3)
    for number in range(300):
        if kind == "rollbacks":
            thread.rollback(thread.version)
        else:
            with store.transaction() as tx:
                tx.thread("t", schema=SCHEMA).commit({"value": number})
    assert len(versions(thread)) < 3 + 64


@pytest.mark.soak
def test_policy_needs_no_process_that_stays(tmp_path: Path) -> None:
    """A store that is reopened for every turn stays as small as one that is kept open."""
    sizes = []
    for is_kept_open in (False, True):
        path = tmp_path / f"{is_kept_open}.state"
        with contextlib.ExitStack() as stack:
            if is_kept_open:
                stack.enter_context(statelog.open(path, durability="interval"))
            for number in range(500):
                with statelog.open(path, durability="interval") as store:
                    thread = store.thread("t", schema=SCHEMA)
                    with thread.mount() as state:
                        state.setdefault("log", []).append(f"{number} " + "m" * 400)
                        del state["log"][:-20]
                    if not number:
                        store.set_retention(keep_last=2)
        with statelog.open(path) as store:
            sizes.append(sum(record.size_bytes for record in store.log()))
    assert sizes[0] <= sizes[1] * 1.1


@pytest.mark.slow
def test_policy_frees_nodes_that_die_late(store: statelog.Store) -> None:
    """An item lives on in the list for a while after its own version has expired."""
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"value": 0})
    store.set_retention(keep_last=2)
    for number in range(1600):
        thread.commit({"log": [f"{number} " + "m" * 400]})
        if number % 50 == 49:
            with thread.mount() as state:
                del state["log"][:-20]
    size = sum(record.size_bytes for record in store.log())
    assert size < 0.6 * 1600 * 400


@pytest.mark.soak
def test_the_file_of_a_trimmed_chat_with_a_policy_grows_only_by_its_chain(store: statelog.Store) -> None:
    """Records that shrank are put together: pages left a sixteenth full would grow the file by 1,900 bytes a turn."""
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"value": 0})
    store.set_retention(keep_last=10)
    sizes = []
    for number in range(3000):
        with thread.mount() as state:
            state.setdefault("log", []).append(f"{number} " + "m" * 500)
            del state["log"][:-20]
        if number in (1499, 2999):
            sizes.append(store.path.stat().st_size)
    assert (sizes[1] - sizes[0]) / 1500 < 350


@pytest.mark.slow
def test_retention_beside_commits_takes_nothing_of_theirs(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"log": [], "value": 0})
    stop = threading.Event()
    failures: list[BaseException] = []

    def commits() -> None:
        try:
            number = 0
            while not stop.is_set():
                thread.commit({"log": [f"{number} " + "x" * 100]})
                if number % 7 == 3:
                    thread.rollback(thread.version - 2)
                number += 1
        except CheckpointNotFoundError:
            pass  # the target expired first
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    writers = [threading.Thread(target=commits) for _ in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(15):
        store.prune(keep_last=5)
    stop.set()
    for writer in writers:
        writer.join()
    assert not failures
    thread.state["log"].to_python()


def test_versions_committed_while_retention_decides_are_whole_though_the_policy_lets_go_of_them(
    store: statelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V1: neither the head at that time nor later versions are removed. Later runs remove both."""
    thread = store.thread("t", schema={"notes": reducers.merge})
    start, let_go, late = retention.Collector.start, retention.let_go, []

    def commit_until(count: int) -> None:
        while len(late) < count:
            late.append(thread.commit({"notes": {f"key {len(late)}": "changed " * 20}}))

    def start_and_commit(collector: retention.Collector) -> None:
        start(collector)
        commit_until(5)

    def decide_and_commit(*arguments: Any) -> list[Any]:
        gone = list(let_go(*arguments))
        commit_until(10)
        return gone

    for number in range(30):
        thread.commit({"notes": {f"key {number}": "some text " * 20}})
    expected = dict(thread.state["notes"])
    monkeypatch.setattr(retention.Collector, "start", start_and_commit)
    monkeypatch.setattr(retention, "let_go", decide_and_commit)
    store.prune(keep_last=1, threads="t")
    monkeypatch.undo()
    assert len(late) == 10
    for number, made in enumerate(late):
        expected[f"key {number}"] = "changed " * 20
        assert thread.at(made.version).state["notes"] == expected
    assert store.verify().problems == []
    store.prune(keep_last=1, threads="t")
    assert [checkpoint.version for checkpoint in thread.history()] == [39]
    assert store.verify().problems == []


@pytest.mark.slow
@pytest.mark.parametrize("cut_before", [0, 2])
@pytest.mark.parametrize("cut_at", range(8))
def test_retention_that_is_cut_short_leaves_whole_versions(store: statelog.Store, cut_at: int, cut_before: int) -> None:
    """All versions share a value of the first one, which must not be removed before the last of them.

    It must also stay while an earlier, interrupted retention has left later ones that are unreachable.
    """

    def retain_until(step: int) -> None:
        with contextlib.suppress(CutError), care_cut_at(store, step):
            store.prune(keep_last=3)
        store._engine.cache.clear()

    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"files": {f"f{i}": "z" * 200 + str(i) for i in range(20)}})
    for number in range(200):
        thread.commit({"log": f"{number} " * 100})
    retain_until(cut_before)
    thread.commit({"files": reducers.Overwrite({}), "log": reducers.Overwrite([])})
    fill(thread, 5)
    states = {c.version: c.state.to_python() for c in thread.history()}
    retain_until(cut_at)
    assert {c.version: c.state.to_python() for c in thread.history()}.items() <= states.items()
    assert store.verify().problems == []
    store.prune(keep_last=3)
    assert len(versions(thread)) == 3
    assert sum(record.size_bytes for record in store.log()) < 70_000  # it was 1 MB


@pytest.mark.slow
def test_versions_that_become_kept_while_a_policy_lags_are_whole(store: statelog.Store) -> None:
    """V1: more versions than a step may expire; some of the others are tagged, or forked from, before the next."""
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"value": 0})
    store.set_retention(keep_last=2)
    with store.transaction() as tx:  # a policy's turn comes after the transaction
        for number in range(400):
            tx.thread("t", schema=SCHEMA).commit({"value": f"{number} " + "y" * 300})
    for number in range(5):
        left = versions(thread)
        thread.tag(f"tag {number}", left[len(left) // 2])
        thread.fork(f"fork {number}", at=left[len(left) // 3])
        fill(thread, 64)
        store._engine.cache.clear()
        for checkpoint in thread.history():
            checkpoint.state.to_python()
        assert store.verify().problems == []
    assert len(versions(thread)) < 2 + 64 + 20


@pytest.mark.slow
def test_transactions_of_retention_are_bounded(store: statelog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are bounded in records, and in bytes for large records."""
    small, large = store.thread("small", schema=SCHEMA), store.thread("large", schema=SCHEMA)
    fill(small, 300)
    for number in range(12):
        large.commit({"value": random.Random(number).randbytes(750_000).hex()})
    portions: list[tuple[int, int]] = []
    rewrite = vacuum.rewrite

    def note(transaction: Any, records: Any, marks: Any) -> Any:
        records = list(records)
        sizes = [len(transaction.get_log(record.lsn)) for record in records]
        portions.append((len(records), sum(sizes)))
        return rewrite(transaction, records, marks)

    monkeypatch.setattr(retention, "rewrite", note)
    report = store.prune(keep_last=2)
    assert report.expired_versions == 298 + 10
    assert max(count for count, _size in portions) == 64
    assert max(size for _count, size in portions) < 6_000_000
    assert {count for count, size in portions if size > 4_000_000} == {3}  # of the large


@pytest.mark.slow
def test_others_commit_between_the_transactions_of_a_retention(
    store: statelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit waits for the whole retention, because it releases the lock between transactions."""
    fill(store.thread("t", schema=SCHEMA), 640)
    other = store.thread("other", schema=SCHEMA)
    care = store._engine.care
    seen: list[int] = []

    def commit_first(work: Any) -> Any:
        commits = threading.Thread(target=lambda: other.commit({"log": [len(seen)]}))
        commits.start()
        commits.join()
        seen.append(other.version)
        return care(work)

    monkeypatch.setattr(store._engine, "care", commit_first)
    assert store.prune(keep_last=1, threads="t").expired_versions == 639
    assert seen == list(range(len(seen)))
    assert len(seen) >= 20  # ten that expire, ten that vacuum


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_kept_versions_are_unchanged(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("retention") / "a.state"
    with statelog.open(path, durability="interval") as store:
        lines = [store.thread("t", schema=SCHEMA)]
        lines[0].commit({"value": "first"})
        for number in range(data.draw(st.integers(1, 25))):
            line = data.draw(st.sampled_from(lines))
            kind = data.draw(st.sampled_from(["commit", "commit", "big", "trim", "rollback", "fork", "tag", "retain"]))
            if kind == "commit":
                line.commit({"log": [f"{number} " + "a" * data.draw(st.integers(0, 200))]})
            elif kind == "big":
                line.commit({"files": {f"f{i}": "b" * 70 + str(i % 7) for i in range(data.draw(st.integers(0, 60)))}})
            elif kind == "trim":
                with line.mount() as state:
                    if "log" in state:
                        del state["log"][: data.draw(st.integers(0, 3))]
            elif kind == "rollback":
                line.rollback(data.draw(st.sampled_from(versions(line))))
            elif kind == "fork":
                lines.append(line.fork(f"b{number}", at=data.draw(st.sampled_from(versions(line)))))
            elif kind == "tag":
                line.tag(f"t{number}", data.draw(st.sampled_from(versions(line))))
            else:
                before = {(n, c.version): c.state.to_python() for n, each in enumerate(lines) for c in each.history()}
                store.prune(keep_last=data.draw(st.integers(1, 4)), keep_tags=data.draw(st.booleans()))
                store._engine.cache.clear()
                after = {(n, c.version): c.state.to_python() for n, each in enumerate(lines) for c in each.history()}
                assert after.items() <= before.items()
                assert all((n, each.version) in after for n, each in enumerate(lines))
        report = store.verify()
        assert report.ok, report.problems[:3]
        store.rebuild_index()
        report = store.verify()
        assert report.ok, report.problems[:3]


def test_vacuum_without_marks_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: `verify` reports kept nodes that are not marked."""
    monkeypatch.setattr(Marks, "mark", lambda _self, _refs: None)
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        fill(store.thread("t", schema=SCHEMA), 10)
        store.prune(keep_last=1)
        assert "T5" in {problem.invariant for problem in store.verify().problems}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_last": 0},
        {"keep_last": True},
        {"keep_last": "3"},
        {"max_age": -1},
        {"max_age": "1h"},
        {"max_age": float("nan")},
        {"max_age": float("inf")},
    ],
)
def test_retain_refuses_meaningless_arguments(store: statelog.Store, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        store.prune(**options)


def test_missing_checkpoints_cannot_be_pinned(store: statelog.Store, tmp_path: Path) -> None:
    thread = store.thread("t")
    expired = thread.commit({"n": 0})
    for number in range(4):
        thread.commit({"n": number})
    with statelog.open(tmp_path / "another") as another:
        foreign = another.thread("t").commit({"n": 7})
        with pytest.raises(CheckpointNotFoundError):
            store.prune(keep_last=1, pinned=[foreign])
    with pytest.raises(UsageError, match="pinned"):
        store.prune(keep_last=1, pinned=[3])  # type: ignore[list-item]
    assert len(list(thread.history())) == 5
    store.prune(keep_last=2)
    with pytest.raises(CheckpointNotFoundError):
        store.prune(keep_last=1, pinned=[expired])
    assert len(list(thread.history())) == 2
