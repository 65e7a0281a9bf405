"""Secrets written before a guard was used are found, and removed from every version and every file."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import operator
import os
import runpy
import signal
import struct
import sys
import threading
from hashlib import blake2b
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

pytest.importorskip("re2")

import forks
from forger import MAC_SIZE_BYTES, forging, with_checksum

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, GuardError, SecretError, aio, guard, reducers
from statelog.adapters.kit.ordered import Json
from statelog.errors import (
    ConflictError,
    CursorError,
    ForgeryError,
    KeyMissingError,
    ReadOnlyError,
    StoreReplacedError,
    ThreadNotFoundError,
    UsageError,
)
from statelog.guard import SecretFound
from statelog.storage import faults

TABLE = runpy.run_path(str(Path(__file__).with_name("test_entrances.py")))
"""The table of entrances with its canaries."""
entrances = SimpleNamespace(**TABLE)

RANDOM = Random(51)
TOKEN = SECRETS["github-token"](RANDOM)
OTHER = SECRETS["aws-access-key"](RANDOM)
PEM = SECRETS["private-key"](RANDOM)

ENTRANCES = (
    "commit",
    "commit_with_reducers",
    "large_values",
    "mount",
    "edit",
    "fork_and_rollback",
    "transaction",
    "copy",
    "board",
    "claims",
    "durable_run",
    "langgraph",
    "adapters",
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.state"


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        yield opened


def holding(folder, *texts):
    """Return the files of a folder that have one of some texts."""
    wanted = [text.encode() if isinstance(text, str) else text for text in texts]
    return sorted(path.name for path in folder.iterdir() if any(text in path.read_bytes() for text in wanted))


def purge_all(store, **options):
    return store.purge(store.find_secrets(**options), **options)


def check_whole(store):
    assert store.verify(deep=True).problems == []


def exported(store, **options):
    stream = io.BytesIO()
    store.export(stream, **options)
    return stream.getvalue()


def is_redacted(text, rule="github-token"):
    return text.startswith(f"[REDACTED {rule} ") and text.endswith("]")


# --- finding ---------------------------------------------------------------------------


def test_a_secret_is_found_in_the_version_that_wrote_it_even_after_its_replacement(store):
    thread = store.thread("t")
    thread.commit({"a": 1})
    thread.commit({"note": f"the key is {TOKEN}"})
    thread.commit({"a": 2})
    thread.commit({"note": "gone"})
    (found,) = store.find_secrets()
    assert (found.thread, found.version, found.path, found.rule) == ("t", 1, "note", "github-token")
    assert found.lsn == thread.at(1).lsn
    assert TOKEN not in repr(found)


def test_a_secret_is_found_once_although_later_versions_copy_the_list_it_is_in(store):
    thread = store.thread("t", schema={"items": reducers.append})
    thread.commit({"items": TOKEN})
    for number in range(20):
        thread.commit({"items": number})
    assert [(each.version, each.path) for each in store.find_secrets()] == [(0, "items")]


def test_each_version_that_writes_a_secret_is_reported(store):
    schema = {"note": reducers.replace, "items": reducers.append, "log": operator.add}
    thread = store.thread("t", schema=schema)
    for number in range(3):
        thread.commit({"note": f"{number} {TOKEN}", "items": f"{number} {TOKEN}"})
    thread.commit({"note": f"2 {TOKEN}", "items": 1, "log": f"{TOKEN} a"})
    thread.commit({"log": " more"})
    found = [(each.version, each.path) for each in store.find_secrets()]
    assert sorted(found) == [*((version, path) for version in range(3) for path in ("items", "note")), (3, "log")]


def test_equal_secrets_have_equal_fingerprints_in_every_place(store):
    store.thread("t").commit({"a": TOKEN, "b": {"c": [f"x {TOKEN}"]}}, metadata={"m": TOKEN})
    store.board().set("k/1", {"v": TOKEN})
    found = store.find_secrets()
    assert {(each.thread, each.path) for each in found} == {
        ("t", "a"),
        ("t", "b.c"),
        ("t", "metadata.m"),
        (None, "k/1.v"),
    }
    assert len({each.fingerprint for each in found}) == 1


@pytest.mark.parametrize("at", [0, 16_370, 16_384, 20_000, 40_000])
def test_a_secret_on_the_border_of_two_pieces_of_a_long_text_is_found(store, at):
    store.thread("t").commit({"text": f"{'x' * at} {TOKEN} {'y' * 40_000}"})
    assert [each.path for each in store.find_secrets()] == ["text"]


def test_a_secret_that_a_later_version_completes_is_found_there(store):
    thread = store.thread("t")
    text = "word " * 8000
    thread.commit({"text": text + TOKEN[:20]})
    thread.commit({"text": text + TOKEN})
    assert [each.version for each in store.find_secrets()] == [1]


@pytest.mark.parametrize(
    ("write", "place"),
    [
        (lambda store: store.thread(TOKEN).commit({"a": 1}), "(id)"),
        (lambda store: store.thread("t").commit({TOKEN: 1}), "(channel)"),
        (lambda store: store.thread("t").commit({"a": {TOKEN: 1}}), "a.(name)"),
        (lambda store: store.thread("t").commit({"a": 1}, id=TOKEN), "(id)"),
        (lambda store: store.thread("t").commit({"a": 1}, metadata={TOKEN: 1}), "metadata.(name)"),
        (lambda store: store.board().set(TOKEN, 1), "(key)"),
        (lambda store: store.board(agent=TOKEN).set("k", 1), "(agent)"),
    ],
)
def test_a_secret_in_a_name_is_found_and_refused_by_a_purge_that_changes_nothing(store, write, place):
    store.thread("other").commit({"a": TOKEN})
    write(store)
    before = exported(store)
    found = store.find_secrets()
    assert place in {each.path for each in found}
    assert TOKEN not in repr(found)
    with pytest.raises(SecretError, match="cannot be cut out") as caught:
        store.purge(found)
    assert caught.value.facts["lsn"] in {each.lsn for each in found}
    assert f"(github-token {found[0].fingerprint})" in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert exported(store) == before
    assert store.thread("other").state["a"] == TOKEN


def test_a_secret_in_bytes_that_cannot_be_changed_is_found_and_refused(store):
    store.thread("t").commit({"a": b"\xff\x00\x01" + TOKEN.encode()})
    found = store.find_secrets()
    assert [each.path for each in found] == ["a.(bytes)"]
    with pytest.raises(SecretError, match="cannot be cut out"):
        store.purge(found)


def test_a_search_can_be_limited_to_some_threads(store):
    for name in ("a", "b"):
        store.thread(name).commit({"v": TOKEN})
    assert [each.thread for each in store.find_secrets(threads=["b"])] == ["b"]
    with pytest.raises(UsageError, match="list of thread ids"):
        store.find_secrets(threads="b")
    with pytest.raises(ThreadNotFoundError, match="'c'"):
        store.find_secrets(threads=["c"])


def test_a_given_guard_finds_fields_and_values_of_handles(store):
    handles = guard.Handles({"db": lambda: "correct horse battery"})
    handles.resolve("$CRED{db}", tool="t")
    given = Guard(secrets=guard.Secrets(fields=["**.pin"]), handles=handles)
    store.thread("t").commit({"a": {"pin": 1234}, "b": "it is correct horse battery"})
    assert store.find_secrets() == []
    found = {(each.path, each.rule) for each in store.find_secrets(guard=given)}
    assert found == {("a.pin", "field"), ("b", "$CRED{db}")}


@pytest.mark.parametrize("size", [40, 70, 5000])
def test_a_value_beside_a_telling_name_is_found_wherever_it_is_stored(store, size):
    random = Random(size)
    value = "".join(random.choices("abcdefghijkABCDEFGHIJK0123456789", k=size))
    store.thread("t").commit({"api_key": value, "a": {"client_secret": value, "b": "x" * 5000}})
    store.board().set("config/api_key", value)
    found = {(each.thread, each.path) for each in store.find_secrets()}
    assert found == {("t", "api_key"), ("t", "a.client_secret"), (None, "config/api_key")}
    purge_all(store)
    assert holding(store.path.parent, value) == []


def test_a_read_only_store_can_be_searched(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"a": TOKEN})
    with statelog.open(path, read_only=True) as store:
        found = store.find_secrets()
        assert len(found) == 1
        with pytest.raises(ReadOnlyError):
            store.purge(found)


# --- purging ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_purge_removes_secrets_of_any_entrance_from_every_file(tmp_path, monkeypatch, entrance):
    entrance = TABLE[entrance]
    monkeypatch.setitem(entrance.__globals__, "refused", lambda _work: None)
    with statelog.open(tmp_path / "agent.state") as store:
        entrance(store)
        assert holding(tmp_path, *entrances.forms()) != []
        report = purge_all(store, guard=entrances.guard_of_test())
        assert report.redactions > 0
        assert holding(tmp_path, *entrances.forms()) == []
        assert store.find_secrets(guard=entrances.guard_of_test()) == []
        check_whole(store)
        store.thread("more").commit({"a": 1})
        check_whole(store)
    assert holding(tmp_path, *entrances.forms()) == []


@pytest.mark.slow
def test_every_version_is_unchanged_except_for_the_redaction(store):
    thread = store.thread("t", schema={"items": reducers.append, "note": reducers.replace})
    for number in range(40):
        thread.commit({"items": f"{number} {TOKEN if number % 7 == 3 else 'plain'}", "note": number})
    thread.tag("here", 9)
    before = [(each.version, each.lsn, each.time, each.state.to_python()) for each in thread.history()]
    (mark,) = {each.fingerprint for each in store.find_secrets()}
    purge_all(store)
    after = [(each.version, each.lsn, each.time, each.state.to_python()) for each in thread.history()]
    assert after == [
        (*each, {**state, "items": [item.replace(TOKEN, f"[REDACTED github-token {mark}]") for item in state["items"]]})
        for *each, state in before
    ]
    assert thread.at("here").version == 9


def test_ids_of_callers_are_kept_but_default_ids_of_changed_checkpoints_change(store):
    thread = store.thread("t")
    thread.commit({"a": TOKEN}, id="mine")
    default = thread.commit({"a": 2}).id
    purge_all(store)
    assert is_redacted(thread.at("mine").state["a"])
    assert thread.head.id != default


def test_a_text_is_redacted_even_where_no_rule_finds_it(store):
    secret = SECRETS["named-secret"](RANDOM)
    encoded = base64.b64encode(secret.encode()).decode()
    store.thread("t").commit({"api_key": secret, "note": f"try {secret}", "b": encoded})
    purge_all(store)
    assert holding(store.path.parent, secret, encoded[:40]) == []
    assert is_redacted(store.thread("t").state["note"].removeprefix("try "), "named-secret")


def test_a_short_secret_of_a_field_is_redacted_only_in_its_field(store):
    given = Guard(secrets=guard.Secrets(fields=["**.password", "config.db.pin"]))
    value = {"db": {"pin": 1234, "port": 1234, "host": "tiger"}}
    store.thread("t").commit({"config": value, "users": [{"password": "tiger"}], "animal": "tiger", "number": 1234})
    purge_all(store, guard=given)
    state = store.thread("t").state.to_python()
    assert is_redacted(state["config"]["db"].pop("pin"), "field")
    assert is_redacted(state["users"][0]["password"], "field")
    assert state["config"] == {"db": {"port": 1234, "host": "tiger"}}
    assert (state["animal"], state["number"]) == ("tiger", 1234)


def test_a_number_of_a_field_is_kept_in_siblings_and_in_other_entries_of_the_board(store):
    given = Guard(secrets=guard.Secrets(fields=["**.pin", "id"]))
    rest = {"count": 1, "list": [1, 2, 1], "pages": {"id": 1, "text": "x" * 80, "list": [1] * 90}}
    store.thread("t").commit({"pin": 1, **rest})
    board = store.board()
    board.set("retries", 1)
    board.set("pin", 1)
    board.set("seats", 1)
    assert purge_all(store, guard=given).redactions == 2
    state = store.thread("t").state.to_python()
    assert is_redacted(state.pop("pin"), "field")
    assert state == rest
    assert [board.get(key).value for key in ("retries", "seats")] == [1, 1]
    assert is_redacted(board.get("pin").value, "field")
    check_whole(store)


def test_only_found_secrets_are_purged(store):
    store.thread("t").commit({"a": TOKEN, "b": OTHER})
    store.purge([each for each in store.find_secrets() if each.path == "a"])
    state = store.thread("t").state
    assert is_redacted(state["a"])
    assert state["b"] == OTHER


def test_a_set_stays_sorted_and_finds_its_elements(store):
    thread = store.thread("t", schema={"s": reducers.union})
    thread.commit({"s": {f"element {number}" for number in range(500)} | {f"x {TOKEN}", f"{TOKEN} y"}})
    thread.commit({"s": {"more"}})
    purge_all(store)
    check_whole(store)
    held = set(thread.state["s"])
    thread.commit({"s": {"element 77", "new", *[each for each in held if "REDACTED" in each]}})
    assert set(thread.state["s"]) == held | {"new"}
    assert len(thread.state["s"]) == len(held) + 1


def test_an_item_whose_identity_was_a_secret_is_found_by_the_redaction(store):
    thread = store.thread("t", schema={"items": reducers.upsert("id")})
    ids = [f"{number} {TOKEN if number == 150 else ''}" for number in range(300)]
    thread.commit({"items": [{"id": id, "v": "x" * 80} for id in ids]})
    purge_all(store)
    (id,) = [each["id"] for each in thread.state["items"] if "REDACTED" in each["id"]]
    thread.commit({"items": [{"id": id, "v": "new"}]})
    assert len(thread.state["items"]) == 300
    assert [each["v"] for each in thread.state["items"] if each["id"] == id] == ["new"]
    check_whole(store)


def test_half_of_a_secret_in_an_earlier_version_is_unchanged(store):
    thread = store.thread("t")
    text = "word " * 8000
    thread.commit({"text": text + TOKEN[:20]})
    thread.commit({"text": text + TOKEN + " and more"})
    purge_all(store)
    assert thread.at(0).state["text"] == text + TOKEN[:20]
    assert is_redacted(thread.at(1).state["text"][len(text) :].removesuffix(" and more"))
    check_whole(store)


def test_a_leaf_that_becomes_too_small_for_sharing_is_kept_for_its_borrowers(store):
    value = {"text": "x" * 3300, "pem": PEM}
    assert 4096 <= len(statelog.Encoded(value).item) < 4300
    owner, borrower = store.thread("owner"), store.thread("borrower")
    owner.commit({"a": {"deep": value}})
    borrower.commit({"b": {"deep": value}})
    purge_all(store)
    expected = borrower.state["b"]["deep"]
    assert "REDACTED" in expected["pem"]
    owner.commit({"a": 1})
    store.prune(keep_last=1, threads="owner")
    store.delete_thread("owner")
    store.compact()
    assert borrower.state["b"]["deep"] == expected
    check_whole(store)


def borrow(store, text, *names):
    """Commit the same text to several threads. The first one has it, and only the second one notes that it borrows."""
    for name in names:
        store.thread(name).commit({"text": text})


def let_go(store, *names):
    for name in names:
        store.thread(name).commit({"text": "another"})
    store.prune(keep_last=1)
    store._engine.cache.clear()


@pytest.mark.parametrize("size", [3300, 6000, 30_000])
@pytest.mark.parametrize("first_borrower", ["stays", "is deleted", "is swept"])
def test_a_large_text_is_redacted_and_kept_for_all_its_borrowers(store, size, first_borrower):
    text = f"{'x' * size}\n{PEM}"
    assert len(text) > 4096
    borrow(store, text, "owner", "first", "second", "third")
    if first_borrower != "stays":
        store.delete_thread("first")
    if first_borrower == "is swept":
        store.compact()
    purge_all(store)
    check_whole(store)
    expected = store.thread("third").state["text"]
    assert "REDACTED" in expected
    let_go(store, "owner")
    assert store.thread("second").state["text"] == store.thread("third").state["text"] == expected
    store.delete_thread("owner")
    store.compact()
    check_whole(store)
    assert store.thread("second").state["text"] == store.thread("third").state["text"] == expected
    for thread in list(store.threads()):
        store.delete_thread(thread.id)
    store.compact()
    assert b"x" * 1000 not in store.path.read_bytes()


def test_a_second_purge_redacts_a_leaf_that_the_first_has_made_too_small_for_sharing(store):
    borrow(store, f"{'x' * 3300}\n{PEM} {TOKEN}", "owner", "first", "second")
    store.purge([each for each in store.find_secrets() if each.rule == "private-key"])
    assert TOKEN in store.thread("second").state["text"]
    purge_all(store)
    check_whole(store)
    assert TOKEN not in store.thread("second").state["text"]


def redacted(store, text):
    """Return a text as a purge of the store leaves it."""
    store.thread("aside").commit({"text": text})
    purge_all(store)
    return store.thread("aside").state["text"]


def borrow_texts_that_a_purge_makes_equal(store):
    """Write two texts, each in two threads. Return their beginning, and their end as a purge leaves it."""
    begin = "x" * 6000
    mark = redacted(store, TOKEN)
    borrow(store, begin + TOKEN, "raw")
    borrow(store, begin + mark, "marked")
    borrow(store, begin + TOKEN, "borrower")
    borrow(store, begin + mark, "another")
    return begin, mark


def test_a_text_that_becomes_equal_to_another_is_kept_for_its_borrowers(store):
    """The index shows only the later one of two equal nodes as borrowed, because it was there first."""
    begin, mark = borrow_texts_that_a_purge_makes_equal(store)
    purge_all(store)
    let_go(store, "raw")
    check_whole(store)
    assert store.thread("borrower").state["text"] == begin + mark
    let_go(store, "marked", "another", "borrower")
    store.compact()
    assert begin.encode() not in store.path.read_bytes()


def test_a_sweep_lends_a_text_that_became_equal_to_another_in_a_purge_by_an_earlier_build(store, monkeypatch):
    begin, mark = borrow_texts_that_a_purge_makes_equal(store)
    with monkeypatch.context() as patch:
        patch.setattr("statelog.log.care.purge._borrowed_places", lambda _index: {})
        purge_all(store)
    for _sweep in range(2):
        store.compact()
    assert sum(record.type == "loan" for record in store.log()) == 1
    let_go(store, "raw")
    check_whole(store)
    assert store.thread("borrower").state["text"] == begin + mark


def test_equal_nodes_that_are_both_borrowed_can_both_be_swept(store):
    begin = "x" * 6000
    mark = redacted(store, TOKEN)
    borrow(store, begin + TOKEN, "raw", "borrower")
    borrow(store, begin + mark, "marked", "another")
    purge_all(store)
    let_go(store, "raw", "marked")
    store.compact()  # Both records lose their owner, the later one first.
    check_whole(store)
    store.delete_thread("borrower")
    store.compact()
    check_whole(store)
    assert store.thread("another").state["text"] == begin + mark


def test_when_the_middle_one_of_three_equal_nodes_is_swept_the_first_is_borrowed(store):
    begin = "x" * 6000
    token, other = redacted(store, TOKEN), redacted(store, OTHER)
    borrow(store, f"{begin} {token} {OTHER}", "first")
    borrow(store, f"{begin} {TOKEN} {other}", "middle", "borrower")
    borrow(store, f"{begin} {token} {other}", "last")
    purge_all(store)
    let_go(store, "middle", "borrower")
    store.compact()
    check_whole(store)
    for name in ("first", "last"):
        assert store.thread(name).state["text"] == f"{begin} {token} {other}"


@pytest.mark.slow
def test_a_purged_store_can_be_exported_imported_compacted_and_pruned(store, tmp_path):
    thread = store.thread("t", schema={"items": reducers.append, "big": reducers.replace})
    for number in range(60):
        big = "z" * 30_000 + TOKEN * (number % 2)
        thread.commit({"items": {"n": number, "text": f"{TOKEN} {number}" * 3}, "big": big})
    store.copy_thread("t", "copy")
    store.board().set("k", [TOKEN] * 9)
    purge_all(store)
    for number, threads in enumerate((None, ["t", "copy"])):
        with statelog.open(tmp_path / f"{number}.state") as copy:
            copy.import_(io.BytesIO(exported(store, threads=threads)))
            check_whole(copy)
            assert copy.thread("copy").state == thread.state
    thread.commit({"items": 1})
    thread.rollback(30)
    thread.commit({"items": 2})
    store.prune(keep_last=3)
    store.compact()
    assert store.rebuild_index() == store.last_lsn
    check_whole(store)
    assert holding(tmp_path, TOKEN) == []


def test_a_copy_is_read_after_a_purge_if_its_source_was_deleted_and_compacted(store):
    store.thread("t").commit({"page": {"text": f"{TOKEN} {'x' * 90}"}})
    store.copy_thread("t", "copy").commit({"a": 1})
    store.delete_thread("t")
    store.compact()
    purge_all(store)
    assert "REDACTED github-token" in store.thread("copy").state["page"]["text"]
    check_whole(store)


def test_remains_of_retention_are_also_purged(store):
    thread = store.thread("t", schema={"items": reducers.append})
    for number in range(30):
        thread.commit({"items": {"n": number, "text": f"{TOKEN} {number}" * 3}})
    store.prune(keep_last=2)
    deleted = store.thread("deleted")
    deleted.commit({"a": TOKEN})
    store.delete_thread("deleted")
    purge_all(store)
    assert holding(store.path.parent, TOKEN) == []
    check_whole(store)


def test_a_second_purge_finds_nothing(store):
    store.thread("t").commit({"a": TOKEN})
    purge_all(store)
    assert store.find_secrets() == []
    assert store.purge([]).redactions == 0


# --- other users of the store -------------------------------------------------------------------

READ_AND_COMMIT = """
import sys, statelog
with statelog.open(sys.argv[1]) as store:
    print(store.thread("t").state["a"][:4], flush=True)
    sys.stdin.readline()
    for attempt in (lambda: store.thread("t").state["a"], lambda: store.thread("t").commit({"a": 2})):
        try:
            print("did", attempt(), flush=True)
        except statelog.StatelogError as error:
            print(type(error).__name__, "purged" in str(error), flush=True)
