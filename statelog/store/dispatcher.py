"""Reads the board's events once for all watchers of a process.

The first waiting watcher sleeps until the store changes, reads the new events, and hands them to all watchers with
matching patterns. Then another waiting watcher takes over. So a process with many watchers is woken once and reads
each record once, without an extra thread.
"""

from __future__ import annotations

import contextlib
from collections import deque
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING

from statelog.board import reads, writes
from statelog.board.events import expired, next_expiry_us, read_events
from statelog.board.names import compile_pattern
from statelog.board.trie import Trie
from statelog.board.waiters import watch_bits
from statelog.errors import CursorExpiredError, StatelogError
from statelog.log.times import now_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.board.events import Happened
    from statelog.log.engine import Engine
    from statelog.storage.notify.waiter import Waiter
    from statelog.store.session import StoreSession

PAGE_EVENTS = 256
QUEUE_MAX = 1024
"""The maximum length of a watcher's queue. A watcher further behind reads the log itself."""

_SLICE_S = 1.0
"""The longest sleep before a waiter checks whether the store was closed."""


class WatcherSubscription:
    """The dispatcher's data for one watcher."""

    def __init__(self, pattern: str, at: int, board: int | None) -> None:
        self.pattern = pattern
        self.board = board
        self.queue: deque[Happened] = deque()
        """Events up to `read_to` that were read but not yet taken by the watcher."""
        self.at = self.taken = self.read_to = at
        """The LSNs up to which the watcher has finished events, has taken events from `queue`, and has got events in
        `queue`.
        """
        self.fits = compile_pattern(pattern).fits
        """A function that returns True if the pattern matches a key."""

    def check_board(self, board: int | None, until: int) -> None:
        """Raise CursorExpiredError if the board was deleted, even if it was re-created."""
        if self.board is not None and self.board != board:
            raise expired(until)
        self.board = board

    def start_again(self) -> None:
        """Discard the queue, so that the events in it are read from the log again."""
        self.queue.clear()
        self.read_to = self.taken


