"""Starts processes by forking one that has imported everything, in a tenth of the time that Python takes to start.

The nursery process waits for requests. For each request, it forks a monitor, which forks the child. The child does its
job, and the monitor reports the child's pid and exit status.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache

_SIZE = struct.Struct("<q")
_SERVE = "from statelog.testing import crash; crash._run_child()"
_PASSING = ("PYTEST_CURRENT_TEST",)
"""Environment variables that often change, and do not affect statelog."""


class Born:
    """A child process.

    Args:
        job: the job that `serve` returns in the child.
        environment: the child's environment variables.
    """

    def __init__(self, job: bytes, environment: dict[str, str]) -> None:
        out, its_out = os.pipe()
        status, its_status = os.pipe()
        self.out, self._status = out, status
        self.returncode: int | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - the file is open as long as the child runs
        try:
            try:
                _nursery().send(job, environment, (its_out, self._words.fileno(), its_status))
            finally:
                os.close(its_out)
                os.close(its_status)
            self._pid = self._read_status()
        except BaseException:
            self._let_go()
            raise

    def _read_status(self) -> int:
        data = os.read(self._status, _SIZE.size)
        if len(data) < _SIZE.size:
            raise RuntimeError("the process that forks children has ended")
        number: int = _SIZE.unpack(data)[0]
        return number

    def kill(self) -> None:
        """Send SIGKILL to the child, if it still runs."""
        if self.returncode is None and not select.select([self._status], [], [], 0)[0]:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def communicate(self, timeout_s: float) -> tuple[bytes, bytes]:
        """Wait for the child to exit. Return its output on stdout and stderr. Raises TimeoutExpired."""
        parts = []
        until = time.monotonic() + timeout_s
        while True:
            if not select.select([self.out], [], [], max(until - time.monotonic(), 0))[0]:
                raise subprocess.TimeoutExpired("a forked child", timeout_s)
            part = os.read(self.out, 65536)
            if not part:
                break
            parts.append(part)
        self._end()
        self._words.seek(0)
        return b"".join(parts), self._words.read()

    def _end(self) -> None:
        if self.returncode is None:
            self.returncode = self._read_status()

    def close(self) -> None:
        """Kill the child, and close everything."""
        self.kill()
        self._end()
        self._let_go()

    def _let_go(self) -> None:
        os.close(self.out)
        os.close(self._status)
        self._words.close()


class _Nursery:
    """The process that forks children for this process. It ends when this process ends."""

    def __init__(self) -> None:
        self._calls: socket.socket | None = None
        self._pid = 0
        self._variables: dict[str, str] = {}
        self._lock = threading.Lock()

    def send(self, job: bytes, environment: dict[str, str], descriptors: tuple[int, ...]) -> None:
        """Start a child. If environment variables have changed, restart the nursery, which imports statelog again."""
        variables = {name: value for name, value in os.environ.items() if name not in _PASSING}
        message = pickle.dumps((job, environment, os.getcwd()))  # noqa: PTH109 - the message needs a text
        with self._lock:
            if self._calls is None or self._variables != variables:
                self._start(variables)
            try:
                self._send(message, descriptors)
            except OSError:  # The nursery has died.
                self._start(variables)
                self._send(message, descriptors)

    def _send(self, message: bytes, descriptors: tuple[int, ...]) -> None:
        assert self._calls is not None
        socket.send_fds(self._calls, [_SIZE.pack(len(message))], descriptors)
        self._calls.sendall(message)

    def _start(self, variables: dict[str, str]) -> None:
        self.end()
        self._calls, theirs = socket.socketpair()
        self._variables = variables
        with theirs:
            theirs.set_inheritable(True)
            arguments = [sys.executable, "-c", _SERVE, str(theirs.fileno())]
            self._pid = os.posix_spawn(sys.executable, arguments, variables)

    def end(self) -> None:
        """End the process. Running children continue."""
        if self._calls is None:
            return
        with suppress(OSError):
            self._calls.shutdown(socket.SHUT_RDWR)  # Forked processes may also have it open.
        self._calls.close()
        self._calls = None
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


@cache
def _nursery_of(_pid: int) -> _Nursery:
    nursery = _Nursery()
    atexit.register(nursery.end)
    return nursery


def _nursery() -> _Nursery:
    """Return the nursery of this process. A forked process does not use its parent's nursery."""
    return _nursery_of(os.getpid())


# --- the process that forks -------------------------------------------------------


def serve(descriptor: int) -> bytes:
    """Fork a child for each request. Return only in a child, with its job. The process ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as calls:
        while True:
            size, descriptors, _flags, _address = socket.recv_fds(calls, _SIZE.size, 3)
            if not size:
                raise SystemExit
            message = calls.recv(_SIZE.unpack(size)[0], socket.MSG_WAITALL)
            if os.fork() == 0:
                break
            for each in descriptors:
                os.close(each)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    out, words, status = descriptors
    child = os.fork()
    if child:
        os.close(out)
        os.close(words)
        _watch(child, status)
    os.close(status)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(words, 2)
    os.close(out)
    os.close(words)
    job, environment, directory = pickle.loads(message)  # noqa: S301 - the data comes from the parent
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    return bytes(job)


def _watch(child: int, status: int) -> None:
    """Report a child's pid, and its exit status when it ends."""
    with suppress(BrokenPipeError):
        os.write(status, _SIZE.pack(child))
        os.write(status, _SIZE.pack(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    os._exit(0)
