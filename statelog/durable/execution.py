"""Executes a run once, in one process: replays recorded calls, records new ones, and stops if it cannot continue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from statelog.durable import observers
from statelog.durable.clock import clock
from statelog.durable.failures import (
    CALL_TRACEBACK_SIZE_MAX,
    error_of,
    exception_of,
    note_failed,
    noted_failed,
    show_step,
    traceback_of,
)
from statelog.durable.keys import HEADER, STEPS, gate_key, new_checkpoint, run_key
from statelog.durable.outbox import stage_message, stage_withdrawal
from statelog.durable.probes import call_probe
from statelog.durable.record import BEGUN, DONE, Item, RunRecord
from statelog.durable.runs import board_of, task_key_of, thread_of
from statelog.durable.values import check_names, decode, digest_of, encode, guarded, refuse_plain_result, typed
from statelog.durable.workflows import Cancelled, versions_of
from statelog.errors import (
    ClosedError,
    ConflictError,
    ForkedError,
    LeaseLostError,
    LimitError,
    NondeterminismError,
    NotFoundError,
    StatelogError,
    StepVersionError,
    StoreFullError,
    UsageError,
)
from statelog.reducers import Overwrite
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from statelog.durable.hosts import EventOrder, Host
    from statelog.durable.outbox import Emitted
    from statelog.durable.workflows import Declaration, Workflow
    from statelog.store.claims import Claim
    from statelog.store.store import Store
    from statelog.store.transaction import Transaction


class Stopped(BaseException):
    """Raised in a workflow whose run has stopped in this process.

    For example, another process has taken the run over, the disk is full, or the code does not match the record.

    Attributes:
        error: the reason.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Unwinding(BaseException):
    """Raised by a call that is not recorded, in a workflow whose failure is recorded."""


class CallCancelled(BaseException):
    """Raised on replay by a call that an asyncio workflow has cancelled. The call then waits to be cancelled again."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class RolledBackError(Exception):
    """Raised if the run's thread was rolled back during the execution. The workflow must be called again."""


class Wait(NamedTuple):
    """An event that a run waits for."""

    label: str
    due_us: int
    """The time at which the wait ends by itself, in microseconds since the epoch; 0 for never."""
    is_ready: Callable[[], bool]


class Suspended(BaseException):
    """Raised in a workflow by a call that must wait for long, to suspend the run."""

    def __init__(self, *waits: Wait) -> None:
        super().__init__(*waits)
        self.waits = waits
        self.scope: Scope | None = None
        """The scope of the call that waits."""


_BEHIND_S = 5.0
"""The longest time that a failed run waits for abandoned branches to replay, and register their compensations."""
_LOOK_S = 0.002

RECORDED = "statelog:steps"
"""The path under which a guard reports secrets in recorded values. It is the name of the channel with the record."""

SIGNALS = (Stopped, Unwinding, Suspended, Cancelled)


class Undo(NamedTuple):
    """A compensation, and the step that it undoes."""

    place: str
    step: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    call: Callable[..., Any]
    """The function of the step. Its annotation has the type of the result."""


undoing: ContextVar[bool] = ContextVar("undoing", default=False)
"""True while a compensation is called. It is False in abandoned branches that run at the same time."""

in_step: ContextVar[tuple[str, ...]] = ContextVar("in_step", default=())
"""The ids of the runs whose steps are being called in this context. A step may drive another run with steps."""


