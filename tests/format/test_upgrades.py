"""A store of an older format is upgraded when it is opened for writing, completely or not at all."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap

import lmdb
import pytest

import statelog
from statelog.errors import FormatError, StoreLockedError
from statelog.format import cbor, upgrades
from statelog.format.header import FORMAT_VERSION, HEADER_KEY
from statelog.format.seal import seal, unseal
from statelog.storage.file.locks import FileLocks, range_lock, set_lock

NEVER = 0
"""A format that never was: the one before the first."""


def forge(path, version):
    """Make a store whose header has another version, and whose index the upgrade must rebuild."""
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        store.thread("t").commit({"x": 2})
    with lmdb.open(str(path), subdir=False, max_dbs=4) as environment:
        meta, index = environment.open_db(b"meta"), environment.open_db(b"index")
        with environment.begin(write=True) as transaction:
            fields = cbor.decode(unseal(HEADER_KEY, transaction.get(HEADER_KEY, db=meta)))
            transaction.put(HEADER_KEY, seal(HEADER_KEY, cbor.encode({**fields, "format": version})), db=meta)
            if version == NEVER:
                for key, value in list(transaction.cursor(db=index)):
                    transaction.delete(key, db=index)
                    transaction.put(b"old " + key, value, db=index)


def rename_keys(tables):
    """Undo what `forge` did: what changed from its version 0 to version 1."""
    for key, value in tables.scan(upgrades.INDEX):
        tables.delete(upgrades.INDEX, key)
        tables.put(upgrades.INDEX, key.removeprefix(b"old "), value)


@pytest.fixture
def old(path):
    forge(path, NEVER)
    return path


@pytest.fixture
def registered(monkeypatch):
    """An upgrade from the version that `forge` makes up; counts how often it was run."""
    runs = []

    def upgrade(tables):
        runs.append(True)
        rename_keys(tables)

    monkeypatch.setitem(upgrades.UPGRADES, NEVER, upgrade)
    return runs


def test_every_released_version_can_be_upgraded():
    assert sorted(upgrades.UPGRADES) == list(range(1, FORMAT_VERSION))


def test_a_store_of_format_1_is_read_as_it_is_and_upgraded_when_it_is_written_to(path):
    forge(path, 1)
    before = path.read_bytes()
    with statelog.open(path, read_only=True) as store:
        assert store.thread("t").state["x"] == 2
        assert store.verify().problems == []
        assert store._engine.store_file.lmdb_file.header["format"] == 1
    assert path.read_bytes() == before
    with statelog.open(path) as store:
        store.copy_thread("t", "copy")
        assert store._engine.store_file.lmdb_file.header["format"] == FORMAT_VERSION
    with statelog.open(path, read_only=True) as store:
        assert store.thread("copy").state["x"] == 2


def test_an_older_store_is_upgraded_when_it_is_opened(old, registered):
    with statelog.open(old) as store:
        assert store.thread("t").state["x"] == 2
        assert store.verify().problems == []
        assert store._engine.store_file.lmdb_file.header["format"] == FORMAT_VERSION
    with statelog.open(old, read_only=True) as store:
        assert store.thread("t").at(0).state["x"] == 1
    assert registered == [True]


def test_an_older_store_without_an_upgrade_is_refused_with_the_version_it_needs(old):
    before = old.read_bytes()
    with pytest.raises(FormatError, match=f"has format {NEVER}") as caught:
        statelog.open(old)
    assert (caught.value.needed, caught.value.supported) == (NEVER, FORMAT_VERSION)
    assert caught.value.path == str(old)
    assert old.read_bytes() == before


def test_a_newer_store_is_refused_with_the_version_it_needs(path):
    forge(path, FORMAT_VERSION + 1)
    with pytest.raises(FormatError, match=f"has format {FORMAT_VERSION + 1}") as caught:
        statelog.open(path)
    assert (caught.value.needed, caught.value.supported) == (FORMAT_VERSION + 1, FORMAT_VERSION)


@pytest.mark.usefixtures("registered")
def test_opening_read_only_does_not_upgrade(old):
    before = old.read_bytes()
    with pytest.raises(FormatError, match="open it once for writing"):
        statelog.open(old, read_only=True)
    assert old.read_bytes() == before


@pytest.mark.usefixtures("registered")
def test_a_store_in_use_elsewhere_is_not_upgraded(old):
    descriptor = os.open(old, os.O_RDWR)
    of_lmdb = os.open(f"{old}-lock", os.O_RDWR | os.O_CREAT)
    try:
        FileLocks(descriptor, old).acquire_presence(0)
        set_lock(of_lmdb, range_lock(fcntl.F_RDLCK, 0))  # as each process has it that uses the store
        with pytest.raises(StoreLockedError, match="cannot be upgraded now"):
            statelog.open(old)
    finally:
        os.close(descriptor)
        os.close(of_lmdb)
    with statelog.open(old) as store:
        assert store.thread("t").state["x"] == 2


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(old, monkeypatch):
    def fail(tables):
        rename_keys(tables)
        raise FormatError("as if")

    monkeypatch.setitem(upgrades.UPGRADES, NEVER, fail)
    with pytest.raises(FormatError, match="as if"):
        statelog.open(old)
    monkeypatch.setitem(upgrades.UPGRADES, NEVER, rename_keys)
    with statelog.open(old) as store:
        assert store.verify().problems == []


@pytest.mark.slow
@pytest.mark.parametrize("point", ["upgrade.before_lmdb_commit", "upgrade.after_lmdb_commit"])
def test_an_upgrade_killed_anywhere_is_done_or_not_begun(old, registered, point):
    script = """
    import sys
    import statelog
    from statelog.format import upgrades
    def upgrade(tables):
        for key, value in tables.scan(upgrades.INDEX):
            tables.delete(upgrades.INDEX, key)
            tables.put(upgrades.INDEX, key.removeprefix(b"old "), value)
    upgrades.UPGRADES[int(sys.argv[2])] = upgrade
    statelog.open(sys.argv[1])
    """
    variables = {**os.environ, "STATELOG_FAULT": f"{point}:1:kill"}
    arguments = [sys.executable, "-c", textwrap.dedent(script), str(old), str(NEVER)]
    assert subprocess.run(arguments, env=variables, check=False).returncode == -signal.SIGKILL
    with statelog.open(old) as store:
        assert store.thread("t").state["x"] == 2
        assert store.verify().problems == []
    assert len(registered) == (point == "upgrade.before_lmdb_commit")


def test_steps_follow_one_another(monkeypatch):
    """From any registered version to this one, each step sees what the one before has made."""
    seen = []

    class Tables(dict):
        def get(self, table, key):
            return self[(table, key)]

        def put(self, table, key, value):
            self[(table, key)] = value

    tables = Tables()
    tables.put(upgrades.META, HEADER_KEY, seal(HEADER_KEY, cbor.encode({"magic": "statelog", "format": 0})))
    stored_version = upgrades.stored_version

    def note(tables):
        seen.append(stored_version(tables.get(upgrades.META, HEADER_KEY)))

    for step in range(3):
        monkeypatch.setitem(upgrades.UPGRADES, step, note)
    monkeypatch.setattr(upgrades, "FORMAT_VERSION", 3)
    upgrades.upgrade(tables, 0)
    assert seen == [0, 1, 2]
    assert upgrades.stored_version(tables.get(upgrades.META, HEADER_KEY)) == 3
