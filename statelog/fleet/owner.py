"""A store that this process owns: a thread ships its log, renews the beat, and stops when it is fenced."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from statelog.errors import FencedError, ForkedError, RemoteError, RemoteLagError, StatelogError
from statelog.fleet import bases, names, protocol, segments
from statelog.fleet.bases import Listed, MergedSegment
from statelog.fleet.garbage import GRACE_S, KEEP_S, OFTEN, collect
from statelog.fleet.head import BaseImage, Cut, decode, taker
from statelog.fleet.remote import RemoteStatus, check_number
from statelog.fleet.restores import listed_of, now_us
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from statelog import Store
    from statelog.fleet.protocol import Asking, Owned
    from statelog.fleet.requests import Performer

_SEGMENTS_MAX = 64
_LOG_BYTES_MIN = 8 * 1024 * 1024
_RECORDS_MAX = 2000
"""The number of records after the last image that makes a new image due.

A restore replays these records, and takes 0.1 ms for each. Fewer records would mean more images, and an image may
upload the whole file.
"""

_BACKOFF_S_MAX = 5.0
_SLICE_S = 0.1
_LATE_S = 1.0

Change: TypeAlias = "Callable[[Owned], Asking[Owned]]"
"""A change of the head by its owner. Repeated for the same head, it makes the same bytes."""


@dataclass(frozen=True, slots=True)
class ShippingOptions:
    """Options of shipping; see `Fleet.open`."""

    ship_ms: float = 100
    acknowledge: str = "local"
    ttl_s: float = 10
    park_after_s: float | None = 300
    lag_max_s: float = 60
    lag_max_bytes: int = 64 * 1024 * 1024
    keep_s: float = KEEP_S
    grace_s: float = GRACE_S

    def __post_init__(self) -> None:
        """Raise UsageError for an invalid time or size. Facts: argument, value."""
        check_number("ttl_s", self.ttl_s, is_zero_allowed=False)
        check_number("park_after_s", 1 if self.park_after_s is None else self.park_after_s, is_zero_allowed=False)
        for name in ("ship_ms", "lag_max_s", "lag_max_bytes", "keep_s", "grace_s"):
            check_number(name, getattr(self, name))


@dataclass(slots=True)
class _Attempt:
    """A base that is being made, from a log or from an image next to the store."""

    base: BaseImage
    log: MergedSegment | None = None
    data: bytes = b""
    answers: int = 0
    """The number of the latest call of `base` that returns when this base is complete."""
    is_fresh: bool = False
    listed: Listed | None = None


class Owner:
    """The `store.remote` of an owned store: ships the store's log, and reports how much is shipped."""

    def __init__(
        self, store: Store, performer: Performer, owned: Owned, options: ShippingOptions, shipped: Cut
    ) -> None:
        self._process_id = os.getpid()
        self._store = store
        self._performer = performer
        self._owned = owned
        self._options = options
        self._shipped = shipped
        self._counted = shipped.lsn, 0
        """The last LSN that was counted, and the size of the unshipped records up to that LSN."""
        self._next = 1
        self._tail_bytes = 0
        self._listed: Listed | None = None
        """The list of the head's base; None until it was made or read."""
        self._sent: list[tuple[int, int]] = []
        """The number and the last LSN of each segment that this epoch has shipped after the base."""
        self._pending: tuple[segments.SegmentHeader, bytes] | None = None
        self._is_parked = False
        self._error: StatelogError | None = None
        self._trouble: RemoteError | None = None
        self._lag_since_s: float | None = None
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closing = False
        self._is_ended = self._is_forgotten = False
        self._unsettled: tuple[Change, Callable[[], None]] | None = None
        self._lists: dict[str, Listed] = {}
        self._collected_s: float | None = None
        self._attempt: _Attempt | None = None
        self._asked = self._fresh = self._answered = 0
        """The numbers of three calls of `base`: the last one, the last for a fresh base, and the last completed.
        """
        self._beaten_s = self._busy_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="statelog-fleet", daemon=True)
        self._thread.start()

    @property
    def is_forked(self) -> bool:
        """Whether this object is in a forked child of the owning process."""
        return os.getpid() != self._process_id

    # --- the public methods ------------------------------------------------------------------

    def wait(self, lsn: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until the storage has all records up to an LSN. Without `lsn`, wait for all records committed by now.

        Returns:
            False after the timeout.

        Raises:
            FencedError: another owner has taken over the store.
            RemoteError: this owner was closed.
        """
        self._check_process()
        if lsn is not None:
            check_number("lsn", lsn)
        if timeout_s is not None:
            check_number("timeout_s", timeout_s)
        wanted = self._store.last_lsn if lsn is None else lsn
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                while self._shipped.lsn < wanted:
                    self._check()
                    left_s = None if deadline is None else deadline - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        return False
                    self._changed.wait(_SLICE_S if left_s is None else min(left_s, _SLICE_S))
            finally:
                self._waiting -= 1
        return True

    def status(self) -> RemoteStatus:
        """Return how much of the log is shipped."""
        self._check_process()
        last = self._store.last_lsn
        lag_bytes = self._lag_bytes()
        with self._changed:
            return RemoteStatus(
                self._shipped.lsn,
                last,
                self._lag_s(),
                lag_bytes,
                self._owned.head.epoch,
                self._is_parked,
                self._performer.requests,
            )

    def base(self, *, is_fresh: bool = False) -> None:
        """Make a base of the store now, and return when the head names it. Raises as `wait`.

        A fresh base shares no piece with earlier ones.
        """
        self._check_process()
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._fresh = mine if is_fresh else self._fresh
            self._changed.notify_all()
            while self._answered < mine:
                self._check()
                self._changed.wait(_SLICE_S)

    def forget(self) -> None:
        """Mark the store as deleted: `close` then leaves a head that names no objects."""
        self._is_forgotten = True

    # --- called by commits -------------------------------------------------------------------

    def admit(self) -> None:
        """See `log.engine.Shipper`."""
        self._check_process()
        if self._error is not None:
            raise _again(self._error)
        lag_s = self._lag_s()
        # Bytes are counted only after this delay, because counting would cost time at each commit.
        is_late = lag_s > _LATE_S
        if lag_s <= self._options.lag_max_s and not (is_late and self._lag_bytes() > self._options.lag_max_bytes):
            return
        if not self.wait(self._shipped.lsn + 1, self._options.ttl_s):
            message = f"the storage does not have the commits of the last {self._lag_s():.0f} s"
            raise RemoteLagError(message, lag_s=self._lag_s(), lag_bytes=self._lag_bytes()) from self._trouble

    def committed(self) -> None:
        """See `log.engine.Shipper`."""
        with self._changed:
            if self._lag_since_s is None and self._store.last_lsn > self._shipped.lsn:
                self._lag_since_s = time.monotonic()
        if self._options.acknowledge == "remote":
            self.wait()

    def close(self) -> None:
        """Ship the remaining records, and release the store.

        Raises:
            FencedError: another owner has taken it over.
            RemoteError: the storage is unavailable. The remaining records are only on this machine.
        """
        if self.is_forked:
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise _again(self._error)
        if self._trouble is not None:
            raise _again(self._trouble)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        backoff_s = 0.1
        while self._error is None and not self._is_ended:
            try:
                self._turn()
                backoff_s, self._trouble = 0.1, None
            except RemoteError as error:
                self._trouble = error
                self._is_ended = self._is_closing
                with self._changed:
                    self._changed.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
            except StatelogError as error:
                self._stop(error)

    def _turn(self) -> None:
        """Wait for work, and do it."""
        if self._unsettled is not None:
            self._change(*self._unsettled)
        beat_at_s = self._beaten_s + self._options.ttl_s / 3
        if self._has_more(self._next_look_s(beat_at_s)) or self._is_closing:
            self._ship()
            self._busy_s = time.monotonic()
        if self._is_closing:
            self._free()
            self._is_ended = True
            return
        if self._is_base_asked() or self._is_base_due():
            self._make_base()
        now_s = time.monotonic()
        if self._options.park_after_s is not None and now_s - self._busy_s >= self._options.park_after_s:
            self._free()
        elif now_s >= beat_at_s and not self._is_parked:
            self._change(protocol.beat)
            self._beaten_s = now_s

    def _next_look_s(self, beat_at_s: float) -> float:
        if self._is_closing or self._is_base_asked():
            return 0.0
        if self._is_parked:  # A parked store has no beat.
            return _SLICE_S
        return max(0.0, min(_SLICE_S, beat_at_s - time.monotonic()))

    def _has_more(self, timeout_s: float) -> bool:
        """Wait for a record. Unless a caller waits, wait up to `ship_ms` longer, to ship more records at once."""
        if not self._store.wait(self._shipped.lsn, timeout_s):
            return False
        if self._lag_since_s is None:
            self._lag_since_s = time.monotonic()
        until_s = time.monotonic() + self._options.ship_ms / 1000
        with self._changed:
            is_remote = self._options.acknowledge == "remote"
            while not (self._waiting or self._is_closing or self._is_base_asked() or is_remote):
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
        return True

    def _ship(self) -> None:
        """Ship all unshipped records. If an earlier outcome is unknown, ship the same bytes again."""
        while True:
            if self._pending is None:
                self._pending = segments.make(self._store, self._shipped.lsn)
            if self._pending is None:
                break
            if self._is_parked:
                self._take_up()
            about, segment = self._pending
            data = segments.seal_segment(segment, self._performer.key)
            started_s = time.monotonic()
            name = names.segment(self._owned.head.epoch, self._next)
            if not self._performer.append_fenced(self._owned.token, name, data):
                self._performer.perform(protocol.append(self._owned, self._next, data))
            with self._changed:
                self._sent.append((self._next, about.last))
                self._next += 1
                self._tail_bytes += len(data)
                self._pending = None
                self._shipped = Cut(about.last, about.chain)
                self._counted = about.last, 0
                self._lag_since_s = started_s if self._store.last_lsn > about.last else None
                self._changed.notify_all()

    def _take_up(self) -> None:
        """Become the owner of a released store again, unless it has had another owner since."""
        self._change(protocol.take_up, self._begin)

    def _begin(self) -> None:
        self._next, self._sent, self._is_parked = 1, [], False
        self._attempt = None

    def _free(self) -> None:
        if self._is_parked:
            return
        if self._is_forgotten:
            self._change(partial(protocol.forget, store_id=secrets.token_bytes(16)), self._rest)
        else:  # From now on, an end marker may have the number of the next segment.
            cut = self._shipped if self._next > 1 else None
            self._change(partial(protocol.free, last=self._next - 1, cut=cut), self._rest)

    def _rest(self) -> None:
        self._is_parked = True

    def _change(self, asked: Change, done: Callable[[], None] = lambda: None) -> None:
        """Change the head. If the outcome is unknown, this change is repeated before any other change."""
        self._unsettled = asked, done
        self._owned = self._performer.perform(asked(self._owned))
        self._unsettled = None
        done()

    # --- bases -------------------------------------------------------------------------------

    def _is_base_asked(self) -> bool:
        return self._asked > self._answered

    def _is_base_due(self) -> bool:
        if self._is_parked:
            return False
        *earlier, own = self._owned.head.tail
        count = sum((stretch.last or 0) - stretch.first + 1 for stretch in earlier) + self._next - own.first
        return count >= _SEGMENTS_MAX or self._tail_bytes > _LOG_BYTES_MIN

    def _make_base(self) -> None:
        """Make a base. After a failure, make the same base again, since no name is used twice (F4)."""
        if self._is_parked:
            self._take_up()
        path = self._store.path.with_name(f".{self._store.path.name}.base")
        if self._attempt is None:
            self._attempt = self._begun_base(path)
        attempt, held = self._attempt, self._owned.head.base
        if held is None or attempt.base[:2] != held[:2]:
            self._put_base(path, attempt)
        elif attempt.is_fresh or (attempt.log is None and self._listed is not None and self._listed.logs):
            self._free()  # The requested base takes its name from a new epoch.
            return
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}-lock").unlink(missing_ok=True)
        self._attempt = None
        with self._changed:
            self._answered = max(self._answered, attempt.answers)
            self._changed.notify_all()

    def _begun_base(self, path: Path) -> _Attempt:
        """Begin a base: from the records shipped since the last base if they are few, or else from an image."""
        asked = self._asked
        is_fresh = self._fresh > self._answered
        held, epoch = self._owned.head.base, self._owned.head.epoch
        if held is not None and self._listed is None:
            self._listed = listed_of(self._performer, held)
        listed = self._listed or bases.NOTHING
        since = 0 if held is None else held.lsn
        if asked == self._answered and not self._is_image_due(listed, since):
            made = segments.make(self._store, since)
            if made is not None:
                about, segment = made
                data = segments.seal_segment(segment, self._performer.key)
                base = BaseImage(about.last, epoch, about.chain)
                return _Attempt(base, MergedSegment(bases.log_name(base), since, len(data)), data)
        path.unlink(missing_ok=True)
        return _Attempt(bases.image(self._store, path, epoch), answers=asked, is_fresh=is_fresh)

    def _is_image_due(self, listed: Listed, since: int) -> bool:
        first = listed.logs[0].since if listed.logs else since
        size_bytes = sum(log.size_bytes for log in listed.logs) + self._tail_bytes
        is_large = size_bytes > max(_LOG_BYTES_MIN, listed.size_bytes // 2)
        return is_large or self._store.last_lsn - first > _RECORDS_MAX

    def _put_base(self, path: Path, attempt: _Attempt) -> None:
        # A base may contain only what this owner has shipped, because a clone may have shipped different records.
        self._ship()
        base, listed = attempt.base, self._listed or bases.NOTHING
        if attempt.log is not None:
            self._performer.put(attempt.log.name, attempt.data)
            made = listed._replace(logs=(*listed.logs, attempt.log))
        else:
            known = () if attempt.is_fresh else listed.pieces
            made = bases.put_image(path, base, known, self._performer.put)
        if attempt.listed is None:
            before = self._owned.head.cut_at(self._next - 1, self._shipped).encode()
            attempt.listed = made._replace(before=before, time_us=now_us())
        self._performer.put(bases.list_name(base), bases.encode(attempt.listed))
        self._sent = [(number, last) for number, last in self._sent if last > base.lsn]
        first = self._sent[0][0] if self._sent else self._next

        def done() -> None:
            self._listed, self._tail_bytes = attempt.listed, 0

        self._change(partial(protocol.rebase, base=base, next_number=first), done)
        self._collect()

    def _collect(self) -> None:
        now_s, keep_s, grace_s = time.monotonic(), self._options.keep_s, self._options.grace_s
        if self._collected_s is None or now_s - self._collected_s >= grace_s / OFTEN:
            collect(self._performer, self._owned.head, keep_s=keep_s, grace_s=grace_s, lists=self._lists)
            self._collected_s = now_s

    # ------------------------------------------------------------------------------------------

    def _stop(self, error: StatelogError) -> None:
        """Stop permanently: this copy accepts no more commits."""
        if isinstance(error, FencedError):
            error = self._fenced(error)
            with contextlib.suppress(StatelogError):
                self._store.shut_off(error)
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _fenced(self, error: FencedError) -> FencedError:
        """Return the error that later commits to this copy raise. It names the new owner if the storage reports it."""
        path = str(self._store.path)
        with contextlib.suppress(StatelogError):
            found = self._performer.read(names.HEAD)
            head = self._owned.head if found is None else decode(names.HEAD, found.data)
            if head.owner != self._owned.head.owner:
                message = f"another owner has taken this store over from {path}: {taker(head)}"
                return FencedError(message, path=path, owner=head.owner[0], epoch=head.epoch)
        return FencedError(error.message, **{**error.facts, "path": path})

    def _check_process(self) -> None:
        if self.is_forked:
            message = f"{self._store.path} was opened before this process was forked: connect again in the child"
            raise ForkedError(message, path=str(self._store.path))

    def _check(self) -> None:
        if self._error is not None:
            raise _again(self._error)
        if not self._thread.is_alive():
            raise self._trouble or RemoteError("the store is no longer shipped: it was closed")

    def _lag_s(self) -> float:
        since_s = self._lag_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def _lag_bytes(self) -> int:
        """Return the size of the unshipped records. Each record is counted once."""
        with self._changed, session_of(self._store).read() as view:
            at, size_bytes = self._counted
            last = view.transaction.last_lsn()
            size_bytes += sum(len(view.transaction.get_log(lsn) or b"") for lsn in range(at + 1, last + 1))
            self._counted = last, size_bytes
            return size_bytes


def _again(error: StatelogError) -> StatelogError:
    """Return a copy of the error, because each OS thread must raise its own object."""
    made = type(error)(error.message, **error.facts)
    made.__cause__ = error.__cause__
    return made
