"""Data removed by retention is also removed from copies that import consecutive exports, and no copy is refused."""

from __future__ import annotations

import io
import random
import string

import pytest

import statelog
from statelog import reducers
from statelog.errors import ConflictError, CorruptionError, UsageError
from statelog.log.care.vacuum import RetentionReport
from statelog.portable import log_export, log_import
from statelog.store.session import session_of
from statelog.testing import observe

LONG = "a long text that is stored once " * 400


@pytest.fixture
def source(open_store):
    return open_store("source.state")


@pytest.fixture
def copy(open_store):
    return open_store("copy.state")


def take_increment(copy, source):
    stream = io.BytesIO()
    source.export(stream, since=copy.last_lsn)
    stream.seek(0)
    copy.import_(stream)
    assert copy.verify().problems == []


def versions(store, thread="t"):
    return [each.version for each in store.thread(thread).history()]


def test_copy_loses_versions_that_retention_removed(source, copy):
    for number in range(10):
        source.thread("t").commit({"n": number})
    take_increment(copy, source)
    source.prune(keep_last=2)
    take_increment(copy, source)
    assert versions(copy) == versions(source) == [9, 8]


def test_copy_loses_checkpoints_that_were_expired_by_name(source, copy):
    thread = source.thread("t")
    for number in range(4):
        thread.commit({"n": number}, id=f"id {number}")
    take_increment(copy, source)
    source.expire([thread.at("id 1")])
    thread.commit({"n": 9}, id="id 1")
    take_increment(copy, source)
    assert copy.thread("t").at("id 1").version == 4
    assert versions(copy) == versions(source)


def test_copy_loses_the_history_and_the_deleted_entries_of_a_board(source, copy):
    board = source.board()
    for number in range(3):
        board.set("kept", number)
        board.set("gone", number)
    take_increment(copy, source)
    board.delete("gone")
    board.prune("**", keep_last=1)
    take_increment(copy, source)
    assert [each.value for each in copy.board().history("kept")] == [2]
    assert copy.board().get("gone") is None
    assert [each.key for each in copy.board().list()] == ["kept"]
    board.prune("**", max_age=0)
    take_increment(copy, source)
    assert list(copy.board().history("gone")) == list(board.history("gone"))


@pytest.mark.parametrize("clean", ["retain", "compact"])
@pytest.mark.parametrize("is_renewed", [True, False])
def test_copy_releases_a_lease(source, copy, clean, is_renewed):
    lease = source.board(agent="a").lease("turn", auto_renew=False)
    take_increment(copy, source)
    assert [each.name for each in copy.board().leases()] == ["turn"]
    if is_renewed:
        lease.renew()
    lease.release()
    source.prune(keep_last=1) if clean == "retain" else source.compact()
    take_increment(copy, source)
    assert copy.board().leases() == []


@pytest.mark.parametrize("clean", ["retain", "compact"])
def test_lease_acquired_again_after_a_clean_up_is_imported(source, copy, clean):
    board = source.board(agent="a")
    board.lease("turn", auto_renew=False).release()
    held = board.lease("turn", auto_renew=False)
    take_increment(copy, source)
    held.renew()
    source.prune(keep_last=1) if clean == "retain" else source.compact()
    held.renew()
    take_increment(copy, source)
    held.release()
    board.lease("turn", auto_renew=False)
    source.prune(keep_last=1)
    take_increment(copy, source)
    [mine], [theirs] = board.leases(), copy.board().leases()
    assert mine == theirs


@pytest.mark.parametrize("ends", ["delete", "claim", "expire"])
def test_backup_of_a_store_whose_board_is_retained_is_imported(source, copy, ends):
    board = source.board()
    board.set("tasks/1", "mend the roof", ttl_s=0.001 if ends == "expire" else None)
    if ends == "delete":
        board.delete("tasks/1")
    elif ends == "claim":
        board.claim("tasks/*").complete("done")
    board.sweep()
    board.prune("**", keep_last=1)
    take_increment(copy, source)
    assert list(copy.board().list()) == list(board.list())


def test_copy_erases_the_bytes_with_a_compaction(source, copy, tmp_path):
    source.thread("t").commit({"text": "first secret"})
    source.board().set("k", "second secret")
    take_increment(copy, source)
    source.thread("t").commit({"text": "new"})
    source.board().set("k", "new")
    source.prune(keep_last=1)
    source.board().prune("**", keep_last=1)
    take_increment(copy, source)
    copy.compact()
    copy.close()
    assert b"secret" not in (tmp_path / "copy.state").read_bytes()


def test_compacted_copy_that_lacks_a_node_raises(source, copy):
    source.thread("a").commit({"text": LONG})
    source.thread("b").commit({"n": 1})
    source.thread("a").commit({"text": "short"})
    source.prune(keep_last=1, threads="b")
    take_increment(copy, source)
    before = source.last_lsn
    # The copy removes the old version and its text; the source still has them, and refers to the text.
    with statelog.open(copy.path) as other:
        other.expire([other.thread("a").at(0)])
    with pytest.raises((ConflictError, UsageError)):
        take_increment(copy, source)
    assert source.last_lsn == before


