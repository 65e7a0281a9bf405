"""The queue of commits: one caller leads and the others wait. No request is lost if a caller is interrupted.

A caller that finds the lock `turn` free takes it and leads. Callers that arrive while it leads join the queue. When the
leader has settled a group, it releases `turn`, and wakes the callers of the group and the first caller in the queue,
which tries to lead.

A caller may be interrupted between any two instructions: by a signal handler that raises, or by a finalizer that
commits. So each step can be repeated, and a request leaves the queue only after it has joined a group.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any

from statelog.limits import GROUP_COMMITS_MAX
from statelog.storage.file.locks import is_owned

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_FLUSHES = 1.5
_PATIENCE_S_MAX = 0.005
"""The longest time in seconds that a leader waits for the callers of the last group to commit again."""

_POLL_S = 0.00005
_EMA_WEIGHT = 0.125
NOBODY: list[Any] = []
"""An empty list that many objects share. It is never changed."""


class Request:
    """The work of one caller, and its outcome."""

    # Class attributes hold the initial values, which is faster, because every commit creates a request.
    result: Any = None
    error: BaseException | None = None
    settled = False
    """True if the work was committed or refused. Until then, it has no effect and may be run again."""
    done = False
    """True if the request is settled, and flushed if the caller wanted this. Result and error are then final."""
    gate: threading.Lock | None = None
    """A lock on which the caller waits. It is released when the request is done or its caller may lead."""
    guard: Any = None
    """The redactor that keeps secrets out of the caller's store, or None without a guard."""
    to_wake: list[threading.Lock] = NOBODY
    """The gates that the leader has not yet released after its group ended."""

    def __init__(
        self, work: Callable[[Any], Any], cache: Any = None, staged: Any = None, *, is_flushed: bool = True
    ) -> None:
        """Create a request.

        Args:
            work: a function that stages records in a batch if there is a `cache`, and otherwise writes to the
                transaction itself.
            cache: the `NodeCache` that gets the nodes of the batch.
            staged: a `Staging` of `work`. It is committed unchanged if nobody has committed since.
            is_flushed: whether the caller waits for a flush.
        """
        self.work = work
        self.cache = cache
        self.staged = staged
        self.is_flushed = is_flushed


class CommitQueue:
    """The callers of one committer.

    Attributes:
        turn: the lock that the leader holds.
        requests: the requests of waiting callers.
        group: the requests that the leader runs, its own first.
        expected: the number of callers that are expected to commit soon.
        waiting: the ids of the waiting OS threads. If code that interrupts a waiting thread committed, it would wait
            for itself.
    """

    def __init__(self) -> None:
        self.turn: Any = threading.RLock()
        self.requests: deque[Request] = deque()
        self.group: list[Request] = NOBODY
        self.expected = 1
        self.waiting: set[int] = set()
        self._moving = threading.RLock()
        """Held while requests are removed, or moved from the queue into a group or back."""
        self._began_at_s = 0.0
        self._ended_at_s = 0.0
        self._group_s = 0.0
        """The moving average, in seconds, of the time from `begin` to `end` of groups with several requests."""

    def is_in_commit(self) -> bool:
        """Return True if a signal handler or a finalizer has interrupted this OS thread while it leads or waits."""
        return is_owned(self.turn) or get_ident() in self.waiting

    def wait(self, request: Request) -> None:
        """Add a request to the queue. Return when the request is done, or when its caller holds `turn` and may lead."""
        gate = request.gate = threading.Lock()
        gate.acquire()
        try:
            self.waiting.add(get_ident())
            self.requests.append(request)
            while not self.turn.acquire(blocking=False):
                gate.acquire()
                if request.done:
                    return
            if request.done:  # The previous leader has just settled this request, so pass `turn` on.
                self.end(request)
        finally:
            self.waiting.discard(get_ident())

    def begin(self, request: Request) -> list[Request]:
        """Return the group to run: `request` and the waiting requests. The caller holds `turn`.

        First wait briefly for the callers of the last group, which are about to commit again: each needs the
        interpreter for a moment. Without this pause, the callers would form two groups of half the size forever. A
        caller that does not commit within this time is doing something else.
        """
        self.group = group = [request]
        waiting = self.requests
        if not waiting and self.expected == 1:
            return group
        wanted = min(self.expected, GROUP_COMMITS_MAX) - (request not in waiting)
        until_s = self._ended_at_s + min(_PATIENCE_FLUSHES * self._group_s, _PATIENCE_S_MAX)
        while len(waiting) < wanted and perf_counter() < until_s:
            time.sleep(_POLL_S)
        with self._moving:
            if request in waiting:
                waiting.remove(request)
            while waiting and len(group) < GROUP_COMMITS_MAX:
                # Add the request to the group before removing it from the queue, so that an interrupt loses no request.
                group.append(waiting[0])
                waiting.popleft()
        self._began_at_s = perf_counter()
        return group

    def end(self, request: Request) -> None:
        """Return the group's unsettled requests to the queue, and let another caller lead. The caller holds `turn`.

        The settled requests become done. After an interrupt at any line, `leave` calls this method again.
        """
        waiting, group = self.requests, self.group
        # The caller may have been interrupted before `begin` removed the request, so remove it here.
        if request.gate is not None:
            with self._moving:
                if request in waiting:
                    waiting.remove(request)
        if len(group) == 1 and not waiting:
            self.expected = 1
        elif group:
            with self._moving:
                unsettled = [each for each in group[1:] if not each.settled and each not in waiting]
                waiting.extendleft(reversed(unsettled))
                settled = [each for each in group if each.settled]
                for each in settled:
                    each.done = True
                self.expected = max(sum(each.is_flushed for each in (*settled, *waiting)), 1)
                request.to_wake = [each.gate for each in settled if each.gate is not None and each is not request]
            self._ended_at_s = now_s = perf_counter()
            if len(group) > 1:
                weight = _EMA_WEIGHT if self._group_s else 1.0
                self._group_s += weight * (now_s - self._began_at_s - self._group_s)
        self.group = NOBODY
        self.turn.release()
        if waiting or request.to_wake:
            self._wake(request)

    def leave(self, request: Request) -> None:
        """Remove the request of an interrupted caller from the queue or the group, so that its work no longer runs."""
        self.waiting.discard(get_ident())  # Remove the id, because the interrupt may have kept `wait` from doing so.
        while not is_owned(self.turn):
            with self._moving:
                if request in self.requests:
                    # A finalizer may run here and commit, and take this request out of the queue.
                    with contextlib.suppress(ValueError):
                        self.requests.remove(request)
                    request.settled = request.done = True
                is_in_group = request in self.group and not request.done
            if not is_in_group:
                self._wake(request)
                return
            request.gate.acquire()  # type: ignore[union-attr]  # It is set, because the request was in the queue.
        self.end(request)

    def _wake(self, request: Request) -> None:
        """Wake the callers of an ended group, and one caller that may lead. After an interrupt, call this again."""
        while request.to_wake:
            _release(request.to_wake[-1])
            request.to_wake.pop()
        # Another leader may empty the queue between the next two lines.
        with contextlib.suppress(IndexError):
            if self.requests:
                _release(self.requests[0].gate)


def _release(gate: threading.Lock | None) -> None:
    """Release a gate. Do nothing if it is not held."""
    if gate is not None:
        with contextlib.suppress(RuntimeError):
            gate.release()
