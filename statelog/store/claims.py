"""The public classes of claims and leases, and the classes that try to get one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from statelog import reducers
from statelog.board import entry_writer, holders, reads, writes
from statelog.board.clocks import CLOCK
from statelog.board.names import check_directory, check_key
from statelog.board.waiters import claimer_subject, holder_subject
from statelog.errors import LeaseHeldError, LeaseLostError, StatelogError, UsageError, not_hiding
from statelog.limits import ENTRY_ERROR_SIZE_BYTES_MAX
from statelog.log.kinds.entries import BOARD_ID, LEASES_ID, EntryAct
from statelog.log.times import to_datetime
from statelog.schema.value_versions import check_replaced, label_of
from statelog.store.arguments import check_flag, check_seconds
from statelog.store.entries import value_of
from statelog.store.fences import Fence
from statelog.store.session import StoreSession
from statelog.store.waiter_thread import Condition

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from statelog.board.entry_writer import EntryWriter
    from statelog.board.holders import ClaimChoice, ClaimFilter
    from statelog.board.reads import EntryRecord
    from statelog.board.rules import Rights
    from statelog.storage.notify.waiter import Waiter
    from statelog.store.session import AnySession

T = TypeVar("T")

_LOOK_S: Final = 0.25
"""The time after which a waiter checks again without a wake-up, because the waiter that was woken may have died."""

_TURN_US: Final = 5000
"""When a lease is free, the other waiters leave it to the first waiter for this time."""

_RENEWALS: Final = 3
"""The number of renewals within the duration of a lease."""

_UNSET: Final = object()


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """The public description of a lease, which every reader may see."""

    name: str
    token: int
    holder: str | None
    acquired: datetime
    expires: datetime
    is_over: bool
    """Whether the deadline is past, so that the next process that asks gets the lease."""


class Claim(Fence):
    """A claim of an entry by this handle.

    `complete`, `fail` or `release` ends it. After its deadline, a new claim of the entry also ends it.

    Each method makes one commit. It raises LeaseLostError once the claim has ended.

    Attributes:
        key: the key of the entry.
        value: the value of the entry at the time of the claim.
        attempt: the number of this claim of the entry, from 1.
        token: see `Fence`.
    """

    def __init__(
        self,
        session: StoreSession,
        agent: str | None,
        rights: Rights,
        wanted: ClaimFilter,
        found: EntryRecord,
        value: Any,
    ) -> None:
        assert found.claim is not None
        super().__init__(session, found.event.key, found.claim.token)
        self.key = found.event.key
        self.value = value_of(session, found.event, value)
        self.attempt = found.attempts
        self._agent, self._rights, self._wanted = agent, rights, wanted
        self._lease_us = found.claim.lease_us
        self._ended: str | None = None

    def __repr__(self) -> str:
        return f"<Claim of {self.key!r}, token {self.token}{f', {self._ended}' if self._ended else ''}>"

    def renew(self, lease_s: float | None = None) -> None:
        """Restart the duration of the claim, optionally with a new duration. Return when the renewal is on the disk.

        Raises:
            LeaseLostError: the claim has ended. Facts: key, token.
            UsageError: this object has already completed, failed or released the claim.
        """
        if lease_s is not None:
            check_seconds("lease_s", lease_s)
            self._lease_us = to_us(lease_s)
        self._act(lambda writer, found: holders.renew(writer, found, self._lease_us, CLOCK))
        self._session.flush()

    def complete(self, result: Any = _UNSET, *, to: str | None = None) -> None:
        """Record that the work is done, and delete the entry.

        Args:
            result: the result, which the history of the entry keeps. By default, it is the value of the entry.
            to: a prefix that ends in `/`. The result is stored at this prefix and the last segment of the key.

        Raises:
            LeaseLostError: as for `renew`.
            UsageError: as for `renew`, or `to` is not a valid prefix that ends in a slash. The claim continues.
            ValueTypeError, LimitError: the result cannot be stored, or the new key is too long. The claim continues.
            SchemaVersionError, ValidationError: the new key has a schema (`Board.schema`), and the result does not fit
                it, or the entry there has a newer version. The claim continues.
        """
        target = None
        if to is not None:
            check_directory("to", to)
            target = holders.moved_to(self.key, to)
            check_key(target)
            self._rights.check("write", target)
        value, schemas = None, self._session.owner.entry_schemas
        schema = None
        if target is not None and schemas is not None:
            schema, result = schemas.checked(target, result, replaces=result is not _UNSET)
        if result is not _UNSET:
            value = entry_writer.prepare(reducers.replace.prepare(reads.VALUE, result, path=self.key))

        def work(writer: EntryWriter, found: EntryRecord) -> EntryRecord:
            label = found.event.schema
            if target is not None:
                there = writes.find(writer, target)
                check_replaced(schema, target, None if there is None else there.event.schema)
                label = label if value is None else None if schema is None else label_of(schema)
            return holders.complete(writer, found, value, target, label)

        self._act(work, ends="completed")

    def fail(self, error: BaseException | str, *, retry_in_s: float = 0.0) -> None:
        """End the claim so that the entry may be claimed again, and record the error.

        After `max_attempts` claims, move the entry to `dead`.

        Args:
            error: the error.
            retry_in_s: the time in seconds until the entry may be claimed again.

        Raises:
            LeaseLostError, UsageError: as for `renew`.
        """
        check_seconds("retry_in_s", retry_in_s, is_zero_allowed=True)
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        reason = text.encode(errors="replace")[:ENTRY_ERROR_SIZE_BYTES_MAX].decode(errors="ignore")

        def work(writer: EntryWriter, found: EntryRecord) -> EntryRecord:
            if self._wanted.is_spent(found) and self._wanted.grave(self.key):
                return holders.bury(writer, found, self._wanted, reason)
            ready_us = writer.now_us + to_us(retry_in_s) if retry_in_s else 0
            return holders.end(writer, found, EntryAct.FAIL, ready_us=ready_us, error=reason)

        self._act(work, ends="failed")

    def release(self, *, counts: bool = True) -> None:
        """End the claim and leave the entry unchanged, so that it may be claimed again. Raises the errors of `renew`.

        Args:
            counts: False if this claim must not count as an attempt.
        """
        check_flag("counts", counts)
        self._act(lambda writer, found: holders.end(writer, found, EntryAct.RELEASE, counts=counts), ends="released")

    def _act(self, work: Callable[[EntryWriter, EntryRecord], Any], *, ends: str | None = None) -> None:
        if self._ended is not None:
            message = f"the claim of {self.key!r} was {self._ended}"
            raise UsageError(message, key=self.key, token=self.token)

        _commit_under(self, self._agent, work, BOARD_ID)
        self._ended = ends


class Lease(Fence):
    """A lease that this handle holds. As a context manager, it releases the lease at the end of the block.

    Attributes:
        name: the name of the lease.
        token: see `Fence`.
    """

    def __init__(self, session: StoreSession, agent: str | None, name: str, ttl_s: float, found: EntryRecord) -> None:
        assert found.claim is not None
        super().__init__(session, found.event.key, found.claim.token)
        self.name = name
        self._agent = agent
        self._ttl_s = ttl_s
        self._has_ended = threading.Event()

    def __repr__(self) -> str:
        return f"<Lease {self.name!r}, token {self.token}>"

    def renew(self) -> None:
        """Restart the duration of the lease. Return when the renewal is on the disk.

        Raises:
            LeaseLostError: another process has taken the lease. Facts: name, token.
            UsageError: the lease was released.
        """
        self._check()
        self._act(lambda writer, found: holders.renew(writer, found, to_us(self._ttl_s), CLOCK))
        self._session.flush()

    def release(self) -> None:
        """Release the lease. The longest waiter gets it. Raises the errors of `renew`."""
        self._check()
        self._has_ended.set()
        self._act(holders.release)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Release the lease. Raise LeaseLostError if another process has taken it, unless the block raised an error."""
        if self._has_ended.is_set():
            return
        with not_hiding(error):
            self.release()

    def _check(self) -> None:
        if self._has_ended.is_set():
            message = f"the lease {self.name!r} was released"
            raise UsageError(message, name=self.name, token=self.token)

    def _act(self, work: Callable[[EntryWriter, EntryRecord], Any]) -> None:
        _commit_under(self, self._agent, work, LEASES_ID)

    def _start_renewing(self) -> None:
        """Start an OS thread that renews the lease until it is released or lost."""
        threading.Thread(target=self._renew_on, name=f"statelog lease {self.name}", daemon=True).start()

    def _renew_on(self) -> None:
        while not self._has_ended.wait(self._ttl_s / _RENEWALS):
            try:
                self._act(lambda writer, found: holders.renew(writer, found, to_us(self._ttl_s), CLOCK))
                self._session.flush()
            except LeaseLostError:
                return
            except StatelogError:  # The disk may be full, for example. Try again until the lease ends.
                if self._session.engine.is_closed:
                    return


