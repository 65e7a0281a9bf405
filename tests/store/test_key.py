"""The key of a store: who can open the store, where the key never appears, and `rekey`. FORMAT.md section 10."""

from __future__ import annotations

import asyncio
import copy
import errno
import io
import logging
import multiprocessing
import pickle
import subprocess
import sys
import threading
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog import aio, guard, kernels
from statelog.errors import (
    CorruptionError,
    ForgeryError,
    GuardError,
    KeyArgumentError,
    KeyMissingError,
    NewerFormatError,
    StorageError,
    StoreLockedError,
    StoreNotFoundError,
    UnkeyedStoreError,
    WrongKeyError,
)
from statelog.format import header as headers
from statelog.format.mac import StoreKey, as_store_key
from statelog.storage import faults
from statelog.storage.file.creation import compaction_path
from statelog.storage.file.sidecar_files import journal_path
from statelog.testing import SCHEMA, StoreModel, assert_matches, histories, perform_all
from statelog.testing.observation import observe

KEY = "the key of this store, 7f3a"
OTHER_KEY = b"another key of this store"
REKEY_POINTS = [point for point in faults.POINTS if point.startswith("compaction.")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.state"


def fill(path, key=KEY, count=4):
    """Make a store with a thread and an entry. Return its anchor."""
    with statelog.open(path, key=key) as store:
        for number in range(count):
            store.thread("t").commit({"n": number, "text": f"text {number} " * 300})
        store.board().set("entry", {"v": 1})
        return store.anchor()


# --- who can open it -------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [KEY, KEY.encode(), lambda: KEY, KEY.encode, StoreKey(KEY)],
    ids=["text", "bytes", "function", "method", "StoreKey"],
)
def test_a_key_is_a_str_or_bytes_or_a_function_that_returns_them(path, key):
    fill(path)
    with statelog.open(path, key=key) as store:
        assert store.thread("t").state["n"] == 3


def test_guard_env_can_provide_a_key(path, monkeypatch):
    monkeypatch.setenv("STATE_KEY", KEY)
    fill(path)
    with statelog.open(path, key=guard.env("STATE_KEY")) as store:
        assert store.thread("t").state["n"] == 3
    monkeypatch.delenv("STATE_KEY")
    with pytest.raises(GuardError):
        statelog.open(path, key=guard.env("STATE_KEY"))


@pytest.mark.slow
def test_guard_env_needs_no_extra():
    code = "import sys; sys.modules['re2'] = None; from statelog import guard; guard.env('NAME')"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize(
    "key", ["", "fifteen letters", b"x" * 15, 7, ["k" * 16], object(), lambda: None, lambda: "short"]
)
def test_an_invalid_key_is_refused_before_anything_is_opened(path, key):
    with pytest.raises(KeyArgumentError) as caught:
        statelog.open(path, key=key)
    assert caught.value.argument == "key"
    assert not hasattr(caught.value, "value")
    assert not path.exists()


def test_a_key_of_sixteen_or_more_bytes_is_accepted(tmp_path):
    for name, key in {"least": "x" * 16, "umlauts": "ü" * 8, "many": b"y" * 10_000}.items():
        fill(tmp_path / name, key)
        with statelog.open(tmp_path / name, key=key) as store:
            assert store.verify().ok


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"create": False}], ids=str)
@pytest.mark.parametrize(("key", "kind"), [(None, KeyMissingError), (OTHER_KEY, WrongKeyError)], ids=str)
def test_a_store_is_opened_only_with_its_key(path, options, key, kind):
    fill(path)
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        statelog.open(path, key=key, **options)
    assert type(caught.value) is kind
    assert caught.value.path == str(path)
    assert path.read_bytes() == before


def test_a_store_without_a_key_is_not_opened_with_one(path):
    fill(path, key=None)
    before = path.read_bytes()
    for options in ({}, {"read_only": True}):
        with pytest.raises(UnkeyedStoreError):
            statelog.open(path, key=KEY, **options)
    assert path.read_bytes() == before


def test_a_reader_creates_no_file(path):
    with pytest.raises(StoreNotFoundError):
        statelog.open(path, key=KEY, read_only=True)


