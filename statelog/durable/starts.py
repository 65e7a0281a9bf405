"""Begins and resumes runs, and waits for their ends."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic
from uuid import uuid4

from statelog.durable import deadlines
from statelog.durable.control import cancel
from statelog.durable.deduplication import create_once
from statelog.durable.delivery import deliver_here
from statelog.durable.driver import drive
from statelog.durable.failures import error_of, error_text
from statelog.durable.hosts import ThreadHost
from statelog.durable.infos import get_run, info_of
from statelog.durable.keys import check_part, check_run_id, check_segment, run_key, task_patterns
from statelog.durable.owners import claim_one, free_all, me
from statelog.durable.runs import (
    DEFAULT_QUEUE,
    ENDED,
    Start,
    board_of,
    create,
    find,
    skip_retry_delay,
    task_key_of,
    wake_if_it_can_continue,
)
from statelog.durable.subscriptions import check_subscribers
from statelog.durable.task_claims import LEASE_S
from statelog.durable.unknown import UnknownWorkflows
from statelog.durable.values import arguments_item, storable, typed
from statelog.durable.workflows import R, by_name, check_arguments, check_number, check_text, check_workflow
from statelog.errors import ClosedError, ForkedError, LeaseLostError, RunNotFoundError, StatelogError, UsageError
from statelog.redaction import redacting_logger
from statelog.store.arguments import check_priority

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from statelog.durable.infos import RunInfo
    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim
    from statelog.store.store import Store

_log = redacting_logger("statelog.durable")

_SLICE_S = 0.5


class Handle(Generic[R]):
    """A handle of a run.

    Attributes:
        id: the id of the run.
    """

    def __init__(self, store: Store, id: str, workflow: Workflow[..., R] | None = None) -> None:
        self._store, self._workflow = store, workflow
        self.id = id

    def __repr__(self) -> str:
        return f"<Handle of {self.id!r}>"

    @property
    def info(self) -> RunInfo[R]:
        """The current state of the run."""
        return get_run(self._store, self.id)

    def result(self, timeout_s: float | None = None) -> R:
        """Wait for the end of the run, and return the result of its workflow.

        Args:
            timeout_s: how long to wait, in seconds; None for no limit.

        Raises:
            TimeoutError: the run has not ended in time. It continues.
            RunFailedError: the run has failed. Facts: run, error. RunCancelledError: the run was cancelled.
        """
        found: R = result_of(wait_for_end(self._store, self.id, timeout_s), self._workflow, timeout_s)
        return found

    def cancel(self) -> bool:
        """Cancel the run and its children, and undo their steps. See `durable.cancel`."""
        return cancel(self._store, self.id)


def result_of(info: RunInfo, workflow: Workflow | None, timeout_s: float | None) -> Any:
    """Return the result of a run after a wait. Raises TimeoutError, RunFailedError, RunCancelledError."""
    if not info.has_ended:
        message = f"run {info.id!r} has not ended within {timeout_s} s: it is {info.status}"
        raise TimeoutError(message)
    value = info.result()
    return value if workflow is None else typed(workflow.function, "return", value)


def wait_for_end(store: Store, run: str, timeout_s: float | None) -> RunInfo:
    """Wait until a run has ended, or the time is up. Return the state of the run. Raises RunNotFoundError."""
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, least=0)
    deadline_s = None if timeout_s is None else monotonic() + timeout_s
    entry = find(store, run)
    while entry.value["status"] not in ENDED:
        left_s = _SLICE_S if deadline_s is None else deadline_s - monotonic()
        if left_s <= 0:
            break
        wait_for_change(store, run, entry.version, min(left_s, _SLICE_S))
        entry = find(store, run)
    return info_of(store, entry)


def wait_for_change(store: Store, run: str, version: int, timeout_s: float) -> None:
    """Wait until the entry of a run is no longer at `version`, or the time is up."""
    with board_of(store).watch(run_key(run), after=version, timeout_s=timeout_s) as events:
        next(events, None)


def prepare(
    workflow: Workflow,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    id: str | None,
    thread: str | None,
    **how: Any,
) -> Start:
    """Check the arguments of a new run, and return its `Start`.

    Raises:
        UsageError: an argument is not valid, the workflow does not accept its arguments, or both id and thread are
            missing.
        ValueTypeError, LimitError: an argument of the workflow cannot be stored.
    """
    made = check_workflow(workflow)
    if id is None and thread is None:
        raise UsageError("a run needs id= or thread=, so that it can be found after a crash", argument="id", value=id)
    run = thread if id is None else id
    assert run is not None
    check_run_id(run)
    if thread is not None:
        check_text("thread", thread)
    check_arguments(made, args, kwargs)
    item = arguments_item(f"workflow {made.name!r}", made.function, args, kwargs, (), skip=1)
    timeout_s = how.get("timeout_s")
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, least=0, is_least_allowed=False)
    check_number("delay_s", how.get("delay_s", 0.0), least=0)
    how["aliases"] = made.aliases
    return Start(made.name, item, storable(list(args)), storable(dict(kwargs)), run, thread or run, **how)


def run(
    store: Store,
    workflow: Workflow[..., R],
    /,
    *args: Any,
    id: str | None = None,
    thread: str | None = None,
    timeout_s: float | None = None,
    wait_s: float = 0.0,
    outbox: Iterable[Any] = (),
    lease_s: float = LEASE_S,
    **kwargs: Any,
) -> RunInfo[R]:
    """Run a workflow in this process until it ends or waits. The same call begins the run, or continues it.

    Args:
        store: the store.
        workflow: a workflow that is declared by `@workflow`.
        *args: arguments for the workflow, which are stored.
        id: the id of the run, which the caller chooses. The same id always means the same run. The default is the id of
            the thread.
        thread: the id of the thread that the run writes to. Runs of one thread are run one after the other. The default
            is the id of the run.
        timeout_s: a run that takes longer than this, including its waits, fails and is undone.
        wait_s: how long to wait if the run waits, or if another process drives it.
        outbox: webhooks and callables that receive emitted messages before this function returns.
        lease_s: how long other processes wait for this process if they cannot detect that it was killed.
        **kwargs: arguments for the workflow, which are stored.

    Returns:
        The state of the run: it has ended, is suspended, or is driven by another process.

    Raises:
        ConflictError: a run has this id, but a different workflow, different arguments or a different thread.
        NondeterminismError: the workflow does not do what the run has recorded. The run has stopped.
        UsageError, ValueTypeError, LimitError: an argument is not valid, is not accepted by the workflow, or cannot be
            stored. No run has begun.
    """
    check_number("wait_s", wait_s, least=0)
    subscribers = check_subscribers(outbox)
    start = prepare(workflow, args, kwargs, id=id, thread=thread, timeout_s=timeout_s)
    is_new = create(store, start)
    if not is_new:
        skip_retry_delay(store, start.id)
    info = drive_here(store, workflow, start.id, wait_s=wait_s, is_patient=is_new, lease_s=lease_s)
    deliver_here(store, subscribers, start.id)
    return typed_info(info, workflow)


def typed_info(info: RunInfo[R], workflow: Workflow[..., R]) -> RunInfo[R]:
    """Convert the value in `info` to the type that the workflow's return annotation declares."""
    if info.status != "completed":
        return info
    return dataclasses.replace(info, value=typed(workflow.function, "return", info.value))


