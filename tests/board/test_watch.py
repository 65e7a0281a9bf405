"""Watches have the guarantees of etcd: ordered, unique, reliable, atomic, resumable, bookmarkable."""

import asyncio
import subprocess
import sys
import threading
import time

import forks
import pytest

import statelog
from statelog.board.names import compile_pattern
from statelog.board.trie import Trie
from statelog.errors import CursorError, CursorExpiredError, UsageError


def seen(watch):
    return [(event.kind, event.key, event.old, event.new) for event in watch]


@pytest.mark.slow
def test_events_are_ordered_and_unique(store):
    board = store.board(agent="a")
    with board.watch("t/*", timeout_s=0) as watch:
        for number in range(700):
            board.set(f"t/{number % 7}", number)
            board.set("other", number)
        events = list(watch)
    assert [event.new for event in events] == list(range(700))
    assert [event.version for event in events] == sorted({event.version for event in events})
    assert {event.agent for event in events} == {"a"}


def test_every_kind_of_event_has_old_and_new_value(store):
    board = store.board()
    watch = board.watch("t/**", timeout_s=0)
    board.set("t/1", 1)
    board.update("t/1", statelog.reducers.add, 1)
    claim = board.claim("t/*", max_attempts=2, dead="dead/")
    claim.renew()
    claim.release()
    board.claim("t/*", max_attempts=2, dead="dead/").fail("x")
    board.set("t/2", "a")
    board.claim("t/*").complete("r", to="done/")
    mark = store.last_lsn
    board.set("t/3", "c")
    board.delete("t/3")
    board.rollback("t/", to=mark + 1)
    board.set("t/4", "d", ttl_s=0.001)
    time.sleep(0.01)
    board.sweep()
    assert seen(watch) == [
        ("set", "t/1", None, 1),
        ("set", "t/1", 1, 2),
        ("claim", "t/1", 2, 2),
        ("release", "t/1", 2, 2),
        ("claim", "t/1", 2, 2),
        ("dead", "t/1", 2, None),
        ("set", "t/2", None, "a"),
        ("claim", "t/2", "a", "a"),
        ("complete", "t/2", "a", "r"),
        ("set", "t/3", None, "c"),
        ("delete", "t/3", "c", None),
        ("rollback", "t/3", None, "c"),
        ("set", "t/4", None, "d"),
        ("expire", "t/4", "d", None),
    ]


def test_renewals_come_on_request(store):
    board = store.board()
    board.set("t", 1)
    watch = board.watch("t", timeout_s=0, renew=True)
    board.claim("t").renew()
    assert [event.kind for event in watch] == ["claim", "renew"]


def test_events_of_one_commit_have_more_set(store):
    watch = store.board().watch("t/*", timeout_s=0)
    with store.transaction() as tx:
        for number in range(300):
            tx.board().set(f"t/{number}", number)
            tx.board().set("other", number)
    store.board().set("t/x", 1)
    events = list(watch)
    assert [event.more for event in events] == [True] * 299 + [False, False]


def test_a_watch_continues_after_a_cursor(store):
    board = store.board()
    for number in range(20):
        board.set("t", number)
    first = board.watch("t", after=0, follow=False)
    cursor = [next(first) for _ in range(5)][-1].cursor
    assert [event.new for event in board.watch("t", after=cursor, follow=False)] == list(range(5, 20))
    assert [event.new for event in board.watch("t", after=cursor, timeout_s=0)] == list(range(5, 20))


def test_without_a_cursor_a_watch_begins_now_and_events_begins_with_the_first_event(store):
    board = store.board()
    board.set("t", 1)
    watch = board.watch(timeout_s=0)
    board.set("t", 2)
    assert [event.new for event in watch] == [2]
    assert [event.new for event in board.watch(follow=False)] == [1, 2]


def test_a_watch_without_events_reports_its_progress(store):
    board = store.board()
    watch = board.watch("t/*", progress_s=0.05)
    board.set("other", 1)
    event = next(watch)
    assert (event.kind, event.key, event.version) == ("progress", None, store.last_lsn)
    board.set("t/1", 1)
    again = board.watch("t/*", after=event.cursor, follow=False)
    assert seen(again) == [("set", "t/1", None, 1)]