@pytest.mark.parametrize(("key", "kind"), [(None, KeyMissingError), (OTHER_KEY, WrongKeyError)], ids=str)
def test_a_second_opening_of_a_process_also_needs_the_key(path, key, kind):
    fill(path)
    with statelog.open(path, key=KEY) as store:
        with pytest.raises(kind):
            statelog.open(path, key=key)
        with statelog.open(path, key=KEY) as same:
            same.thread("t").commit({"n": 9})
        assert store.thread("t").state["n"] == 9


def test_a_second_opening_with_a_key_of_an_unkeyed_store_is_refused(path):
    fill(path, key=None)
    with statelog.open(path) as store:
        with pytest.raises(UnkeyedStoreError):
            statelog.open(path, key=KEY)
        store.thread("t").commit({"n": 9})


def test_anchors_work_with_a_key(path):
    anchor = fill(path)
    with statelog.open(path, key=KEY, expect=anchor) as store:
        assert store.verify(expect=anchor).ok


def test_asyncio_can_open_and_rekey_a_store(path):
    async def run():
        async with aio.open(path, key=KEY) as store:
            await store.thread("t").commit({"n": 1})
            await store.rekey(OTHER_KEY)
            await store.thread("t").commit({"n": 2})

    asyncio.run(run())
    with statelog.open(path, key=OTHER_KEY) as store:
        assert store.thread("t").state["n"] == 2


def test_an_older_release_refuses_a_store_with_a_key_by_its_format(path, monkeypatch):
    fill(path)
    monkeypatch.setattr(headers, "FORMAT_VERSION", 6)
    with pytest.raises(NewerFormatError) as caught:
        statelog.open(path)
    assert caught.value.needed == 7


# --- where the key never appears ---------------------------------------------------------------


def texts_of(key):
    secret = key._secret if isinstance(key, StoreKey) else key.encode()
    return [secret, repr(secret).encode(), secret.hex().encode()]


def test_the_key_is_in_no_file_and_in_no_text(path, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    key = StoreKey(KEY)
    fill(path)
    words = []
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"n": 5})
        store_file = store._engine.store_file
        mac = store_file.lmdb_file.handles.mac
        words += [repr(store), repr(store_file.options), repr(store_file.lmdb_file.header), repr(mac), repr(key)]
        words += [repr(store.statistics()), repr(store.verify())]
        target = io.BytesIO()
        store.export(target)
        store.image(tmp_path / "image")
        files = [entry.read_bytes() for entry in tmp_path.iterdir()]
        subkey = mac.row_key
    for wrong in (None, OTHER_KEY, "short", 7):
        with pytest.raises(statelog.StatelogError) as caught:
            statelog.open(path, key=wrong)
        words += [repr(caught.value), str(caught.value), repr(caught.value.facts)]
    haystack = [target.getvalue(), *files, *(word.encode() for word in [*words, caplog.text])]
    for needle in [*texts_of(KEY), *texts_of(key), subkey, subkey.hex().encode(), OTHER_KEY]:
        assert not any(needle in each for each in haystack)


def test_the_key_is_not_pickled(path):
    key = StoreKey(KEY)
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            act(key)
    with statelog.open(path, key=KEY) as store, pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        multiprocessing.get_context("spawn").Process(target=print, args=(store._engine.store_file.options,)).start()


def test_negative_control_the_search_for_the_key_finds_it_in_a_state(path):
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"n": KEY})
    assert texts_of(KEY)[0] in path.read_bytes()


# --- the bytes ------------------------------------------------------------------------------