class ClaimAttempt:
    """Tries to make a claim. See `Board.claim`."""

    def __init__(
        self, session: AnySession, agent: str | None, rights: Rights, wanted: ClaimFilter, lease_s: float
    ) -> None:
        self.session = of_store(session, "claim")
        self.session.engine.store_file.lmdb_file.check_writable()
        self._agent, self._rights, self._wanted, self._lease_s = agent, rights, wanted, lease_s
        _check_subject(self.session, *(each.text for each in wanted.patterns))
        self._seen: ClaimChoice | None = None
        """The result of the last search for an entry. `take` uses it if nothing was committed since."""

    @property
    def condition(self) -> Condition:
        """The condition of a waiting task: there is an entry to claim."""
        wanted = self._wanted
        patterns = tuple(each.text for each in wanted.patterns)
        key = ("claim", patterns, wanted.attempts_max, wanted.dead, wanted.unless, id(self._rights))
        return Condition(self.look, key, patterns, claimer_subject(wanted.patterns))

    def look(self, _waiter: Waiter | None = None) -> tuple[bool, float | None]:
        """Return (True if an entry can be claimed, seconds until one may become available without a commit or None)."""
        with self.session.read() as view:
            board = reads.board_of(view)
            if board is None:
                return False, None
            choice = self._seen = holders.choose(view, board, self._wanted, CLOCK)
        is_there = choice.found is not None or bool(choice.lapsed)
        return is_there, None if choice.wait_us is None else choice.wait_us / 1e6

    def take(self) -> Claim | None:
        """Claim the next entry after `look` returned True. Return None if no entry is left. Do not wait."""
        wanted, lease_us = self._wanted, to_us(self._lease_s)
        claim = partial(holders.claim, wanted=wanted, lease_us=lease_us, clock=CLOCK, seen=self._seen)
        schemas = self.session.owner.entry_schemas

        def claim_with_value(writer: EntryWriter) -> tuple[EntryRecord, Any] | None:
            found = claim(writer)
            if found is None:
                return None
            # Read the value now: after the commit, another process may overwrite it, and retention remove it.
            value = reads.read_value(writer.batch.workspace(writer.board, []), found.event)
            if schemas is not None and schemas.of(found.event.key) is not None:
                # Claim nothing, and raise an error, if this code cannot read the value.
                schemas.shown_of(found.event, value)
            return found, value

        claimed = _commit(self.session, self._agent, claim_with_value)
        if claimed is None:
            return None
        self.session.flush()
        return Claim(self.session, self._agent, self._rights, self._wanted, *claimed)

    def take_now(self) -> Claim | None:
        """Claim an entry, or return None if none is available now."""
        return self.take() if self.look()[0] else None

    def take_in_time(self, wait_s: float) -> Claim | None:
        """Claim an entry. Wait for one in this OS thread, and return None after the timeout."""
        claim = self.take_now()
        if claim is None and wait_s > 0:
            with self.session.engine.store_file.wake.enter(0, claimer_subject(self._wanted.patterns)) as waiter:
                claim = _wait(waiter, self.look, self.take, wait_s)
        return claim

    @staticmethod
    def give_back(claim: Claim) -> None:
        """Release the claim of a cancelled task. The claim does not count as an attempt."""
        claim.release(counts=False)