def test_copy_loses_the_records_of_a_deleted_thread(source, copy, tmp_path):
    source.thread("t").commit({"text": "a secret " * 10})
    take_increment(copy, source)
    source.delete_thread("t")
    take_increment(copy, source)
    assert [(each.type, each.body) for each in copy.log()] == [(each.type, each.body) for each in source.log()]
    assert copy.thread("t", recreate=True).commit({"n": 1}).version == 0
    copy.compact()
    copy.close()
    assert b"a secret" not in (tmp_path / "copy.state").read_bytes()


def test_log_of_an_interrupted_deletion_is_listed(source, monkeypatch):
    source.thread("t").commit({"n": 1})
    source.thread("t").fork("other", at=0)
    source.thread("t").tag("here", 0)
    monkeypatch.setattr("statelog.store.retain.erase_records", lambda *_arguments: RetentionReport())
    source.delete_thread("t")
    assert [each.body for each in source.log()] == [{}] * 5 + [{"removed": [1, 2, 3, 4]}]
    assert {each.thread_id for each in source.log()} == {None}


def test_removals_are_in_the_log(source):
    for number in range(4):
        source.thread("t").commit({"n": number})
    source.prune(keep_last=1)
    [removal] = [each for each in source.log() if each.type == "removal"]
    assert removal.body == {"removed": [2, 3, 4]}
    assert removal.thread_id is None


@pytest.mark.slow
def test_log_of_many_removals_names_each_record_once(source):
    for number in range(300):
        source.thread("t").commit({"n": number})
        source.board().set(f"k/{number % 3}", number)
    source.prune(keep_last=5)
    source.board().prune("**", keep_last=2)
    removed = [lsn for each in source.log() if each.type == "removal" for lsn in each.body["removed"]]
    assert len(removed) == len(set(removed)) == 295 + 294
    redacted = [each.lsn for each in source.log() if not each.body]
    assert sorted(removed) == redacted


def test_deletion_lists_the_records_of_the_thread_in_its_own_commit(source):
    for number in range(4):
        source.thread("t").commit({"n": number})
    source.prune(keep_last=2)
    source.delete_thread("t")
    *_others, deletion, removal = source.log()
    assert (deletion.type, deletion.continues) == ("delete", True)
    assert removal.body == {"removed": [1, 4, 5]}  # The others were listed by retention.


@pytest.mark.slow
def test_deletion_of_a_long_thread_lists_its_records_in_several_removals(source, copy):
    for number in range(1100):
        source.thread("t").commit({"n": number})
    source.delete_thread("t")
    removals = [each.body["removed"] for each in source.log() if each.type == "removal"]
    assert [len(each) for each in removals] == [1024, 77]
    assert [lsn for each in removals for lsn in each] == list(range(1, 1102))
    take_increment(copy, source)


def test_copy_erases_nothing_before_the_removals_of_a_deletion_arrive(source, copy, monkeypatch):
    """The import commits a part of a transaction if it is too large. Then the copy is complete up to the deletion."""
    source.thread("t").commit({"text": "a secret " * 10})
    take_increment(copy, source)
    source.delete_thread("t")
    stream = io.BytesIO()
    source.export(stream, since=copy.last_lsn)
    monkeypatch.setattr("statelog.portable.log_import.BATCH_RECORDS", 1)
    monkeypatch.setattr("statelog.portable.log_import.BATCH_STRETCH", 1)
    seen = []
    erase = log_import.erase_records
    monkeypatch.setattr(
        log_import, "erase_records", lambda engine, thread: seen.append(copy.last_lsn) or erase(engine, thread)
    )
    copy.import_(io.BytesIO(stream.getvalue()))
    assert seen == [source.last_lsn]
    assert copy.verify().problems == []


def test_an_export_during_retention_lists_its_missing_records(source, copy, monkeypatch):
    """The removals are committed after the records that the export was going to read, and it continues up to them."""
    thread = source.thread("t")
    for number in range(20):
        thread.commit({"n": number})
    monkeypatch.setattr(log_export, "_ROUNDS_MAX", 1)
    pages = log_export._pages

    def after_retention(engine, after, last):
        if not after:
            source.prune(keep_last=2)
            thread.commit({"n": 99})
        yield from pages(engine, after, last)

    monkeypatch.setattr(log_export, "_pages", after_retention)
    take_increment(copy, source)
    assert versions(copy)[-2:] == versions(source)[-2:] == [19, 18]


def test_copy_keeps_a_text_that_its_redacted_records_refer_to(source, copy):
    first, second = source.thread("first"), source.thread("second")
    first.commit({"a": 1, "text": LONG})
    second.commit({"a": 2, "text": LONG})
    second.commit({"a": 3, "text": "short"})
    first.commit({"a": 4, "text": "short"})
    take_increment(copy, source)
    source.prune(keep_last=1)
    source.compact()
    second.commit({"a": 5, "text": LONG})  # Stored again, because the compaction has erased it.
    source.delete_thread("first")
    take_increment(copy, source)
    copy.compact()
    assert copy.verify().problems == []
    assert copy.thread("second").state["text"] == LONG
    assert former_places(copy) == []