def test_the_macs_equal_those_of_the_format(path):
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"n": 1})
        store_id = store._engine.store_file.lmdb_file.store_id
        secret = blake2b(KEY.encode(), person=b"stlg-key-1").digest()
        subkey = blake2b(store_id, digest_size=32, key=secret, person=b"stlg-subkey-1").digest()

        def mac(person, size, data):
            return blake2b(data, digest_size=size, key=subkey, person=person).digest()

        with store._engine.read() as view:
            transaction = view.transaction
            record = bytes(transaction.get_log(2))
            stored = transaction._raw.get((2).to_bytes(8), None, transaction._log)
            assert bytes(stored) == record + mac(b"stlg-recmac-1", 16, (2).to_bytes(8) + record)
            key = next(key for key in transaction.index_keys() if key[:1] == b"v")
            payload = transaction.get_index(key)
            stored = transaction._raw.get(key, None, transaction._index)
            assert bytes(stored) == payload + mac(b"stlg-rowmac-1", 8, len(key).to_bytes(2) + key + payload)
        header = store._engine.store_file.lmdb_file.header
        assert header["format"] == 7
        assert header["checksum"] == "blake2b-mac"
        assert header["key_check"] == mac(b"stlg-keycheck-1", 16, b"")


def test_records_and_chain_do_not_depend_on_the_key(tmp_path):
    fill(tmp_path / "source", key=None)
    logs = []
    for key in (None, KEY, OTHER_KEY):
        exported = io.BytesIO()
        with statelog.open(tmp_path / "source") as source:
            source.export(exported)
        exported.seek(0)
        with statelog.open(tmp_path / repr(key), key=key) as store:
            store.import_(exported)
            logs.append([(record.lsn, record.digest) for record in store.log()])
            assert store.verify().ok
    assert logs[0] == logs[1] == logs[2]


@given(st.binary(max_size=40), st.binary(max_size=300), st.integers(1, 2**62))
def test_a_mac_covers_every_part(key, payload, lsn):
    mac = as_store_key(KEY).for_store(bytes(16))
    other = as_store_key(KEY).for_store(b"x" * 16)
    assert mac.unseal(key, mac.seal(key, payload)) == payload
    assert mac.open_record(lsn, mac.seal_record(lsn, payload)) == payload
    wrong = [mac.seal(key + b"x", payload), other.seal(key, payload), mac.seal(key, payload + b"x")[:-1]]
    for value in [*wrong, payload, b"", mac.seal(key, payload)[:-1]]:
        with pytest.raises(ForgeryError):
            mac.unseal(key, value)
    for stored in (mac.seal_record(lsn + 1, payload), other.seal_record(lsn, payload), payload, b"", bytes(16)):
        with pytest.raises(ForgeryError):
            mac.open_record(lsn, stored)


def test_the_kernel_reads_only_rows_with_a_valid_mac(path):
    fill(path)
    with statelog.open(path, key=KEY) as store:
        handles = store._engine.store_file.lmdb_file.handles
        with store._engine.read() as view:
            transaction = view.transaction
            cursor = transaction._raw.cursor(handles.index)
            transaction.get_index(transaction.index_keys()[0])  # It finds the map.
            for row_key, is_read in ((handles.mac.row_key, True), (bytes(32), False), (kernels.NO_MAC_KEY, False)):
                assert cursor.first()
                found = kernels.rows_read(
                    cursor.key(), handles.page_size_bytes, handles.map_address, transaction.snapshot_id,
                    handles.seen, row_key, b"", 4, downwards=False,
                )  # fmt: skip
                assert (found is not None) is is_read


# --- rekey ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=str)
def test_rekey_changes_the_key_of_a_store_and_nothing_else(path, key):
    anchor = fill(path, key)
    with statelog.open(path, key=key) as store:
        before = observe(store)
        store.rekey(OTHER_KEY)
        assert observe(store) == before
        store.thread("t").commit({"n": 9})
        assert store.verify(expect=anchor).ok
    for wrong in (None, KEY):
        with pytest.raises((KeyMissingError, WrongKeyError)):
            statelog.open(path, key=wrong)
    with statelog.open(path, key=OTHER_KEY, expect=anchor) as store:
        assert store.thread("t").state["n"] == 9
        assert store.verify(expect=anchor).ok


def test_rekey_keeps_the_mark_of_a_guard(path):
    pytest.importorskip("re2")
    with statelog.open(path, guard=statelog.Guard()) as store:
        store.thread("t").commit({"n": 1})
        store.rekey(KEY)
    with pytest.raises(GuardError):
        statelog.open(path, key=KEY)
    with statelog.open(path, key=KEY, guard=statelog.Guard()) as store:
        store.thread("t").commit({"n": 2})


