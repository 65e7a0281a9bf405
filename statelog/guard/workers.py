"""Calls user functions in worker threads, so that a call that hangs can be abandoned."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HANGING_MAX: Final = 8
"""If this number of abandoned calls is still running, no further call is begun."""

_IDLE_S: Final = 10.0
"""The time without a call after which a worker ends."""


class HangingError(Exception):
    """A call did not return in time, or was not begun because too many earlier calls hang."""


class FailedError(Exception):
    """A called function has raised the cause of this error: any BaseException except KeyboardInterrupt.

    This class distinguishes the function's exception from one in the waiting thread itself, such as a SystemExit raised
    by a signal handler.
    """


class Workers:
    """Worker threads. Each makes one call at a time, and an idle worker is reused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_WorkerThread] = []
        self._hanging_count = 0
        """The number of abandoned calls that have not returned."""

    def call(self, function: Callable[..., Any], *given: Any, timeout_s: float) -> Any:
        """Call a function in a worker, in a copy of the caller's context. Return its result.

        Raises:
            HangingError: the function did not return in time, or was not called.
            FailedError: the function has raised the cause of this error.
            KeyboardInterrupt: the function has raised it.
        """
        with self._lock:
            if self._hanging_count >= HANGING_MAX:
                raise HangingError
            worker = self._idle.pop() if self._idle else None
        call = _Call(copy_context().run, (function, *given))
        if worker is None:
            worker = _WorkerThread(self)
        worker.begin(call)
        if not call.done.acquire(timeout=timeout_s):
            with self._lock:
                if not call.has_returned:
                    call.is_abandoned = True
                    self._hanging_count += 1
                    raise HangingError
        if isinstance(call.error, KeyboardInterrupt):
            raise call.error
        if call.error is not None:
            raise FailedError from call.error
        return call.made

    def end(self, worker: _WorkerThread, call: _Call) -> None:
        """Note that a call has returned, and that its worker is idle."""
        with self._lock:
            call.has_returned = True
            self._hanging_count -= call.is_abandoned
            self._idle.append(worker)

    def retire(self, worker: _WorkerThread) -> bool:
        """Return True if a worker is idle and may end. The worker then gets no further call."""
        with self._lock:
            is_idle = worker in self._idle
            if is_idle:
                self._idle.remove(worker)
            return is_idle


class _Call:
    """One call, and its result or its error."""

    __slots__ = ("done", "error", "function", "given", "has_returned", "is_abandoned", "made")

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.function = function
        self.given = given
        self.made: Any = None
        self.error: BaseException | None = None
        self.done = threading.Semaphore(0)
        self.has_returned = False
        self.is_abandoned = False


class _WorkerThread:
    """A worker thread."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._begun = threading.Semaphore(0)
        self._call: _Call | None = None
        threading.Thread(target=self._work, name="statelog-check", daemon=True).start()

    def begin(self, call: _Call) -> None:
        """Begin a call. The worker must be idle."""
        self._call = call
        self._begun.release()

    def _work(self) -> None:
        while True:
            if not self._begun.acquire(timeout=_IDLE_S):
                if self._workers.retire(self):
                    return
                continue
            call, self._call = self._call, None
            assert call is not None
            try:
                call.made = call.function(*call.given)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                call.error = error
            self._workers.end(self, call)
            call.done.release()
            del call