def claim_again(
    session: AnySession, agent: str | None, rights: Rights, wanted: ClaimFilter, key: str, token: int
) -> Claim:
    """See `Board.claim_of`."""
    session = of_store(session, "claim")
    with session.read() as view:
        found = holders.check_held(view, key, token)
        if rights.is_bound:  # Check the agent, because a token is an LSN and so can be guessed.
            record = holders.claimer_record(view, found)
            if record is None or record.event.agent != agent:
                raise holders.lost(key, token)
        value = reads.read_value(session.workspace_in(view), found.event)
    return Claim(session, agent, rights, wanted, found, value)


class LeaseAttempt:
    """Tries to take a lease. See `Board.lease`."""

    def __init__(self, session: AnySession, agent: str | None, name: str, ttl_s: float, *, is_renewed: bool) -> None:
        self.session = of_store(session, "lease")
        self.session.engine.store_file.lmdb_file.check_writable()
        self._agent, self._name, self._ttl_s, self._is_renewed = agent, name, ttl_s, is_renewed
        self._subject = holder_subject(name)
        _check_subject(self.session, name)

    @property
    def condition(self) -> Condition:
        """The condition of a waiting task: the lease is free, and the task is the next in line."""
        return Condition(self.look, ("lease", self._name), subject=self._subject)

    def look(self, waiter: Waiter | None) -> tuple[bool, float | None]:
        """Return (True if the lease can be taken, seconds until it may become free without a commit or None)."""
        with self.session.read() as view:
            held = holders.holder(view, self._name)
        left_us = 0 if held is None or held.claim is None else CLOCK.left_us(held.claim)
        is_turn = left_us <= 0 and (waiter is None or waiter.is_first())
        return is_turn, max(left_us, _TURN_US) / 1e6

    def take(self) -> Lease | None:
        """Take the lease, or return None if it is not free. Do not wait."""
        acquire = partial(holders.acquire, name=self._name, ttl_us=to_us(self._ttl_s), clock=CLOCK)
        found = _commit(self.session, self._agent, acquire, LEASES_ID)
        if found is None:
            return None
        self.session.flush()
        lease = Lease(self.session, self._agent, self._name, self._ttl_s, found)
        if self._is_renewed:
            lease._start_renewing()  # noqa: SLF001 - of this file
        return lease

    def take_now(self) -> Lease | None:
        """Take the lease if it is free now and no other waiter is in line for it. Otherwise return None."""
        return self.take_in_time(0.0)

    def take_in_time(self, wait_s: float) -> Lease | None:
        """Take the lease. Wait for it in this OS thread, and return None after the timeout."""
        with self.session.engine.store_file.wake.enter(0, self._subject) as waiter:
            return _wait(waiter, partial(self.look, waiter), self.take, wait_s)

    def refusal(self) -> LeaseHeldError:
        """Return the LeaseHeldError, which names the holder of the lease."""
        name = self._name
        with self.session.read() as view:
            held = holders.holder(view, name)
        info = None if held is None else lease_info(held)
        holder = "somebody" if info is None or info.holder is None else repr(info.holder)
        message = (
            f"the lease {name!r} is held by {holder}"
            if info
            else f"other waiters are ahead of this one for the lease {name!r}"
        )
        facts = {"holder": info and info.holder, "expires": info and info.expires}
        return LeaseHeldError(message, name=name, **facts)

    @staticmethod
    def give_back(lease: Lease) -> None:
        """Release the lease of a cancelled task."""
        lease.release()


