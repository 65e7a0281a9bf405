"""Pending writes of tasks that cannot be committed at once: one of their OS threads does it, for those that wait.

The store shares flushes between commits by itself; this shares the commit, which at a hundred small writes costs more.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_TOGETHER_MAX = 128
_LINES_MAX = 1024
_EMA_WEIGHT = 0.25
_PATIENCE_COMMITS = 2.0
_PATIENCE_S_MAX = 0.005
"""How long, after a commit, those it was for are expected back: in multiples of a commit, and at most."""


class _Request(Generic[T]):
    """The part of one caller."""

    __slots__ = ("error", "gate", "is_settled", "part", "to_wake")

    def __init__(self, part: T) -> None:
        self.part = part
        self.error: Exception | None = None
        self.is_settled = False
        self.gate = Lock()
        """Held while its caller sleeps; released when it is settled, or is to commit for others."""
        self.gate.acquire()
        self.to_wake: list[Lock] = []
        """Of a leader that has passed on: gates still to be released."""


class _Line(Generic[T]):
    """Those who write to the same."""

    __slots__ = ("assembled", "awaited", "commit_s", "delivered_at_s", "expected", "group", "leader", "waiting")

    def __init__(self) -> None:
        self.leader: _Request[T] | None = None
        self.group: list[_Request[T]] = []
        """Whose parts the leader commits, its own first."""
        self.waiting: list[_Request[T]] = []
        """Who waits for the commit that is being made."""
        self.expected = 1
        """How many the last commit was for, and who waited for the next."""
        self.delivered_at_s = 0.0
        self.commit_s = 0.0
        self.awaited = 0
        """How many are to wait before the leader, who sleeps, is woken; 0 when it does not."""
        self.assembled = Lock()
        self.assembled.acquire()


class Gatherer(Generic[T]):
    """Commits for several OS threads at once, by what they write to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lines: dict[str, _Line[T]] = {}

    def commit(self, name: str, part: T, make: Callable[[Sequence[T]], object]) -> None:
        """Return when `make` has committed this part, maybe with those of others.

        Args:
            name: what is written to: what goes to the same may go together.
            part: to be committed whole or not at all.
            make: commits. What it raises for this part is raised here, what it raises for others is not.

        """
        request = _Request(part)
        line: _Line[T] | None = None
        try:
            with self._lock:
                line = self._line(name)
                if line.leader is None:
                    line.leader = request
                else:
                    line.waiting.append(request)
                    if len(line.waiting) == line.awaited:
                        line.awaited = 0
                        line.assembled.release()
            if line.leader is not request:
                request.gate.acquire()
            if line.leader is request:
                self._lead(line, request, make)
        except BaseException:
            if line is not None:
                self._leave(line, request)
            raise
        if request.error is not None:
            raise request.error

    def _line(self, name: str) -> _Line[T]:
        line = self._lines.get(name)
        if line is None:
            if len(self._lines) >= _LINES_MAX:
                self._lines = {each: line for each, line in self._lines.items() if line.leader is not None}
            line = self._lines[name] = _Line()
        return line

    def _leave(self, line: _Line[T], request: _Request[T]) -> None:
        """Take one who was interrupted out, wherever it is: the others must not wait for it."""
        while True:
            with self._lock:
                is_leader = line.leader is request
                if request in line.waiting:
                    line.waiting.remove(request)
                    request.is_settled = not is_leader
                is_in_hands = not is_leader and not request.is_settled and request in line.group
            if is_leader:
                self._pass_on(line, request)
                return
            _wake(request.to_wake)
            if not is_in_hands:
                return
            request.gate.acquire()  # released when it is settled, or leads

    def _lead(self, line: _Line[T], request: _Request[T], make: Callable[[Sequence[T]], object]) -> None:
        line.group = group = [request]
        try:
            if line.expected > 1:
                self._assemble(line)
            with self._lock:
                if line.waiting and line.waiting[0] is request:  # who passed on was interrupted before taking it out
                    line.waiting.pop(0)
                while line.waiting and len(group) < _TOGETHER_MAX:
                    group.append(line.waiting[0])  # first into the one, then out of the other: nobody is lost
                    line.waiting.pop(0)
            began_s = perf_counter()
            _settle(group, make)
            line.commit_s += _EMA_WEIGHT * (perf_counter() - began_s - line.commit_s)
        finally:
            self._pass_on(line, request)

    def _assemble(self, line: _Line[T]) -> None:
        """Wait a little for those who were there the last time.

        They are on their way back, each with the next task's writes to encode. Who began without them would commit
        alone, and they would after it.
        """
        with self._lock:
            missing = min(line.expected, _TOGETHER_MAX) - 1 - len(line.waiting)
            left_s = line.delivered_at_s + min(_PATIENCE_COMMITS * line.commit_s, _PATIENCE_S_MAX) - perf_counter()
            if missing <= 0 or left_s <= 0:
                return
            line.assembled.acquire(blocking=False)  # a release that came after an earlier time-out
            line.awaited = len(line.waiting) + missing
        try:
            line.assembled.acquire(timeout=left_s)
        finally:
            line.awaited = 0

    def _pass_on(self, line: _Line[T], request: _Request[T]) -> None:
        """Let the next who waits commit, and wake who is settled.

        Written to be run again by `_leave` after an interrupt at any line.
        """
        with self._lock:
            if line.leader is request:
                waiting, others = line.waiting, line.group[1:]
                left = [member for member in others if not member.is_settled and member not in waiting]
                waiting[:0] = left  # after an interrupt: one of them leads next
                line.expected = len(line.group) - len(left) + len(waiting)
                line.delivered_at_s = perf_counter()
                request.to_wake = [member.gate for member in others if member.is_settled]
                if waiting:
                    request.to_wake.append(waiting[0].gate)
                line.group = []
                line.leader = waiting[0] if waiting else None
                if waiting:
                    waiting.pop(0)
        _wake(request.to_wake)


def _wake(gates: list[Lock]) -> None:
    """Release every gate; one that was released before an interrupt, once more."""
    while gates:
        with suppress(RuntimeError):
            gates[-1].release()
        gates.pop()


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
