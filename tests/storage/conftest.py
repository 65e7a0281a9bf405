"""Fixtures: a store in `tmp_path`, child processes that use it, and disarmed faults."""

import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import forks
import pytest

from statelog.log.commit import committer_of
from statelog.storage import StoreFile, faults

ROOT = Path(__file__).parents[2]

QUOTA_BYTES = 64 * 1024 * 1024


def replay(transaction, lsn, records):
    """Replay records of `append`."""
    if lsn != transaction.last_lsn() + 1:
        return False
    for number, record in enumerate(records, lsn):
        transaction.put_log(number, record)
        transaction.put_index(b"n%08d" % number, b"index %d" % number)
    return True


PRELUDE = """
import functools, os, sys, time, threading, signal
from pathlib import Path
from statelog.errors import *
from statelog.log.commit import committer_of
from statelog.storage import StoreFile, faults

def append(transaction):
    lsn = transaction.last_lsn() + 1
    transaction.put_log(lsn, b"record %d " % lsn * 50)
    transaction.put_index(b"n%08d" % lsn, b"index %d" % lsn)
    return lsn

{replay}

def open_store_file(*arguments, **options):
    store_file = plain_open(*arguments, **{"replay": replay, **options})
    committer_of(store_file)
    return store_file

plain_open, StoreFile.open = StoreFile.open, open_store_file

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # at once, whichever thread
""".replace("{replay}", inspect.getsource(replay))


@pytest.fixture(autouse=True)
def _disarm_faults():
    yield
    faults.disarm()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.state"


@pytest.fixture
def open_store_file(path):
    """Open store files. They are always closed at the end of the test."""
    opened = []

    def open_one(at=path, **options):
        store_file = StoreFile.open(at, **{"max_size_bytes": QUOTA_BYTES, "replay": replay, **options})
        opened.append(store_file)
        committer_of(store_file)
        return store_file

    yield open_one
    for store_file in opened:
        store_file.close()


@pytest.fixture
def store_file(open_store_file):
    return open_store_file()


@pytest.fixture
def committer(store_file):
    return store_file.committer


@pytest.fixture
def start_child(path):
    """Start Python with a script that begins with `PRELUDE`. Its first argument is the path of the store."""
    children = []

    def start(script, *arguments, fault=None):
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        if fault is not None:
            variables[faults.ENVIRONMENT_VARIABLE] = fault
        child = forks.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(path), *map(str, arguments)],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def run_child(start_child):
    """Run a script to its end, and return its exit status and its output lines."""

    def run(script, *arguments, fault=None):
        child = start_child(script, *arguments, fault=fault)
        output, errors = child.communicate(timeout=300)
        assert child.returncode <= 0, errors
        return child.returncode, output.splitlines()

    return run


@pytest.fixture
def append():
    """A work that appends one record, and one index entry that refers to it."""

    def work(transaction):
        lsn = transaction.last_lsn() + 1
        transaction.put_log(lsn, b"record %d " % lsn * 50)
        transaction.put_index(b"n%08d" % lsn, b"index %d" % lsn)
        return lsn

    return work


@pytest.fixture
def check_whole():
    """Check that log and index have exactly the commits 1..n of `append`. Return n."""

    def check(store_file):
        with store_file.read() as transaction:
            last = transaction.last_lsn()
            for lsn in range(1, last + 1):
                assert bytes(transaction.get_log(lsn)) == b"record %d " % lsn * 50
            entries = list(transaction.scan_index(b""))
        assert entries == [(b"n%08d" % lsn, b"index %d" % lsn) for lsn in range(1, last + 1)]
        return last

    return check
