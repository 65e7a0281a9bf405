"""Changed bytes of a journal: acknowledged commits exist, or an error names the journal. A torn end is not damage."""

import signal
import sys

import forks
import pytest

import statelog
from statelog.errors import CorruptionError
from statelog.portable.salvage import salvage
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal.wal_format import HALVES_AT, decode_slot, encode_group
from statelog.testing import Child, Commit

COMMITS = 6
HISTORY = tuple(Commit("a", ({"findings": [f"finding {n} " * 30], "total": n},)) for n in range(COMMITS))
GROUPS_AT = HALVES_AT[1]
"""Where the groups of a session's first epoch begin."""


@pytest.fixture
def killed(path):
    """A store whose process was killed after its last commit.

    Return the journal's bytes and the offsets of its groups.
    """

    def make(durability="commit"):
        with Child(path, HISTORY, durability=durability, fault=f"commit.after_delivery:{COMMITS}") as child:
            assert child.wait()
        journal = journal_path(path).read_bytes()
        at, starts = GROUPS_AT, []
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


@pytest.mark.slow
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
        assert "salvage" in caught.value.message
    assert path.read_bytes() == before
    damage(path, at)
    assert versions(path) == COMMITS


def test_a_torn_last_group_is_dropped_silently(path, killed):
    """A damaged last group cannot be distinguished from one that was being written when the power failed."""
    _journal, starts = killed()
    damage(path, starts[-2] + 50)
    assert versions(path) == COMMITS - 1


def test_groups_that_were_never_flushed_may_be_missing_in_the_middle(path, killed):
    """With "interval", the pages of a journal reach the disk in any order until they are flushed."""
    _journal, starts = killed("interval")
    damage(path, starts[2] + 50)
    assert versions(path) == 2


def test_both_slots_damaged_is_an_error(path, killed):
    killed()
    for at in (40, 4096 + 40):
        damage(path, at)
    with pytest.raises(CorruptionError, match="journal"):
        statelog.open(path)


@pytest.fixture
def advanced(path, tmp_path):
    """A copy of a store in use, of the second epoch, whose newer slot is damaged; and the slots it had."""
    with statelog.open(path) as store:
        with Child(path, HISTORY[:3]) as child:
            assert child.wait() is False
        store.thread("b").commit({"n": 1})
        copy = tmp_path / "copy.state"
        journal = journal_path(path).read_bytes()
        copy.write_bytes(path.read_bytes())
    journal_path(copy).write_bytes(journal)
    assert sorted(epochs(journal)) == [1, 2]
    damage(copy, 4096 * epochs(journal).index(2) + 50)
    return copy, [decode_slot(journal[at : at + 4096]) for at in (0, 4096)]


def test_a_damaged_newer_slot_is_an_error_and_not_a_way_back(advanced):
    """Pages of the snapshot before it have been used again."""
    copy, _slots = advanced
    refused(copy, r"older than the file \(epoch 1; the file is at 2\), or damaged")


def test_a_damaged_newer_slot_is_detected_by_groups_of_its_epoch(advanced):
    """They have replaced the groups of the earlier slot."""
    copy, (newer, _older) = advanced
    forget_extent(copy)
    group = encode_group(newer.session, newer.epoch + 1, newer.lsn + 2, [b"record"], flushed=newer.lsn + 1)
    with journal_path(copy).open("r+b") as file:
        file.seek(HALVES_AT[(newer.epoch + 1) & 1])
        file.write(group)
    refused(copy, "a slot of its journal is damaged")


def forget_extent(path):
    """Remove from the data file the extent of its journal on the disk."""
    with path.open("r+b") as file:
        file.seek(4096 - 32)
        file.write(bytes(32))


def refused(path, match):
    """Check that a store is not opened, in whichever way, and that this changes nothing."""
    before = path.read_bytes(), journal_path(path).read_bytes()
    for read_only in (False, True):
        with pytest.raises(CorruptionError, match=match) as caught:
            statelog.open(path, read_only=read_only)
        assert caught.value.facts["journal"] == str(journal_path(path))
        assert (path.read_bytes(), journal_path(path).read_bytes()) == before


