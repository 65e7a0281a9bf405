"""Bytes of a journal change: what was acknowledged is there, or an error names the journal; a torn end is no damage."""

import pytest

import statelog
from statelog.errors import CorruptionError
from statelog.storage.journal import RECORDS_AT, journal_path
from statelog.testing import Child, Commit

COMMITS = 6
HISTORY = tuple(Commit("a", ({"findings": [f"finding {n} " * 30], "total": n},)) for n in range(COMMITS))


@pytest.fixture
def killed(path):
    """A store whose process was killed behind its last commit; return the journal's bytes and where groups begin."""

    def make(durability="commit"):
        with Child(path, HISTORY, durability=durability, fault=f"commit.after_delivery:{COMMITS}") as child:
            assert child.wait()
        journal = journal_path(path).read_bytes()
        at, starts = RECORDS_AT, []
        while size := int.from_bytes(journal[at + 8 : at + 12]):
            starts.append(at)
            at += 40 + size
        return journal, [*starts, at]

    return make


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.state"


def damage(path, at, *, bit=1):
    with journal_path(path).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ bit,)))


def versions(path):
    with statelog.open(path) as store:
        assert store.verify().problems == []
        return len(list(store.thread("a").history()))


def test_an_undamaged_journal_gives_everything_back(path, killed):
    _journal, starts = killed()
    assert len(starts) == COMMITS + 1
    assert versions(path) == COMMITS


@pytest.mark.parametrize(
    "number", [0, COMMITS - 2, *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, COMMITS - 2))]
)
@pytest.mark.parametrize("offset", [0, 8, 15, 20, 30, 39, 60, -1], ids=str)
def test_a_damaged_group_in_the_middle_is_an_error_that_names_the_journal(path, killed, number, offset):
    _journal, starts = killed()
    at = starts[number] + offset if offset >= 0 else starts[number + 1] - 1
    before = path.read_bytes()
    damage(path, at)
    for _ in range(2):
        with pytest.raises(CorruptionError, match="journal") as caught:
            statelog.open(path)
        assert caught.value.facts["journal"] == str(journal_path(path))
        assert journal_path(path).exists()
    damage(path, at)
    assert versions(path) == COMMITS
    assert len(before) <= path.stat().st_size


def test_a_torn_last_group_is_dropped_silently(path, killed):
    """A damaged last group cannot be told from one that was being written when the power failed."""
    _journal, starts = killed()
    damage(path, starts[-2] + 50)
    assert versions(path) == COMMITS - 1


def test_groups_that_were_never_flushed_may_be_missing_in_the_middle(path, killed):
    """With "interval" the pages of a journal get to the disk in any order, until they are flushed."""
    _journal, starts = killed("interval")
    damage(path, starts[2] + 50)
    assert versions(path) == 2


def test_both_slots_damaged_is_an_error(path, killed):
    killed()
    for at in (40, 4096 + 40):
        damage(path, at)
    with pytest.raises(CorruptionError, match="journal"):
        statelog.open(path)


def test_a_damaged_newer_slot_is_an_error_and_not_a_way_back(path, tmp_path):
    """The groups behind the one before it have made room for those behind the newer one."""
    with statelog.open(path) as store:
        with Child(path, HISTORY[:3]) as child:
            assert child.wait() is False
        store.thread("b").commit({"n": 1})
        killed = tmp_path / "killed.state"
        journal = journal_path(path).read_bytes()
        killed.write_bytes(path.read_bytes())
    journal_path(killed).write_bytes(journal)
    epochs = [int.from_bytes(journal[at + 40 : at + 48]) for at in (0, 4096)]
    assert sorted(epochs) == [1, 2]
    damage(killed, 4096 * epochs.index(2) + 50)
    with pytest.raises(CorruptionError, match="slot"):
        statelog.open(killed)


def test_any_flipped_bit_is_told_or_does_no_harm(path, killed):
    journal, starts = killed()
    store = path.read_bytes()
    lock = path.with_name(f"{path.name}-lock")
    ends = {COMMITS: 0, COMMITS - 1: 0, "error": 0}
    for at in [*range(0, 260, 9), *range(4096, 4096 + 260, 9), *range(RECORDS_AT, starts[-1], 61)]:
        path.write_bytes(store)
        lock.unlink(missing_ok=True)
        journal_path(path).write_bytes(journal)
        damage(path, at, bit=1 << at % 8)
        try:
            found = versions(path)
        except CorruptionError as error:
            found = "error" if "journal" in error.message else ""
        assert found in {"error", COMMITS} or at >= starts[-2]
        ends[found] += 1
    assert all(ends.values())
