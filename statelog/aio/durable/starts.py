"""Begins and resumes runs on the event loop, and waits for their ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from statelog.aio.bridge import ended, in_thread
from statelog.aio.durable.host import EventLoopHost
from statelog.aio.waits import FOREVER_S, holds, until, win
from statelog.durable import control, starts
from statelog.durable.deadlines import end_overdue
from statelog.durable.delivery import deliver_here
from statelog.durable.driver import drive
from statelog.durable.infos import get_run, info_of
from statelog.durable.keys import run_key
from statelog.durable.owners import claim_one, me
from statelog.durable.runs import (
    DEFAULT_QUEUE,
    ENDED,
    board_of,
    create,
    find,
    skip_retry_delay,
    task_key_of,
    wake_if_it_can_continue,
)
from statelog.durable.subscriptions import check_subscribers
from statelog.durable.task_claims import LEASE_S
from statelog.durable.workflows import R, by_name, check_number
from statelog.errors import LeaseLostError, StatelogError
from statelog.store.board import attempt_claim
from statelog.store.session import session_of
from statelog.store.waiter_thread import Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.aio.store import Store
    from statelog.durable.infos import RunInfo
    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim
    from statelog.store.store import Store as SyncStore

T = TypeVar("T")

_SLICE_S = 0.5


class Handle(Generic[R]):
    """A handle of a run, as in `statelog.durable.Handle`. Await its methods.

    Attributes:
        id: the id of the run.
    """

    def __init__(self, store: Store, id: str, workflow: Workflow[..., R] | None = None) -> None:
        self._store, self._workflow = store, workflow
        self.id = id

    def __repr__(self) -> str:
        return f"<Handle of {self.id!r}>"

    async def info(self) -> RunInfo[R]:
        """Return the current state of the run."""
        info: RunInfo[R] = await on_pool(self._store, get_run, self.id)
        return info

    async def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result of the workflow. See `statelog.durable.Handle.result`."""
        if timeout_s is not None:
            check_number("timeout_s", timeout_s, least=0)
        check = partial(has_ended, self._store.sync, self.id)
        await changed(self._store, check, run_key(self.id), timeout_s=timeout_s)
        found: R = starts.result_of(await self.info(), self._workflow, timeout_s)
        return found

    async def cancel(self) -> bool:
        """Cancel the run and its children, and undo its steps. See `statelog.durable.cancel`."""
        is_open: bool = await on_pool(self._store, control.cancel, self.id)
        return is_open