def test_rekey_refuses_invalid_keys(path):
    fill(path)
    with statelog.open(path, key=KEY) as store:
        with pytest.raises(KeyArgumentError):
            store.rekey("short")
        store.thread("t").commit({"n": 9})
    with statelog.open(path, key=KEY):
        pass


def test_rekey_refuses_a_damaged_row(path):
    fill(path, key=None)
    with statelog.open(path) as store:
        store._engine.committer.submit(lambda transaction: transaction.put_index(b"zz", b"payload"))

        def damage(transaction):
            transaction.changes += 1
            transaction.rewrites = True
            transaction._raw.put(b"zz", b"damaged row", db=transaction._index)

        store._engine.committer.submit(damage)
        with pytest.raises(CorruptionError) as caught:
            store.rekey(KEY)
        assert caught.value.key == b"zz"
    with statelog.open(path):  # It has no key.
        pass


@pytest.mark.slow
@pytest.mark.parametrize("point", REKEY_POINTS)
@pytest.mark.parametrize("former", [None, KEY], ids=str)
def test_a_killed_rekey_leaves_the_old_file_or_the_new_one(path, point, former):
    anchor = fill(path, former)
    code = f"""
import statelog
from statelog.storage import compaction
compaction._COPIED_SIZE_BYTES = 500
with statelog.open({str(path)!r}, key={former!r}) as store:
    store.thread("t").commit({{"n": 77}})
    store.rekey({OTHER_KEY!r})
"""
    environment = {faults.ENVIRONMENT_VARIABLE: f"{point}:1:kill", "PYTHONPATH": ":".join(sys.path)}
    boot = "from statelog.storage import faults; faults.arm_from_environment()\n"
    ended = subprocess.run([sys.executable, "-c", boot + code], env=environment, check=False)
    keys = []
    for key in (former, OTHER_KEY):
        try:
            with statelog.open(path, key=key, expect=anchor) as store:
                assert store.thread("t").state["n"] == 77
                assert store.verify(expect=anchor).ok
                store.thread("t").commit({"n": 78})
                keys.append(key)
        except (KeyMissingError, WrongKeyError, UnkeyedStoreError):
            continue
    assert len(keys) == 1
    assert not compaction_path(path).exists()
    assert not journal_path(path).exists()
    if ended.returncode == 0:
        pytest.skip("a rekey does not pass this point")


def test_a_refused_rename_does_not_change_the_key(path):
    fill(path)
    with statelog.open(path, key=KEY) as store:

        def refuse():
            raise OSError(errno.EIO, "refused")

        faults.arm("compaction.before_rename", action=refuse)
        try:
            with pytest.raises(StorageError):
                store.rekey(OTHER_KEY)
        finally:
            faults.disarm()
        store.thread("t").commit({"n": 9})
    with statelog.open(path, key=KEY) as store:
        assert store.thread("t").state["n"] == 9


