"""Stores with a key, written by the release that settled each format, and older stores that get a key.

`python tests/compat/test_golden_key.py` makes the store of the present format: once, and never again.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

import pytest

import statelog
from statelog import reducers
from statelog.errors import UnkeyedStoreError, WrongKeyError
from statelog.format.header import FORMAT_VERSION

HERE = Path(__file__).parent
KEY = "the key of the golden store"
FIRST_FORMAT = 6
STORES = sorted(HERE.glob("key_*.state.gz"))
OLDER = sorted(HERE.glob("format_*.state.gz"))


def describe(store):
    """Return what users see of a store, as JSON has it."""
    threads = [
        [
            info.id,
            branch.name,
            [[version.id, version.state.copy()] for version in store.thread(info.id, branch=branch.name).history()],
        ]
        for info in store.threads()
        for branch in store.thread(info.id).branches()
    ]
    log = [[record.lsn, record.digest] for record in store.log()]
    return json.loads(json.dumps([threads, log], default=repr))


def make(path):
    with statelog.open(path, key=KEY) as store:
        thread = store.thread("t", schema={"log": reducers.extend})
        for number in range(8):
            thread.commit({"log": [f"text {number} " * 40]})
        thread.fork("other", at=3)
        thread.tag("good", 2)
        store.board().set("entry", {"v": 1})
        store.thread("gone").commit({"n": 1})
        store.delete_thread("gone")
        store.prune(keep_last=4)
        store.compact()
        return [describe(store), store.anchor().hex()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "golden.state"


def test_there_is_a_golden_store_with_a_key_for_every_format():
    formats = range(FIRST_FORMAT, FORMAT_VERSION + 1)
    assert {path.name for path in STORES} == {f"key_{version}.state.gz" for version in formats}


@pytest.mark.parametrize("golden", STORES, ids=lambda path: path.name.split(".")[0])
def test_the_golden_store_is_found_as_it_was_left(path, golden):
    told, anchor = json.loads(golden.with_suffix("").with_suffix(".json").read_text())
    path.write_bytes(gzip.decompress(golden.read_bytes()))
    for options in ({"read_only": True}, {}):
        with statelog.open(path, key=KEY, expect=bytes.fromhex(anchor), **options) as store:
            assert store.verify(expect=bytes.fromhex(anchor)).ok
            assert describe(store) == told
    with pytest.raises(WrongKeyError):
        statelog.open(path, key="another key of this store")
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"log": ["more"]})
        assert store.verify(expect=bytes.fromhex(anchor)).ok


@pytest.mark.slow
@pytest.mark.parametrize("golden", OLDER, ids=lambda path: path.name.split(".")[0])
def test_a_store_of_an_older_format_gets_a_key(path, golden):
    path.write_bytes(gzip.decompress(golden.read_bytes()))
    before = path.read_bytes()
    for options in ({"read_only": True}, {}):
        with pytest.raises(UnkeyedStoreError):
            statelog.open(path, key=KEY, **options)
    assert path.read_bytes() == before
    with statelog.open(path) as store:
        anchor, told = store.anchor(), describe(store)
        store.rekey(KEY)
    with statelog.open(path, key=KEY, expect=anchor) as store:
        assert store.verify(expect=anchor).ok
        assert describe(store) == told


if __name__ == "__main__":
    made = Path(tempfile.mkdtemp()) / "golden.state"
    (HERE / f"key_{FORMAT_VERSION}.json").write_text(json.dumps(make(made)))
    (HERE / f"key_{FORMAT_VERSION}.state.gz").write_bytes(gzip.compress(made.read_bytes(), mtime=0))
    sys.exit()