class Execution:
    """Executes a run once in this process: looks up recorded calls, records new ones, and notes why the run stops."""

    def __init__(
        self, store: Store, workflow: Workflow, value: Mapping[str, Any], claim: Claim | None, host: Host
    ) -> None:
        self.store, self.workflow, self.claim, self.host = store, workflow, claim, host
        self.value = value
        self.id: str = value["id"]
        self.visit: int = value.get("visit", 0)
        """How often the run has begun again and returned to its earlier places. See `visit_of`."""
        self.thread: Any = thread_of(store, value, workflow.schema)
        head = self.thread.head
        self._version = -1 if head is None else head.version
        """The latest version of the head that is known to contain the record of this execution."""
        state = {} if head is None else head.state
        header = state.get(HEADER)
        self.has_header = header is not None and header["run"] == self.id
        """True if the head of the thread names this run as the active run."""
        held = state.get(STEPS) if self.has_header else None
        self.record = RunRecord(self.id, () if held is None else held.to_python())
        self._lock = threading.RLock()
        self.stop: BaseException | None = None
        self.cancelled: str | None = None
        self.is_shielded = False
        self.is_unwinding = self.record.undo is not None
        self.undos: dict[str, Undo] = {}
        self.noted: set[str] = set()
        """Places of steps whose beginning is recorded. Their compensations, if any, are in `undos`."""
        self.abandoned: dict[str, Any] = {}
        """Futures of the branches that no call waits for, keyed by place."""
        self.unpatched: set[str] = set()
        """Patches for which `patched` has returned False in this execution."""
        self.made: set[str] = set()
        """Places of operations that the workflow has called, but that have not begun."""
        self.outstanding: dict[str, Any] = {}
        """Futures of the branches that must end before the run ends, keyed by place."""
        self.scopes: WeakValueDictionary[str, Scope] = WeakValueDictionary()
        """The scopes that number calls, keyed by the prefix that they give to places."""
        self.calls: dict[str, tuple[str, str, bytes | None]] = {}
        """The operation, name and digest of each call in progress on an event loop, keyed by place."""
        self.order: EventOrder | None = None
        """The order of the events of an asyncio workflow (D32)."""
        self._deferred: list[Item] = []
        self._looked_lsn = -1
        began_us = value.get("retried", value["created"])
        self._deadline_us = began_us + round(value["timeout_s"] * 1e6) if value.get("timeout_s") else 0
        self.is_dry = claim is None
        """True if the execution only replays, and makes no new call. See `check_replay`."""

    # --- looking ----------------------------------------------------------------------------

    def begin(self, place: str, op: str, name: str, digest: bytes | None = None) -> Item | None:
        """Return the item that records a call's outcome, or None if the call must be made.

        Raises:
            UsageError: the call is made within a step.
            SecretError: the name contains a secret.
            Stopped: the run has stopped, or a different call is recorded at this place.
            CallCancelled: the workflow has cancelled this call.
        """
        if self.id in in_step.get() or (self.host.is_async and in_step.get()):
            message = f"{op} {name!r} was called inside a step: only the workflow can call operations of its run"
            raise UsageError(message, argument=op, value=name)
        self.check_stop()
        check_names(self.store, name)
        try:
            done = self.record.look(place, op, name, digest)
        except NondeterminismError as error:
            raise self.stopped(error) from error
        if done is None and self.host.is_async:
            self.calls[place] = (op, name, digest)
        self.check_cut(place)
        return done

    def check_cut(self, place: str) -> None:
        """Raise CallCancelled if the workflow has cancelled the call, so that the call waits to be cancelled again."""
        done = self.record.done.get(place)
        if done is not None and "x" in done:
            self.record.see(place)
            raise CallCancelled(place)

    def cancellation(self, place: str) -> BaseException:
        """Return the exception of a call that the workflow has cancelled."""
        error = asyncio.CancelledError()
        note_failed(error, [{"p": place, "next": self._next_numbers(place)}])
        return error

    def cut(self, place: str, seconds: float) -> BaseException | None:
        """Record the cancellation of a call by the workflow. Return the exception, or None if the call has ended."""
        with self._lock:
            done = self.record.done.get(place)
            if done is not None and "x" not in done:
                return None
            error = self.cancellation(place)
            op, name, digest = self.calls.get(place, ("await", "", None))
            self.record.see(place)
            while place not in self.record.done:
                item = self.done(place, op, name, digest, x=seconds)
                with suppress(ConflictError):  # The call's gate was just answered: try again.
                    self.commit(item, also=self._closing_gate(place))
        return error

    def _closing_gate(self, place: str) -> Callable[[Transaction], None] | None:
        """Return a function that closes the gate of a cancelled call, or None if no gate of the call is open."""
        gate = self.record.begun.get(place, {}).get("g")
        entry = None if gate is None else board_of(self.store).get(gate_key(gate))
        if entry is None or entry.value["status"] != "pending":
            return None

        def close(tx: Transaction) -> None:
            held = board_of(self.store).get(entry.key)
            if held is not None and held.value["status"] == "pending":
                board_of(tx).cas(held.key, {**held.value, "status": "closed"}, expected_version=held.version)
                stage_withdrawal(tx, self.store, held.value["id"])

        return close

    def stopped(self, error: BaseException) -> Stopped:
        """Stop the run in this process. Return the exception for the workflow. `stop` keeps the first reason."""
        self.stop = self.stop or error
        return Stopped(error)

    def check_stop(self) -> None:
        """Raise Stopped if the run has stopped in this process."""
        if self.stop is not None:
            raise Stopped(self.stop)

    async def check_signals(self, place: str = "") -> None:
        """Check whether a call that is not recorded may still be made. Raises Stopped, Unwinding, Cancelled.

        Args:
            place: the place of the call. The call waits until all recorded events have been replayed (D33).
        """
        self.check_stop()
        if self.is_shielded and undoing.get():
            return
        if place and (self.is_dry or not (place in self.record.begun or place in self.record.tried)):
            while not await self.host.caught_up(place):
                await self._check_cancelled()
        if self.is_dry:
            raise self.stopped(StopIteration())
        await self._check_cancelled()

    async def _check_cancelled(self) -> None:
        if self.is_shielded or self.is_unwinding:
            raise Unwinding
        signal = await self.host.io(self.look)
        if signal is not None:
            raise signal

    def look(self) -> Stopped | Cancelled | None:
        """Return the exception to raise in the next operation: Stopped, Cancelled, or None if the run may continue."""
        if self.stop is not None:
            return Stopped(self.stop)
        if self.cancelled is None and not self.is_shielded:
            self.cancelled = self._reason_to_cancel()
        return None if self.cancelled is None or self.is_shielded else Cancelled(self.cancelled)

    def _reason_to_cancel(self) -> str | None:
        lsn = self.store.last_lsn
        if lsn != self._looked_lsn:  # The store has changed since the last check.
            self._looked_lsn = lsn
            entry = board_of(self.store).get(run_key(self.id))
            if entry is not None and entry.value.get("cancel"):
                return "cancelled"
        return "timeout" if 0 < self._deadline_us <= clock().now_us() else None

    @property
    def recorded(self) -> int:
        """The number of items of this run in the thread."""
        return self.record.count - len(self._deferred)

    @property
    def is_cancelled(self) -> bool:
        """True if the run was cancelled, has stopped, or its time is up."""
        if self.is_shielded:  # Compensations continue after a cancellation, and so do abandoned branches.
            return self.stop is not None
        return self.cancelled is not None or self.stop is not None or self._reason_to_cancel() is not None

    @property
    def deadline_us(self) -> int:
        """The time at which the run's time is up, in microseconds since the epoch; 0 for never."""
        return 0 if self.is_shielded else self._deadline_us

    def outcome(self, done: Item, function: Callable[..., Any] | None = None) -> Any:
        """Return the recorded result of a call, or raise its recorded exception."""
        if "e" in done:
            raise self.failure(done["e"], done["p"])
        return done.get("r") if function is None else self.result(done, function)

    def result(self, done: Item, function: Callable[..., Any]) -> Any:
        """Return the recorded result of a call, upcast to the current version of its function. Raises Stopped."""
        found, version, options = done.get("r"), done.get("v", 1), versions_of(function)
        missing = options.missing(version)
        if version > options.version or missing is not None:
            raise self.stopped(_version_error(self.id, done, options, missing))
        what = f"{done['o']} {done['n']!r}"
        for each in range(version, options.version):
            try:
                found = self.recorded_value(_called(options.upcast[each], found), f"result of {what}", function)
            except Exception as error:
                error.add_note(f"statelog: raised by upcast[{each}] of {what} at place {done['p']}")
                raise self.stopped(error) from error
        return typed(function, "return", found)

    def name_at(self, place: str, op: str, names: Sequence[str]) -> str:
        """Return the recorded name of the call at a place, one of `names`. If none is recorded, return the first."""
        recorded = self.record.done.get(place) or self.record.begun.get(place)
        held = recorded or self.value.get("replaced", {}).get(place, {})
        return held["n"] if held.get("o") == op and held["n"] in names else names[0]

    def replacement(self, place: str, op: str, name: str) -> Item | None:
        """Return {`r`: result} if `fork` has replaced this call, so that the call is not made. Else return None."""
        replaced: Mapping[str, Item] = self.value.get("replaced", {})
        found = replaced.get(place)
        return found if found is not None and (found["o"], found["n"]) == (op, name) else None

    # --- recording ----------------------------------------------------------------------------

    def item(self, place: str, stage: int, op: str, name: str, digest: bytes | None = None, **more: Any) -> Item:
        """Return an item to record."""
        made: Item = {"p": place, "s": stage, "o": op, "n": name, "t": clock().now_us(), **more}
        if digest is not None:
            made["a"] = digest
        return made

    def done(self, place: str, op: str, name: str, digest: bytes | None = None, **more: Any) -> Item:
        """Return the item for the outcome of a call."""
        self.calls.pop(place, None)
        return self.item(place, DONE, op, name, digest, **more)

    def begun(self, place: str, op: str, name: str, digest: bytes | None = None, **more: Any) -> Item:
        """Return the item for a call that is about to be made."""
        return self.item(place, BEGUN, op, name, digest, **more)

    def commit(
        self,
        *items: Item,
        writes: Sequence[Mapping[str, Any]] = (),
        metadata: Mapping[str, Any] | None = None,
        also: Callable[[Transaction], None] | None = None,
        emitted: Emitted | None = None,
        is_flushed: bool = False,
    ) -> None:
        """Record items, with further writes, in one commit.

        Args:
            *items: the items. Deferred items are recorded before them.
            writes: updates of the run's thread.
            metadata: metadata of the checkpoint.
            also: a function that writes to the store in the transaction. It may be called several times.
            emitted: a message for the outbox.
            is_flushed: flush the commit to the disk before returning, whatever the durability of the store. It has no
                effect with `also` or `emitted`.

        Raises:
            Stopped: another process has taken the run over, or the store refuses the commit.
            StatelogError: the store refuses the further writes.
        """
        with self._lock:
            self.check_stop()
            deferred = len(self._deferred)
            items = (*self._deferred, *items)
            call_probe("before", self.id, items)
            update: dict[str, Any] = {STEPS: list(items) if self.has_header else Overwrite(list(items))}
            if not self.has_header:
                update[HEADER] = {"run": self.id, "workflow": self.workflow.name}
            if observers.observer is not None:
                metadata = observers.observer.metadata(self, metadata)
            how: dict[str, Any] = {"metadata": metadata, "fence": self.claim}
            new = items[deferred:]
            if self.order is not None:
                self.order.expect(new)
            try:
                made = self._commit_or_stop((update, *writes), how, also, emitted, is_flushed=is_flushed)
            except BaseException:
                if self.order is not None:
                    self.order.withdraw(new)
                raise
            self.has_header = True
            self._version = made.version
            del self._deferred[:deferred]
            for item in new:
                self.record.add(item)
            call_probe("after", self.id, items)
            if observers.observer is not None:
                observers.observer.recorded(self, items, made.id)

    def _commit_or_stop(
        self,
        writes: Sequence[Mapping[str, Any]],
        how: Mapping[str, Any],
        also: Callable[[Transaction], None] | None,
        emitted: Emitted | None,
        *,
        is_flushed: bool,
    ) -> Any:
        """Commit. Raises Stopped, or a StatelogError if the additional writes of the caller fail."""
        try:
            return self._commit_where_it_was(writes, how, also, emitted, is_flushed=is_flushed)
        except (LeaseLostError, StoreFullError, ClosedError, ForkedError) as error:
            raise self.stopped(error) from error
        except (UsageError, LimitError) as error:
            if isinstance(error, NotFoundError):
                raise self.stopped(error) from error
            raise
        except ConflictError:
            raise  # The additional writes have failed.
        except StatelogError as error:
            raise self.stopped(error) from error

    def _commit_where_it_was(
        self,
        writes: Sequence[Mapping[str, Any]],
        how: Mapping[str, Any],
        also: Callable[[Transaction], None] | None,
        emitted: Emitted | None,
        *,
        is_flushed: bool,
    ) -> Any:
        """Commit if the head has the record of this execution. Retry if other writers have committed to the thread."""
        while True:
            try:
                if also is not None or emitted is not None:
                    return self._commit_besides(writes, how, also, emitted)
                durable = True if is_flushed else None
                made = self.thread.commit(*writes, **how, expected_version=self._version, durable=durable)
            except ConflictError as error:
                if isinstance(error, LeaseLostError) or error.facts.get("thread") != self.thread.id:
                    raise
                if error.facts.get("expected_version") != self._version:
                    raise  # The conflict comes from the additional writes, not from the head.
                self._look_at_head()
            else:
                if made.lsn == self._looked_lsn + 1:
                    self._looked_lsn = made.lsn
                return made

    def _look_at_head(self) -> None:
        """Continue from the head of the thread if it has the same record as this execution.

        Raises:
            Stopped: the thread was rolled back, or another process has continued the run.
        """
        head = self.thread.head
        state = {} if head is None else head.state
        header, held = state.get(HEADER), state.get(STEPS)
        count = len(held) if header is not None and header["run"] == self.id and held is not None else 0
        if count != (self.recorded if self.has_header else 0):
            self._check_claimed()
            raise self.stopped(RolledBackError())
        self._version = -1 if head is None else head.version

    def _check_claimed(self) -> None:
        """Raise Stopped if another process has claimed the run."""
        key = task_key_of(self.value)
        task = board_of(self.store).get(key)
        token = None if task is None or task.claim is None else task.claim.token
        if self.claim is not None and token != self.claim.token:
            message = f"run {self.id!r} was taken over by another process"
            raise self.stopped(LeaseLostError(message, key=key, token=self.claim.token))

    def _commit_besides(
        self,
        writes: Sequence[Mapping[str, Any]],
        how: Mapping[str, Any],
        also: Callable[[Transaction], None] | None,
        emitted: Emitted | None,
    ) -> Any:
        with self.store.transaction() as tx:
            held = self.thread_in(tx)
            if held.version != self._version:
                message = f"thread {self.thread.id!r} is at version {held.version}, not at {self._version}"
                raise ConflictError(message, thread=self.thread.id, expected_version=self._version)
            checkpoint = self._stage_besides(tx, writes[0][STEPS], also, emitted)
            expected = self._version if held.version == self._version else None  # `also` may have changed the version.
            made = held.commit(*writes, **how, id=checkpoint, expected_version=expected)
        return made  # noqa: RET504 - the version is known after the end of the transaction

    def _stage_besides(
        self, tx: Transaction, items: Any, also: Callable[[Transaction], None] | None, emitted: Emitted | None
    ) -> str | None:
        """Stage the further writes of a commit. Return an id for its checkpoint if a message needs it, else None."""
        if also is not None:
            also(tx)
        if emitted is None:
            return None
        checkpoint = new_checkpoint()
        place = getattr(items, "value", items)[-1]["p"]
        stage_message(tx, self.value, place, emitted, checkpoint)
        return checkpoint

    def defer(self, item: Item) -> None:
        """Record an item with the next commit. If a crash loses the item, a replay finds the same outcome again."""
        with self._lock:
            if self.order is not None:
                self.order.expect((item,))
            self._deferred.append(item)
            self.record.add(item)

    def thread_in(self, tx: Transaction) -> Any:
        """Return the run's thread in a transaction."""
        return thread_of(tx, self.value, self.workflow.schema)

    def wait_for_abandoned_branches(self) -> None:
        """Wait up to five seconds until abandoned branches have replayed their recorded steps.

        Until then, the compensations of these steps are not registered.
        """
        until_s = monotonic() + _BEHIND_S
        while monotonic() < until_s:
            begun = [place for place, item in list(self.record.begun.items()) if item["o"] == "step"]
            behind = {place for place in begun if place not in self.noted}
            abandoned = list(self.abandoned.items())
            if not any(
                place == above or place.startswith(f"{above}.")
                for above, future in abandoned
                if not future.done()
                for place in behind
            ):
                return
            sleep(_LOOK_S)

    def flush(self) -> None:
        """Record the deferred items now, instead of with the next commit."""
        with self._lock:
            if self._deferred:
                self.commit()

    @property
    def deferred(self) -> list[Item]:
        """The items that are recorded with the next commit."""
        with self._lock:
            return list(self._deferred)

    def alone(self, work: Callable[[], None]) -> None:
        """Call `work` while no branch can record anything."""
        with self._lock:
            work()

    def leave(self) -> None:
        """Stop the branches of this execution, because the run is suspended, has ended, or is executed again."""
        with self._lock:
            self.stopped(LeaseLostError(f"run {self.id!r} has ended or was taken over during this call", run=self.id))

    def recorded_value(self, value: Any, what: str, function: Callable[..., Any]) -> Any:
        """Return the result of a function as a replay will read it. Raises ValueTypeError, LimitError."""
        refuse_plain_result(function, value, what)
        return decode(guarded(self.store, encode(value, what), RECORDED))

    def recorded_error(self, record: dict[str, Any], *names: str) -> dict[str, Any]:
        """Return the record of an exception as a replay will read it.

        A string that has a secret, or that a check hides, is replaced by a string, never by a placeholder. `names` are
        the keys under which the record will be stored, from the outermost to the innermost.
        """
        guard = session_of(self.store).owner.guard
        if guard is None:
            return record
        made: dict[str, Any] = decode(guard.recorded_error(encode(record, "exception"), (RECORDED, *names)))
        return made

    def digest_of(self, item: bytes) -> bytes:
        """Return the digest of encoded arguments. It is computed from the form that will be stored."""
        return digest_of(guarded(self.store, item, RECORDED))

    def record_failure(
        self, error: BaseException, place: str, op: str, name: str, digest: bytes | None, **more: Any
    ) -> Any:
        """Record that a call has failed. Return the exception, decoded from the record, for the workflow."""
        recorded = error_of(error)
        if error.__traceback__ is not None:
            recorded["traceback"] = traceback_of(error, CALL_TRACEBACK_SIZE_MAX)
        recorded = self.recorded_error(recorded, "e")
        self.commit(self.done(place, op, name, digest, **more, e=recorded))
        return self.failure(recorded, place, error)

    def failure(self, recorded: Mapping[str, Any], place: str, origin: BaseException | None = None) -> BaseException:
        """Return the recorded exception of a call. `origin` is the exception that was just raised, if any."""
        error = exception_of(recorded, self.workflow.raises)
        note_failed(error, [{"p": place, "next": self._next_numbers(place)}], recorded.get("traceback"))
        if origin is not None:
            show_step(error, origin)
        return error

    def failed(self, error: BaseException, *others: BaseException) -> BaseException:
        """Attach to `error` the calls that led to it and to `others`. Return `error` for the workflow."""
        calls = [call["p"] for each in (error, *others) for call in noted_failed(each)]
        if calls:
            note_failed(error, [{"p": place, "next": self._next_numbers(place)} for place in dict.fromkeys(calls)])
        return error

    def _next_numbers(self, place: str) -> dict[str, list[int]]:
        """Return, for each scope around a place, the numbers of its next call, task, `await` and timer."""
        return {prefix: scope.next_numbers for prefix, scope in list(self.scopes.items()) if place.startswith(prefix)}

    def begin_undoing(self, failure: Item) -> None:
        """Record the failure of the workflow before its compensations run."""
        self.commit(failure)
        self.is_unwinding = True


