"""SIGKILL in a migration: each thread or entry is unchanged or migrated, and the next migration does the rest."""

from __future__ import annotations

import os
import shutil

import pytest
import versioned_threads

import statelog
from statelog.testing import POINTS
from statelog.testing.crash import job_of
from statelog.testing.nursery import Born

POINTS_PASSED = [point for point in POINTS if point.startswith(("commit.", "journal."))]
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "a.state"
    versioned_threads.build(path)
    return path


@pytest.fixture(scope="module")
def never_killed(built, tmp_path_factory):
    """The final states of all threads."""
    path = tmp_path_factory.mktemp("never") / "a.state"
    shutil.copy(built, path)
    versioned_threads.migrate(path)
    with statelog.open(path) as store:
        return states_of(store)


def states_of(store):
    """Return schema version and state digest of the heads of each thread."""
    return {
        info.id: [
            (head.schema_version, head.state_digest)
            for branch in ("main", "other")
            if (head := store.thread(info.id, branch=branch).head) is not None
        ]
        for info in store.threads()
    }


def kill_at(point, occurrence, work, path):
    """Run a work in a process that is killed at a fault point if the work reaches it."""
    environment = {**os.environ, "STATELOG_FAULT": f"{point}:{occurrence}:kill"}
    child = Born(job_of(work, (str(path),)), environment)
    try:
        _out, words = child.communicate(TIMEOUT_S)
    finally:
        child.close()
    assert child.returncode in (0, -9), words.decode()
    assert child.returncode == -9 or point in {"commit.between_works", "journal.after_flush"}


@pytest.mark.parametrize(
    ("point", "occurrence"),
    [
        pytest.param(point, occurrence, marks=[] if occurrence == number % 3 + 1 else pytest.mark.soak)
        for number, point in enumerate(POINTS_PASSED)
        for occurrence in (1, 2, 3)
    ],
)
def test_a_kill_leaves_each_thread_unchanged_or_migrated_and_the_next_migration_does_the_rest(
    built, never_killed, path, point, occurrence
):
    shutil.copy(built, path)
    kill_at(point, occurrence, versioned_threads.migrate, path)
    with statelog.open(path) as store:
        assert store.verify().ok
        found = states_of(store)
    assert {len({version for version, _digest in heads}) for heads in found.values()} == {1}
    versioned_threads.migrate(path)
    with statelog.open(path) as store:
        assert states_of(store) == never_killed
        assert all(info.versions == 4 for info in store.threads())  # None was migrated twice.


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if number in (0, len(POINTS_PASSED) // 2) else pytest.mark.soak)
        for number, point in enumerate(POINTS_PASSED)
    ],
)
def test_a_kill_leaves_each_entry_unchanged_or_migrated_and_the_next_migration_does_the_rest(path, point):
    versioned_threads.build_entries(path)
    kill_at(point, 2, versioned_threads.migrate_entries, path)
    expected = [{"memories": ["a" * 50], "count": number, "size": 1} for number in range(versioned_threads.ENTRIES)]
    with statelog.open(path) as store:
        assert store.verify().ok
        for entry in store.board().list():
            assert ("size" in entry.value) == (entry.schema_version == 3)
    versioned_threads.migrate_entries(path)
    with statelog.open(path) as store:
        assert [entry.value for entry in store.board().list()] == expected
        assert {len(store.board().history(entry.key)) for entry in store.board().list()} == {
            2
        }  # None was migrated twice.
