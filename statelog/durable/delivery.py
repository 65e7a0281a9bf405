"""Delivers the outbox: each message goes to each of its subscribers at least once. Messages of a run stay in order.

One process at a time claims the messages of a run. After each delivery, it records which subscriber has the message,
with the claim as a fence. If it dies before it has recorded this, the message is sent again with the same id. A
subscriber that refuses a message gets later messages of the run only after it has accepted the message, or refused it
permanently. Other subscribers are not affected.
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
"""The waits after the first nine refusals, as in the Standard Webhooks specification. The tenth refusal is final."""

_RETRY_AFTER_S_MAX = 86400.0
_SLICE_S = 0.5
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of `deliver`.

    Attributes:
        sent: how often a subscriber accepted a message.
        refused: how often a subscriber refused a message.
        parked: the number of messages that were parked because a subscriber has refused them permanently.
        waiting: the number of messages that still wait for delivery.
        due: when the first refused message is tried again, or None if no waiting message was refused.
    """

    sent: int
    refused: int
    parked: int
    waiting: int
    due: datetime | None


def deliver(store: Store, subscribers: Iterable[Any], *, run: str | None = None, wait: bool = False) -> Delivery:
    """Deliver the waiting messages to the subscribers.

    A message leaves the outbox when all subscribers with a matching topic have it. If there are subscribers, but none
    has a matching topic, the message also leaves. So pass the same subscribers in all processes that deliver. If
    `subscribers` is empty, all messages stay.

    A refused message is tried again after 5 seconds, 5 minutes, half an hour, and so on, or later if the receiver asks
    for it. After ten refusals, or an answer of 410, the message is parked: see `outbox` and `redeliver`.

    Args:
        store: the store.
        subscribers: webhooks, functions that take a `Message`, and results of `subscription`.
        run: the id of the run whose messages are delivered; None for all runs.
        wait: continue until no message is waiting, including refused messages.

    Raises:
        UsageError: an argument is not valid.
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
            _RunDelivery(store, known, claim, tally, is_patient=wait).deliver_messages()
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


class _RunDelivery:
    """Delivers the messages of one run while it has the claim on them."""

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

    def deliver_messages(self) -> None:
        """Send the messages that may be sent now, and release the claim."""
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
        """Send messages until none may be sent now. Return True if all have left the outbox, which ends the claim."""
        key, board = self._claim.key, self._board
        while not self._stop.is_set():
            entry = board.get(key)  # Read this before the messages: a new message changes its version.
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
        """Flush the messages to the disk before they are sent. A claim and its renewal flush all earlier commits."""
        newest = max(each.version for each in messages)
        if newest > self._flushed_lsn:
            self._claim.renew()
            self._flushed_lsn = newest

    def _send_each(self, messages: list[Entry]) -> int:
        """Send each message to each subscriber that may get it now.

        Returns:
            When the next message is due, in microseconds since the epoch; 0 if one may be sent at once.
        """
        behind: dict[str, int] = {}
        """Digests of the subscribers that still need an earlier message, with the times of their next attempts."""
        for message in messages:
            if self._stop.is_set():
                return 0
            with _unless_changed():  # The run may have been purged.
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
            self._remove_or_park(entry, value)

    def _attempt(self, entry: Entry, value: dict[str, Any], subscriber: Subscriber) -> dict[str, Any]:
        """Send a message to a subscriber. Return the new value of the message's entry, which contains the outcome."""
        try:
            subscriber.send(message_of(entry))
        except Exception as error:  # noqa: BLE001 - after any error of the subscriber, the message is sent again
            self._tally["refused"] += 1
            _log.warning("message %s of run %s was refused: %s", value["id"], self._run, error)
            return _refused(value, subscriber, error)
        self._tally["sent"] += 1
        return {**value, "delivered": [*value["delivered"], subscriber.digest]}

    def _remove_or_park(self, entry: Entry, value: Mapping[str, Any]) -> None:
        """Remove a message that no subscriber still needs. Park it if a subscriber has refused it permanently."""
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
    """Suppress the ConflictError of an entry that another process has changed. A LeaseLostError is still raised."""
    try:
        yield
    except LeaseLostError:
        raise
    except ConflictError:
        return


def _is_open_for(value: Mapping[str, Any], subscriber: Subscriber) -> bool:
    """Return True if a subscriber still needs a message: it has neither accepted nor permanently refused it."""
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
    """Deliver those messages of a run and its children that may be sent now."""
    if subscribers:
        for child in board_of(store).list(f"durable/children/{check_run_id(run)}/*"):
            deliver_here(store, subscribers, child.value["run"])
        _deliver_now(store, subscribers, run)


def _deliver_now(store: Store, subscribers: tuple[Subscriber, ...], run: str | None = None) -> None:
    while (claim := _claim(store, run, 0.0)) is not None:
        _RunDelivery(store, subscribers, claim, _tally()).deliver_messages()


@contextmanager
def delivered_beside(store: Store, subscribers: tuple[Subscriber, ...], *, drains: bool) -> Iterator[None]:
    """Deliver messages in another thread during the block. With `drains`, deliver the remaining messages at its end."""
    if not subscribers:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(
        target=_deliver_until_stopped, args=(store, subscribers, stop), name="statelog outbox", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if drains:
        _deliver_now(store, subscribers)


def _deliver_until_stopped(store: Store, subscribers: tuple[Subscriber, ...], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            claim = _claim(store, None, _SLICE_S)
            if claim is not None:
                _RunDelivery(store, subscribers, claim, _tally(), stop=stop).deliver_messages()
        except ClosedError:
            return
        except Exception:  # noqa: BLE001 - one run may have failed, or the disk may be full
            _log.exception("delivery of the outbox has stopped for %s s", _PAUSE_S)
            stop.wait(_PAUSE_S)
