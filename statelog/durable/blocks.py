"""Runs whose workflow is a `with` block in the calling thread, for third-party code that is not a workflow.

A workflow function can be called again, but a block cannot. So whenever the library would have to call the workflow
again, it ends the block instead, and the run continues when the program enters it again. While the block runs, the
coroutine that drives the run is suspended. The outcome of the block is the outcome of the workflow.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, overload

from statelog.deprecated import step_options
from statelog.durable.driver import drive, replay
from statelog.durable.execution import RolledBackError, Stopped, Suspended, Unwinding
from statelog.durable.hosts import ThreadHost
from statelog.durable.keys import check_part
from statelog.durable.owners import claim_one
from statelog.durable.recorded import recorded_items
from statelog.durable.runs import ENDED, create, error_of_end, find, skip_retry_delay, task_key_of
from statelog.durable.starts import prepare
from statelog.durable.task_claims import LEASE_S
from statelog.durable.workflows import NO_OPTIONS, Cancelled, P, R, StepOptions, check_number, workflow
from statelog.errors import ConflictError, RunEndedError, UsageError, not_hiding

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping

    from statelog.durable.run import Run
    from statelog.durable.workflows import Workflow
    from statelog.store.store import Store


SLICE_S: Final = 0.5
"""While another block drives the run, the interval at which to check whether the run has ended, in seconds."""


class EnteredRun:
    """A run that a block has entered.

    Attributes:
        id: the id of the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<EnteredRun {self.id!r}>"

    def _end(self) -> None:
        self._has_ended = True

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with effects, once. See `statelog.durable.Run.step`.

        The function is called in the thread that has entered the run. The block ends with ConflictError if the step
        would have to wait for more than five seconds.

        Raises:
            UsageError: the block has ended.
        """
        options, given = step_options(function, kwargs, stacklevel=3)
        return self.step_with(StepOptions(**options) if options else NO_OPTIONS, function, *args, **given)

    @overload
    def step_with(
        self,
        options: StepOptions,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    def step_with(self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a step with options, as `statelog.durable.Run.step_with` does. See `step`."""
        if self._has_ended:
            raise block_has_ended(self.id)
        try:
            return self._run.step_with(options, function, *args, **kwargs)
        except Suspended:
            raise Stopped(refusal(self.id, "a step in a block cannot wait that long")) from None


@contextmanager
def closing_block(run: Any) -> Iterator[None]:
    """When the `with` block of a run ends, make the steps that are called later raise UsageError."""
    try:
        yield
    finally:
        run._end()  # noqa: SLF001 - `run` is an EnteredRun


def block_has_ended(id: str) -> UsageError:
    """Return the error for a step that is called after its block has ended."""
    message = f"the block of run {id!r} has ended: call its steps within the block, or enter the run again"
    return UsageError(message, argument="run", value=id)


class CalledAnewError(BaseException):
    """Raised if the run must begin again because its thread was rolled back during the block."""


class _Handover:
    """Suspends the run's coroutine while the block runs. Awaiting it returns the block's exception, or None."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __await__(self) -> Generator[Run, BaseException | None, BaseException | None]:
        return (yield self._run)


class _BlockHost(ThreadHost):
    """Hosts a workflow that is a `with` block in the calling thread."""

    def __init__(self) -> None:
        super().__init__()
        self._was_called = False

    async def call_workflow(
        self,
        execution: Any,  # noqa: ARG002 - `Host` declares this parameter
        enter: Callable[[], None],
        function: Callable[..., Any],  # noqa: ARG002 - `Host` declares this parameter
        args: Any,
        kwargs: Any,  # noqa: ARG002 - `Host` declares this parameter
    ) -> None:
        """Suspend the coroutine until the block ends, instead of calling the workflow. Raise the block's exception."""
        if self._was_called:
            raise CalledAnewError
        self._was_called = True
        enter()
        error: BaseException | None = await _Handover(args[0])
        if error is not None:
            raise error


class _Driven:
    """The suspended coroutine that drives or replays a run."""

    def __init__(self, work: Coroutine[Any, Any, Any], id: str) -> None:
        self._work, self._id = work, id

    def begin(self) -> Run:
        """Drive the run up to the block. Raises ConflictError if the run is parked."""
        try:
            run: Run = self._work.send(None)
        except StopIteration:
            raise refusal(self._id, "it is parked") from None
        return run

    def end(self, error: BaseException | None) -> None:
        """End the run with the outcome of the block. Raises the error that has stopped the run."""
        try:
            self._work.send(error)
        except StopIteration:
            return
        except CalledAnewError:
            raise refusal(self._id, "its thread was rolled back in the meantime") from error
        message = "the workflow of a block must not yield twice"
        raise AssertionError(message)


