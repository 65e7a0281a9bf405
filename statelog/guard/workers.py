"""Calls functions of users in threads of their own, so that a call that hangs can be left behind."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HANGING_MAX: Final = 8
"""The maximum number of calls that were left behind and have not returned yet. Then no further call is begun."""

_IDLE_S: Final = 10.0
"""A worker without a call ends after this time."""


class HangingError(Exception):
    """A call has not returned in time, or was not begun because too many earlier calls hang."""


class Workers:
    """Threads that make one call at a time. An idle one is used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._hanging_count = 0
        """Calls that were left behind and have not returned."""

    def call(self, function: Callable[..., Any], *given: Any, timeout_s: float) -> Any:
        """Return what a function returns. It runs in a copy of the caller's context.

        Raises:
            HangingError: it has not returned in time, or was not begun.
            BaseException: what the function raises.
        """
        with self._lock:
            if self._hanging_count >= HANGING_MAX:
                raise HangingError
            worker = self._idle.pop() if self._idle else None
        call = _Call(copy_context().run, (function, *given))
        if worker is None:
            worker = _Worker(self)
        worker.begin(call)
        if not call.done.acquire(timeout=timeout_s):
            with self._lock:
                if not call.has_returned:
                    call.is_left = True
                    self._hanging_count += 1
                    raise HangingError
        if call.error is not None:
            raise call.error
        return call.made

    def end(self, worker: _Worker, call: _Call) -> None:
        """Take note that a call has returned."""
        with self._lock:
            call.has_returned = True
            self._hanging_count -= call.is_left
            self._idle.append(worker)

    def retire(self, worker: _Worker) -> bool:
        """Return True if a worker may end: it is idle, and gets no further call."""
        with self._lock:
            is_idle = worker in self._idle
            if is_idle:
                self._idle.remove(worker)
            return is_idle


class _Call:
    """One call, and what comes of it."""

    __slots__ = ("done", "error", "function", "given", "has_returned", "is_left", "made")

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.function = function
        self.given = given
        self.made: Any = None
        self.error: BaseException | None = None
        self.done = threading.Semaphore(0)
        self.has_returned = False
        self.is_left = False


class _Worker:
    """One thread."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._begun = threading.Semaphore(0)
        self._call: _Call | None = None
        threading.Thread(target=self._work, name="statelog-check", daemon=True).start()

    def begin(self, call: _Call) -> None:
        """Begin a call. The worker is idle."""
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