def _called(upcast: Callable[[Any], Any], recorded: Any) -> Any:
    """Return the result of an upcast. Raises TypeError if it is an async function."""
    made = upcast(recorded)
    if isinstance(made, Coroutine):
        made.close()
        message = "an upcast must not be an async function, because it runs when a recorded result is read"
        raise TypeError(message)
    return made


def _version_error(run: str, done: Item, options: Declaration, missing: int | None) -> StepVersionError:
    what, version = f"{done['o']} {done['n']!r}", done.get("v", 1)
    why = "" if missing is None else f", and its upcast= has no function for version {missing}"
    message = (
        f"run {run!r} has recorded a result of version {version} of {what} at place {done['p']}, but this code has"
        f" version {options.version}{why}. The run has stopped. It continues when it runs with matching code"
    )
    facts = {"run": run, "place": done["p"], "recorded": what, "called": what, "stored": version}
    return StepVersionError(message, **facts, declared=options.version, missing=missing)


class ContinuedAsNew(BaseException):
    """Raised in a workflow by `continue_as_new`, to begin again with new arguments."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(args, kwargs)
        self.arguments = args, kwargs


class Scope:
    """Numbers the calls of a workflow, of a branch, or of a task."""

    def __init__(self, execution: Execution, prefix: str, caller: object) -> None:
        execution.scopes[prefix] = self
        self._prefix = prefix
        self.caller = caller
        self.next_number = 0
        self._next_task = 0
        self._next_gathering = 0
        self._next_await = 0
        self._next_timer = 0
        self.suspended: Suspended | None = None
        """Set after a call has raised Suspended. Each later call of the scope raises it again."""

    def take(self) -> str:
        """Return the place of the next call. Raises Suspended."""
        if self.suspended is not None:
            raise self.suspended
        place = f"{self._prefix}{self.next_number}"
        self.next_number += 1
        return place

    def take_task(self) -> str:
        """Return the place of the next asyncio task, whose calls have their own numbers.

        Tasks are numbered apart from calls, because in a replay, a task may make its first call before or after the
        next call of its parent.

        """
        place = f"{self._prefix}t{self._next_task}"
        self._next_task += 1
        return place

    def take_gathering(self) -> str:
        """Return the place of a `gather`. A `gather` is not a call, but its early failure needs a place."""
        place = f"{self._prefix}g{self._next_gathering}"
        self._next_gathering += 1
        return place

    def take_await(self) -> str:
        """Return the place of an `await` of a branch. The `await` is not a call, but its cancellation needs a place."""
        place = f"{self._prefix}w{self._next_await}"
        self._next_await += 1
        return place

    def take_timer(self) -> str:
        """Return the place of the next timer of the event loop."""
        place = f"{self._prefix}z{self._next_timer}"
        self._next_timer += 1
        return place

    @property
    def next_numbers(self) -> list[int]:
        """The numbers of the next call, of the next task, of the next `await` of a branch, and of the next timer."""
        return [self.next_number, self._next_task, self._next_await, self._next_timer]

    @property
    def next_places(self) -> tuple[str, str]:
        """The places of the next call and of the next task. Reading them does not take them."""
        return f"{self._prefix}{self.next_number}", f"{self._prefix}t{self._next_task}"


current_scope: ContextVar[tuple[Execution, Scope] | None] = ContextVar("scope", default=None)
"""The execution and the scope that number calls in the current context. None means the scope of the workflow."""