with statelog.open(sys.argv[1]) as store:
    print(store.thread("t").state["a"][:9], flush=True)
"""


def test_another_process_neither_reads_nor_writes_until_it_opens_the_store_again(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"a": TOKEN})
        child = forks.Popen(
            [sys.executable, "-c", READ_AND_COMMIT, path],
            stdin=-1,
            stdout=-1,
            text=True,
        )
        assert child.stdout.readline().strip() == TOKEN[:4]
        purge_all(store)
        told, _ = child.communicate("\n", timeout=100)
        assert told.split() == ["StoreReplacedError", "True", "StoreReplacedError", "True", "[REDACTED"]
        assert child.returncode == 0
        store.thread("t").commit({"a": 1})
        check_whole(store)


def test_another_handle_of_this_process_has_to_be_opened_again(path):
    with statelog.open(path) as store, statelog.open(path) as other:
        store.thread("t").commit({"a": TOKEN})
        thread, head = other.thread("t"), other.thread("t").head
        assert head.state["a"] == TOKEN
        purge_all(store)
        for attempt in (lambda: thread.state, lambda: head.state["a"], lambda: thread.commit({"a": 1})):
            with pytest.raises(StoreReplacedError, match="purged"):
                attempt()
        with statelog.open(path) as again:
            assert is_redacted(again.thread("t").state["a"])


def test_a_checkpoint_from_before_the_purge_shows_no_old_value(store):
    thread = store.thread("t")
    thread.commit({"a": TOKEN, "b": 1})
    head = thread.head
    assert head.state["a"] == TOKEN
    purge_all(store)
    with pytest.raises(StoreReplacedError, match="purge"):
        head.state.to_python()
    assert is_redacted(thread.state["a"])


def test_a_cursor_from_before_the_purge_is_refused(store):
    board = store.board()
    board.set("k", TOKEN)
    cursor = next(iter(board.watch("**", after=0, follow=False))).cursor
    purge_all(store)
    with pytest.raises(CursorError, match="purge"):
        next(iter(board.watch("**", after=cursor)))


def test_a_copy_from_before_the_purge_refuses_imports(store, tmp_path):
    store.thread("t").commit({"a": TOKEN})
    with statelog.open(tmp_path / "copy.state") as copy:
        copy.import_(io.BytesIO(exported(store)))
        purge_all(store)
        store.thread("t").commit({"a": 2})
        with pytest.raises(ConflictError, match="purge"):
            copy.import_(io.BytesIO(exported(store, since=copy.last_lsn)))


def test_an_anchor_from_before_the_purge_is_invalid(store):
    store.thread("t").commit({"a": TOKEN})
    anchor = store.anchor()
    purge_all(store)
    with pytest.raises(ForgeryError, match="A purge has rewritten the records up to LSN 2"):
        store.verify(expect=anchor)
    assert store.verify(expect=store.anchor()).ok


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, 7, "text", [1], [("t", 0)]])
def test_anything_except_found_secrets_is_refused(store, given):
    with pytest.raises(UsageError, match="find_secrets"):
        store.purge(given)


def test_secrets_found_in_another_store_are_refused(store, tmp_path):
    store.thread("t").commit({"a": TOKEN})
    with statelog.open(tmp_path / "other.state") as other:
        other.thread("t").commit({"a": TOKEN})
        found = other.find_secrets()
    with pytest.raises(UsageError, match="another store") as caught:
        store.purge(found)
    assert caught.value.facts["lsn"] == found[0].lsn


@pytest.mark.parametrize("lsn", [2, 0, 99])
def test_an_unknown_fingerprint_or_record_is_refused(store, lsn):
    store.thread("t").commit({"a": TOKEN})
    with pytest.raises(UsageError, match="fingerprint 00000000"):
        store.purge([SecretFound("t", 0, "a", "github-token", "00000000", lsn)])
    assert store.thread("t").state["a"] == TOKEN


def test_a_guarded_store_is_not_purged_without_a_guard(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"a": TOKEN})
        found = store.find_secrets()
        with statelog.open(path, guard=Guard()):
            pass
        with pytest.raises(GuardError):
            store.purge(found)
    with statelog.open(path, guard=Guard()) as store:
        purge_all(store)
        assert is_redacted(store.thread("t").state["a"])
        check_whole(store)


def test_a_purge_within_a_commit_is_refused(store):
    store.thread("t").commit({"a": TOKEN})
    found = store.find_secrets()
    with pytest.raises(UsageError):
        store.thread("t").edit(lambda _state: store.purge(found))


# --- interruptions -------------------------------------------------------------------------------------------

PURGE = """
import sys, statelog
with statelog.open(sys.argv[1]) as store:
    store.purge(store.find_secrets())
