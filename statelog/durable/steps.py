"""Steps: functions whose outcome is recorded. A replay does not call them again."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.durable import observers
from statelog.durable.clock import clock
from statelog.durable.execution import SIGNALS, Suspended, Undo, Wait, in_step
from statelog.durable.failures import bare, error_of
from statelog.durable.keys import check_channels, visit_of
from statelog.durable.outbox import Emitted
from statelog.durable.probes import call_probe, stub_of
from statelog.durable.record import TRIED
from statelog.durable.streams import next_attempt, stage_chunk
from statelog.durable.values import arguments_item, typed
from statelog.durable.workflows import (
    AT_MOST_ONCE,
    NO_OPTIONS,
    NO_RETRY,
    StepOptions,
    StepWithOptions,
    declaration_of,
    name_of,
    options_of,
    versions_of,
)
from statelog.errors import StepInterruptedError, StepTimeoutError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from statelog.durable.execution import Execution
    from statelog.durable.record import Item
    from statelog.durable.workflows import Retry


class StepContext:
    """The step that is being called. See `current_step`.

    Attributes:
        run: the id of the run.
        name: the name of the step.
        attempt: the number of the call, from 1. Calls that a crash ended do not count, because they are not recorded.
        idempotency_key: a key that is the same in each attempt, even after a crash. Pass it to the called service.
    """

    def __init__(self, execution: Execution, place: str, name: str, attempt: int, late_us: int) -> None:
        self.run = execution.id
        self.name = name
        self.attempt = attempt
        self.idempotency_key = f"{execution.id}/{visit_of(place, execution.visit)}"
        self._execution, self._place, self._late_us = execution, place, late_us
        self._told_as: int | None = None

    @property
    def is_cancelled(self) -> bool:
        """True if the run was cancelled, or the time of the run or step is up. A long step should then return."""
        return self._execution.is_cancelled or 0 < self._late_us <= clock().now_us()

    def heartbeat(self) -> None:
        """Renew the claim of the run now. The library also renews claims regularly while the process runs.

        Raises:
            LeaseLostError: another process has taken the run over.
        """
        claim = self._execution.claim
        if claim is not None:
            claim.renew()

    def stream(self, chunk: Any) -> None:
        """Publish a part of the result before the step has ended, for `durable.stream`. Its commit is not flushed."""
        store = self._execution.store
        if self._told_as is None:
            self._told_as = next_attempt(store, self.run, self._place, self.attempt)
        stage_chunk(store, self.run, self._place, self._told_as, chunk)


_current: ContextVar[StepContext | None] = ContextVar("step", default=None)


def current_step() -> StepContext:
    """Return the step that is being called in this thread or task.

    Raises:
        UsageError: no step is being called.
    """
    found = _current.get()
    if found is None:
        raise UsageError("current_step was called outside of a step", argument="current_step", value=None)
    return found


class StepCall(NamedTuple):
    """A call of a step, with all its options."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    name: str
    digest: bytes
    """The digest of the arguments. Before `take_step`, this is the encoded form of the arguments."""
    retry: Retry
    timeout_s: float | None
    compensate: Callable[..., Any] | None
    commit: Callable[[Any], Mapping[str, Any]] | None
    transact: Callable[..., Any] | None
    emit: Callable[[Any], tuple[str, Any]] | None
    is_at_most_once: bool

    def results_in_more(self) -> bool:
        """Return True if the commit of the result also writes to the thread, the store or the outbox."""
        return self.commit is not None or self.transact is not None or self.emit is not None


def make_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], given: StepOptions = NO_OPTIONS
) -> StepCall:
    """Check the arguments and options of a step, and return the call.

    Args:
        function: the step, which may have declared options.
        args: the arguments of the step.
        kwargs: the keyword arguments of the step.
        given: further options, which take precedence.

    Raises:
        UsageError: an option does not fit the function.
        ValueTypeError, LimitError: an argument cannot be stored. Facts: path.
    """
    if not callable(function):
        raise UsageError(f"a step must be a function, not {function!r}", argument="function", value=function)
    options = given.over(options_of(function))
    if isinstance(function, StepWithOptions):
        function = function.function
    called = options.name or name_of(function)
    if options.compensate is not None:
        _check_takes(options.compensate, called, args, kwargs)
    return StepCall(
        function,
        args,
        kwargs,
        called,
        arguments_item(f"step {called!r}", function, args, kwargs, declaration_of(function).ignore),
        options.retry or NO_RETRY,
        options.timeout_s,
        options.compensate,
        options.commit,
        options.transact,
        options.emit,
        options.semantics == AT_MOST_ONCE,
    )