OTHER = """
import os, sys, statelog
store = statelog.open(sys.argv[1], key=os.environ["KEY"])
store.thread("theirs").commit({"n": 1})
print("open", flush=True)
sys.stdin.readline()
for act in (lambda: store.thread("theirs").state, lambda: store.thread("theirs").commit({"n": 2})):
    try:
        act()
    except statelog.errors.StoreKeyError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.slow
def test_another_process_gets_an_error_that_the_key_has_changed(path):
    fill(path)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"KEY": KEY, "PYTHONPATH": ":".join(sys.path)},
    ) as other:
        assert other.stdout.readline() == "open\n"
        with statelog.open(path, key=KEY) as store:
            store.rekey(OTHER_KEY)
            words, _errors = other.communicate("\n", timeout=60)
            assert words.split() == ["WrongKeyError", "WrongKeyError"]
            store.thread("t").commit({"n": 9})
    with statelog.open(path, key=OTHER_KEY) as store:
        assert store.thread("theirs").state["n"] == 1
        assert store.verify().ok


def test_commits_of_other_threads_continue_during_a_rekey(path):
    fill(path)
    done, failures = threading.Event(), []

    def commit(store):
        number = 0
        while not done.is_set():
            try:
                store.thread("busy").commit({"n": number})
                number += 1
            except StoreLockedError:
                pass
            except Exception as error:  # noqa: BLE001 - it is looked at
                failures.append(error)
                return

    with statelog.open(path, key=KEY) as store:
        worker = threading.Thread(target=commit, args=(store,))
        worker.start()
        for number in range(3):
            store.rekey(f"the key of round {number}")
        done.set()
        worker.join()
        assert failures == []
        last = store.thread("busy").state["n"]
    with statelog.open(path, key="the key of round 2") as store:
        assert store.thread("busy").state["n"] == last
        assert store.verify().ok


# --- the same store, with and without a key ---------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(histories(max_size=8))
def test_a_history_has_the_same_result_with_and_without_a_key(tmp_path_factory, history):
    folder, model = tmp_path_factory.mktemp("pair"), StoreModel()
    perform_all(history, model, schema=SCHEMA)
    for key in (None, KEY):
        with statelog.open(folder / repr(key), key=key, durability="interval") as store:
            perform_all(history, store, schema=SCHEMA)
        with statelog.open(folder / repr(key), key=key) as store:
            assert store.verify().ok
            assert_matches(store, model)


def test_copies_of_a_store_have_its_key_and_exports_have_none(path, tmp_path):
    anchor = fill(path)
    exported, threads = io.BytesIO(), io.BytesIO()
    with statelog.open(path, key=KEY) as store:
        store.image(tmp_path / "image")
        store.export(exported)
        store.export(threads, threads=["t"])
    with statelog.open(tmp_path / "image", key=KEY, expect=anchor) as store:
        assert store.verify(expect=anchor).ok
    for key in (None, OTHER_KEY):
        for source in (exported, threads):
            source.seek(0)
            target = tmp_path / f"imported {key!r} {source is threads}"
            with statelog.open(target, key=key) as store:
                store.import_(source)
                assert store.thread("t").state["n"] == 3
                assert store.verify().ok


def test_retention_and_deletion_keep_a_store_with_a_key_sound(path):
    fill(path, count=30)
    with statelog.open(path, key=KEY) as store:
        store.thread("gone").commit({"x": 1})
        store.delete_thread("gone")
        store.prune(keep_last=3)
        assert store.verify().ok
        store.compact()
        assert store.rebuild_index() > 0
        assert store.verify().ok
        assert store.thread("t").state["n"] == 29


def test_a_borrowed_record_is_valid_until_its_transaction_ends(path):
    fill(path)
    with statelog.open(path, key=KEY) as store:
        with store._engine.read() as view:
            records = [view.transaction.get_log(2), view.transaction.lend_log(2)]
            assert bytes(records[0]) == bytes(records[1])
        for record in records:
            with pytest.raises(ValueError, match="released"):
                bytes(record)


def test_a_langgraph_saver_accepts_a_key(path):
    pytest.importorskip("langgraph.checkpoint")
    from statelog.adapters.langgraph import StatelogSaver

    with StatelogSaver.open(path, key=KEY):
        pass
    with pytest.raises(WrongKeyError):
        StatelogSaver.open(path, key=OTHER_KEY)


def test_a_mount_and_a_snapshot_read_a_store_with_a_key(path):
    fill(path)
    with statelog.open(path, key=KEY) as store:
        store.thread("t").edit(lambda state: state.update(n=[1, 2]))
        with store.snapshot() as snapshot:
            assert list(snapshot.thread("t").state["n"]) == [1, 2]
        with store.transaction() as tx:
            tx.thread("t").commit({"n": 5})
            tx.thread("u").commit({"n": 6})
        assert store.verify().ok


@pytest.mark.slow
def test_statistics_count_the_macs_of_a_compacted_file(path):
    with statelog.open(path, key=KEY, durability="interval") as store:
        thread = store.thread("t")
        for number in range(2000):
            thread.commit({"n": number})
        foretold = store.statistics().compacted_size_bytes
        report = store.compact()
    assert foretold == pytest.approx(report.size_after_bytes, abs=0.02 * report.size_before_bytes)