async def on_pool(store: Store, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call a function of `statelog.durable` on the pool with the store, and return its result."""
    return await store._runner.run(function, store.sync, *args, **kwargs)  # noqa: SLF001 - `_runner` belongs to the same package


async def changed(store: Store, check: Callable[[], Any], *keys: str, timeout_s: float | None) -> bool:
    """Wait until `check`, which reads the entries `keys` of the board, returns true. Return False after a timeout."""
    condition = Condition(holds(check), patterns=keys)
    left_s = FOREVER_S if timeout_s is None else timeout_s
    return await until(store._runner, session_of(store.sync), condition, left_s)  # noqa: SLF001 - `_runner` belongs to the same package


def has_ended(store: SyncStore, run: str) -> bool:
    """Return True if a run has ended. Called on the store's thread pool."""
    return find(store, run).value["status"] in ENDED


async def run(
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
    """Begin or continue a run here, until it ends or waits. See `statelog.durable.run`.

    An async workflow runs on this loop; any other workflow runs in an OS thread. If the awaiting task is cancelled, the
    run stops: its async steps are interrupted, nothing is undone, and a later call continues the run.
    """
    check_number("wait_s", wait_s, least=0)
    subscribers = check_subscribers(outbox)
    start = starts.prepare(workflow, args, kwargs, id=id, thread=thread, timeout_s=timeout_s)
    is_new = await on_pool(store, create, start)
    if not is_new:
        await on_pool(store, skip_retry_delay, start.id)
    info = await drive_here(store, workflow, start.id, wait_s=wait_s, is_patient=is_new, lease_s=lease_s)
    await deliver(store, subscribers, start.id)
    return starts.typed_info(info, workflow)


async def deliver(store: Store, outbox: tuple[Any, ...], run: str) -> None:
    """Deliver the messages of a run and of its children."""
    if outbox:  # Subscribers may take a long time, so they do not use the pool.
        await in_thread(lambda: deliver_here(store.sync, outbox, run))


async def drive_here(
    store: Store, workflow: Workflow, run: str, *, wait_s: float, is_patient: bool, lease_s: float = LEASE_S
) -> RunInfo:
    """Drive a run until it has ended or waits. Return its state. See `statelog.durable.starts.drive_here`."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    claim: Claim | None = None
    while True:
        entry = await on_pool(store, find, run)
        if entry.value["status"] in (*ENDED, "parked"):
            break
        claim = claim or await claimed(store, task_key_of(entry.value), lease_s)
        if claim is not None:
            with suppress(LeaseLostError):  # Another process continues the run.
                await drive_claimed(store, workflow, run, claim, lease_s)
            claim, is_patient = None, False
            continue
        info: RunInfo = await on_pool(store, info_of, entry)
        if info.status == "suspended" and await on_pool(store, wake_if_it_can_continue, run):
            continue
        if info.status == "queued" and await on_pool(store, end_overdue, run):
            continue
        left_s = until_s - loop.time()
        is_elsewhere = info.status == "running"
        if info.has_ended or (left_s <= 0 and not (is_elsewhere and is_patient)):
            return info
        slice_s = min(left_s if left_s > 0 else _SLICE_S, _SLICE_S)
        if is_elsewhere:
            check = partial(_is_another, store.sync, run, entry.version)
            await changed(store, check, run_key(run), timeout_s=slice_s)
        else:
            claim = await claimed(store, task_key_of(entry.value), lease_s, slice_s)
    ended_info: RunInfo = await on_pool(store, info_of, entry)
    return ended_info


def _is_another(store: SyncStore, run: str, version: int) -> bool:
    return find(store, run).version != version


class _TaskAttempt:
    """An attempt to claim the task of a run, even if a dead process has claimed it."""

    def __init__(self, store: SyncStore, key: str, lease_s: float) -> None:
        self._store, self._key, self._lease_s = store, key, lease_s
        attempt = attempt_claim(board_of(store, me()), key, lease_s=lease_s)
        self.session, self.condition = attempt.session, attempt.condition

    def take(self) -> Claim | None:
        """Claim the task. Return None if it cannot be claimed."""
        return claim_one(self._store, self._key, self._lease_s)

    take_now = take

    @staticmethod
    def give_back(claim: Claim) -> None:
        """Release a claim. The claim does not count as an attempt."""
        claim.release(counts=False)


async def claimed(store: Store, key: str, lease_s: float, wait_s: float = 0.0) -> Claim | None:
    """Claim the task of a run, even if a dead process has claimed it. A cancelled asyncio task releases the claim."""
    return await win(store._runner, _TaskAttempt(store.sync, key, lease_s), wait_s)  # noqa: SLF001 - `_runner` belongs to the same package


async def _released(store: Store, claim: Claim) -> None:
    """Release a claim, if it is still held."""
    with suppress(StatelogError):
        released = asyncio.wrap_future(store._runner.submit(claim.release))  # noqa: SLF001 - `_runner` belongs to the same package
        await ended(released)
        released.result()


async def drive_claimed(
    store: Store,
    workflow: Workflow,
    run: str,
    claim: Claim,
    lease_s: float,
    *,
    backs_off: bool = False,
    is_block: bool = False,
) -> None:
    """Drive a claimed run. If the asyncio task is cancelled, release the claim."""
    host = EventLoopHost(store._runner, is_block=is_block)  # noqa: SLF001 - `_runner` belongs to the same package
    try:
        await drive(store.sync, workflow, run, claim, host, lease_s=lease_s, backs_off=backs_off)
    except asyncio.CancelledError:
        await _released(store, claim)  # This does nothing if the run is already released.
        raise


async def start(
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
    """Start a run, which any worker may execute, and return at once. See `statelog.durable.start`."""
    how: dict[str, Any] = {"queue": queue, "priority": priority, "delay_s": delay_s, "timeout_s": timeout_s}
    how |= {"partition": partition, "dedup_key": dedup_key, "debounce_s": debounce_s}
    made = await on_pool(store, starts.start, workflow, *args, id=id, thread=thread, **how, **kwargs)
    return Handle(store, made.id, workflow)


async def resume_all(store: Store, workflows: Iterable[Workflow], *, outbox: Iterable[Any] = ()) -> list[RunInfo]:
    """Drive every run that can continue now, one after another. See `statelog.durable.resume_all`."""
    known, subscribers = by_name(workflows), check_subscribers(outbox)
    resume_pass = await on_pool(store, starts.ResumePass, known)
    try:
        while (claim := await _next_of(store, resume_pass)) is not None:
            run = claim.value["run"]
            with resume_pass.reported(claim):
                workflow = known[(await on_pool(store, find, run)).value["workflow"]]
                await drive_claimed(store, workflow, run, claim, LEASE_S)
    finally:
        await ended(asyncio.wrap_future(store._runner.submit(resume_pass.close)))  # noqa: SLF001 - `_runner` belongs to the same package
    for run in resume_pass.runs:
        await deliver(store, subscribers, run)
    infos: list[RunInfo] = await on_pool(store, lambda _store: resume_pass.infos())
    return infos


async def _next_of(store: Store, resume_pass: starts.ResumePass) -> Claim | None:
    """Claim the next run. If the asyncio task is cancelled during the claim, release the claim."""
    claiming = asyncio.wrap_future(store._runner.submit(resume_pass.next))  # noqa: SLF001 - `_runner` belongs to the same package
    try:
        await ended(claiming)
    except asyncio.CancelledError:
        if (claim := claiming.result()) is not None:
            await _released(store, claim)
        raise
    return claiming.result()