def drive_here(
    store: Store, workflow: Workflow, run: str, *, wait_s: float, is_patient: bool, lease_s: float = LEASE_S
) -> RunInfo:
    """Drive a run in this thread until it has ended or waits. Return its state.

    Args:
        store: the store.
        workflow: the workflow of the run.
        run: the id of the run.
        wait_s: how long to wait while the run waits, or while another process drives it.
        is_patient: wait without a limit while another process drives the run.
        lease_s: the duration of the claim, which is renewed, in seconds.
    """
    deadline_s = monotonic() + wait_s
    host = ThreadHost()
    claim: Claim | None = None
    while True:
        entry = find(store, run)
        if entry.value["status"] in ENDED or entry.value["status"] == "parked":
            return info_of(store, entry)
        claim = claim or claim_one(store, task_key_of(entry.value), lease_s)
        if claim is not None:
            with suppress(LeaseLostError):  # Another process continues the run.
                host.finish(drive(store, workflow, run, claim, host, lease_s=lease_s))
            claim, is_patient = None, False
            continue
        info = info_of(store, entry)
        if info.status == "suspended" and wake_if_it_can_continue(store, run):
            continue
        if info.status == "queued" and deadlines.end_overdue(store, run):
            continue
        left_s = deadline_s - monotonic()
        is_elsewhere = info.status == "running"
        if info.has_ended or (left_s <= 0 and not (is_elsewhere and is_patient)):
            return info
        slice_s = min(left_s if left_s > 0 else _SLICE_S, _SLICE_S)
        if is_elsewhere:
            wait_for_change(store, run, entry.version, slice_s)
        else:
            claim = claim_one(store, task_key_of(entry.value), lease_s, slice_s)


