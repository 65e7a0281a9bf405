"""Delivery of the outbox: each message to each of its subscribers, at least once, and of each run in order.

One process at a time has the messages of a run, by a claim. It notes who has got a message right after, under the
claim as a fence: what it had no time to note is sent again, with the same id. A subscriber that refuses a message gets
no later one of that run before it has taken it, or has refused it for good; the other subscribers go on.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from statelog.durable.clock import clock
from statelog.durable.keys import check_run_id, delivery_key, parked_directory
from statelog.durable.outbox import message_of, order_of, waiting
from statelog.durable.owners import claim_one, free_all, me
from statelog.durable.runs import board_of, find
from statelog.durable.subscriptions import check_subscribers, shown_error
from statelog.durable.task_claims import LEASE_S, renewed
from statelog.errors import ClosedError, ConflictError, LeaseLostError, StatelogError, UsageError, WebhookError
from statelog.redaction import redacting_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from statelog.durable.subscriptions import Subscriber
    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_log = redacting_logger("statelog.durable")

DELAYS_S: Final = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""How long a message waits after each refusal, as the Standard Webhooks specification proposes. The tenth is final."""

_RETRY_AFTER_S_MAX = 86400.0
_SLICE_S = 0.5
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a delivery came to.

    Attributes:
        sent: how often a subscriber took a message.
        refused: how often one refused one.
        parked: messages that were parked, as a subscriber has refused them for good.
        waiting: messages that wait now.
        due: when the first of those is tried that were refused, None: none was.
    """

    sent: int
    refused: int
    parked: int
    waiting: int
    due: datetime | None


def deliver(store: Store, subscribers: Iterable[Any], *, run: str | None = None, wait: bool = False) -> Delivery:
    """Give subscribers the messages that wait for them.

    A message leaves the outbox as soon as all of the subscribers whose topics it fits have it, also if there are none.
    So give the same ones to all processes that deliver. Without any subscriber all messages stay.

    A refused message is tried again after 5 seconds, 5 minutes, half an hour, and so on, or when the receiver asks for
    it; after ten refusals, or an answer of 410, it is parked: see `outbox` and `redeliver`.

    Args:
        store: the store.
        subscribers: webhooks, functions of a `Message`, and what `subscription` returns.
        run: only messages of the run of this id.
        wait: go on until none waits any more, also for those that were refused.

    Raises:
        UsageError: one of the arguments is none.
        RunNotFoundError: there is no such run.
    """
    known = check_subscribers(subscribers, "subscribers")
    if type(wait) is not bool:
        raise UsageError(f"wait must be True or False, not {wait!r}", argument="wait", value=wait)
    if run is not None:
        find(store, run)
    else:
        free_all(store)
    tally = _tally()
    wait_s = 0.0
    while known:
        claim = _claim(store, run, wait_s)
        if claim is not None:
            _Turn(store, known, claim, tally, is_patient=wait).go_on()
        elif not wait or not waiting(store, run):
            break
        wait_s = _SLICE_S if claim is None else 0.0
    left = [message_of(each) for each in waiting(store, run)]
    return Delivery(**tally, waiting=len(left), due=min((each.due for each in left if each.due), default=None))


def _tally() -> dict[str, int]:
    return dict.fromkeys(("sent", "refused", "parked"), 0)


def _claim(store: Store, run: str | None, wait_s: float) -> Claim | None:
    if run is not None:
        return claim_one(store, delivery_key(run), LEASE_S, wait_s)
    return board_of(store, me()).claim("durable/deliver/*", lease_s=LEASE_S, wait_s=wait_s)


class _Turn:
    """A claim of the messages of one run."""

    def __init__(
        self,
        store: Store,
        subscribers: tuple[Subscriber, ...],
        claim: Claim,
        tally: dict[str, int],
        *,
        is_patient: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        self._board, self._store = board_of(store), store
        self._subscribers, self._claim, self._tally = subscribers, claim, tally
        self._is_patient, self._stop = is_patient, stop or threading.Event()
        self._run: str = claim.value["run"]
        self._flushed_lsn = claim.token

    def go_on(self) -> None:
        """Send what may be sent, and give the claim back."""
        try:
            with renewed(self._claim, LEASE_S):
                has_left = self._send_all()
            if not has_left:
                self._claim.release()
        except LeaseLostError:
            _log.info("messages of run %s were taken over by another process", self._run)
        except BaseException:
            with suppress(StatelogError):
                self._claim.release()
            raise

    def _send_all(self) -> bool:
        """Send until nothing may be sent; whether all has left, and the claim with it."""
        key, board = self._claim.key, self._board
        while not self._stop.is_set():
            entry = board.get(key)  # read before: what is emitted from now on changes its version
            messages = waiting(self._store, self._run)
            with _unless_changed():
                if entry is None:
                    return True
                if not messages:
                    board.delete(key, expected_version=entry.version, fence=self._claim)
                    return True
                self._flush(messages)
                due_us = self._send_each(messages)
                left_s = (due_us - clock().now_us()) / 1e6
                if self._is_patient and clock().is_short(left_s):
                    clock().sleep(left_s)
                elif left_s > 0:
                    board.cas(key, entry.value, expected_version=entry.version, delay_s=left_s, fence=self._claim)
                    return False
        return False

    def _flush(self, messages: list[Entry]) -> None:
        """See to it that what is sent is on the disk, as what was there is when something is claimed."""
        newest = max(each.version for each in messages)
        if newest > self._flushed_lsn:
            self._claim.renew()
            self._flushed_lsn = newest

    def _send_each(self, messages: list[Entry]) -> int:
        """Send each message to each subscriber who may have it now; return when the next one is due, 0: at once."""
        behind: dict[str, int] = {}
        """Subscribers that have yet to take an earlier message, and when they are asked again."""
        for message in messages:
            if self._stop.is_set():
                return 0
            with _unless_changed():  # its run was purged
                self._send(message, behind)
        return min(behind.values(), default=0)

    def _send(self, entry: Entry, behind: dict[str, int]) -> None:
        value = entry.value
        open_for = [each for each in self._subscribers if _is_open_for(value, each)]
        for number, subscriber in enumerate(open_for):
            due_us = value.get("refusals", {}).get(subscriber.digest, {}).get("due", 0)
            if due_us > clock().now_us():
                behind.setdefault(subscriber.digest, due_us)
            if subscriber.digest in behind:
                continue
            value = self._attempt(entry, value, subscriber)
            if _is_open_for(value, subscriber):
                behind[subscriber.digest] = value["refusals"][subscriber.digest]["due"]
            if number < len(open_for) - 1 or any(_is_open_for(value, each) for each in open_for):
                value = {**value, "order": order_of(entry)}
                entry = self._board.cas(entry.key, value, expected_version=entry.version, fence=self._claim)
        if not any(_is_open_for(value, each) for each in open_for):
            self._let_go(entry, value)

    def _attempt(self, entry: Entry, value: dict[str, Any], subscriber: Subscriber) -> dict[str, Any]:
        """Return what is to be noted of a message, having sent it."""
        try:
            subscriber.send(message_of(entry))
        except Exception as error:  # noqa: BLE001 - of the subscriber: whatever it is, the message comes again
            self._tally["refused"] += 1
            _log.warning("message %s of run %s was refused: %s", value["id"], self._run, error)
            return _refused(value, subscriber, error)
        self._tally["sent"] += 1
        return {**value, "delivered": [*value["delivered"], subscriber.digest]}

    def _let_go(self, entry: Entry, value: Mapping[str, Any]) -> None:
        """Take a message away that all have, or were given often enough."""
        if any(each["due"] is None for each in value.get("refusals", {}).values()):
            with self._store.transaction() as tx:
                board = board_of(tx)
                board.delete(entry.key, expected_version=entry.version, fence=self._claim)
                parked = f"{parked_directory(self._run)}{entry.key.rpartition('/')[2]}"
                board.set(parked, {**value, "order": order_of(entry)})
            self._tally["parked"] += 1
        else:
            self._board.delete(entry.key, expected_version=entry.version, fence=self._claim)


@contextmanager
def _unless_changed() -> Iterator[None]:
    """Leave a block where others have written what it has read, but for the claim."""
    try:
        yield
    except LeaseLostError:
        raise
    except ConflictError:
        return


def _is_open_for(value: Mapping[str, Any], subscriber: Subscriber) -> bool:
    """Whether a subscriber is to have a message that it has not, and has not refused for good."""
    refusal = value.get("refusals", {}).get(subscriber.digest)
    has_given_up = refusal is not None and refusal["due"] is None
    return subscriber.target.fits(value["topic"]) and subscriber.digest not in value["delivered"] and not has_given_up


def _refused(value: Mapping[str, Any], subscriber: Subscriber, error: Exception) -> dict[str, Any]:
    refusals = dict(value.get("refusals", {}))
    attempts = refusals.get(subscriber.digest, {}).get("attempts", 0) + 1
    due_us: int | None = None
    asked = error.facts if isinstance(error, WebhookError) else {}
    if not asked.get("is_final") and attempts <= len(DELAYS_S):
        delay_s = max(DELAYS_S[attempts - 1], min(asked.get("retry_after_s") or 0.0, _RETRY_AFTER_S_MAX))
        due_us = clock().now_us() + round(delay_s * 1e6)
    refusals[subscriber.digest] = {"attempts": attempts, "due": due_us}
    most = max(each["attempts"] for each in refusals.values())
    return {**value, "refusals": refusals, "attempts": most, "error": shown_error(error)}


# --- beside what a process does ------------------------------------------------------------------


def deliver_here(store: Store, subscribers: tuple[Subscriber, ...], run: str) -> None:
    """Deliver what a run, and its children, have emitted, as far as it goes now."""
    if subscribers:
        for child in board_of(store).list(f"durable/children/{check_run_id(run)}/*"):
            deliver_here(store, subscribers, child.value["run"])
        _deliver_now(store, subscribers, run)


def _deliver_now(store: Store, subscribers: tuple[Subscriber, ...], run: str | None = None) -> None:
    while (claim := _claim(store, run, 0.0)) is not None:
        _Turn(store, subscribers, claim, _tally()).go_on()


@contextmanager
def delivered_beside(store: Store, subscribers: tuple[Subscriber, ...], *, drains: bool) -> Iterator[None]:
    """Deliver messages as they come while a block runs, in a thread; at its end, if asked, what is there then."""
    if not subscribers:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_go_on, args=(store, subscribers, stop), name="statelog outbox", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if drains:
        _deliver_now(store, subscribers)


def _go_on(store: Store, subscribers: tuple[Subscriber, ...], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            claim = _claim(store, None, _SLICE_S)
            if claim is not None:
                _Turn(store, subscribers, claim, _tally(), stop=stop).go_on()
        except ClosedError:
            return
        except Exception:  # noqa: BLE001 - of one run, or a full disk
            _log.exception("delivery of the outbox has stopped for %s s", _PAUSE_S)
            stop.wait(_PAUSE_S)