class Dispatcher:
    """Reads new events of one open store, and hands them to its watchers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = Condition()
        self._subscriptions: set[WatcherSubscription] = set()
        self._trie: Trie[WatcherSubscription] = Trie()
        self._at = 0
        """The LSN up to which the dispatcher has read. Watchers behind this LSN read the log themselves."""
        self._mask = 0
        self._waiter: Waiter | None = None
        self._has_leader = False
        self._listener: Callable[[list[Happened] | None], None] | None = None
        self._reading = Lock()
        """A lock that `pump` holds, so that only one OS thread at a time reads new events."""

    def join(self, subscription: WatcherSubscription) -> None:
        """Add a watcher."""
        with self._changed:
            if not self._subscriptions and self._listener is None:
                self._at = subscription.read_to
            self._subscriptions.add(subscription)
            self._trie.add(subscription.pattern, subscription)
            self._mask |= watch_bits(subscription.pattern)
            self._entered().mask = self._mask
            self._note_position()

    def leave(self, subscription: WatcherSubscription) -> None:
        """Remove a watcher. A second call does nothing."""
        with self._changed:
            if subscription not in self._subscriptions:
                return
            self._subscriptions.discard(subscription)
            self._trie.remove(subscription.pattern, subscription)
            if not self._subscriptions:
                self._mask = 0
                if not self._has_leader:
                    self._let_go()
            self._changed.notify_all()

    def listen(self, listener: Callable[[list[Happened] | None], None] | None) -> None:
        """Set the function that is called with all events that are read from now on; None removes it.

        The OS thread that reads events calls the function. Its argument is None if some events are lost.
        """
        at = 0 if listener is None else self._engine.store_file.flushed_lsn()
        with self._changed:
            if listener is not None and not self._subscriptions:
                self._at = at
            self._listener = listener

    def attend(self) -> float | None:
        """Read new events for the listener, and for watchers if none of them waits in a thread.

        Returns:
            The number of seconds after which an entry expires, so that this must be called again even without a commit;
            or None.
        """
        while self.pump():
            pass
        with self._changed:
            if self._has_leader or not self._subscriptions:
                return None
            self._note_position()
            self._entered().pass_slice(0.0)  # This call renews the slot.
        return self._sweep_when_due()

    def take(self, subscription: WatcherSubscription) -> list[Happened]:
        """Return the queued events and mark them as taken."""
        with self._changed:
            events = list(subscription.queue)
            subscription.queue.clear()
            subscription.taken = events[-1].found.lsn if events else subscription.read_to
            return events

    def is_behind(self, subscription: WatcherSubscription) -> bool:
        """Return True if a watcher must read the log itself."""
        return subscription.read_to < self._at

    def read_on(self, subscription: WatcherSubscription, until: int | None = None) -> None:
        """Read events from the log for a watcher that is behind, up to the dispatcher's position or `until`.

        Raises:
            CursorExpiredError: retention has removed events that the watcher has not seen.
        """
        until = self._at if until is None else until
        with self._engine.read() as view:
            board = reads.board_of(view)
            subscription.check_board(board, until)
            events: list[Happened] = []
            if board is not None:
                events, until = read_events(view, board, subscription.read_to, until, PAGE_EVENTS)
        with self._changed:
            subscription.queue.extend(event for event in events if subscription.fits(event.found.event.key))
            subscription.read_to = until

    def wait(self, subscription: WatcherSubscription, timeout_s: float) -> None:
        """Wait until a watcher has events, or for `timeout_s`. Raises the errors of reading the log."""
        deadline_s = monotonic() + timeout_s
        with self._changed:
            while not subscription.queue and not self.is_behind(subscription) and subscription in self._subscriptions:
                left_s = deadline_s - monotonic()
                if left_s <= 0:
                    return
                if self._has_leader:
                    self._changed.wait(min(left_s, _SLICE_S))
                    continue
                self._has_leader = True
                try:
                    self._changed.release()
                    try:
                        self._lead(min(left_s, _SLICE_S))
                    finally:
                        self._changed.acquire()
                finally:
                    self._has_leader = False
                    if not self._subscriptions:
                        self._let_go()
                    self._changed.notify_all()

    def _lead(self, timeout_s: float) -> None:
        if self.pump():
            return
        waiter, due_s = self._entered(), self._sweep_when_due()
        with self._changed:
            self._note_position()
        waiter.wait(timeout_s if due_s is None else min(timeout_s, due_s))
        self.pump()

    def _entered(self) -> Waiter:
        if self._waiter is None:
            self._waiter = self._engine.store_file.wake.enter(self._mask).__enter__()
        return self._waiter

    def _let_go(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.__exit__(None, None, None)

    def pump(self) -> bool:
        """Hand out new events. Return True if the log has new records."""
        with self._reading:
            flushed, after = self._engine.store_file.flushed_lsn(), self._at
            if flushed <= after:
                return False
            events: list[Happened] | None = []
            with self._engine.read() as view:
                board = reads.board_of(view)
                if board is not None:
                    try:
                        events, flushed = read_events(view, board, after, flushed, PAGE_EVENTS)
                        self._hand_out(events, board, after, flushed)
                    except CursorExpiredError:  # Every watcher is now behind, so each reads the log itself.
                        events = None
            with self._changed:
                self._at = flushed
                self._changed.notify_all()
            if self._listener is not None and events != []:
                self._listener(events)
            return True

    def _hand_out(self, events: list[Happened], board: int, after: int, flushed: int) -> None:
        with self._changed:
            # Copy the subscriptions, because garbage collection may remove a watcher during the loop. A watcher of a
            # deleted board detects the deletion itself.
            live = {
                each for each in tuple(self._subscriptions) if after <= each.read_to and each.board in {None, board}
            }
            for event in events:
                for each in live.intersection(self._trie.find(event.found.event.key)):
                    if each.read_to < event.found.lsn:
                        each.queue.append(event)
            for each in live:
                each.board, each.read_to = board, max(each.read_to, flushed)
                if len(each.queue) > QUEUE_MAX:
                    each.start_again()

    def _note_position(self) -> None:
        """Publish the oldest position of all watchers, so that retention keeps the records that a watcher has not seen.

        The caller holds `_changed`.
        """
        if self._waiter is not None and self._subscriptions:
            self._waiter.position = min(each.at for each in tuple(self._subscriptions)) + 1

    def _sweep_when_due(self) -> float | None:
        """Record the expiry of expired entries. Return the number of seconds until the next expiry."""
        with self._engine.read() as view:
            board = reads.board_of(view)
            next_us = None if board is None else next_expiry_us(view, board)
        if next_us is None or self._engine.store_file.read_only:
            return None
        left_s = (next_us - now_us()) / 1e6
        if left_s > 0:
            return left_s
        with contextlib.suppress(StatelogError):  # The disk may be full. Reads detect expired entries anyway.
            self._engine.commit(lambda batch: writes.sweep(writes.begin(batch, None), writes.SWEPT_MAX))
            return 0.0
        return _SLICE_S


def dispatcher_of(session: StoreSession) -> Dispatcher:
    """Return the dispatcher of an open store."""
    found: Dispatcher = session.kept.setdefault("dispatcher", Dispatcher(session.engine))
    return found