def start(
    store: Store,
    workflow: Workflow[..., R],
    /,
    *args: Any,
    id: str | None = None,
    thread: str | None = None,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    delay_s: float = 0.0,
    timeout_s: float | None = None,
    partition: str | None = None,
    dedup_key: str | None = None,
    debounce_s: float | None = None,
    **kwargs: Any,
) -> Handle[R]:
    """Create a run, which a worker will drive, and return at once. See `run` and `run_worker`.

    Args:
        store: the store.
        workflow: as for `run`.
        *args: as for `run`.
        id: as for `run`. If id and thread are left out, a new id is made.
        thread: as for `run`.
        queue: the name of the queue in which the run waits.
        priority: from -127 to 127. Runs with a higher priority begin first.
        delay_s: the earliest time at which the run begins, in seconds from now.
        timeout_s: as for `run`.
        partition: a part of the queue with its own limit, such as a customer or a host: see `Queue`.
        dedup_key: if a run of the queue with this key is open, no new run begins, and the handle is of the open run.
        debounce_s: the run begins this many seconds from now. If another start with the same `dedup_key` comes before
            then, the run gets the arguments of that start, and the time starts again.
        **kwargs: as for `run`.

    Raises:
        ConflictError, UsageError, ValueTypeError, LimitError: as for `run`; no run has begun. ConflictError is also
            raised if the open run with this `dedup_key` has a different workflow.
    """
    check_segment(queue, partition)
    if dedup_key is not None:
        check_text("dedup_key", dedup_key)
    if debounce_s is not None:
        delay_s = _debounced(debounce_s, dedup_key, delay_s)
    if id is None and thread is None:
        id = uuid4().hex
    check_priority(priority)
    made = prepare(
        workflow,
        args,
        kwargs,
        id=id,
        thread=thread,
        queue=queue,
        priority=priority,
        delay_s=delay_s,
        timeout_s=timeout_s,
        partition=partition,
        dedup=dedup_key,
    )
    if dedup_key is not None:
        return Handle(store, create_once(store, made, is_debounced=debounce_s is not None), workflow)
    create(store, made)
    return Handle(store, made.id, workflow)


def _debounced(debounce_s: float, dedup_key: str | None, delay_s: float) -> float:
    check_number("debounce_s", debounce_s, least=0)
    if dedup_key is None:
        message = "debounce_s needs dedup_key=, which says which starts belong together"
        raise UsageError(message, argument="debounce_s", value=debounce_s)
    if delay_s:
        message = "debounce_s and delay_s cannot be combined: both set when the run begins"
        raise UsageError(message, argument="delay_s", value=delay_s)
    return debounce_s