def _check_takes(compensate: Callable[..., Any], step: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UsageError if a compensation cannot be called with a result and the arguments of its step."""
    try:
        inspect.signature(compensate).bind(None, *args, **kwargs)
    except ValueError:  # Some builtin functions do not have a signature.
        return
    except TypeError as error:
        message = f"compensation {name_of(compensate)!r} does not take a result and the arguments of {step!r}: {error}"
        raise UsageError(message, argument="compensate", value=compensate) from None


async def take_step(execution: Execution, place: str, call: StepCall) -> Any:
    """Return the recorded outcome of a step, or call the step and record its outcome. Raises its exception."""
    record = execution.record
    call = call._replace(digest=execution.digest_of(call.digest))
    note_begun(execution, place, call)
    done = execution.begin(place, "step", call.name, call.digest)
    begun = record.begun.get(place)
    if done is not None:
        return execution.outcome(done, call.function)
    await execution.check_signals(place)
    attempt = len(record.tried.get(place, ())) + 1
    replacement = execution.replacement(place, "step", call.name)
    if replacement is None and call.is_at_most_once and begun is not None and begun["i"] >= attempt:
        message = f"step {call.name!r} was being called when the process died, and may be called at most once"
        raise await execution.host.io(
            execution.record_failure,
            StepInterruptedError(message, step=call.name),
            place,
            "step",
            call.name,
            call.digest,
        )
    while True:
        await _wait_for_turn(execution, place, call)
        if call.is_at_most_once or (call.compensate is not None and place not in execution.undos):
            begun = execution.begun(place, "step", call.name, call.digest, i=attempt)
            await execution.host.io(lambda begun=begun: execution.commit(begun, is_flushed=True))
            if call.compensate is not None:
                _register(execution, place, call)
            execution.noted.add(place)
        error: BaseException | None = None
        try:
            result = await _call(execution, place, call, attempt) if replacement is None else replacement["r"]
        except SIGNALS:
            raise
        except Exception as raised:  # noqa: BLE001 - the error is recorded
            error = bare(raised)
        if error is None:
            return await execution.host.io(_note_result, execution, place, call, attempt, result)
        if await execution.host.io(_note_attempt, execution, place, call, attempt, error):
            attempt += 1
            await execution.check_signals()
        else:  # In the `except` block, this error would get a context that a replay lacks.
            fail = partial(execution.record_failure, error, place, "step", call.name, call.digest, i=attempt)
            raise await execution.host.io(fail)


def note_begun(execution: Execution, place: str, call: StepCall) -> None:
    """Register the compensation of a step whose beginning is recorded."""
    has_begun, is_done = place in execution.record.begun, place in execution.record.done
    if call.compensate is not None and (has_begun or is_done):
        _register(execution, place, call)
    if has_begun:
        execution.noted.add(place)


def _register(execution: Execution, place: str, call: StepCall) -> None:
    assert call.compensate is not None
    execution.undos.setdefault(place, Undo(place, call.name, call.compensate, call.args, call.kwargs, call.function))


async def _wait_for_turn(execution: Execution, place: str, call: StepCall) -> None:
    """Wait until the next attempt is due."""
    tried = execution.record.tried.get(place)
    if tried:
        await pause(execution, tried[-1]["u"], f"retry of step {call.name}")


async def pause(execution: Execution, until_us: int, label: str) -> None:
    """Wait until a time in microseconds since the epoch. Raises Suspended if the wait is long, or Cancelled."""
    left_s = (until_us - clock().now_us()) / 1e6
    if left_s <= 0:
        return
    if not clock().is_short(left_s):
        raise Suspended(Wait(label, until_us, lambda: False))
    await execution.host.sleep(left_s)
    await execution.check_signals()


async def _call(execution: Execution, place: str, call: StepCall, attempt: int) -> Any:
    began_us = clock().now_us()
    late_us = 0 if call.timeout_s is None else began_us + round(call.timeout_s * 1e6)
    context = StepContext(execution, place, call.name, attempt, late_us)
    call_probe("call", execution.id, (place, call))
    function = call.function if place.startswith("undo.") else stub_of(call.name, call.function)
    current, inside = _current.set(context), in_step.set((*in_step.get(), execution.id))
    try:
        with observers.calling(execution, place, call, attempt) as report_result:
            result = await execution.host.call(function, call.args, call.kwargs, call.timeout_s)
            report_result(result)
    except TimeoutError as error:
        if late_us and clock().now_us() >= late_us:
            raise _late(call) from error
        raise
    finally:
        in_step.reset(inside)
        _current.reset(current)
    if 0 < late_us <= clock().now_us():
        raise _late(call)
    return result


def _late(call: StepCall) -> StepTimeoutError:
    message = f"step {call.name!r} took longer than {call.timeout_s:g} s"
    return StepTimeoutError(message, step=call.name, timeout_s=call.timeout_s)


def _note_attempt(execution: Execution, place: str, call: StepCall, attempt: int, error: BaseException) -> bool:
    """If another attempt follows, record the failed attempt, and return True."""
    if attempt >= call.retry.attempts or call.retry.gives_up(error):
        return False
    until_us = clock().now_us() + round(call.retry.delay_s(attempt) * 1e6)
    tried = {"i": attempt, "e": execution.recorded_error(error_of(error), "e"), "u": until_us}
    execution.commit(execution.item(place, TRIED, "step", call.name, call.digest, **tried))
    return True


def _note_result(execution: Execution, place: str, call: StepCall, attempt: int, result: Any) -> Any:
    """Record the result of a step, together with the writes of `call`. Return the result as a replay would return it.

    If the result cannot be recorded, the step fails. It is not tried again, because it has already had its effect.
    """
    try:
        stored = execution.recorded_value(result, f"result of step {call.name!r}", call.function)
        item = execution.done(
            place, "step", call.name, call.digest, i=attempt, r=stored, **versions_of(call.function).recorded()
        )
        given = typed(call.function, "return", stored)
        if call.results_in_more():
            _commit_more(execution, call, item, given)
        else:
            execution.commit(item)
    except SIGNALS:
        raise
    except Exception as raised:  # noqa: BLE001 - the error is recorded
        error = raised
    else:
        return given
    raise execution.record_failure(error, place, "step", call.name, call.digest, i=attempt)


def _commit_more(execution: Execution, call: StepCall, item: Item, given: Any) -> None:
    writes = () if call.commit is None else (call.commit(given),)
    check_channels(writes)
    transact = call.transact
    also = None if transact is None else lambda tx: transact(tx, given)
    emitted = None if call.emit is None else Emitted(*call.emit(given))
    execution.commit(item, writes=writes, also=also, emitted=emitted)
