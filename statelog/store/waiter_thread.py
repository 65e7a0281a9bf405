"""The waiter thread of a store, an OS thread that waits on behalf of all asyncio tasks of a process.

See DESIGN.md, "Waiting in asyncio". Each waiting task joins a line, which is a queue of tasks. Tasks that wait to claim
the same entry, or for the same lease, share a line in order of arrival. When a commit may have met the condition of a
line, the thread checks the condition. If the condition holds, the thread wakes the first task of the line.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from statelog.board.trie import Trie
from statelog.board.waiters import watch_bits
from statelog.errors import StatelogError
from statelog.storage.notify.wake import ANY
from statelog.store.dispatcher import dispatcher_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from statelog.board.events import Happened
    from statelog.storage.notify.waiter import Waiter
    from statelog.store.session import StoreSession

SLOT_LINES_MAX: Final = 32
"""The maximum number of a process's lines with a slot in the wake-up file, so that slots remain for other processes."""

_SLICE_S: Final = 0.05
"""The longest sleep of the thread while some commits do not wake it."""
_TICK_S: Final = 0.25
"""The longest sleep while every relevant commit wakes the thread.

At this interval, the thread renews its slots. It also checks lines with a slot after commits that did not notify them,
because the process that was notified may have died.
"""
RACED_S: Final = 0.005
"""The delay before the next check after a woken task found nothing, because another process was faster."""
_LINGER_S: Final = 1.0
"""The time for which the thread stays alive after the last task has left."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition that a task waits for.

    Attributes:
        look: a function that checks the condition. The waiter thread calls it, so it must not block. Its argument is
            the line's waiter, or None if the line has no slot. It returns (True if a task can continue, seconds until
            the next check without a commit or None). If it raises an error, a task is woken, and gets the error from
            its own check.
        key: tasks with the same key share a line, and are woken one at a time. None gives the task its own line.
        patterns: patterns of entries. A change of a matching entry causes a check.
        subject: the subject of the line's slot in the wake-up file. A line with a slot does not use `patterns`.
        is_any: whether every record causes a check.
    """

    look: Callable[[Waiter | None], tuple[bool, float | None]]
    key: Hashable = None
    patterns: tuple[str, ...] = ()
    subject: bytes = b""
    is_any: bool = False


class Sleeper:
    """A task in a line.

    Args:
        condition: the condition that the task waits for.
        wake: a function that wakes the task from another OS thread. It returns False if the task can never continue.
    """

    __slots__ = ("condition", "error", "has_failed", "is_awake", "line", "ticket", "wake", "was_looked_for")

    def __init__(self, condition: Condition, wake: Callable[[], bool]) -> None:
        self.condition, self.wake = condition, wake
        self.line: _SleeperQueue | None = None
        self.is_awake = True
        """Whether the task was woken, or has not begun to wait yet."""
        self.was_looked_for = False
        """Whether the thread has checked the condition since the task joined its line."""
        self.has_failed = False
        """Whether the check that woke the task has raised an error. The task must then check the condition itself."""
        self.ticket = 0
        self.error: StatelogError | None = None
        """The error that ended the thread, because the store is closed or cannot be read; None if there was none."""