@pytest.mark.slow
def test_progress_events_do_not_extend_the_timeout_of_a_watch(store):
    assert {event.kind for event in store.board().watch(timeout_s=1, progress_s=0.05)} == {"progress"}


def test_coalescing_keeps_only_the_last_event_of_a_key(store):
    board = store.board()
    board.set("t/a", 0)
    watch = board.watch("t/*", timeout_s=0, coalesce=True)
    for number in range(1, 10):
        board.set("t/a", number)
        board.set("t/b", number)
    assert seen(watch) == [("set", "t/a", 0, 9), ("set", "t/b", None, 9)]


def test_a_watch_is_woken_by_an_event(store):
    board = store.board()
    watch = board.watch("t/*", timeout_s=60)
    late = threading.Timer(0.1, board.set, ("t/1", 1))
    late.start()
    assert next(watch).new == 1
    late.join()


def test_a_watch_records_an_expiry_when_it_is_due(store):
    board = store.board()
    watch = board.watch("t", timeout_s=60)
    board.set("t", 1, ttl_s=0.2)
    assert [next(watch).kind, next(watch).kind] == ["set", "expire"]
    assert list(board.watch("t", after=store.last_lsn, follow=False)) == []


@pytest.mark.slow
def test_each_of_many_watchers_of_a_process_gets_matching_events(store):
    board = store.board()
    got = {}

    def follow(name, pattern, last):
        got[name] = seen = []
        with board.watch(pattern, after=0, timeout_s=60) as watch:
            while last not in seen:
                seen.append(next(watch).new)

    threads = [threading.Thread(target=follow, args=(each, f"k/{each}", 380 + each)) for each in range(20)]
    threads.append(threading.Thread(target=follow, args=("all", "**", 399)))
    for thread in threads:
        thread.start()
    for number in range(400):
        board.set(f"k/{number % 20}", number)
    for thread in threads:
        thread.join()
    assert got.pop("all") == list(range(400))
    assert got == {each: list(range(each, 400, 20)) for each in range(20)}


@pytest.mark.slow
def test_a_watcher_that_falls_behind_misses_nothing(store):
    board = store.board()
    slow = board.watch("slow/*", after=0, timeout_s=0)
    fast = board.watch("**", timeout_s=0)
    with store.transaction() as tx:
        for number in range(10):
            tx.board().set(f"slow/{number}", number)
    count = 0
    for _ in range(6):
        with store.transaction() as tx:
            for number in range(600):
                tx.board().set(f"slow/{number}", number)
        count += sum(1 for _event in fast)
        fast = board.watch("**", timeout_s=0)
    assert len(list(slow)) == 10 + 6 * 600


def test_cursors_of_another_history_are_refused(store, tmp_path):
    board = store.board()
    board.set("t", 1)
    cursor = next(board.watch(follow=False)).cursor
    with statelog.open(tmp_path / "other.state") as other:
        other.board().set("t", "different")
        for wrong in (cursor, "7", "x", "99-00", 99, True, -1, 1.5):
            with pytest.raises(CursorError) as caught:
                other.board().watch(after=wrong)
            assert caught.value.cursor == wrong


def test_a_cursor_before_removed_events_is_refused_with_the_position_to_continue_from(store):
    board = store.board()
    watch = board.watch(follow=False)
    for number in range(10):
        board.set("t", number)
    cursor = next(board.watch(after=0, follow=False)).cursor
    watch.close()
    board.prune("**", keep_last=2)
    with pytest.raises(CursorExpiredError) as caught:
        board.watch(after=cursor)
    assert [event.new for event in board.watch(after=caught.value.oldest, follow=False)] == [8, 9]


def test_a_watch_of_kept_events_begins_after_removed_ones(store):
    board = store.board()
    for number in range(5):
        board.set("t", number)
    board.set("other", 5)
    board.prune("**", keep_last=2)
    assert [event.new for event in board.watch(follow=False)] == [3, 4, 5]
    board.prune("t", keep_last=1)
    assert [event.new for event in board.watch(follow=False)] == [4, 5]
    board.set("t", 6)
    assert [event.new for event in board.watch("t", follow=False)] == [4, 6]


