"""A new kind of event is a row of the table. The log, verify, rebuild, recovery and retention use that row."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from notes import (
    Note,
    Removal,
    check_whole,
    holds,
    large,
    log_of,
    note_key,
    read,
    remove_note,
    stage_note,
    thread_lsn,
    write,
)

import statelog
from statelog.errors import ConflictError
from statelog.log import operations
from statelog.log.care.vacuum import NOBODY, EveryNode, Rewritable, redact_released, rewrite
from statelog.log.kinds.table import decode_event, stage_event

pytestmark = pytest.mark.usefixtures("kinds")


def test_only_the_table_distinguishes_kinds_by_their_classes():
    package = Path(statelog.__file__).parent
    found = {
        path.name: count
        for path in package.rglob("*.py")
        if (count := len(re.findall(r"isinstance\([^)]*Event\b", path.read_text())))
    }
    assert found == {"table.py": 1}


def test_the_log_has_the_new_kind_and_the_index_follows(store, owner):
    lsn = write(store, owner, "a", {"k": (1,)}, large(1))
    remove_note(store, owner, "b")
    name = "owner" if owner else None
    assert log_of(store)[-2:] == [
        ("note", name, {"key": "a", "value": {"k": (1,)}}),
        ("removal", name, {"key": "b"}),
    ]
    assert [record.lsn for record in store.log(after=lsn - 1, follow=True, timeout_s=0)] == [lsn, lsn + 1]
    assert read(store, owner, "a") == ({"k": (1,)}, large(1))
    check_whole(store)


def test_several_kinds_are_one_commit(store, owner):
    before = store.last_lsn

    def work(batch):
        stage_note(batch, owner, "a", 1, large(1))
        operations.tag(batch, thread_lsn(store, "owner"), "here", 2)
        stage_note(batch, owner, "a", 2)
        stage_event(batch, Removal(owner, "b"))

    store._engine.commit(work)
    records = list(store.log(after=before))
    assert [record.type for record in records] == ["note", "tag", "note", "removal"]
    assert [record.continues for record in records] == [True, True, True, False]
    assert read(store, owner, "a") == (2, None)
    check_whole(store)


def test_refused_operations_stage_nothing(store, owner):
    before = store.last_lsn

    def work(batch):
        stage_note(batch, owner, "a", 1)
        raise ConflictError("no")

    with pytest.raises(ConflictError):
        store._engine.commit(work)
    assert store.last_lsn == before
    assert read(store, owner, "a") is None


def test_index_that_lacks_a_note_is_a_problem(store, owner):
    write(store, owner, "a", 1)
    store._engine.care(lambda transaction: transaction.delete_index(note_key(owner, "a")))
    assert [problem.invariant for problem in store.verify().problems] == ["L4"]
    store.rebuild_index()
    assert read(store, owner, "a") == (1, None)


def test_a_missing_root_is_a_problem(path):
    with statelog.open(path) as store:
        lsn = store._engine.commit(lambda batch: stage_event(batch, Note(0, "a", b"\x00", 0, bytes(20), 1, 0, [])))
        assert {problem.invariant for problem in store.verify().problems} == {"T5"}
        assert lsn == 1


def test_events_of_a_new_kind_are_recovered_from_the_journal(store, owner, tmp_path):
    write(store, owner, "a", 1, large(1))
    write(store, owner, "a", 2, large(2))
    copy = tmp_path / "copy.state"
    for suffix in ("", "-journal"):
        shutil.copy(f"{store.path}{suffix}", f"{copy}{suffix}")
    with statelog.open(copy) as recovered:
        assert read(recovered, owner, "a") == (2, large(2))
        assert log_of(recovered) == log_of(store)
        check_whole(recovered)


# --- retention ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_last_value_is_kept_and_earlier_ones_are_removed_from_the_file(store, owner):
    for turn in range(5):
        write(store, owner, "a", f"small {turn}", large(turn))
        write(store, owner, "shares", 0, {**large(1), "text": f"text {turn}"})
    write(store, owner, "gone", "small gone", large("gone"))
    remove_note(store, owner, "gone")
    store.prune(keep_last=1)
    assert not holds(store, b"small 3")
    assert not holds(store, b"small gone")
    check_whole(store)
    if owner == NOBODY:  # Only a compaction knows which records need nodes without an owner.
        assert holds(store, b"item 3 7 ")
        store.compact()
        assert not holds(store, b"small 3")
    assert not holds(store, b"item 3 7 ")
    assert not holds(store, b"text gone")
    assert read(store, owner, "a") == ("small 4", large(4))
    assert read(store, owner, "shares") == (0, {**large(1), "text": "text 4"})
    check_whole(store)


def test_only_a_compaction_removes_useless_records(store, owner):
    for turn in range(3):
        write(store, owner, "a", f"small {turn}", large(turn))
    store.compact()
    assert not holds(store, b"small 1")
    assert not holds(store, b"item 1 7 ")
    assert read(store, owner, "a") == ("small 2", large(2))
    check_whole(store)


@pytest.mark.slow
def test_a_policy_keeps_the_nodes_that_notes_refer_to(store):
    thread = store.thread("owner")
    thread.commit({"n": 0, "text": "shared " * 1000})
    owner = thread_lsn(store, "owner")
    store.set_retention(keep_last=1)
    write(store, owner, "a", 0, {"list": [], "text": "shared " * 1000})
    for turn in range(1100):
        thread.commit({"n": turn, "text": f"{turn} " * 1500} if turn < 3 else {"n": turn})
        if turn % 400 == 0:
            write(store, owner, "b", turn, large(turn))
    assert read(store, owner, "a") == (0, {"list": [], "text": "shared " * 1000})
    assert read(store, owner, "b") == (800, large(800))
    assert not holds(store, b"item 400 7 ")
    check_whole(store)


@pytest.mark.parametrize("is_nobodys", [True, False])
def test_threads_and_notes_share_large_parts_and_each_keeps_its_own(store, is_nobodys):
    thread = store.thread("thread")
    thread.commit({"text": "mine " * 1000})
    store.thread("owner").commit({"n": 0})
    owner = NOBODY if is_nobodys else thread_lsn(store, "owner")
    write(store, owner, "a", 0, {"list": [], "text": "mine " * 1000})
    write(store, owner, "b", 0, {"list": [], "text": "notes " * 1000})
    thread.commit({"text": "notes " * 1000})
    with store._engine.read() as view:
        note = decode_event(view.record(view.transaction.last_lsn() - 2))
    assert note.borrowed != []
    write(store, owner, "b", 1)
    thread.commit({"text": "mine no more"})
    store.prune(keep_last=2)
    assert read(store, owner, "a") == (0, {"list": [], "text": "mine " * 1000})
    assert thread.at(1).state["text"] == "notes " * 1000
    check_whole(store)
    thread.commit({"text": 0})
    store.prune(keep_last=1)
    store.compact()
    assert not holds(store, b"notes notes")
    assert read(store, owner, "a") == (0, {"list": [], "text": "mine " * 1000})
    check_whole(store)


def test_wherever_redaction_is_interrupted_no_removed_data_is_restored(store, owner):
    for turn in range(3):
        write(store, owner, "a", turn, large(turn))
    remove_note(store, owner, "a")
    with store._engine.read() as view:
        lsns = [lsn for lsn in range(1, view.transaction.last_lsn() + 1) if view.record(lsn).type > 100]
    for lsn in lsns:

        def work(transaction, lsn=lsn):
            return rewrite(transaction, [Rewritable(lsn, owner)], EveryNode())

        store._engine.care(work)
        check_whole(store)
        assert read(store, owner, "a") is None
    assert redact_released(store._engine, owner).freed_bytes == 0


def test_notes_are_removed_with_their_owner(store):
    store.thread("owner").commit({"n": 0})
    owner = thread_lsn(store, "owner")
    write(store, owner, "a", "small 1", large(1))
    write(store, owner, "a", "small 2", large(2))
    write(store, NOBODY, "a", "stays", large(3))
    store.delete_thread("owner")
    assert read(store, owner, "a") is None
    for text in (b"small 1", b"small 2", b"item 2 7 "):
        assert not holds(store, text)
    assert read(store, NOBODY, "a") == ("stays", large(3))
    check_whole(store)
