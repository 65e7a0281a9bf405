"""A read-only copy of a store that another machine owns, kept up to date."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from statelog.errors import CorruptionError, ReadOnlyError, RemoteError, StatelogError, StoreNotFoundError
from statelog.fleet import names
from statelog.fleet.remote import RemoteStatus, check_number
from statelog.fleet.restores import catch_up_over_bases, head_to_read, store_id

if TYPE_CHECKING:
    from statelog import Store
    from statelog.fleet.head import HeadContents
    from statelog.fleet.requests import Performer


class Follower:
    """The `store.remote` of a copy that follows the owner. It applies the records that the owner ships."""

    def __init__(self, store: Store, performer: Performer, poll_s: float) -> None:
        self._store = store
        self._performer = performer
        self._poll_s = poll_s
        self._store_id = store_id(store)
        self._taking_in = threading.Lock()
        self._epoch = 0
        self._error: StatelogError | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statelog-fleet-follow", daemon=True)

    def start(self) -> None:
        """Start to follow."""
        self._thread.start()

    def wait(self, lsn: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until the copy has an LSN. Without `lsn`, wait until it has everything that is shipped by now.

        Returns:
            False after the timeout.

        Raises:
            StoreNotFoundError: the store was deleted.
            ExpiredError: this copy is too old to continue. Follow again.
            CorruptionError: the storage's copy is damaged. Facts: object.
        """
        if timeout_s is not None:
            check_number("timeout_s", timeout_s)
        if lsn is None:
            self._take_in()
            return True
        check_number("lsn", lsn)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._store.last_lsn < lsn:
            self._check()
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._store.wait(lsn - 1, min(self._poll_s, 0.1))
        return True

    def status(self) -> RemoteStatus:
        """Return how much of the log this copy has."""
        lsn = self._store.last_lsn
        return RemoteStatus(lsn, lsn, 0.0, 0, self._epoch, parked=False, requests=self._performer.requests)

    def _check(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.message, **self._error.facts)

    def admit(self) -> None:
        """See `log.engine.Shipper`."""
        message = f"{self._store.path} follows a store of another owner and is read-only"
        raise ReadOnlyError(message, path=str(self._store.path))

    def committed(self) -> None:
        """See `log.engine.Shipper`."""

    def close(self) -> None:
        """Stop following."""
        if not self._thread.is_alive():  # In a forked child, the thread does not run.
            return
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while self._error is None and not self._end.is_set():
            try:
                if self._pause():
                    self._take_in()
            except RemoteError:  # The storage is unavailable: try again later.
                self._end.wait(self._poll_s)
            except StatelogError as error:
                self._error = error

    def _pause(self) -> bool:
        """Wait until there may be new segments. Return False to wait again."""
        return not self._end.wait(self._poll_s)

    def _take_in(self) -> None:
        with self._taking_in:
            head = self._head_there()
            self._epoch = head.epoch
            try:
                catch_up_over_bases(self._performer, head, self._store)
            except CorruptionError:
                now = self._head_there()
                if now.base == head.base:
                    raise
                # A collection has just removed an object: read the head again.
                catch_up_over_bases(self._performer, now, self._store)

    def _head_there(self) -> HeadContents:
        head = head_to_read(self._performer)
        if head is None or head.store_id != self._store_id:  # A different id means that the store was deleted.
            name = names.store_of(self._performer.folder.rstrip("/"))
            raise StoreNotFoundError(f"the store {name!r} was deleted from this fleet", name=name)
        return head