def resume_all(store: Store, workflows: Iterable[Workflow], *, outbox: Iterable[Any] = ()) -> list[RunInfo]:
    """Drive every run that can continue now, in this process, one after the other. Return the states of these runs.

    A run that cannot be driven stops, and does not affect the other runs. Its `info.error` has the reason: its code
    does not match its record, its workflow is async, or its record cannot be read.

    Args:
        store: the store.
        workflows: the workflows whose runs are driven.
        outbox: as for `run`.

    Raises:
        UsageError: one of the workflows is not a workflow.
    """
    known, subscribers = by_name(workflows), check_subscribers(outbox)
    resume_pass, host = ResumePass(store, known), ThreadHost()
    try:
        while (claim := resume_pass.next()) is not None:
            run = claim.value["run"]
            with resume_pass.reported(claim):
                host.finish(drive(store, known[find(store, run).value["workflow"]], run, claim, host))
    finally:
        resume_pass.close()
    for run in resume_pass.runs:
        deliver_here(store, subscribers, run)
    return resume_pass.infos()


class ResumePass:
    """Claims runs for one call of `resume_all`. A run that stops is reported, and not tried again.

    Attributes:
        runs: ids of the runs that were driven, in order.
    """

    def __init__(self, store: Store, workflows: Iterable[str]) -> None:
        self._store, self._patterns = store, task_patterns(workflows)
        UnknownWorkflows(store, [check_part("workflow", name) for name in workflows], None).remove_marks()
        self._stopped: dict[str, str] = {}
        """The reasons why runs have stopped, keyed by run id."""
        self._set_aside: list[Claim] = []
        """Claims of runs that had stopped and were claimed again. They are held, so that this happens only once."""
        self._left: list[Claim] = []
        """Claims under which runs have stopped, which must still be released."""
        self.runs: list[str] = []
        free_all(store)

    def next(self) -> Claim | None:
        """Return the claim of the next run to drive, or None if there are no more."""
        self._give_back(self._left)  # Most of these runs were already released when they stopped.
        while self._patterns:
            claim = board_of(self._store, me()).claim([*self._patterns, deadlines.PATTERN], lease_s=LEASE_S)
            if claim is None:
                return None
            if claim.key.startswith(deadlines.PATTERN.removesuffix("*")):
                deadlines.end_claimed(self._store, claim)
            elif claim.value["run"] in self._stopped:
                self._set_aside.append(claim)
            else:
                if claim.value["run"] not in self.runs:
                    self.runs.append(claim.value["run"])
                return claim
        return None

    def close(self) -> None:
        """Release the claims that were set aside."""
        self._give_back(self._left)
        self._give_back(self._set_aside)

    def _give_back(self, claims: list[Claim]) -> None:
        while claims:
            with suppress(StatelogError):
                claims.pop().release(counts=False)

    @contextmanager
    def reported(self, claim: Claim) -> Iterator[None]:
        """If a run stops in the `with` block, note its error instead of raising it, so that other runs continue."""
        run = claim.value["run"]
        try:
            yield
        except LeaseLostError:  # Another process continues the run.
            return
        except (ClosedError, ForkedError):
            raise
        except Exception as error:  # noqa: BLE001 - the error concerns one run
            self._stopped[run] = error_text(error_of(error))
            _log.warning("run %s has stopped: %s", run, self._stopped[run])
            self._left.append(claim)

    def infos(self) -> list[RunInfo]:
        """Return the states of the runs. If a run has stopped, its `error` is the reason."""
        found = []
        for run in self.runs:
            with suppress(RunNotFoundError):
                info = get_run(self._store, run)
                why = None if info.has_ended else self._stopped.get(run)
                found.append(info if info.error is not None or why is None else dataclasses.replace(info, error=why))
        return found
