"""Concurrent writes of several OS threads are committed together, and each thread gets its own outcome."""

from __future__ import annotations

import linecache
import sys
import threading
from itertools import chain

import pytest

from statelog.adapters.langgraph.saver import write_groups
from statelog.adapters.langgraph.saver.write_groups import Gatherer


class Commits:
    """Commits lists of numbers. The first commit waits until the test releases it."""

    def __init__(self, *, is_slow=True):
        self.made = []
        self.began = threading.Event()
        self.may_end = threading.Event()
        if not is_slow:
            self.may_end.set()

    def make(self, parts):
        writes = list(chain.from_iterable(parts))
        self.began.set()
        assert self.may_end.wait(10)
        if "bad" in writes:
            message = "bad"
            raise ValueError(message)
        self.made.append(writes)


def start(gatherer, commits, writes, failed):
    def run():
        try:
            gatherer.commit("t", writes, commits.make)
        except ValueError:
            failed.append(writes)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("bad", [False, True])
def test_waiting_writes_are_committed_together(bad):
    gatherer, commits, failed = Gatherer(), Commits(), []
    threads = [start(gatherer, commits, [0], failed)]
    assert commits.began.wait(10)
    given = [["bad"] if bad and number == 7 else [number, number] for number in range(1, 20)]
    threads += [start(gatherer, commits, writes, failed) for writes in given]
    while len(gatherer._lines["t"].waiting) < 19:
        pass
    commits.may_end.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert failed == ([["bad"]] if bad else [])
    assert sorted(chain.from_iterable(commits.made)) == sorted(
        [0, *[n for n in range(1, 20) if not (bad and n == 7)] * 2]
    )
    assert len(commits.made) == (19 if bad else 2)
    assert not gatherer._lines


def test_no_writer_is_left_waiting_among_many():
    gatherer, commits, failed = Gatherer(), Commits(is_slow=False), []
    threads = [start(gatherer, commits, [number], failed) for number in range(200)]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(chain.from_iterable(commits.made)) == list(range(200))
    assert not gatherer._lines


def test_after_an_interrupted_commit_the_others_continue():
    gatherer, commits, failed = Gatherer(), Commits(), []

    def interrupted(writes):
        commits.make(writes)
        raise KeyboardInterrupt

    def lead():
        with pytest.raises(KeyboardInterrupt):
            gatherer.commit("t", [0], interrupted)

    leader = threading.Thread(target=lead)
    leader.start()
    assert commits.began.wait(10)
    others = [start(gatherer, commits, [number], failed) for number in range(1, 9)]
    while len(gatherer._lines["t"].waiting) < 8:
        pass
    commits.may_end.set()
    for thread in (leader, *others):
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(chain.from_iterable(commits.made)) == list(range(9))
    assert not gatherer._lines


class _Interrupt(BaseException):
    pass


def interrupt_at(count, act):
    """Run `act`, and interrupt it before its line number `count` in the gatherer. Return whether that was reached."""
    left, former = count, None

    def trace(frame, event, _argument):
        nonlocal left, former
        if frame.f_code.co_filename != write_groups.__file__:
            return None
        text = linecache.getline(write_groups.__file__, frame.f_lineno).strip()
        is_exit = text.startswith("with ")  # A lock is released.
        # From 3.12 on, a comprehension reports its line again, outside of any `try` around it.
        is_inlined = (frame, text) == former and " for " in text and "[" in text
        former = frame, text
        if event == "line" and not is_exit and not is_inlined:
            left -= 1
            if not left:
                raise _Interrupt
        return trace

    sys.settrace(trace)
    try:
        act()
    except _Interrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("waiting", [0, 2])
def test_an_interrupt_at_any_line_stops_no_other_writer(waiting):
    for count in range(1, 1000):
        gatherer, commits, failed = Gatherer(), Commits(is_slow=False), []
        others = []

        def make(parts, commits=commits, others=others, gatherer=gatherer, failed=failed):
            if not others:  # While this write is being committed.
                others.extend(start(gatherer, commits, [number], failed) for number in range(1, waiting + 1))
                while others and len(gatherer._lines["t"].waiting) < waiting:
                    pass
            commits.make(parts)

        is_interrupted = interrupt_at(count, lambda gatherer=gatherer, make=make: gatherer.commit("t", [0], make))
        others.append(start(gatherer, commits, ["next"], failed))
        for thread in others:
            thread.join(10)
            assert not thread.is_alive(), f"after an interrupt before line {count}"
        assert not gatherer._lines
        made = list(chain.from_iterable(commits.made))
        assert sorted(map(str, made)) == sorted({*map(str, made)}), "each once"
        assert {"next", *range(1, len(others))} <= {*made}
        if not is_interrupted:
            assert count > 25
            return
    pytest.fail("it never came to its end")


def start_followed(gatherer, commits, part):
    thread = threading.Thread(target=lambda: gatherer.commit("t", [part], commits.make, is_followed=True), daemon=True)
    thread.start()
    while not gatherer._lines:
        pass
    return thread


def test_a_leader_commits_the_requests_it_takes_with_its_own(monkeypatch):
    monkeypatch.setattr(write_groups, "_PATIENCE_S", 10)
    gatherer, commits = Gatherer(), Commits(is_slow=False)
    thread = start_followed(gatherer, commits, 1)
    with gatherer.taken("another") as parts:
        assert parts == []
    with gatherer.taken("t") as parts:
        assert parts == [[1]]
        assert thread.is_alive()
    thread.join(10)
    assert not thread.is_alive()
    assert commits.made == []
    assert not gatherer._lines


def test_a_write_that_waited_for_a_refused_commit_is_committed_alone(monkeypatch):
    monkeypatch.setattr(write_groups, "_PATIENCE_S", 10)
    gatherer, commits = Gatherer(), Commits(is_slow=False)
    thread = start_followed(gatherer, commits, 1)
    with pytest.raises(ValueError, match="refused"), gatherer.taken("t"):
        raise ValueError("refused")
    thread.join(10)
    assert not thread.is_alive()
    assert commits.made == [[1]]
    assert not gatherer._lines


def test_after_a_useless_wait_the_next_commits_do_not_wait(monkeypatch):
    waits = []
    monkeypatch.setattr(write_groups, "_PATIENCE_S", 0)
    gatherer, commits = Gatherer(), Commits(is_slow=False)
    for number in range(40):
        before = gatherer._skipped
        gatherer.commit("t", [number], commits.make, is_followed=True)
        if gatherer._skipped == 0 or gatherer._skipped < before:
            waits.append(number)
    assert waits == [0, 2, 6, 14, 30]
    assert commits.made == [[number] for number in range(40)]


def test_an_interrupt_at_any_line_of_a_takeover_loses_no_write(monkeypatch):
    for count in range(1, 1000):
        monkeypatch.setattr(
            write_groups, "_PATIENCE_S", 10
        )  # Again, because the thread must be interrupted while it waits.
        gatherer, commits, took = Gatherer(), Commits(is_slow=False), []
        thread = start_followed(gatherer, commits, 1)

        def take(gatherer=gatherer, took=took):
            with gatherer.taken("t") as parts:
                took += parts

        is_interrupted = interrupt_at(count, take)
        if not took:
            monkeypatch.setattr(write_groups, "_PATIENCE_S", 0.001)
            with gatherer._lock:
                for line in gatherer._lines.values():
                    line.leader.wake()
        thread.join(10)
        assert not thread.is_alive(), f"after an interrupt before line {count}"
        assert took or commits.made == [[1]]
        if not is_interrupted:
            assert (took, commits.made) == ([[1]], [])
            return
    pytest.fail("it never came to its end")
