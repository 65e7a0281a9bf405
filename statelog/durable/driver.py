"""Drives a run: calls its workflow, which replays the recorded calls and continues after them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from statelog.durable import observers
from statelog.durable.control import cancel
from statelog.durable.endings import ATTEMPTS_MAX, end, park, put_back, restart, suspend
from statelog.durable.execution import (
    RECORDED,
    ContinuedAsNew,
    Execution,
    RolledBackError,
    Stopped,
    Suspended,
    Undo,
    Unwinding,
    undoing,
)
from statelog.durable.failures import bare, error_of, error_text, failed_calls, traceback_of
from statelog.durable.hosts import ThreadHost
from statelog.durable.owners import claim_one
from statelog.durable.probes import stub_of
from statelog.durable.record import UNDO, RunRecord
from statelog.durable.retries import restore
from statelog.durable.run import Run
from statelog.durable.runs import find, task_key_of
from statelog.durable.steps import make_call, take_step
from statelog.durable.task_claims import LEASE_S, renewed
from statelog.durable.values import decode, encode, guarded, recorded_text, typed_arguments
from statelog.durable.workflows import COMPENSATION_RETRY, UNKNOWN, Abort, Cancelled, StepOptions, name_of, options_of
from statelog.errors import (
    ClosedError,
    ConflictError,
    LeaseLostError,
    NondeterminismError,
    StatelogError,
    UsageError,
)
from statelog.redaction import redacting_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from statelog.durable.hosts import Host
    from statelog.durable.record import Item
    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim
    from statelog.store.store import Store

_log = redacting_logger("statelog.durable")

STOPPED_DELAY_S = 5.0
"""The delay before a run whose code does not match its record may be claimed again, in seconds."""


async def drive(
    store: Store,
    workflow: Workflow,
    run: str,
    claim: Claim,
    host: Host,
    *,
    lease_s: float = LEASE_S,
    backs_off: bool = False,
) -> None:
    """Drive a claimed run until it ends, is suspended, or stops.

    A run that has stopped may be claimed again at once or, with `backs_off`, after a delay that grows with each stop.

    Raises:
        NondeterminismError: the code does not match the record of the run. The run has stopped.
        LeaseLostError: another process has taken the run over.
        StatelogError: the store refuses a read or a commit. The run has stopped.
    """
    if host.is_async and not workflow.is_async:
        thread = ThreadHost()
        driven = drive(store, workflow, run, claim, thread, lease_s=lease_s, backs_off=backs_off)
        await host.aside(thread, lambda: thread.finish(driven))
        return
    value = (await host.io(find, store, run)).value
    if workflow.is_async and not host.is_async:
        await host.io(_give_back, store, value, claim, 0.0, None, backs_off)
        message = f"workflow {workflow.name!r} is async: run it with statelog.aio.durable"
        raise UsageError(message, argument="workflow", value=workflow.name)
    if claim.attempt + claim.value.get("crashes", 0) > ATTEMPTS_MAX:
        error = f"it was started {ATTEMPTS_MAX} times, and its process died each time"
        await host.io(park, store, run, claim, error)
        return
    with renewed(claim, lease_s):
        try:
            if "retry" in value:
                value = await host.io(restore, store, run, claim)
            await _execute_until_done(store, workflow, value, claim, host, lease_s)
        except NondeterminismError as error:
            text = recorded_text(store, error_text(error_of(error)))
            await host.io(_give_back, store, value, claim, STOPPED_DELAY_S, text, backs_off)
            raise
        except (LeaseLostError, ClosedError):
            raise
        except BaseException as error:
            text = recorded_text(store, error_text(error_of(error)))
            await host.io(_give_back, store, value, claim, 0.0, text, backs_off)
            raise


def _give_back(
    store: Store,
    value: Mapping[str, Any],
    claim: Claim,
    delay_s: float,
    error: str | None,
    backs_off: bool,  # noqa: FBT001 - `Host.io` passes positional arguments only
) -> None:
    try:
        put_back(store, value, claim, delay_s=delay_s, error=error, backs_off=backs_off)
    except StatelogError:  # The claim expires by itself.
        return


async def _execute_until_done(
    store: Store, workflow: Workflow, value: Mapping[str, Any], claim: Claim, host: Host, lease_s: float
) -> None:
    """Call the workflow until the run has ended or is suspended."""
    rollbacks, is_done = 0, False
    while not is_done:
        try:
            is_done = await _executed(store, workflow, value, claim, host, lease_s)
        except RolledBackError:
            rollbacks += 1
            if rollbacks > ATTEMPTS_MAX:
                message = f"thread {value['thread']!r} was rolled back {rollbacks} times while run {value['id']!r} ran"
                raise ConflictError(message, thread=value["thread"], run=value["id"]) from None
        if not is_done:
            value = (await host.io(find, store, value["id"])).value


async def _executed(
    store: Store, workflow: Workflow, value: Mapping[str, Any], claim: Claim, host: Host, lease_s: float
) -> bool:
    """Call the workflow. Return False if it must be called again at once. Raise the error that stopped the run."""
    try:
        return await _execute(store, workflow, value, claim, host, lease_s)
    except Stopped as stopped:  # After the workflow, a compensation or the last commit stopped the run.
        raise stopped.error from stopped


async def _execute(
    store: Store, workflow: Workflow, value: Mapping[str, Any], claim: Claim, host: Host, lease_s: float
) -> bool:
    """Call the workflow. Return False if it must be called again at once."""
    execution = await host.io(Execution, store, workflow, value, claim, host)
    try:
        with observers.executing(execution):
            return await _call_and_record(execution, lease_s)
    finally:
        execution.leave()


async def _call_and_record(execution: Execution, lease_s: float) -> bool:
    """Call the workflow, and record the outcome. Return False if the workflow must be called again at once."""
    store, host = execution.store, execution.host

    async def drive_child(made: Workflow, run: str) -> None:
        await _drive_child(store, made, run, host, lease_s)

    run = Run(execution, drive_child)
    result, error = await _called(execution, run)
    if execution.stop is not None:
        raise execution.stop
    suspended = run._root.suspended  # noqa: SLF001
    error = error if suspended is None or isinstance(error, Suspended) else suspended
    if isinstance(error, Suspended):
        return bool(await host.io(suspend, execution, error.waits))
    if isinstance(error, ContinuedAsNew):
        args, kwargs = (
            decode(guarded(store, encode(each, "arguments", depth=1), RECORDED)) for each in error.arguments
        )
        await host.io(restart, execution, args, kwargs)
        return False
    if error is not None and not isinstance(error, (Exception, Cancelled, Unwinding)):
        raise error  # An interrupt stops the run, but does not make it fail.
    try:
        execution.record.check_all_called(execution.abandoned)
    except NondeterminismError as differs:
        raise differs from error
    if error is None and (forgotten := execution.made - execution.record.cancelled_places):
        message = f"run {execution.id!r}: the operation at place {min(forgotten)} was called but never awaited"
        raise UsageError(message, run=execution.id, place=min(forgotten))
    if error is None and execution.record.undo is None:
        await host.io(end, execution, "completed", {"value": result})
        return True
    try:
        status, more = await _undo_all(execution, error)
    except Suspended as waits:
        return bool(await host.io(suspend, execution, waits.waits))
    await host.io(_end, execution, status, more, error)
    return True


def _end(execution: Execution, status: str, more: Mapping[str, Any], error: BaseException | None) -> None:
    """End a run that did not complete, and log its failure, at level INFO if the workflow raised `Abort`."""
    more = execution.recorded_error(dict(more))
    end(execution, status, more)
    if status == "failed":
        undo = execution.record.undo
        is_meant = isinstance(error, Abort) if undo is None else undo["e"]["type"] == Abort.__name__
        message = "run %s of workflow %s has failed: %s\n%s"
        level = logging.INFO if is_meant else logging.ERROR
        _log.log(level, message, execution.id, execution.workflow.name, more["error"], more.get("traceback", ""))


async def _called(execution: Execution, run: Run) -> tuple[Any, BaseException | None]:
    """Call the workflow. Return its result, as a replay will read it, and its exception. Either may be None."""
    workflow, value, host = execution.workflow, execution.value, execution.host
    result: Any = None
    error: BaseException | None = None
    args, kwargs = typed_arguments(workflow.function, value["args"], value["kwargs"], skip=1)
    try:
        result = await host.call_workflow(execution, run._enter, workflow.function, (run, *args), kwargs)  # noqa: SLF001
        result = execution.recorded_value(result, f"result of workflow {workflow.name!r}", workflow.function)
    except BaseException as raised:  # noqa: BLE001 - the caller handles each kind
        error = bare(raised)
    await _settle(execution, error)
    return result, error


async def _settle(execution: Execution, error: BaseException | None) -> None:
    """Wait until the run's branches have ended. After a failure, first let abandoned branches replay their steps."""
    if execution.abandoned and isinstance(error, (Exception, Cancelled, Unwinding)):
        await execution.host.io(execution.wait_for_abandoned_branches)
    await execution.host.settle(execution)


