"""Commits pending writes together with the checkpoint that follows them, or with the writes of other tasks.

LangGraph gives a task's writes to an OS thread and puts the checkpoint some hundred microseconds later, without waiting
for the writes. So the writes wait a little for the checkpoint, to be one commit with it. If none comes, because other
tasks still run or the caller waits for each call, some of the next writes do not wait. Each wait in vain doubles the
number of these writes.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

_TOGETHER_MAX = 128
_PATIENCE_S = 0.005
_PATIENT_MAX = 2
"""The maximum number of requests that wait for a checkpoint at once. They block OS threads that the put may need."""
_SKIPPED_MAX = 255
"""The maximum number of requests that do not wait after a wait in vain."""


class _Request(Generic[T]):
    """The request of one caller to commit a part."""

    __slots__ = ("error", "gate", "group", "is_settled", "part")

    def __init__(self, part: T) -> None:
        self.part = part
        self.error: Exception | None = None
        self.is_settled = False
        self.gate = Lock()
        """A lock that is released to wake the caller."""
        self.gate.acquire()
        self.group: list[_Request[T]] = []
        """The requests that this request commits if it is the leader."""

    def wake(self) -> None:
        """Wake the caller."""
        with suppress(RuntimeError):  # The caller was woken already.
            self.gate.release()


class _RequestGroup(Generic[T]):
    """The requests with one name."""

    __slots__ = ("leader", "waiting")

    def __init__(self) -> None:
        self.leader: _Request[T] | None = None
        self.waiting: list[_Request[T]] = []
        """Requests that no OS thread is committing yet. The leader is one of them at first."""


class Gatherer(Generic[T]):
    """Commits for several OS threads at once, grouped by name."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lines: dict[str, _RequestGroup[T]] = {}
        self._patient: set[_Request[T]] = set()
        self._skips = self._skipped = 0

    def commit(self, name: str, part: T, make: Callable[[Sequence[T]], object], *, is_followed: bool = False) -> None:
        """Wait until a part has been committed, possibly together with other parts.

        Args:
            name: the name of the group. Parts with the same name may be committed together.
            part: what is committed, whole or not at all.
            make: a function that commits parts. Of its errors, only those for this part are raised here.
            is_followed: whether `taken` may take the part soon.
        """
        request = _Request(part)
        line: _RequestGroup[T] | None = None
        try:
            with self._lock:
                line = self._lines.setdefault(name, _RequestGroup())
                line.waiting.append(request)
            while not request.is_settled:
                with self._lock:
                    if line.leader is None:
                        line.leader = request
                if line.leader is not request:
                    request.gate.acquire()
                    continue
                if is_followed:
                    self._await_taker(request)
                    is_followed = False
                self._lead(line, request, make)
            self._leave(name, line, request)
        except BaseException:
            if line is not None:
                self._leave(name, line, request)
            raise
        if request.error is not None:
            raise request.error

    def is_busy(self, name: str) -> bool:
        """Return True if a part called `name` may be waiting or being committed."""
        return name in self._lines

    @contextmanager
    def taken(self, name: str) -> Iterator[list[T]]:
        """Yield the waiting parts to a caller that commits them in the `with` block. If it raises, they wait again."""
        line = self._lines.get(name)
        if line is None:
            yield []
            return
        group: list[_Request[T]] = []
        try:
            with self._lock:
                group = line.waiting
                line.waiting = []
            yield [request.part for request in group]
            for request in group:
                request.is_settled = True
            self._give_back(line, group)
        except BaseException:
            self._give_back(line, group)
            raise

    def _await_taker(self, request: _Request[T]) -> None:
        with self._lock:
            if self._skipped < self._skips:
                self._skipped += 1
                return
            if len(self._patient) >= _PATIENT_MAX:
                return
            self._patient.add(request)
        request.gate.acquire(timeout=_PATIENCE_S)
        with self._lock:
            self._patient.discard(request)
            self._skips = 0 if request.is_settled else min(2 * self._skips + 1, _SKIPPED_MAX)
            self._skipped = 0

    def _lead(self, line: _RequestGroup[T], request: _Request[T], make: Callable[[Sequence[T]], object]) -> None:
        """Commit the waiting parts, if the part of `request` is among them."""
        with self._lock:
            is_taken = request not in line.waiting
            if not is_taken:
                request.group = line.waiting[:_TOGETHER_MAX]
                del line.waiting[:_TOGETHER_MAX]
        if not is_taken:
            _settle(request.group, make)
            if not request.is_settled:  # More than `_TOGETHER_MAX` parts were ahead of this one.
                self._give_back(line, request.group)
        elif not request.is_settled:
            request.gate.acquire()

    def _leave(self, name: str, line: _RequestGroup[T], request: _Request[T]) -> None:
        """Remove a request and wake the next leader. Safe to run again after an interrupt at any line."""
        self._give_back(line, [each for each in request.group if each is not request])
        with self._lock:
            self._patient.discard(request)
            if request in line.waiting:
                line.waiting.remove(request)
            if line.leader is request:
                line.leader = None
            if line.leader is None and line.waiting:
                line.waiting[0].wake()
            elif line.leader is None and self._lines.get(name) is line:
                del self._lines[name]

    def _give_back(self, line: _RequestGroup[T], group: Sequence[_Request[T]]) -> None:
        with self._lock:
            line.waiting[:0] = [each for each in group if not each.is_settled and each not in line.waiting]
            for each in group:
                each.wake()


def _settle(group: Sequence[_Request[T]], make: Callable[[Sequence[T]], object]) -> None:
    if len(group) > 1:
        try:
            make([member.part for member in group])
        except Exception:  # noqa: BLE001, S110 - each part is tried alone next
            pass
        else:
            for member in group:
                member.is_settled = True
            return
    for member in group:
        try:
            make([member.part])
        except Exception as error:  # noqa: BLE001 - the error is raised in the part's caller
            member.error = error
        member.is_settled = True
