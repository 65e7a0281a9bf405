"""Watches, which report the events of board entries."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from statelog.board import reads
from statelog.board.events import before, check_cursor, check_kept, check_life, cursor_at, expired, last_lost
from statelog.errors import ExpiredError, SchemaError
from statelog.log.kinds.entries import GOES, EntryAct
from statelog.log.times import to_datetime
from statelog.store.dispatcher import WatcherSubscription, dispatcher_of
from statelog.store.entries import value_of
from statelog.store.waiter_thread import Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from statelog.board.events import Happened
    from statelog.store.session import StoreSession

_CHECKED_RECORDS = 4096
_FOREVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Event:
    """A change of an entry."""

    kind: str
    """`set`, `delete`, `expire`, `claim`, `renew`, `release`, `complete`, `fail`, `dead`, `rollback`; or `progress`."""
    key: str | None
    """The key of the entry; None for `progress`."""
    old: Any
    """The previous value; None if there was no entry, or if retention has removed its record."""
    new: Any
    """The new value; None if the entry no longer exists. For `complete`, the result."""
    version: int
    """The LSN of the record."""
    cursor: str
    """The position after the event: `watch(after=cursor)` continues there."""
    agent: str | None
    """The agent that made the change, or None."""
    time: datetime | None
    more: bool = False
    """Whether the next event of this watch belongs to the same commit."""


class Watch:
    """An iterator of the events of entries that match a pattern, in the order of the log. It is also a context manager.

    Each event is returned exactly once, including deletions and expiries. It is on the disk before it is returned. No
    transaction is open while the caller works. Only one OS thread at a time may use a watch.
    """

    def __init__(
        self,
        session: StoreSession,
        pattern: str,
        may: Callable[[str], bool],
        *,
        after: object,
        follow: bool,
        timeout_s: float | None,
        coalesce: bool,
        renew: bool,
        progress_s: float | None,
    ) -> None:
        self.session, self._may = session, may
        self._timeout_s, self._progress_s = timeout_s, progress_s
        self._coalesces, self._renews, self._follows = coalesce, renew, follow
        self._page: list[Event] = []
        with session.read() as view:
            self._until = last = view.transaction.last_lsn()
            at = (last if follow else 0) if after is None else check_cursor(view, after)
            board = reads.board_of(view)
            if after is not None:
                check_life(view, at)
        for start in range(at, last if board is not None else at, _CHECKED_RECORDS):
            until = min(start + _CHECKED_RECORDS, last)
            with session.read() as view:
                if after is not None:
                    check_kept(view, board or 0, start, until)
                else:  # Begin after the last event that retention has removed.
                    at = max(at, last_lost(view, board or 0, start, until))
        self._subscription = WatcherSubscription(pattern, at, board)
        self._dispatcher = dispatcher_of(session)
        if follow:
            self._dispatcher.join(self._subscription)
        else:
            self._until = min(last, session.engine.store_file.flushed_lsn())
        self._heard_s = self._said_s = monotonic()
        self._given = 0
        self._is_closed = False
        self._failure: SchemaError | None = None

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        """Return the next event. Wait for it if the watch follows. Raises CursorExpiredError, ClosedError."""
        while not self._page:
            page = self.next_page()
            if page is None:
                self.close()
                raise StopIteration
            self._page = page[::-1]
        event = self._page.pop()
        self._subscription.at, self._given = max(self._given, self._subscription.at), event.version
        return event

    def next_page(self) -> list[Event] | None:
        """Wait for the next events, and return them. Return None if there will be no more."""
        while True:
            page, wait_s = self.poll()
            if page is None or page:
                return page
            self._dispatcher.wait(self._subscription, wait_s)

    def poll(self) -> tuple[list[Event] | None, float]:
        """Return (available events or None if there will be no more, seconds to wait for the next event)."""
        if self._failure is not None:
            self.close()
            raise self._failure
        subscription = self._subscription
        subscription.at = max(subscription.at, subscription.taken)
        if not self._follows:
            return self._read_page(), 0.0
        while not self._is_closed:
            events = self._events(self._dispatcher.take(subscription))
            now_s = monotonic()
            if events:
                self._heard_s = self._said_s = now_s
                return events, 0.0
            if self._dispatcher.is_behind(subscription):
                self._dispatcher.read_on(subscription)
                continue
            if self._dispatcher.pump():
                continue
            since = ((self._heard_s, self._timeout_s), (self._said_s, self._progress_s))
            waits = [from_s + each - now_s for from_s, each in since if each is not None]
            if min(waits, default=1.0) <= 0 and not subscription.queue:
                return self._silence(now_s), 0.0
            return [], max(min(waits, default=_FOREVER_S), 0.0)
        return None, 0.0

    @property
    def condition(self) -> Condition:
        """The condition of a waiting task: there may be new events for the watch."""
        return Condition(lambda _waiter: (self._has_news(), None), patterns=(self._subscription.pattern,))

    def _has_news(self) -> bool:
        return bool(self._subscription.queue) or self._dispatcher.is_behind(self._subscription)

    def _silence(self, now_s: float) -> list[Event] | None:
        """Return a `progress` event after a long time without events, or None if the watch has timed out."""
        if self._timeout_s is not None and now_s >= self._heard_s + self._timeout_s:
            return None
        self._said_s = now_s
        at = self._subscription.taken
        with self.session.read() as view:
            return [Event("progress", None, None, None, at, cursor_at(view, at), None, None)]

    def _read_page(self) -> list[Event] | None:
        subscription = self._subscription
        while subscription.read_to < self._until:
            self._dispatcher.read_on(subscription, self._until)
            if events := self._events(self._dispatcher.take(subscription)):
                return events
        return None

    def _events(self, happened: list[Happened]) -> list[Event]:
        wanted = [each for each in happened if self._is_wanted(each)]
        first: dict[str, Happened] = {}
        if self._coalesces:
            for each in wanted:
                first.setdefault(each.found.event.key, each)
            last = {each.found.event.key: each for each in wanted}
            wanted = [each for each in wanted if last[each.found.event.key] is each]
        events = []
        for at, each in enumerate(wanted):
            more = at + 1 < len(wanted) and wanted[at + 1].commit == each.commit
            try:
                events.append(self._event(each, first.get(each.found.event.key, each), more=more))
            except SchemaError as error:  # Return the events that precede the error. The next call raises it.
                facts = {**error.facts, "version": each.found.lsn}
                self._failure = type(error)(error.message, **facts)
                self._failure.__cause__ = error.__cause__
                break
        if self._failure is not None and not events:
            self.close()
            raise self._failure
        return events

    def _is_wanted(self, happened: Happened) -> bool:
        event = happened.found.event
        return (event.act != EntryAct.RENEW or self._renews) and self._may(event.key)

    def _event(self, happened: Happened, first: Happened, *, more: bool) -> Event:
        found, event = happened.found, happened.found.event
        goes = event.act in GOES and event.act != EntryAct.COMPLETE
        with self.session.read() as view:
            workspace = self.session.workspace_in(view)
            old = before(view, first)
            old_value = None if old is None else reads.read_value(workspace, old.event)
            try:
                value = None if goes else reads.read_value(workspace, event)
            except ExpiredError:  # Retention has removed the event since its page was read.
                raise expired(found.lsn) from None
        return Event(
            EntryAct(event.act).name.lower(),
            event.key,
            None if old is None else value_of(self.session, old.event, old_value),
            None if goes else value_of(self.session, event, value),
            found.lsn,
            happened.cursor,
            event.agent,
            to_datetime(found.time_us),
            more,
        )

    def close(self) -> None:
        """End the watch, even while an OS thread waits in it. A second call does nothing."""
        self._is_closed = True
        self._page.clear()
        self._dispatcher.leave(self._subscription)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """Leave the dispatcher, so that it stops working for a dropped watch."""
        if hasattr(self, "_dispatcher"):
            self.close()