# --- what has failed ------------------------------------------------------------------------------


async def _undo_all(execution: Execution, error: BaseException | None) -> tuple[str, dict[str, Any]]:
    """Run the compensations in reverse order of their steps. Return the run's status, and fields for its entry."""
    execution.is_shielded = True
    shield = undoing.set(True)
    try:
        return await _undone(execution, error)
    finally:
        undoing.reset(shield)


async def _undone(execution: Execution, error: BaseException | None) -> tuple[str, dict[str, Any]]:
    host, record = execution.host, execution.record
    if execution.abandoned:
        await host.io(execution.wait_for_abandoned_branches)
    undos = sorted(execution.undos.values(), key=lambda each: -record.order.get(each.place, 0))
    failure = record.undo
    if failure is None:
        assert error is not None
        failure = _failure(execution, error)
        if undos:
            await host.io(execution.begin_undoing, failure)
    for place, item in list(record.begun.items()):
        if item["o"] == "child" and place not in record.done:
            await host.io(cancel, execution.store, item["c"])
    parked = []
    for undo in undos:
        try:
            await _undo(execution, undo)
        except Exception as failed:  # noqa: BLE001 - the other compensations still run
            parked.append(f"{undo.step}: {error_text(error_of(failed))}")
    status = str(failure["n"])
    more: dict[str, Any] = {"error": failure["e"]["message"] if status == "cancelled" else error_text(failure["e"])}
    more |= {field: failure[name] for field, name in (("traceback", "b"), ("failed", "w")) if name in failure}
    if parked:
        more["parked"] = parked
    return status, more