class _SleeperQueue:
    """Sleepers that wait for the same condition."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.sleepers: dict[Sleeper, None] = {}
        """The sleepers in order of arrival."""
        self.waiter: Waiter | None = None
        self.is_new = True
        self.is_pending = False
        """Whether the condition of the line must be checked now."""
        self.commit: int | None = None
        """The LMDB transaction number of the last commit before the last check."""

    def first_asleep(self) -> Sleeper | None:
        return next((each for each in self.sleepers if not each.is_awake), None)


class WaiterThread:
    """Wakes the waiting tasks of a process. Its methods may be called on any thread, and do not wait for the disk."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._wake = session.engine.store_file.wake
        self._dispatcher = dispatcher_of(session)
        self._lock = threading.RLock()
        self._lines: dict[object, _SleeperQueue] = {}
        """The lines by the key of their condition. A line without a key is stored under itself."""
        self._pending: dict[_SleeperQueue, None] = {}
        self._slot_lines: dict[_SleeperQueue, None] = {}
        self._due_s: dict[_SleeperQueue, float] = {}
        """The times at which to check lines even if nothing was committed."""
        self._polled: dict[_SleeperQueue, None] = {}
        """The lines for which no notification or event arrives. They are checked after every commit."""
        self._trie: Trie[_SleeperQueue] = Trie()
        self._listed: dict[_SleeperQueue, None] = {}
        """The lines that are checked after events of their patterns. The trie has the patterns."""
        self._mask = 0
        self._any_lines: dict[_SleeperQueue, None] = {}
        self._changed = threading.Event()
        self._bell: Waiter | None = None
        self._thread: threading.Thread | None = None
        self._process_id = os.getpid()

    # --- tasks -----------------------------------------------------------------------------

    def has_line(self, condition: Condition) -> bool:
        """Return True if tasks already wait for the same condition. Raises the errors of `join`."""
        self._session.engine.check_usable()
        with self._lock:
            line = self._lines.get(condition.key)
            return line is not None and bool(line.sleepers)

    def join(self, sleeper: Sleeper) -> None:
        """Add a task at the end of its line.

        Raises:
            ClosedError, ForkedError: the store is not usable.
        """
        self._session.engine.check_usable()
        condition = sleeper.condition
        with self._lock:
            line = None if condition.key is None else self._lines.get(condition.key)
            if line is None:
                line = _SleeperQueue(condition)
                self._lines[line if condition.key is None else condition.key] = line
            line.sleepers[sleeper] = None
            sleeper.line = line

    def sleep(self, sleeper: Sleeper, *, after_s: float = 0.0) -> None:
        """Make a task wait: the thread wakes the task when its condition holds.

        The thread checks the condition after `after_s` seconds, and after commits.
        """
        with self._lock:
            line = sleeper.line
            if line is None:  # The thread has ended, and its error is in `sleeper.error`.
                sleeper.wake()
                return
            sleeper.is_awake = False
            if after_s:
                self._due_s[line] = min(monotonic() + after_s, self._due_s.get(line, float("inf")))
            self._pend(line, is_now=not after_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="statelog waiter", daemon=True)
                self._thread.start()
        self._ring()

    def leave(self, sleeper: Sleeper) -> None:
        """Remove a task from its line. If the task was woken, the thread checks the condition for the next task."""
        if os.getpid() != self._process_id:
            return  # In a forked child, the lock may be held forever, because a thread of the parent may have held it.
        with self._lock:
            line, sleeper.line = sleeper.line, None
            if line is None:
                return
            del line.sleepers[sleeper]
            if not line.sleepers:
                self._drop(line)  # Drop the empty line now, so that no task joins it.
                return
            self._pend(line, is_now=sleeper.is_awake)
        self._ring()

    def _pend(self, line: _SleeperQueue, *, is_now: bool) -> None:
        """Schedule a line for the thread. With `is_now`, the thread checks its condition. The caller holds the lock."""
        line.is_pending |= is_now
        self._pending[line] = None

    def _ring(self) -> None:
        self._changed.set()
        if (bell := self._bell) is not None:
            bell.ring()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._wake.enter(0) as bell:
                self._bell = bell
                self._serve(bell)
        except StatelogError as error:
            self._end(error)
        except BaseException as error:
            self._end(StatelogError(f"the thread that wakes tasks has failed: {error!r}"))
            raise

    def _serve(self, bell: Waiter) -> None:
        tick_s = idle_s = monotonic()
        is_rung = False
        while True:
            self._session.engine.check_usable()
            is_tick = monotonic() >= tick_s
            if is_tick:
                tick_s = monotonic() + _TICK_S
            self._attend(is_rung=is_rung, is_tick=is_tick)
            sweep_s = self._dispatcher.attend() if self._listed else None
            soon_s = self._look_for_all()
            if sweep_s is not None:
                soon_s = min(soon_s, monotonic() + sweep_s)
            with self._lock:
                if self._lines:
                    idle_s = monotonic() + _LINGER_S
                elif monotonic() >= idle_s:
                    self._end(None)
                    return
                self._set_mask(bell)
                if self._pending:
                    continue
                self._changed.clear()
            is_rung = self._doze(bell, min(soon_s, tick_s) - monotonic())

    def _doze(self, bell: Waiter, timeout_s: float) -> bool:
        """Sleep until a wake-up arrives or a check may be due. Return True if a wake-up has arrived."""
        if not bell.has_slot:
            self._changed.wait(max(min(timeout_s, _SLICE_S), 0.0))
            timeout_s = 0.0
        slice_s = _SLICE_S if self._polled or self._wake.slot_file.unreached else _TICK_S
        return bell.pass_slice(max(timeout_s, 0.0), slice_s) or not bell.has_slot

    def _attend(self, *, is_rung: bool, is_tick: bool) -> None:
        """Schedule the lines that were notified, or whose conditions a commit may have met."""
        commit = self._wake.slot_file.commit_number()
        with self._lock:
            for line in self._slot_lines if is_rung or is_tick else ():
                assert line.waiter is not None
                if line.waiter.was_called() or (is_tick and line.commit != commit):
                    self._pend(line, is_now=True)
            for line in self._any_lines if is_rung else ():
                self._pend(line, is_now=True)
            for line in (*self._polled, *(self._any_lines if is_tick else ())):
                if commit is None or line.commit != commit:
                    self._pend(line, is_now=True)

    def _note_events(self, events: list[Happened] | None) -> None:
        """Schedule the lines whose patterns match the events.

        If `events` is None, some events are lost, so schedule all.
        """
        with self._lock:
            if events is None:
                found = {*self._listed}
            else:
                found = {line for event in events for line in self._trie.find(event.found.event.key)}
            for line in found:
                self._pend(line, is_now=True)
        if found and threading.current_thread() is not self._thread:
            self._ring()

    def _look_for_all(self) -> float:
        """Check every line that is pending or due. Return the time at which the next line is due."""
        now_s = monotonic()
        with self._lock:
            for line, due_s in self._due_s.items():
                if due_s <= now_s:
                    self._pend(line, is_now=True)
            pending, self._pending = tuple(self._pending), {}
        for line in pending:
            self._tend(line)
        with self._lock:
            return min(self._due_s.values(), default=float("inf"))

    def _tend(self, line: _SleeperQueue) -> None:
        with self._lock:
            if not line.sleepers:
                self._drop(line)
                return
            is_new, line.is_new = line.is_new, False
            first = line.first_asleep()
        if is_new:
            self._begin(line)
        self._give_tickets(line)
        if first is not None and line.is_pending:
            self._look_for(line)

    def _look_for(self, line: _SleeperQueue) -> None:
        """Check the condition of a line. If it holds, wake the first sleeper."""
        line.is_pending = False
        self._due_s.pop(line, None)
        line.commit = self._wake.slot_file.commit_number()
        seen = tuple(line.sleepers)
        has_failed = False
        try:
            can_go_on, again_s = line.condition.look(line.waiter)
        except Exception:  # noqa: BLE001 - the task that is woken meets the error itself
            can_go_on, again_s, has_failed = True, None, True
        with self._lock:
            if again_s is not None:
                self._due_s[line] = monotonic() + again_s
            for sleeper in seen:
                sleeper.was_looked_for = True
            if not can_go_on:
                return
            while (first := line.first_asleep()) is not None:
                first.is_awake, first.has_failed = True, has_failed
                if first.wake():
                    return
                del line.sleepers[first]  # The event loop of this task was closed.
                first.line = None
            if not line.sleepers:
                self._pend(line, is_now=False)

    # --- lines ------------------------------------------------------------------------------

    def _begin(self, line: _SleeperQueue) -> None:
        """Give a new line a slot in the wake-up file, or subscribe it to events, records or commits."""
        condition = line.condition
        if condition.subject and len(self._slot_lines) < SLOT_LINES_MAX:
            waiter = self._wake.enter(0, condition.subject, bell=self._bell).__enter__()
            with self._lock:
                if waiter.has_slot and line.sleepers:
                    line.waiter = waiter
                    self._slot_lines[line] = None
                    return
            waiter.__exit__()
        with self._lock:
            if not line.sleepers:
                return  # All sleepers have already left.
            if condition.patterns and not self._listed:
                self._dispatcher.listen(self._note_events)
            for pattern in condition.patterns:
                self._trie.add(pattern, line)
                self._mask |= watch_bits(pattern)
                self._listed[line] = None
            if condition.is_any:
                self._any_lines[line] = None
            elif not condition.patterns:
                self._polled[line] = None
            if self._bell is not None:
                # Set the mask before the first check, so that any later commit wakes the thread.
                self._set_mask(self._bell)

    def _set_mask(self, bell: Waiter) -> None:
        mask = self._mask | (ANY if self._any_lines else 0)
        if bell.mask != mask:
            bell.mask = mask

    def _give_tickets(self, line: _SleeperQueue) -> None:
        """Give tickets to new sleepers. Write the ticket of the first sleeper into the slot of the line."""
        with self._lock:
            waiter = line.waiter
            if waiter is None:
                return
            for sleeper in line.sleepers:
                if not sleeper.ticket:
                    sleeper.ticket = waiter.draw_ticket()
            first = next(iter(line.sleepers))
            if first.ticket and waiter.ticket != first.ticket:
                waiter.ticket = first.ticket

    def _drop(self, line: _SleeperQueue) -> None:
        """Remove an empty line. The caller holds the lock."""
        key = line if line.condition.key is None else line.condition.key
        if self._lines.get(key) is line:
            del self._lines[key]
        for lines in (self._slot_lines, self._polled, self._any_lines, self._pending, self._due_s):
            lines.pop(line, None)
        if line in self._listed:
            del self._listed[line]
            for pattern in {*line.condition.patterns}:
                self._trie.remove(pattern, line)
            if not self._listed:
                self._mask = 0
                self._dispatcher.listen(None)
        waiter, line.waiter = line.waiter, None
        if waiter is not None:
            waiter.__exit__()  # This call forwards a wake-up that the line has not used.

    def _end(self, error: StatelogError | None) -> None:
        """End the thread, and wake all tasks. They get `error`."""
        with self._lock:
            self._bell, self._thread = None, None
            lines, self._lines = tuple(self._lines.values()), {}
            for line in lines:
                sleepers, line.sleepers = tuple(line.sleepers), {}
                for sleeper in sleepers:
                    sleeper.line, sleeper.error = None, error
                    sleeper.wake()
            for line in lines:
                self._drop(line)


def waiter_thread_of(session: StoreSession) -> WaiterThread:
    """Return the waiter thread of an open store."""
    found = session.kept.get("waiter thread")
    if found is None:
        found = session.kept.setdefault("waiter thread", WaiterThread(session))
    thread: WaiterThread = found
    return thread
