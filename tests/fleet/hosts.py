"""A host in a process, which executes commands, and kills or stops itself at one of its requests.

Processes are forked from one that has imported everything, so a start takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import statelog
from statelog.errors import StatelogError
from statelog.fleet import buckets, postgres, protocol
from statelog.fleet.archive import Archive
from statelog.fleet.fleet import Fleet
from statelog.fleet.owner import Owner, ShippingOptions
from statelog.fleet.storage_urls import open_archive

NAME = "t"
BEFORE, AFTER = "before", "after"
_S_MAX = 60
_PRELOADED = [__name__, buckets.__name__, postgres.__name__]


class Strike(NamedTuple):
    """A signal that a host sends to itself: before its request of a number is sent, or after its answer has come."""

    number: int
    when: str
    signal: int


class Ended(NamedTuple):
    """The answer for a host that was killed or stopped."""

    how: str


DIED, STOPPED = Ended("died"), Ended("stopped")


class Refused(NamedTuple):
    """The answer for a command that raised an error."""

    error: str


class Host:
    """A process with its own disk. A context manager.

    Args:
        storage: the URL and options of the storage.
        cache: the folder of the host.
        strike: the request at which it kills or stops itself.
        is_wrong: whether it fails to check that it still owns the store (against F2).
    """

    def __init__(self, storage, cache, strike=None, *, is_wrong=False):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, storage, cache, strike, is_wrong), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def send(self, *command):
        with suppress(BrokenPipeError):
            self._pipe.send(command)

    def hear(self, timeout_s=_S_MAX):
        """Return the next answer: `DIED` if the host was killed, `STOPPED` if it is stopped."""
        deadline = time.monotonic() + timeout_s
        while not self._pipe.poll(0.01):
            if self.is_stopped() and not self._pipe.poll(0):
                return STOPPED
            assert time.monotonic() < deadline, "it does not answer"
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return DIED

    def do(self, *command):
        """Return the answer to a command. See `hear`."""
        self.send(*command)
        return self.hear()

    def heard(self):
        """Return all answers so far."""
        found = []
        with suppress(EOFError, ConnectionResetError):
            while self._pipe.poll(0):
                found.append(self._pipe.recv())
        return found

    def signal(self, number):
        os.kill(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.join()
        while number == signal.SIGSTOP and not self.is_stopped():
            assert self._process.is_alive(), "it has ended"
            time.sleep(0.001)

    def is_stopped(self):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            return words[0] == "T"
        return False


# --- in the process -------------------------------------------------------------------------


class _Striking(Archive):
    """A storage that counts requests, and kills or stops its process at one of them."""

    def __init__(self, archive, strike):
        self._archive, self._strike = archive, strike
        self.count = 0

    def _asked(self, request, *arguments):
        self.count += 1
        number, when, signal_number = self._strike or (0, "", 0)
        if self.count == number and when == BEFORE:
            os.kill(os.getpid(), signal_number)
        answer = getattr(self._archive, request)(*arguments)
        if self.count == number and when == AFTER:
            os.kill(os.getpid(), signal_number)
        return answer

    def read(self, name):
        return self._asked("read", name)

    def look(self, name):
        return self._asked("look", name)

    def create(self, name, data):
        return self._asked("create", name, data)

    def swap(self, name, data, token):
        return self._asked("swap", name, data, token)

    def names(self, prefix):
        return self._asked("names", prefix)

    def remove(self, names):
        return self._asked("remove", names)

    def ages(self, prefix):
        return self._asked("ages", prefix)

    def read_all(self, names):
        return self._asked("read_all", names)

    def append_fenced(self, *request):
        return self._asked("append_fenced", *request) if type(self._archive) is postgres.PostgresArchive else None

    def close(self):
        self._archive.close()


class _Served:
    """The commands of a host."""

    def __init__(self, pipe, storage, cache, strike):
        url, options = storage
        self._pipe = pipe
        self.archive = _Striking(open_archive(url, **options), strike)
        Path(cache).mkdir(exist_ok=True)
        self.fleet = Fleet(self.archive, Path(cache))
        self.store = None

    def open(self, how):
        self.store = self.fleet.open(NAME, **how)
        return said(self.store)

    def commit(self, token, durable=None):
        self.store.thread("chat").commit({"token": token}, durable=durable)
        return token

    def go_on(self, name):
        """Commit for ever. Report each token when the storage has it."""
        number = 0
        while True:
            number += 1
            self._pipe.send(self.commit(f"{name}-{number}", "remote"))

    def base(self):
        self.store.remote.base()

    def park(self):
        while not self.store.remote.status().parked:
            time.sleep(0.005)

    def close(self):
        self.store.close()

    def requests(self):
        return self.archive.count

    def owned(self):
        """Return the facts with which a twin can also be the owner."""
        owner = self.store.remote
        kept = ("_owned", "_next", "_sent", "_shipped", "_is_parked", "_tail_bytes")
        return pickle.dumps({name: getattr(owner, name) for name in kept})

    def resume(self, pickled, how):
        """Continue as the owner that another process was when it was copied, with its file."""
        path = self.fleet.path(NAME)
        self.store = statelog.open(path)
        kept = pickle.loads(pickled)
        performer = self.fleet._performer(NAME)
        owner = _Resumed(self.store, performer, kept["_owned"], ShippingOptions(**how), kept["_shipped"], kept)
        self.store._engine.remote = owner
        return said(self.store)


class _Resumed(Owner):
    """An owner that begins from the copied state of another owner."""

    def __init__(self, store, performer, owned, options, shipped, kept):
        self._kept = kept
        super().__init__(store, performer, owned, options, shipped)

    def _run(self):
        vars(self).update(self._kept)
        super()._run()


def said(store):
    """Return the tokens of a store, oldest first."""
    return [checkpoint.state["token"] for checkpoint in store.thread("chat").history()][::-1]


def _no_look(_owned):
    yield from ()


def _serve(pipe, storage, cache, strike, is_wrong):
    if is_wrong:
        protocol.check = _no_look
    served = _Served(pipe, storage, cache, strike)
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            what, *arguments = pipe.recv()
            try:
                pipe.send(getattr(served, what)(*arguments))
            except StatelogError as error:
                pipe.send(Refused(type(error).__name__))
    os._exit(0)
