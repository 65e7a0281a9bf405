"""A run as a block of the calling thread: for code that calls other people's code, which knows of no workflow.

A workflow is a function that can be called anew. A block cannot: so what would call it anew here ends it, and the run
goes on when the program enters it again. The coroutine that drives the run is suspended while the block lasts, and the
end of the block is what its workflow comes to.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from statelog.durable.driving import drive, replay
from statelog.durable.execution import RolledBackError, Stopped, Suspended, Unwinding
from statelog.durable.holding import LEASE_S
from statelog.durable.hosts import ThreadHost
from statelog.durable.naming import check_part
from statelog.durable.owners import claim_one
from statelog.durable.recorded import recorded_items
from statelog.durable.runs import ENDED, create, error_of_end, find, hurry, task_key_of
from statelog.durable.starting import prepare
from statelog.durable.workflows import Cancelled, check_number, workflow
from statelog.errors import ConflictError, RunEndedError, UsageError, not_hiding

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping

    from statelog.durable.run import Run
    from statelog.durable.workflows import Workflow
    from statelog.store.store import Store


SLICE_S: Final = 0.5
"""A run that another block is in is looked at so often: it may end there, and then there is nothing to claim."""


class EnteredRun:
    """A run that a block is in.

    Attributes:
        id: of the run.

    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<EnteredRun {self.id!r}>"

    def _end(self) -> None:
        self._has_ended = True

    def step(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call what has effects, once. See `statelog.durable.Run.step`. A wait of more than five seconds raises.

        It is called in the thread that has entered the run.

        Raises:
            UsageError: the block has ended.

        """
        if self._has_ended:
            raise block_has_ended(self.id)
        try:
            return self._run.step(function, *args, **options)
        except Suspended:
            raise Stopped(refusal(self.id, "it waits for long, which a block cannot")) from None


@contextmanager
def closing_block(run: Any) -> Iterator[None]:
    """Note in an entered run that its block has ended: a step that is called later raises UsageError."""
    try:
        yield
    finally:
        run._end()  # noqa: SLF001 - of an entered run


def block_has_ended(id: str) -> UsageError:
    """Return what a step raises that is called behind its block."""
    message = f"the block of run {id!r} has ended: call its steps within the block, or enter the run again"
    return UsageError(message, argument="run", value=id)


class CalledAnewError(BaseException):
    """The run is to begin anew: its thread was rolled back while the block was at work."""


class _Handover:
    """Suspends the drive of a run while the block lasts; it comes to the exception that has left the block."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __await__(self) -> Generator[Run, BaseException | None, BaseException | None]:
        return (yield self._run)


class _BlockHost(ThreadHost):
    """The calling thread, where the workflow is a block."""

    def __init__(self) -> None:
        super().__init__()
        self._was_called = False

    async def call_workflow(
        self,
        execution: Any,  # noqa: ARG002 - as declared
        enter: Callable[[], None],
        function: Callable[..., Any],  # noqa: ARG002 - likewise
        args: Any,
        kwargs: Any,  # noqa: ARG002 - likewise
    ) -> None:
        """As declared."""
        if self._was_called:
            raise CalledAnewError
        self._was_called = True
        enter()
        error: BaseException | None = await _Handover(args[0])
        if error is not None:
            raise error


class _Driven:
    """The drive of a run, or its replay."""

    def __init__(self, work: Coroutine[Any, Any, Any], id: str) -> None:
        self._work, self._id = work, id

    def begin(self) -> Run:
        """Drive the run up to the block. Raises ConflictError: it does not come to it."""
        try:
            run: Run = self._work.send(None)
        except StopIteration:
            raise refusal(self._id, "it is parked") from None
        return run

    def end(self, error: BaseException | None) -> None:
        """End the run as the block has ended. Raises what has stopped the run."""
        try:
            self._work.send(error)
        except StopIteration:
            return
        except CalledAnewError:
            raise refusal(self._id, "its thread was rolled back meanwhile") from error
        message = "a block was called anew"
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
    """Be in a run while a block lasts; begin it, or go on with it: what it has recorded is not done again.

    The run has completed when the block ends. It has failed when an exception leaves the block. If statelog cannot
    record that, the exception has a note with the reason. Where the process dies, or is interrupted, it stays open, and
    whoever enters it next goes on. A run that has ended is replayed: its steps return what they returned, and nothing
    is called.

    Args:
        store: the store.
        id: of the run, and of its thread.
        name: of the workflow that it is listed under.
        raises: as for `workflow`.
        wait_s: while another process, or thread, is in the run: wait for so long.
        lease_s: as for `run`.

    Raises:
        ConflictError: the run is at work elsewhere, is parked, or is one of another workflow.
        NondeterminismError: the block does not do what the run has recorded. It has stopped.
        RunEndedError: the run has ended, and the block does more than it has recorded.
        RunCancelledError: it was cancelled.
        UsageError: an argument is none, or a step is called in another thread.

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
    except BaseException as error:  # an interrupt
        with suppress(BaseException):
            driven.end(error)
        raise
    driven.end(None)


def _block(_run: Run) -> None:
    """Stand for the block: its host calls that instead."""


def _driven(store: Store, made: Workflow, id: str, wait_s: float, lease_s: float) -> _Driven:
    """Begin, go on with or replay a run. Raises ConflictError."""
    if not create(store, prepare(made, (), {}, id=id, thread=None)):
        hurry(store, id)
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
    """Refuse to enter a run that is open and cannot be claimed. Raises ConflictError."""
    if value["status"] not in ENDED:
        raise refusal(value["id"], "it is parked" if value["status"] == "parked" else "it is at work elsewhere")


def check_replayed(value: Mapping[str, Any], stop: BaseException | None) -> None:
    """Raise what has stopped the replay of a run that has ended: RunEndedError, if it was to do more."""
    if isinstance(stop, StopIteration):
        message = f"run {value['id']!r} has ended ({value['status']}), and the block does more than it has recorded"
        raise RunEndedError(message, run=value["id"], status=value["status"])
    if stop is not None:
        raise stop


def is_of_block(error: BaseException) -> bool:
    """Return True if the code of a block raised `error`, and not the run to end the block."""
    return isinstance(error, Exception) and not isinstance(error, RolledBackError)


def reason(store: Store, id: str, error: BaseException) -> BaseException:
    """Return what a block raises that its run has made end."""
    if isinstance(error, Stopped):
        return error.error
    value = find(store, id).value
    return error_of_end(id, value["status"], value.get("error"))


def refusal(id: str, why: str) -> ConflictError:
    """Return why a run cannot be entered, or cannot go on in its block."""
    return ConflictError(f"run {id!r} cannot go on here: {why}", run=id)
