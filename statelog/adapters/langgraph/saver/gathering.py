"""Pending writes that go together: with the checkpoint they lead to, or with those of tasks that end meanwhile.

LangGraph hands a task's writes to an OS thread, does not wait, and puts the checkpoint some hundred microseconds later.
So a caller waits for that, a little, and both are one commit. Where none comes (there are tasks still at work, or who
calls does one thing after the other) the next ones do not wait: after each that waited in vain twice as many.
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
"""So many wait for a checkpoint at once: they keep OS threads that it may need."""
_SKIPPED_MAX = 255
"""So many do not wait after one that waited in vain."""


class _Request(Generic[T]):
    """The part of one caller."""

    __slots__ = ("error", "gate", "group", "is_settled", "part")

    def __init__(self, part: T) -> None:
        self.part = part
        self.error: Exception | None = None
        self.is_settled = False
        self.gate = Lock()
        """Held while its caller sleeps; released to have it look again."""
        self.gate.acquire()
        self.group: list[_Request[T]] = []
        """Whose parts it commits, if it leads."""

    def wake(self) -> None:
        """Have its caller look again."""
        with suppress(RuntimeError):  # it is about to
            self.gate.release()


class _Line(Generic[T]):
    """Those who write to the same."""

    __slots__ = ("leader", "waiting")

    def __init__(self) -> None:
        self.leader: _Request[T] | None = None
        self.waiting: list[_Request[T]] = []
        """In nobody's hands; the leader is one of them at first."""


class Gatherer(Generic[T]):
    """Commits for several OS threads at once, by what they write to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lines: dict[str, _Line[T]] = {}
        self._patient: set[_Request[T]] = set()
        self._skips = self._skipped = 0

    def commit(self, name: str, part: T, make: Callable[[Sequence[T]], object], *, is_followed: bool = False) -> None:
        """Return when this part has been committed, maybe with those of others.

        Args:
            name: what is written to: what goes to the same may go together.
            part: to be committed whole or not at all.
            make: commits. What it raises for this part is raised here, what it raises for others is not.
            is_followed: `taken` may come for it soon.
        """
        request = _Request(part)
        line: _Line[T] | None = None
        try:
            with self._lock:
                line = self._lines.setdefault(name, _Line())
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
        """Return True if a part may be on its way to the same: it waits, or is being committed."""
        return name in self._lines

    @contextmanager
    def taken(self, name: str) -> Iterator[list[T]]:
        """Take the parts that wait: they are committed with the end of the `with` block, unless it raises."""
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

    def _lead(self, line: _Line[T], request: _Request[T], make: Callable[[Sequence[T]], object]) -> None:
        """Commit for those who wait, if its own part is among them."""
        with self._lock:
            is_taken = request not in line.waiting
            if not is_taken:
                request.group = line.waiting[:_TOGETHER_MAX]
                del line.waiting[:_TOGETHER_MAX]
        if not is_taken:
            _settle(request.group, make)
            if not request.is_settled:  # it stood behind so many
                self._give_back(line, request.group)
        elif not request.is_settled:
            request.gate.acquire()

    def _leave(self, name: str, line: _Line[T], request: _Request[T]) -> None:
        """Take one out, wherever it is, and let the next one lead: run again after an interrupt at any line."""
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

    def _give_back(self, line: _Line[T], group: Sequence[_Request[T]]) -> None:
        with self._lock:
            line.waiting[:0] = [each for each in group if not each.is_settled and each not in line.waiting]
            for each in group:
                each.wake()


def _settle(group: Sequence[_Request[T]], make: Callable[[Sequence[T]], object]) -> None:
    if len(group) > 1:
        try:
            make([member.part for member in group])
        except Exception:  # noqa: BLE001, S110 - whose it is shows when each is made alone
            pass
        else:
            for member in group:
                member.is_settled = True
            return
    for member in group:
        try:
            make([member.part])
        except Exception as error:  # noqa: BLE001 - its caller's
            member.error = error
        member.is_settled = True
