"""Pending writes of tasks that end together are one commit: one of their OS threads makes it, for those that wait.

The store shares flushes between commits by itself; this shares the commit, which at a hundred small writes costs more.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_TOGETHER_MAX = 128


class _Request(Generic[T]):
    """The part of one caller."""

    __slots__ = ("error", "gate", "is_settled", "part")

    def __init__(self, part: T) -> None:
        self.part = part
        self.error: Exception | None = None
        self.is_settled = False
        self.gate = Lock()
        """Held while its caller sleeps; released when it is settled, or is to commit for others."""
        self.gate.acquire()


class Gatherer(Generic[T]):
    """Commits for several OS threads at once, by what they write to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[str, list[_Request[T]]] = {}
        """Who waits for the commit that is being made, by what it is to."""

    def commit(self, name: str, part: T, make: Callable[[Sequence[T]], object]) -> None:
        """Return when `make` has committed this part, maybe with those of others.

        Args:
            name: what is written to: what goes to the same may go together.
            part: to be committed whole or not at all.
            make: commits. What it raises for this part is raised here, what it raises for others is not.

        """
        request = _Request(part)
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is None:
                self._waiting[name] = []
            else:
                waiting.append(request)
        if waiting is not None:
            self._wait(name, request)
        if not request.is_settled:
            self._lead(name, request, make)
        if request.error is not None:
            raise request.error

    def _wait(self, name: str, request: _Request[T]) -> None:
        try:
            request.gate.acquire()
        except BaseException:  # interrupted: the others must not wait for this one
            with self._lock:
                waiting = self._waiting.get(name, [])
                is_free = request in waiting
                if is_free:
                    waiting.remove(request)
            if not is_free and not request.is_settled and request.gate.acquire() and not request.is_settled:
                self._pass_on(name)
            raise

    def _lead(self, name: str, request: _Request[T], make: Callable[[Sequence[T]], object]) -> None:
        with self._lock:
            waiting = self._waiting[name]
            group = [request, *waiting[: _TOGETHER_MAX - 1]]
            del waiting[: _TOGETHER_MAX - 1]
        try:
            _settle(group, make)
        finally:
            with self._lock:  # after an interrupt some are not settled: one of them leads next
                self._waiting[name][:0] = [member for member in group[1:] if not member.is_settled]
            self._pass_on(name)
            for member in group[1:]:
                if member.is_settled:
                    member.gate.release()

    def _pass_on(self, name: str) -> None:
        """Let the next who waits commit."""
        with self._lock:
            waiting = self._waiting[name]
            if waiting:
                waiting.pop(0).gate.release()
            else:
                del self._waiting[name]


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