@pytest.mark.parametrize("is_compacted", [False, True])
def test_copy_does_not_reuse_a_text_of_which_it_has_erased_a_part(source, copy, is_compacted):
    book = "".join(f"{number} and so on, " for number in range(5000))
    first, second = source.thread("first"), source.thread("second")
    first.commit({"text": book})
    second.commit({"text": book})
    second.commit({"text": book + "the end"})  # It shares all pieces except the last with the first thread.
    second.commit({"text": "short"})
    first.commit({"text": "short"})
    take_increment(copy, source)
    source.prune(keep_last=1)
    source.compact()
    second.commit({"text": book})
    source.delete_thread("first")
    take_increment(copy, source)
    if is_compacted:
        copy.compact()
    copy.thread("third").commit({"text": book + "the end"})
    assert copy.verify().problems == []
    assert copy.thread("third").state["text"] == book + "the end"
    copy.rebuild_index()
    assert copy.verify().problems == []


def former_places(store):
    with session_of(store).read() as view:
        return list(view.transaction.scan_index(b"O"))


BEGIN = "".join(random.Random(6).choices(string.ascii_letters, k=60_000))


def share_a_text_in_two_records(source, copy, *, goes_on):
    """Give thread `b` a text that is in two redacted records of thread `a`, and return it. The copy has the first."""
    owner, other = (source.thread(name, schema={"text": reducers.add}) for name in "ab")
    owner.commit({"text": BEGIN})
    take_increment(copy, source)
    owner.commit({"text": "end"})
    other.commit({"text": BEGIN + "end"})
    owner.commit({"text": reducers.Overwrite("another")})
    if goes_on:
        other.commit({"text": "more"})
    source.prune(keep_last=1)
    return BEGIN + "end" + "more" * goes_on


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("order", ["sweep, import, deletion", "sweep, deletion", "deletion, sweep"])
def test_a_text_stays_in_a_copy_that_had_its_beginning_before_a_sweep(source, copy, monkeypatch, order, goes_on):
    """The sweep takes the owner from the record of the beginning. The copy has imported this record before."""
    monkeypatch.setattr(log_import, "BATCH_RECORDS", 1)
    text = share_a_text_in_two_records(source, copy, goes_on=goes_on)
    for act in order.split(", "):
        if act == "sweep":
            source.compact()
        elif act == "import":
            take_increment(copy, source)
        else:
            source.delete_thread("a")
    take_increment(copy, source)
    assert copy.thread("b").state["text"] == source.thread("b").state["text"] == text
    assert [thread.id for thread in copy.threads()] == ["b"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_text_stays_in_a_copy_that_imports_a_deletion_without_the_loan_of_the_next_sweep(source, copy, goes_on):
    text = share_a_text_in_two_records(source, copy, goes_on=goes_on)
    source.delete_thread("a")
    upto = source.last_lsn
    source.compact()
    stream = io.BytesIO()
    source.export(stream, since=copy.last_lsn)
    stream.seek(0)
    assert copy.import_(stream, upto=upto).last_lsn == upto < source.last_lsn
    assert copy.verify().problems == []
    assert copy.thread("b").state["text"] == text
    take_increment(copy, source)
    assert observe(copy) == observe(source)


@pytest.mark.parametrize("act", ["prune", "deletion"])
def test_a_copy_without_the_loan_of_a_sweep_keeps_a_text_if_it_is_compacted_first(source, copy, act):
    text = share_a_text_in_two_records(source, copy, goes_on=False)
    upto = source.last_lsn
    source.compact()
    stream = io.BytesIO()
    source.export(stream, since=copy.last_lsn)
    stream.seek(0)
    copy.import_(stream, upto=upto)
    copy.compact()
    copy.prune(keep_last=1) if act == "prune" else copy.delete_thread("a")
    assert copy.verify().problems == []
    assert copy.thread("b").state["text"] == text


def test_after_an_import_that_fails_the_nodes_of_a_deleted_thread_are_left_to_compaction(source, copy, monkeypatch):
    """A record in the rest of the export could lend their nodes."""
    monkeypatch.setattr(log_import, "BATCH_RECORDS", 1)
    source.thread("t").commit({"text": LONG})
    take_increment(copy, source)
    source.delete_thread("t")
    source.thread("u").commit({"n": 1})
    stream = io.BytesIO()
    source.export(stream, since=copy.last_lsn)
    with pytest.raises(CorruptionError):
        copy.import_(io.BytesIO(stream.getvalue()[:-40]))
    assert [thread.id for thread in copy.threads()] == ["u"]
    assert copy.verify().problems == []
    assert copy.compact().vacuumed_nodes > 0
    assert copy.verify().problems == []
    assert LONG.encode()[:100] not in copy.path.read_bytes()
