"""Watchers in other processes, some killed and resumed, see each event once and in order, also during retention."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

import forks
import pytest

import statelog

_WATCHER = """
import json, sys
import statelog

path, pattern, diary = sys.argv[1:]
with open(diary) as lines:
    whole = [json.loads(line) for line in lines if line.endswith("\\n")]
with statelog.open(path) as store, open(diary, "a") as lines:
    for event in store.board().watch(pattern, after=whole[-1][0] if whole else 0):
        lines.write(json.dumps([event.cursor, event.version, event.kind, event.key]) + "\\n")
        lines.flush()
        if event.key == "t/end":
            break
"""
PATTERNS = ("t/**", "t/*", "**", "?/?*")


def events_of(diary):
    """Return the recorded events of a watcher, without a line that was cut off."""
    lines = diary.read_text().splitlines(keepends=True)
    return [tuple(json.loads(line)[1:]) for line in lines if line.endswith("\n")]


def faults(seen, written):
    """Return the faults in the events that a watcher has seen."""
    if [version for version, _kind, _key in seen] != sorted({version for version, _kind, _key in seen}):
        return "not in order, or not once"
    if missing := set(written) - set(seen):
        return f"{len(missing)} missing, as {min(missing)}"
    return "more than was written" if set(seen) - set(written) else ""


def start(path, pattern, diary):
    text = diary.read_text() if diary.exists() else ""
    diary.write_text(text[: text.rfind("\n") + 1])
    return forks.Popen([sys.executable, "-c", _WATCHER, str(path), pattern, str(diary)])


def run(tmp_path, count, watchers, seed):
    """Write events while watchers start and end.

    Return the written events, and the events that each watcher saw.
    """
    path, chance = tmp_path / "a.state", random.Random(seed)
    diaries = [tmp_path / f"diary {number}" for number in range(watchers)]
    written = []
    with statelog.open(path, durability="interval") as store:
        board = store.board()
        written.append((board.set("t/0", 0).version, "set", "t/0"))
        processes = [start(path, PATTERNS[number % 4], diary) for number, diary in enumerate(diaries)]
        for diary in diaries:
            while not events_of(diary):
                time.sleep(0.01)
        for number in range(count):
            key = f"t/{chance.randrange(30)}"
            if chance.random() < 0.2 and board.delete(key):
                written.append((board.history(key, limit=1)[0].version, "delete", key))
            else:
                written.append((board.set(key, number).version, "set", key))
            if number % max(count // 20, 1) == 0:
                victim = chance.randrange(watchers)
                os.kill(processes[victim].pid, signal.SIGKILL)
                processes[victim].wait()
                processes[victim] = start(path, PATTERNS[victim % 4], diaries[victim])
                board.prune("**", keep_last=1)
            if number % max(count // 5, 1) == 0:
                store.compact()
        written.append((board.set("t/end", 0).version, "set", "t/end"))
        deadline = time.monotonic() + 60 + count / 200
        for process in processes:
            process.wait(max(deadline - time.monotonic(), 1))
        assert store.verify().problems == []
    return written, [events_of(diary) for diary in diaries]


def check(written, seen):
    for events in seen:
        assert faults([event for event in events if event[2].startswith("t/")], written) == ""


@pytest.mark.slow
def test_killed_and_resumed_watchers_miss_no_event(tmp_path):
    written, seen = run(tmp_path, 600, 4, seed=7)
    check(written, seen)


@pytest.mark.soak
def test_a_hundred_thousand_events_reach_eight_watchers(tmp_path):
    scale = float(os.environ.get("STATELOG_SOAK_SCALE", "1"))
    written, seen = run(tmp_path, int(100_000 * scale), 8, seed=11)
    check(written, seen)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (lambda events: [event for event in events if event[1] != "delete"], "missing"),
        (lambda events: events[:5] + events[4:], "order"),
        (lambda events: [events[1], events[0], *events[2:]], "order"),
        (lambda events: events[:-1], "missing"),
        (lambda events: [*events, (10**9, "set", "t/1")], "more"),
    ],
)
def test_a_watcher_that_skips_or_repeats_events_is_detected(wrong, fault):
    written = [(number, "delete" if number % 5 == 0 else "set", "t/1") for number in range(1, 40)]
    assert faults(written, written) == ""
    assert fault in faults(wrong(written), written)