@contextmanager
def entered(
    store: Store,
    id: str,
    *,
    name: str = "entered",
    raises: Iterable[type[BaseException]] = (),
    wait_s: float = 0.0,
    lease_s: float = LEASE_S,
) -> Iterator[EnteredRun]:
    """Enter a run for the duration of a `with` block. Begin the run, or continue it without repeating recorded steps.

    The run completes when the block ends. It fails if an exception leaves the block. If statelog cannot record the
    failure, the exception gets a note with the reason. If the process dies or is interrupted, the run stays open. Then
    the next program that enters the run continues it. A run that has ended is replayed: its steps return their recorded
    results, and their functions are not called.

    Args:
        store: the store.
        id: the id of the run and of its thread.
        name: the name of the workflow under which the run is listed.
        raises: as for `workflow`.
        wait_s: how long to wait while another process or thread has entered the run.
        lease_s: as for `run`.

    Raises:
        ConflictError: another process or thread drives the run, it is parked, or it belongs to a different workflow.
        NondeterminismError: the block does not do what the run has recorded. The run has stopped.
        RunEndedError: the run has ended, and the block calls more steps than the run has recorded.
        RunCancelledError: the run was cancelled.
        UsageError: an argument is not valid, or a step is called in another thread.
    """
    check_number("wait_s", wait_s, least=0)
    check_part("workflow", name)
    driven = _driven(store, workflow(name=name, raises=raises)(_block), id, wait_s, lease_s)
    entered_run = EnteredRun(driven.begin())
    try:
        with closing_block(entered_run):
            yield entered_run
    except (Exception, Cancelled, Unwinding, Stopped) as error:
        with not_hiding(error if is_of_block(error) else None):
            driven.end(error)
        if isinstance(error, Exception):
            raise
        raise reason(store, id, error) from error
    except BaseException as error:  # An interrupt does not make the run fail: the run stays open.
        with suppress(BaseException):
            driven.end(error)
        raise
    driven.end(None)


def _block(_run: Run) -> None:
    """Do nothing. The host never calls this function, but waits for the block instead."""


def _driven(store: Store, made: Workflow, id: str, wait_s: float, lease_s: float) -> _Driven:
    """Begin, continue or replay a run. Raises ConflictError."""
    if not create(store, prepare(made, (), {}, id=id, thread=None)):
        skip_retry_delay(store, id)
    until_s = monotonic() + wait_s
    while (value := find(store, id).value)["status"] not in ENDED:
        left_s = max(until_s - monotonic(), 0.0)
        claim = claim_one(store, task_key_of(value), lease_s, min(left_s, SLICE_S))
        if claim is not None:
            return _Driven(drive(store, made, id, claim, _BlockHost(), lease_s=lease_s), id)
        if left_s == 0:
            check_ended(find(store, id).value)
    return _Driven(_replay(store, made, value), id)


async def _replay(store: Store, made: Workflow, value: Mapping[str, Any]) -> None:
    check_replayed(value, await replay(store, made, value, recorded_items(store, value["id"]), _BlockHost()))


def check_ended(value: Mapping[str, Any]) -> None:
    """If a run that cannot be claimed has not ended, raise ConflictError: it is parked, or driven elsewhere."""
    if value["status"] not in ENDED:
        raise refusal(value["id"], "it is parked" if value["status"] == "parked" else "it is running elsewhere")


def check_replayed(value: Mapping[str, Any], stop: BaseException | None) -> None:
    """Raise the error that stopped the replay of an ended run: RunEndedError for a call that is not recorded."""
    if isinstance(stop, StopIteration):
        message = (
            f"run {value['id']!r} has ended ({value['status']}), but the block makes more calls than the run has"
            " recorded"
        )
        raise RunEndedError(message, run=value["id"], status=value["status"])
    if stop is not None:
        raise stop


def is_of_block(error: BaseException) -> bool:
    """Return True if the code in a block raised `error`; False if the library raised it to end the block."""
    return isinstance(error, Exception) and not isinstance(error, RolledBackError)


def reason(store: Store, id: str, error: BaseException) -> BaseException:
    """Return the error to raise from a block that was ended by `error`, an exception of the library."""
    if isinstance(error, Stopped):
        return error.error
    value = find(store, id).value
    return error_of_end(id, value["status"], value.get("error"))


def refusal(id: str, why: str) -> ConflictError:
    """Return the error for a run that cannot be entered, or cannot continue in its block."""
    return ConflictError(f"run {id!r} cannot continue here: {why}", run=id)
