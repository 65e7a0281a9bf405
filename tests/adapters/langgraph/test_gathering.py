"""What several OS threads write together is committed together, each learning its own outcome."""

from __future__ import annotations

import threading
from itertools import chain

import pytest

from statelog.adapters.langgraph.gathering import Gatherer


class Commits:
    """Commits lists of numbers; the first commit takes until it is let go."""

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
def test_who_waits_goes_together(bad):
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
    assert not gatherer._lines["t"].is_led


def test_nobody_is_left_waiting_by_many():
    gatherer, commits, failed = Gatherer(), Commits(is_slow=False), []
    threads = [start(gatherer, commits, [number], failed) for number in range(200)]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(chain.from_iterable(commits.made)) == list(range(200))
    assert not gatherer._lines["t"].is_led


def test_an_interrupted_commit_lets_the_others_on():
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
    assert not gatherer._lines["t"].is_led