"""

PURGE_POINTS = [
    *[point for point in faults.POINTS if point.startswith("purge.")],
    "compaction.before_temporary",
    "compaction.after_temporary",
    "compaction.before_file_sync",
    "compaction.after_file_sync",
    "compaction.before_rename",
    "compaction.after_rename",
    "compaction.after_directory_sync",
    "compaction.between_removals",
]


@pytest.mark.slow
@pytest.mark.parametrize("point", PURGE_POINTS)
def test_a_purge_killed_anywhere_leaves_the_old_store_or_the_new_one(path, point):
    with statelog.open(path) as store:
        for number in range(20):
            store.thread("t").commit({"a": f"{number} {TOKEN}"})
    child = forks.run(
        [sys.executable, "-c", PURGE, path],
        env={**os.environ, faults.ENVIRONMENT_VARIABLE: f"{point}:1:kill"},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    with statelog.open(path) as store:
        check_whole(store)
        texts = [each.state["a"] for each in store.thread("t").history()]
        assert len(texts) == 20
        assert all(TOKEN in text for text in texts) or not any(TOKEN in text for text in texts)
        if any(TOKEN in text for text in texts):
            purge_all(store)
    assert holding(path.parent, TOKEN) == []


@pytest.mark.parametrize("point", ["compaction.before_file_sync", "compaction.before_rename"])
def test_a_failed_purge_leaves_the_store_unchanged(path, point):
    with statelog.open(path) as store:
        store.thread("t").commit({"a": TOKEN})
        found = store.find_secrets()
        faults.arm(point, action=_fail)
        with pytest.raises(OSError, match="of the test"):
            store.purge(found)
        assert store.thread("t").state["a"] == TOKEN
        store.thread("t").commit({"a": 2})
        check_whole(store)
        store.purge(found)
        assert holding(path.parent, TOKEN) == []


def _fail():
    raise OSError("of the test")


@pytest.mark.parametrize("around", ["plain", f"the key is {TOKEN}"])
def test_a_langgraph_value_split_into_items_is_joined_without_the_secret(store, around):
    jsonplus = pytest.importorskip("langgraph.checkpoint.serde.jsonplus")
    from statelog.adapters.kit import items
    from statelog.adapters.kit.packed import put_together
    from statelog.adapters.langgraph.values.list_items import cut
    from statelog.adapters.langgraph.values.msgpack_items import pack

    serde = jsonplus.JsonPlusSerializer()
    thread = store.thread("t")

    def value(count, mark):
        texts = [f"{number} {mark if number == 7 else 'plain'} " * 9 for number in range(count)]
        return {"before": around.replace(TOKEN, mark), "messages": texts, "after": {"more": texts[::-1], "n": 1}}

    for count in (40, 41):
        pieces = cut(serde.dumps_typed(value(count, TOKEN))[1])
        items.commit(thread, items.put("a", items.pack_list([pack(piece) for piece in pieces])))
    (mark,) = {each.fingerprint for each in store.find_secrets()}
    purge_all(store)
    check_whole(store)
    for version, count in enumerate((40, 41)):
        stored = b"".join([each.data for each in thread.at(version).state["a"]])
        expected = value(count, f"[REDACTED github-token {mark}]")
        assert serde.loads_typed(("msgpack", put_together(stored))) == expected
    store.prune(keep_last=1)
    store.compact()
    check_whole(store)
    assert holding(store.path.parent, TOKEN) == []


def test_a_store_that_a_fleet_ships_is_not_purged(tmp_path):
    from statelog import fleet

    (tmp_path / "bucket").mkdir()
    connected = fleet.connect(f"file://{tmp_path / 'bucket'}", cache=tmp_path / "cache")
    with connected, connected.open("shipped") as store:
        store.thread("t").commit({"a": TOKEN})
        with pytest.raises(UsageError, match="restore the store to a file"):
            purge_all(store)
        assert store.thread("t").state["a"] == TOKEN


@pytest.mark.slow
def test_the_way_to_purge_a_store_of_a_fleet_leads_to_storage_without_the_secret(tmp_path):
    """The error and the guide describe this way."""
    from statelog import fleet

    bucket, cache, file = tmp_path / "bucket", tmp_path / "cache", tmp_path / "restored.state"
    bucket.mkdir()

    def leaking():
        files = [each for root in (bucket, cache) for each in root.rglob("*") if each.is_file()]
        return [each for each in files if TOKEN.encode() in each.read_bytes()]

    with fleet.connect(f"file://{bucket}", cache=cache) as connected:
        with connected.open("shipped") as store:
            store.thread("t").commit({"a": TOKEN})
            store.thread("t").commit({"a": "done"})
            store.board().set("k", {"v": 1})
        assert {each.relative_to(tmp_path).parts[0] for each in leaking()} == {"bucket", "cache"}
        connected.restore("shipped", file)
        with statelog.open(file, guard=Guard()) as store, io.BytesIO() as exported:
            purge_all(store)
            store.export(exported)
            exported.seek(0)
            with connected.open("purged", guard=Guard()) as shipped:
                shipped.import_(exported)
        connected.delete("shipped")
        assert leaking() == []
        connected.restore("purged", tmp_path / "again.state")
    with statelog.open(tmp_path / "again.state", read_only=True) as store:
        assert is_redacted(store.thread("t").at(0).state["a"])
        assert store.thread("t").state["a"] == "done"
        assert store.board().get("k").value == {"v": 1}
        assert store.find_secrets() == []


def test_asyncio_can_search_and_purge(path):
    async def work():
        async with aio.open(path) as store:
            await store.thread("t").commit({"a": TOKEN})
            found = await store.find_secrets(threads=["t"])
            report = await store.purge(found)
            assert (len(found), report.redactions) == (1, 1)
            assert await store.find_secrets() == []

    asyncio.run(work())


@pytest.mark.slow
def test_commits_of_other_threads_wait_for_a_purge_and_continue_in_the_new_file(store):
    thread = store.thread("busy", schema={"items": reducers.append})
    store.thread("t").commit({"a": TOKEN})
    stop = threading.Event()
    errors = []

    def commit():
        number = 0
        while not stop.is_set():
            try:
                thread.commit({"items": number})
            except statelog.StatelogError as error:
                errors.append(error)
            number += 1

    workers = [threading.Thread(target=commit) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(5):
        purge_all(store)
        store.thread("t").commit({"a": f"{number} {TOKEN}"})
    stop.set()
    for worker in workers:
        worker.join()
    assert errors == []
    purge_all(store)
    check_whole(store)
    assert holding(store.path.parent, TOKEN) == []


# --- a store with a key -------------------------------------------------------------

KEY = "the key of a purged store"


def test_a_store_with_a_key_is_purged_and_keeps_its_key(path):
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"note": f"log in with {TOKEN}", "list": [f"item {number}" for number in range(100)]})
        store.board().set("k", {"token": OTHER})
        purge_all(store)
        check_whole(store)
        store.thread("t").commit({"note": "more"})
    assert holding(path.parent, TOKEN, OTHER) == []
    with statelog.open(path, key=KEY) as store:
        check_whole(store)
        assert store.thread("t").at(0).state["note"].startswith("log in with [REDACTED github-token")
    with pytest.raises(KeyMissingError):
        statelog.open(path)


def test_a_purge_gives_no_mac_to_a_forged_record(path):
    with statelog.open(path, key=KEY) as store:
        for number in range(5):
            store.thread("t").commit({"note": f"log in with {TOKEN}" if number == 3 else number})
    with forging(path) as forger:
        stored = forger.record(3)
        time_at = 24
        record = bytearray(stored[:-MAC_SIZE_BYTES])
        record[time_at + 7] ^= 1
        forger.put_record(3, with_checksum(bytes(record)) + stored[-MAC_SIZE_BYTES:])
    before = path.read_bytes()
    with statelog.open(path, key=KEY) as store, pytest.raises(ForgeryError):
        purge_all(store)
    assert path.read_bytes() == before


# --- names, handles and places that only some users have ------------------------------------


def test_a_secret_in_the_key_of_an_entry_is_removed_by_retention_and_compaction(path):
    with statelog.open(path) as store:
        board = store.board()
        board.set(f"k/{TOKEN}", 1)
        store.thread("t").commit({"note": TOKEN})
        board.delete(f"k/{TOKEN}")
        with pytest.raises(SecretError, match="max_age=0"):
            purge_all(store)
        board.prune("**", max_age=0)
        store.compact()
        purge_all(store)
    assert holding(path.parent, TOKEN) == []


def test_the_value_of_a_handle_is_found_before_it_was_resolved(store):
    value = "a value that no rule knows"
    store.thread("t").commit({"note": f"the value is {value}"})
    given = Guard(handles=guard.Handles({"vault": lambda: value}))
    found = store.find_secrets(guard=given)
    assert [each.rule for each in found] == ["$CRED{vault}"]
    store.purge(found, guard=given)
    assert store.thread("t").at(0).state["note"] == "the value is $CRED{vault}"


def test_a_handle_whose_source_fails_is_named_by_a_search(store):
    with pytest.raises(GuardError, match="handle 'vault' raised KeyError"):
        store.find_secrets(guard=Guard(handles=guard.Handles({"vault": lambda: {}["no"]})))


@pytest.mark.parametrize("threads", [[3], b"t", "t", [None]])
def test_threads_of_a_search_must_be_ids(store, threads):
    store.thread("t").commit({"a": 1})
    with pytest.raises(UsageError) as caught:
        store.find_secrets(threads=threads)
    assert caught.value.argument == "threads"


# --- vectors ------------------------------------------------------------------------------------


def embed_with(dims):
    """Return a function that embeds a text as its digest, repeated. No two vectors have a number in common."""

    def embed(texts):
        rows = [blake2b(text.encode(), digest_size=64).digest() for text in texts]
        return [[byte / 255 + 0.5 for byte in (row * dims)[:dims]] for row in rows]

    return embed


def vector_bytes(dims, text):
    """Return the beginning of a vector, which is in one piece also in a long vector."""
    return struct.pack(f"<{dims}f", *embed_with(dims)([text])[0])[:1000]


@pytest.mark.parametrize("dims", [4, 100, 2000, 6000])
@pytest.mark.parametrize("count", [1, 30])
def test_the_vector_of_a_purged_item_is_removed_and_others_are_kept(path, tmp_path, dims, count):
    pytest.importorskip("langgraph")
    pytest.importorskip("numpy")
    from statelog.adapters.langgraph import StatelogStore

    secret, clean = f"the key is {TOKEN}", "the weather is fine"
    with statelog.open(path) as store:
        memory = StatelogStore(store, index={"dims": dims, "embed": embed_with(dims), "fields": ["text"]})
        for number in range(count):
            memory.put(("a",), f"other {number}", {"text": f"{clean} {number}"})
        memory.put(("a",), "k", {"text": secret})
        memory.put(("b", "c"), "k", {"text": f"also {clean}"})
        memory.put(("a",), "k2", {"text": "x" * 20_000 + secret})
        memory.put(("a",), "k", {"text": secret, "more": 1})
    assert holding(tmp_path, vector_bytes(dims, secret))  # Negative control.
    with statelog.open(path) as store:
        store.purge(store.find_secrets())
        assert store.verify().ok
        memory = StatelogStore(store, index={"dims": dims, "embed": embed_with(dims), "fields": ["text"]})
        best = memory.search(("a",), query=f"{clean} 0", limit=count + 2)
        assert (best[0].key, round(best[0].score, 3)) == ("other 0", 1.0)
        assert {(each.key, each.score) for each in best[count:]} == {("k", None), ("k2", None)}
        [other] = memory.search(("b",), query=f"also {clean}")
        assert round(other.score, 3) == 1.0
        memory.put(("a",), "k", memory.get(("a",), "k").value)
        assert memory.search(("a",), query="x", filter={"more": 1})[0].score is not None
        store.compact()
    for text in (secret, "x" * 20_000 + secret):
        assert not holding(tmp_path, vector_bytes(dims, text))
    for number in range(count):
        assert holding(tmp_path, vector_bytes(dims, f"{clean} {number}"))


def test_the_vector_of_a_purged_crewai_memory_is_removed(store, tmp_path):
    """The thread has the form that `StatelogMemoryStorage` writes."""
    vectors = [struct.pack("<40f", *range(start, start + 40)) for start in (1, 101)]
    texts = [Json(json.dumps({"content": text, "scope": "/"})) for text in (f"the key is {TOKEN}", "fine")]
    thread = store.thread("crewai-memory:memory", schema={"records": reducers.merge, "vectors": reducers.merge})
    thread.commit({"records": {"1": texts[0]}, "vectors": {"1": vectors[0]}})
    thread.commit({"records": {"2": texts[1]}, "vectors": {"2": vectors[1]}})
    assert holding(tmp_path, vectors[0])
    store.purge(store.find_secrets())
    assert store.verify().ok
    assert not holding(tmp_path, vectors[0])
    assert thread.state["vectors"] == {"1": b"\xff" * 160, "2": vectors[1]}


def test_a_user_channel_named_vectors_is_kept(store):
    vector = struct.pack("<40f", *range(40))
    store.thread("t").commit({"items": {"a": {"k": TOKEN}}, "vectors": {"a": {"k": vector}}})
    store.purge(store.find_secrets())
    assert store.thread("t").state["vectors"] == {"a": {"k": vector}}