def lease_info(found: EntryRecord) -> LeaseInfo:
    """Return the public description of a lease."""
    claim, event = found.claim, found.event
    assert claim is not None
    acquired, expires = to_datetime(event.created_us), to_datetime(claim.until_us)
    return LeaseInfo(event.key[1:], claim.token, event.agent, acquired, expires, CLOCK.left_us(claim) <= 0)


def _wait(
    waiter: Waiter, look: Callable[[], tuple[bool, float | None]], take: Callable[[], T | None], wait_s: float
) -> T | None:
    """Try after each wake-up, at due times and at intervals, until `take` succeeds or the time is up."""
    deadline_s = monotonic() + wait_s
    while True:
        can_take, again_s = look()
        taken = take() if can_take else None
        left_s = deadline_s - monotonic()
        if taken is not None or left_s <= 0:
            return taken
        soon_s = _LOOK_S if again_s is None or can_take else min(again_s + 0.0005, _LOOK_S)
        waiter.wait(min(left_s, soon_s))


def _commit(session: StoreSession, agent: str | None, work: Callable[[EntryWriter], T], owner: str = BOARD_ID) -> T:
    return session.act(lambda batch: work(writes.begin(batch, agent, owner)))


def _commit_under(fence: Fence, agent: str | None, work: Callable[[EntryWriter, EntryRecord], Any], owner: str) -> None:
    """Commit `work`, unless the claim or the lease has ended."""
    place, token, session = fence._place, fence.token, fence._session  # noqa: SLF001 - of those who make it here
    _commit(session, agent, lambda writer: work(writer, holders.held(writer, place, token)), owner)


def of_store(session: AnySession, what: str) -> StoreSession:
    """Return `session` if it belongs to a store. Raises UsageError for the session of a transaction or a snapshot."""
    if not isinstance(session, StoreSession):
        message = f"a {what} is not part of a transaction or a snapshot: use store.board()"
        raise UsageError(message)
    return session


def to_us(seconds: float) -> int:
    """Convert seconds to microseconds."""
    return round(seconds * 1_000_000)


def _check_subject(session: StoreSession, *names: str) -> None:
    """Raise SecretError if a name contains a secret, because the wake-up file stores the name even before a commit."""
    guard = session.engine.guard
    if guard is not None:
        for name in names:
            guard.check_name(name)
