"""What is no store, or one of another format, is refused by name."""

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
def test_a_foreign_file_is_refused_and_left_alone(path, kind, read_only):
    FOREIGN[kind](path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(FormatError) as caught:
        statelog.open(path, read_only=read_only)
    assert caught.value.path == str(path)
    assert before is None or path.read_bytes() == before


@pytest.fixture
def rewrite_header(path):
    """Change fields of a store's header, sealed anew."""

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


def test_a_header_whose_seal_does_not_hold_is_damage_and_no_format(path, rewrite_header):
    rewrite_header()
    data = path.read_bytes()
    at = data.rindex(b"store_id")
    path.write_bytes(data[:at] + b"Store_id" + data[at + 8 :])
    with pytest.raises(CorruptionError):
        statelog.open(path)
    with pytest.raises(CorruptionError):
        decode_header(b"damaged")