KILLED_AFTER = """
import os, signal, sys, statelog
from pathlib import Path
path = Path(sys.argv[1])
store = statelog.open(path)
for number in range(int(sys.argv[2])):
    if number == int(sys.argv[3]):
        Path(sys.argv[4]).write_bytes(path.with_name(f"{path.name}-journal").read_bytes())
    store.thread("t").commit({"n": number, "text": f"{number} " * 50})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_an_earlier_copy_of_the_same_journal_is_reported(path, tmp_path):
    earlier = tmp_path / "earlier"
    command = [sys.executable, "-c", KILLED_AFTER, str(path), "6000", "50", str(earlier)]
    assert forks.run(command, check=False).returncode == -signal.SIGKILL
    own = journal_path(path).read_bytes()
    assert max(epochs(own)) > max(epochs(earlier.read_bytes()))
    journal_path(path).write_bytes(earlier.read_bytes())
    refused(path, "older than the file")
    journal_path(path).write_bytes(own)
    with statelog.open(path) as store:
        assert store.thread("t").state["n"] == 5999
        assert store.verify().ok


@pytest.mark.parametrize("size_bytes", [0, 5000, 8192, 8193, GROUPS_AT, GROUPS_AT + 1, GROUPS_AT + 60_000])
def test_a_truncated_journal_is_reported(path, killed, size_bytes):
    journal, _starts = killed()
    journal_path(path).write_bytes(journal[:size_bytes])
    refused(path, "cut off" if size_bytes >= 5000 else "damaged")
    journal_path(path).write_bytes(journal)
    assert versions(path) == COMMITS


FLUSHED = """
import os, signal, sys, statelog
store = statelog.open(sys.argv[1], durability=sys.argv[2], interval_ms=60_000)
for number in range(10):
    store.thread("t").commit({"n": number}, durable=False)
store.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_damage_of_flushed_records_is_reported(path, durability):
    """No later group says that it was flushed."""
    command = [sys.executable, "-c", FLUSHED, str(path), durability]
    assert forks.run(command, check=False).returncode == -signal.SIGKILL
    damage(path, GROUPS_AT + 108)
    refused(path, "damaged")
    damage(path, GROUPS_AT + 108)
    with statelog.open(path) as store:
        assert store.thread("t").state["n"] == 9


@pytest.mark.slow
@pytest.mark.parametrize("cut", [8192, GROUPS_AT, GROUPS_AT + 12_000, GROUPS_AT + 52_000])
def test_if_the_journal_was_cut_off_salvage_saves_the_records_of_the_file(path, tmp_path, cut):
    command = [sys.executable, "-c", KILLED_AFTER, str(path), "600", "5", str(tmp_path / "unused")]
    assert forks.run(command, check=False).returncode == -signal.SIGKILL
    without = tmp_path / "without.state"
    without.write_bytes(path.read_bytes())
    least = statelog.recover(without, without_journal=True).last_lsn
    journal_path(path).write_bytes(journal_path(path).read_bytes()[:cut])
    refused(path, "cut off")
    salvage(path, tmp_path / "new.state")
    assert statelog.recover(tmp_path / "new.state").last_lsn >= least > 400


def opens(path):
    try:
        statelog.open(path).close()
    except CorruptionError as error:
        return "salvage" not in error.message
    return True


@pytest.mark.slow
def test_damage_to_the_file_during_a_replay_is_reported_with_a_remedy(path, killed):
    journal, _starts = killed()
    before, refusals = bytearray(path.read_bytes()), 0
    for at in range(8192, len(before), 4096):
        if any(before[at : at + 4096]):
            path.write_bytes(before[:at] + bytes(4096) + before[at + 4096 :])
            if not opens(path):
                assert path.read_bytes() == before[:at] + bytes(4096) + before[at + 4096 :]
                refusals += 1
            journal_path(path).write_bytes(journal)
    assert refusals


def test_without_the_extent_in_the_file_a_cut_would_not_be_noticed(path, killed):
    """Negative control."""
    journal, _starts = killed()
    journal_path(path).write_bytes(journal[:8192])
    forget_extent(path)
    assert versions(path) < COMMITS


def test_a_file_older_than_its_journal_is_reported(path, killed):
    """A backup of the file in use, and of the journal some time later."""
    journal, _starts = killed()
    before = path.read_bytes()
    path.write_bytes(before[:8192] + bytes(len(before) - 8192))
    refused(path, "the state that its journal starts from is not in the file")
    path.write_bytes(before)
    journal_path(path).write_bytes(journal)
    assert versions(path) == COMMITS


def test_groups_that_do_not_continue_the_log_are_reported(path, killed):
    journal, starts = killed()
    slot = max(filter(None, (decode_slot(journal[at : at + 4096]) for at in (0, 4096))), key=lambda slot: slot.epoch)
    size = int.from_bytes(journal[starts[1] + 40 : starts[1] + 44])
    record = journal[starts[1] + 44 : starts[1] + 44 + size]
    group = encode_group(slot.session, slot.epoch, slot.lsn + 1, [record], flushed=slot.lsn)
    data = bytearray(journal)
    data[GROUPS_AT : GROUPS_AT + len(group) + 100] = group + bytes(100)
    journal_path(path).write_bytes(data)
    refused(path, "does not continue the log|damaged")


def epochs(journal):
    return [int.from_bytes(journal[at + 40 : at + 48]) for at in (0, 4096)]


@pytest.mark.slow
def test_any_flipped_bit_is_reported_or_harmless(path, killed):
    journal, starts = killed()
    store = path.read_bytes()
    lock = path.with_name(f"{path.name}-lock")
    ends = {COMMITS: 0, COMMITS - 1: 0, "error": 0}
    for at in [*range(0, 260, 9), *range(4096, 4096 + 260, 9), *range(GROUPS_AT, starts[-1], 61)]:
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