def test_retention_keeps_events_that_a_watcher_has_not_seen(store):
    board = store.board()
    watch = board.watch("t", timeout_s=0.2)
    board.set("t", -1)
    assert next(watch).new == -1
    for number in range(300):
        board.set("t", number)
    board.prune("**", keep_last=1)
    store.compact()
    assert [(event.old, event.new) for event in watch] == [(number - 1, number) for number in range(300)]


@pytest.mark.slow
def test_closing_a_watch_from_another_thread_ends_it(store):
    watch = store.board().watch()
    threading.Timer(0.1, watch.close).start()
    assert list(watch) == []


def test_running_and_resumed_watchers_report_the_deletion_of_the_board(store):
    board = store.board()
    cursor = board.set("t", 1) and next(board.watch(follow=False)).cursor
    board.set("t", 2)
    watch = board.watch(after=cursor)
    store.delete_thread("statelog:board")
    with pytest.raises(CursorExpiredError):
        list(watch)
    for begin in (lambda: None, lambda: board.set("t", 3)):
        begin()
        with pytest.raises(CursorExpiredError):
            board.watch(after=cursor)
    assert [event.new for event in board.watch(follow=False)] == [3]


@pytest.mark.parametrize(
    "pattern", ["**", "a/**", "*/**", "a/**/d", "**/d", "a/*/c/d", "?/b/**", "a/b/c/d", "durable/**"]
)
def test_the_trie_finds_matching_patterns(pattern):
    keys = ["a", "a/b", "a/d", "a/b/c/d", "x/y", "d", "durable", "durable/x", "a/b/c/d/e"]
    trie = Trie()
    others = [f"{first}/{rest}" for first in ("a", "*", "x?") for rest in ("**", "b/**", "*/c", "**/q")]
    for each in [pattern, *others]:
        trie.add(each, each)
    for _ in range(3):
        for key in keys:
            assert (pattern in trie.find(key)) is compile_pattern(pattern).fits(key), key
    for each in {pattern, *others}:
        trie.remove(each, each)
    assert trie.find("a/b") == set()


@pytest.mark.parametrize(
    "arguments", [{"pattern": "a//b"}, {"pattern": "["}, {"timeout_s": -1}, {"progress_s": 0}, {"timeout_s": "1"}]
)
def test_invalid_arguments_of_a_watch_are_refused(store, arguments):
    with pytest.raises(UsageError):
        store.board().watch(**arguments)


def test_a_watch_ends_with_its_store(tmp_path):
    store = statelog.open(tmp_path / "a.state")
    store.board().set("t", 1)
    watch = store.board().watch()
    threading.Timer(0.1, store.close).start()
    with pytest.raises(statelog.errors.ClosedError):
        next(watch)


def test_a_reader_watches_the_changes_of_a_writer(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        store.board().set("t", 0)
        script = (
            "import statelog, sys\n"
            "with statelog.open(sys.argv[1], read_only=True) as store:\n"
            "    watch = store.board().watch('t', timeout_s=60)\n"
            "    print('ready', flush=True)\n"
            "    print(next(watch).new, flush=True)\n"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "a.state")]
        with forks.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout.readline() == "ready\n"
            store.board().set("t", 1)
            assert reader.stdout.readline() == "1\n"


def test_an_async_watch_returns_the_same_events(tmp_path):
    from statelog import aio

    async def run():
        async with aio.open(tmp_path / "a.state") as store:
            board = store.board(agent="a")
            got = []

            async def follow():
                async for event in board.watch("t/*", after=0):
                    got.append(event.new)
                    if len(got) == 3:
                        return

            task = asyncio.create_task(follow())
            for number in range(3):
                await board.set(f"t/{number}", number)
            await asyncio.wait_for(task, 60)
            claim = await board.claim("t/*", wait_s=60)
            async with board.lease("x") as lease:
                await board.set("t/9", 9, fence=lease)
            await store.thread("t").commit({"n": 1}, fence=claim)
            await claim.complete("done", to="done/")
            waiting = asyncio.create_task(board.claim("none", wait_s=30))
            await asyncio.sleep(0.1)
            waiting.cancel()
            assert (await board.get("done/0")).value == "done"
            return got

    assert asyncio.run(run()) == [0, 1, 2]
