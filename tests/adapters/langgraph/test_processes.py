"""Processes that run graphs: one that is killed anywhere, and two that work on one thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("langgraph.graph", reason="needs langgraph")

import running
from graphs import config
from running import STEPS, noted, run_steps

from statelog.adapters.langgraph import StatelogSaver

FAULTS = [
    ("commit.before_begin", 1),
    ("commit.after_put_log", 2),
    ("commit.after_put_index", 3),
    ("commit.between_works", 6),
    ("journal.before_append", 11),
    ("commit.before_lmdb_commit", 1),
    ("commit.after_lmdb_commit", 1),
    ("commit.before_delivery", 10),
    ("journal.after_append", 12),
    ("journal.after_flush", 9),
    ("checkpoint.before_sync", 1),
    ("checkpoint.after_slot", 1),
]


def start(*arguments, fault=""):
    environment = {**os.environ, "STATELOG_FAULT": fault, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, running.__file__, *map(str, arguments)], env=environment)


@pytest.mark.parametrize(
    ("point", "occurrence", "durability"),
    # There are fewer commits, because writes share them, especially if no step waits for the one before.
    [
        *[(*fault, "sync") for fault in FAULTS[::2]],
        *[pytest.param(*fault, "sync", marks=pytest.mark.soak) for fault in FAULTS[1::2]],
        *[(point, -(-nth // 4), "async") for point, nth in FAULTS[1::4]],
    ],
)
def test_a_killed_run_is_continued(tmp_path, point, occurrence, durability):
    path = tmp_path / "s"
    child = start("crash", path, tmp_path, durability, fault=f"{point}:{occurrence}:kill")
    assert child.wait(300) == -signal.SIGKILL
    acknowledged, ran = noted(tmp_path / "acknowledged"), Counter(noted(tmp_path / "ran"))
    assert sum(ran.values()) < 2 * STEPS
    log = run_steps(path, tmp_path, durability)
    assert log == [f"{name}{number}" for number in range(STEPS) for name in "ab"]
    again = Counter(noted(tmp_path / "ran")) - ran
    if durability == "sync":  # Otherwise, a checkpoint before acknowledged writes may be lost.
        assert not [name for name in acknowledged if again[name]]  # A completed task does not run again.
    assert max(again.values()) == 1
    with StatelogSaver.open(path) as saver:
        assert saver.store.verify().ok


def test_two_processes_can_use_one_thread_in_turn(tmp_path):
    turns = 8
    children = [start("talk", tmp_path / "s", name, turns) for name in ("anna", "bert")]
    assert [child.wait(300) for child in children] == [0, 0]
    with StatelogSaver.open(tmp_path / "s") as saver:
        messages = saver.get_tuple(config()).checkpoint["channel_values"]["messages"]
        said = [message.id for message in messages if message.type == "human"]
        for name in ("anna", "bert"):
            assert [id for id in said if id.startswith(name)] == [f"{name}-{turn}" for turn in range(turns)]
        assert len(said) == 2 * turns
        branches = [branch.name for branch in saver.store.thread("t").branches()]
        assert sorted(branches) == ["main", "writes"]  # No run forked another one.
        assert saver.store.verify().ok


def test_two_processes_on_one_thread_lose_no_checkpoint_of_each_other(tmp_path):
    script = """
import sys
sys.path[:0] = sys.argv[3:]
from histories import config
from statelog.adapters.langgraph import StatelogSaver
with StatelogSaver.open(sys.argv[1]) as saver:
    place = config("t")
    for number in range(40):
        version = f"{number + 1:032}.{sys.argv[2]}"
        checkpoint = {"v": 2, "id": f"{number:04}-{sys.argv[2]}", "ts": "", "channel_values": {"x": [sys.argv[2]] * 9},
                      "channel_versions": {"x": version}, "versions_seen": {}, "updated_channels": None}
        place = saver.put(place, checkpoint, {"step": number}, {"x": version})
        saver.put_writes(place, [("x", number)], sys.argv[2])
"""
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", script, str(tmp_path / "s")]
    children = [subprocess.Popen([*command, name, folder]) for name in ("one", "two")]
    assert [child.wait(300) for child in children] == [0, 0]
    with StatelogSaver.open(tmp_path / "s") as saver:
        listed = list(saver.list(config("t")))
        assert [each.checkpoint["id"] for each in listed] == sorted(
            (each.checkpoint["id"] for each in listed), reverse=True
        )
        for name in ("one", "two"):
            mine = [each for each in listed if each.checkpoint["id"].endswith(name)]
            assert [each.metadata["step"] for each in mine] == list(range(39, -1, -1))
            assert all(each.pending_writes == [(name, "x", each.metadata["step"])] for each in mine)
            assert [each.parent_config for each in mine[:-1]] == [each.config for each in mine[1:]]
        assert saver.store.verify().ok
