"""Worker processes for dangerous work. If a damaged image kills a worker or makes it hang, the worker is replaced.

A worker is a Python process that calls functions by name, one after the other, and sends back their results. The state
of modules is kept between calls.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Self

import statelog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

_SIZE = struct.Struct("<Q")
_WORDS_BYTES = 4000

# With -P and this order of sys.path, no module of the working directory or beside statelog replaces a module of the
# library. The path of the parent comes last, for schemas in users' tests.
_BOOT = """
import sys
sys.path += [entry for entry in sys.argv[1:] if entry not in sys.path]
del sys.argv[1:]
from statelog.testing.powerloss import workers
workers.serve()
"""


@dataclass(frozen=True, slots=True)
class Died:
    """The result of a call whose worker has died.

    Attributes:
        reason: the signal that ended the worker, its output, or that it hung.
        hung: True if the worker was killed because it did not answer in time.
    """

    reason: str
    hung: bool = False


@dataclass(frozen=True, slots=True)
class _Failure:
    """An exception that a called function has raised, which shows a bug in the harness."""

    words: str


class WorkerError(RuntimeError):
    """Raised if a function that a worker called has raised an exception."""


class Worker:
    """A process that serves calls.

    Args:
        environment: its environment variables. By default, the variables of this process.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, function: str, *arguments: Any, timeout_s: float) -> Any:
        """Call `function`, named "module:function", and return its result, or `Died`.

        Raises:
            WorkerError: the function raised.
        """
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        try:
            _send(process.stdin.fileno(), (function, arguments))
            result = self._receive(process, timeout_s)
        except (BrokenPipeError, EOFError):
            return self._bury(process)
        if isinstance(result, _Failure):
            raise WorkerError(result.words)
        return result

    def kill(self) -> None:
        """Kill the process. A pending call returns `Died`."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process. No call may be pending."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> bytes:
        """Wait for a dead or dying process, and return its output on stderr."""
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        words, self._words = self._words, None
        if words is None:
            return b""
        with words:
            words.seek(0)
            return words.read()

    def _start(self) -> subprocess.Popen[bytes]:
        root = str(Path(statelog.__file__).resolve().parents[1])
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - the file is open as long as the process runs
        return subprocess.Popen(  # noqa: S603 - the command is this interpreter
            [sys.executable, "-P", "-c", _BOOT, root, *map(os.path.abspath, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=self._environment,
            process_group=0,
        )

    def _receive(self, process: subprocess.Popen[bytes], timeout_s: float) -> Any:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        if not select.select([descriptor], [], [], timeout_s)[0]:
            self.close()
            return Died(f"no answer within {timeout_s:g} s", hung=True)
        return _receive(descriptor)

    def _bury(self, process: subprocess.Popen[bytes]) -> Died:
        self._process = None
        words = self._end(process)
        return Died(_how_it_ended(process.returncode, words))


def _how_it_ended(code: int, words: bytes) -> str:
    said = words.decode(errors="replace").strip()[-_WORDS_BYTES:]
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}" + (f": {said}" if said else "")
    return f"exit status {code}: {said}"


class WorkerPool:
    """Several workers, for many calls.

    Args:
        environments: the environment of each worker.
    """

    def __init__(self, environments: Iterable[Mapping[str, str] | None]) -> None:
        self._workers = [Worker(environment) for environment in environments]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(self._workers))
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for worker in self._workers:
            worker.kill()  # A pending call returns `Died`.
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def map(
        self,
        function: str,
        tasks: Iterable[Any],
        *,
        timeout_s: float,
        is_wanted: Callable[[Any], bool] = lambda _task: True,
    ) -> Iterator[tuple[Any, Any]]:
        """Call `function` with every task, and yield each task and its result (or `Died`) when it is done.

        A task for which `is_wanted` returns False at its turn is skipped. Its result is None.

        Raises:
            WorkerError: the function raised.
        """

        def run(task: Any) -> tuple[Any, Any]:
            if self._stop.is_set() or not is_wanted(task):
                return task, None
            worker = self._idle.get()
            try:
                return task, worker.call(function, task, timeout_s=timeout_s)
            finally:
                self._idle.put(worker)

        futures = [self._threads.submit(run, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def worker_count() -> int:
    """Return the number of workers that this machine can keep busy."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- the worker -------------------------------------------------------------------


def serve() -> None:
    """Answer calls until the parent has ended."""
    import resource

    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # Write no core dumps, because deaths are expected.
    out = os.dup(1)
    os.dup2(2, 1)  # If a function prints, its output must not be read as an answer.
    while True:
        try:
            function, arguments = _receive(0)
        except EOFError:
            return
        _send(out, _answer(function, arguments))


def _answer(name: str, arguments: tuple[Any, ...]) -> Any:
    import traceback

    try:
        return find_function(name)(*arguments)
    except Exception:  # noqa: BLE001 - the parent must know of any error
        return _Failure(traceback.format_exc())


def find_function(name: str) -> Callable[..., Any]:
    """Return the function that `name` gives as "module:function"."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _send(descriptor: int, message: Any) -> None:
    data = pickle.dumps(message)
    view = memoryview(_SIZE.pack(len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def _receive(descriptor: int) -> Any:
    size = _SIZE.unpack(_read(descriptor, _SIZE.size))[0]
    return pickle.loads(_read(descriptor, size))  # noqa: S301 - the data comes from our own child or parent


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