def _failure(execution: Execution, error: BaseException) -> Item:
    """Return the item that records the failure of a workflow."""
    if isinstance(error, Cancelled) and execution.cancelled != "timeout":
        return execution.item("undo", UNDO, "undo", "cancelled", e=error_of(RuntimeError("it was cancelled")))
    cause = error
    if isinstance(error, Cancelled):
        cause = TimeoutError(f"the run took longer than {execution.value['timeout_s']:g} s")
    more: dict[str, Any] = execution.recorded_error({"e": error_of(cause), "b": traceback_of(error)})
    if failed := failed_calls(error):
        more["w"] = failed
    return execution.item("undo", UNDO, "undo", "failed", **more)


async def _undo(execution: Execution, undo: Undo) -> None:
    done = execution.record.done.get(undo.place)
    result: Any = UNKNOWN
    if done is not None and "r" in done:
        result = execution.result(done, undo.call)
    function, options = undo.function, options_of(undo.function)
    retry, timeout_s = options.retry or COMPENSATION_RETRY, options.timeout_s
    call = make_call(undo.call, undo.args, undo.kwargs, StepOptions(name=name_of(function), retry=retry))
    await take_step(
        execution,
        f"undo.{undo.place}",
        call._replace(function=_of(stub_of(call.name, function), result), timeout_s=timeout_s),
    )


def _of(function: Callable[..., Any], result: Any) -> Callable[..., Any]:
    """Return a function that calls a compensation with the result of its step as the first argument."""

    def compensate(*args: Any, **kwargs: Any) -> Any:
        return function(result, *args, **kwargs)

    return compensate


# --- children, and dry runs -------------------------------------------------------------------------


async def _drive_child(store: Store, workflow: Workflow, run: str, host: Host, lease_s: float) -> None:
    """Drive a child in this process, if no other process drives it."""
    entry = await host.io(find, store, run)
    claim = await host.io(claim_one, store, task_key_of(entry.value), lease_s)
    if claim is not None:
        await drive(store, workflow, run, claim, host.another(), lease_s=lease_s)


async def replay(
    store: Store, workflow: Workflow, value: Mapping[str, Any], items: Iterable[Item], host: Host
) -> BaseException | None:
    """Replay an ended run with its recorded items. Return the error that stopped the replay, or None.

    The error is a StopIteration if the workflow makes a call that is not recorded.
    """
    execution = await host.io(Execution, store, workflow, value, None, host)
    execution.record = RunRecord(execution.id, items)
    await _called(execution, Run(execution, None))
    return execution.stop


def rehearse_here(store: Store, workflow: Workflow, value: Mapping[str, Any]) -> NondeterminismError | None:
    """Replay a run in this thread. See `rehearse`."""
    host = ThreadHost()
    return host.finish(rehearse(store, workflow, value, host))


async def rehearse(
    store: Store, workflow: Workflow, value: Mapping[str, Any], host: Host
) -> NondeterminismError | None:
    """Replay a run up to the end of its record. Return the difference between the code and the record, or None."""
    execution = await host.io(Execution, store, workflow, value, None, host)
    _result, error = await _called(execution, Run(execution, None))
    if isinstance(execution.stop, NondeterminismError):
        return execution.stop
    if isinstance(execution.stop, StopIteration) or isinstance(error, Suspended):
        return None  # The replay has reached the end of the record.
    try:
        execution.record.check_all_called(execution.abandoned)
    except NondeterminismError as differs:
        return differs
    return None
