"""Files that are not stores, or have another format, are refused with their names."""

import os
import random
import sqlite3

import lmdb
import pytest

import statelog
from statelog.errors import CorruptionError, FormatError, NewerFormatError
from statelog.format import cbor
from statelog.format.header import HEADER_KEY, decode_header
from statelog.format.seal import seal, unseal
from statelog.portable.salvage import salvage
from statelog.storage.wal.shared_state import shared_state_path


def write(path, content):
    path.write_bytes(content)


def write_sqlite(path):
    connection = sqlite3.connect(path)
    connection.execute("create table t (x)")
    connection.commit()
    connection.close()


def write_lmdb(path):
    with lmdb.open(str(path), subdir=False, max_dbs=4) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"key", b"value")


FOREIGN = {
    "empty": lambda path: write(path, b""),
    "one byte": lambda path: write(path, b"x"),
    "text": lambda path: write(path, b"hello world\n" * 1000),
    "zeros": lambda path: write(path, bytes(65536)),
    "random": lambda path: write(path, random.Random(1).randbytes(65536)),
    "sqlite": write_sqlite,
    "other lmdb": write_lmdb,
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_foreign_file_is_refused_and_not_changed(path, kind, read_only):
    FOREIGN[kind](path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(FormatError) as caught:
        statelog.open(path, read_only=read_only)
    assert caught.value.path == str(path)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("kind", FOREIGN)
def test_nothing_is_created_beside_a_file_that_is_not_a_store(path, kind):
    FOREIGN[kind](path)
    lock = path.with_name(f"{path.name}-lock")
    before = {*path.parent.iterdir(), lock}
    with pytest.raises(FormatError):
        statelog.open(path)
    assert {*path.parent.iterdir(), lock} == before


IN_THE_WAY = {
    "store": lambda path: statelog.open(path).close(),
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to(path.with_name("elsewhere")),
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_a_file_that_cannot_be_a_shared_state_is_in_the_way(path, kind):
    statelog.open(path).close()
    path.with_name("elsewhere").write_bytes(b"my notes\n")
    shared_state = shared_state_path(path)
    IN_THE_WAY[kind](shared_state)
    before = {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    for _ in range(2):
        with pytest.raises(FormatError, match="move the other file elsewhere") as caught:
            statelog.open(path)
        assert caught.value.facts == {"path": str(path), "journal": str(shared_state)}
    assert {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()} == before
    statelog.open(path, read_only=True).close()
    shared_state.rename(path.with_name("aside"))
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
    assert not shared_state.exists()


@pytest.mark.parametrize("kind", ["one byte", "text", "random", "sqlite"])
def test_a_file_that_is_not_a_shared_state_is_not_overwritten(path, kind):
    """It is no error: after a loss of power, anything may be what is left of one."""
    statelog.open(path).close()
    shared_state = shared_state_path(path)
    for number in ("", "1"):
        FOREIGN[kind](shared_state)
        before = shared_state.stat(), shared_state.read_bytes()
        with statelog.open(path) as store:
            store.thread("t").commit({"n": 1})
        aside = shared_state.with_name(f"{shared_state.name}-aside{number}")
        assert (aside.stat().st_mtime_ns, aside.read_bytes()) == (before[0].st_mtime_ns, before[1])
        assert not shared_state.exists()


@pytest.mark.slow
def test_a_shared_state_file_can_have_any_content_left_by_a_power_failure(path):
    """A power failure leaves any sectors of a file in use, and any length."""
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 0})
        whole = shared_state_path(path).read_bytes()
    chance = random.Random(1)
    for number in range(1, 65):
        left = bytearray(whole[: chance.randint(0, len(whole))])
        for at in range(0, len(left), 512):
            if chance.random() < 0.7:
                left[at : at + 512] = bytes(len(left[at : at + 512]))
        shared_state_path(path).write_bytes(left)
        before = {*path.parent.iterdir()}
        with statelog.open(path) as store:
            store.thread("t").commit({"n": number})
        assert {*path.parent.iterdir()} <= before, "it is known for what it is"
    with statelog.open(path) as store:
        assert store.thread("t").state["n"] == 64
        assert store.verify().ok


@pytest.fixture
def rewrite_header(path):
    """Change fields of a store's header, and compute its checksum again."""

    def rewrite(**fields):
        with lmdb.open(str(path), subdir=False, max_dbs=4) as environment:
            table = environment.open_db(b"meta", create=False)
            with environment.begin(write=True) as transaction:
                header = cbor.decode(unseal(HEADER_KEY, transaction.get(HEADER_KEY, db=table)))
                transaction.put(HEADER_KEY, seal(HEADER_KEY, cbor.encode({**header, **fields})), db=table)

    statelog.open(path).close()
    return rewrite


def test_a_store_of_a_later_format_is_refused_with_the_version_it_needs(path, rewrite_header):
    rewrite_header(format=1000)
    with pytest.raises(NewerFormatError) as caught:
        statelog.open(path)
    assert (caught.value.needed, caught.value.path) == (1000, str(path))
    assert "1000" in str(caught.value)


@pytest.mark.parametrize("wiped", [0, 2], ids=["whole", "without meta pages"])
def test_a_store_of_a_later_format_is_not_salvaged(path, tmp_path, rewrite_header, wiped):
    """Its records may say what this release does not know: what it made of them would be no salvage."""
    rewrite_header(format=1000)
    path.write_bytes(bytes(wiped * 4096) + path.read_bytes()[wiped * 4096 :])
    with pytest.raises(NewerFormatError, match="1000") as caught:
        salvage(path, tmp_path / "new.state")
    assert (caught.value.needed, caught.value.path) == (1000, str(path))
    assert list(tmp_path.glob("*new.state*")) == []


def test_a_header_that_this_format_does_not_have_is_refused(path, rewrite_header):
    rewrite_header(digest="sha3-512")
    with pytest.raises(CorruptionError):
        statelog.open(path)


def test_a_header_with_a_wrong_seal_is_damage_not_another_format(path, rewrite_header):
    rewrite_header()
    data = path.read_bytes()
    at = data.rindex(b"store_id")
    path.write_bytes(data[:at] + b"Store_id" + data[at + 8 :])
    with pytest.raises(CorruptionError):
        statelog.open(path)
    with pytest.raises(CorruptionError):
        decode_header(b"damaged")
