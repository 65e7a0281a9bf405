"""Steps and branches that run concurrently with a workflow. `run.start`, `run.branch` and `run.map` begin them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from statelog.durable.execution import SIGNALS, ContinuedAsNew, Suspended
from statelog.durable.workflows import R

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from statelog.durable.execution import Execution


class Branch(Generic[R]):
    """A step, or a function of the workflow's code, that runs concurrently with the workflow."""

    def __init__(
        self, execution: Execution, place: str, work: Coroutine[Any, Any, Any], awaited: Callable[..., Any]
    ) -> None:
        self._execution, self._awaited = execution, awaited
        self.place = place
        self.future = execution.host.spawn(work)
        execution.outstanding[place] = self.future

    def __repr__(self) -> str:
        return f"<Branch {self.place} of {self._execution.id!r}>"

    def result(self) -> R:
        """Wait for the branch. Return its result, or raise its exception. In an asyncio workflow, await this call."""
        found: R = self._awaited(lambda: _result(self._execution, self.future))
        return found

    def __await__(self) -> Generator[Any, Any, R]:
        awaited: Any = self.result()
        found: Generator[Any, Any, R] = awaited.__await__()
        return found


async def _result(execution: Execution, future: Any) -> Any:
    await execution.host.wait([future], first=False)
    if (error := error_in(future)) is not None:
        raise execution.failed(error)
    return future.result()


async def gathered(execution: Execution, place: str, branches: Sequence[Branch]) -> Any:
    """Wait until each branch has ended or is suspended. Return their results, or raise the first exception."""
    execution.check_cut(place)
    futures = [each.future for each in branches]
    await execution.host.wait(futures, first=False)
    errors = {number: error for number, future in enumerate(futures) if (error := error_in(future)) is not None}
    await _raise_one(execution, place, "gather", len(futures), errors)
    return [future.result() for future in futures]


async def _raise_one(
    execution: Execution, place: str, op: str, count: int, errors: Mapping[int, BaseException]
) -> None:
    """If any of several calls has raised, raise one error: a stop, or else a failure, or else a suspension.

    If a call has failed while others are suspended, record the number of the failed call. Otherwise, if an earlier call
    of the list fails later, a replay would raise that failure instead.
    """
    for number in sorted(errors):
        if _is_signal(errors[number]):
            raise errors[number]
    waiting = [error for error in errors.values() if isinstance(error, Suspended)]
    failed = [number for number in sorted(errors) if not isinstance(errors[number], Suspended)]
    if not failed and waiting:
        raise Suspended(*(wait for error in waiting for wait in error.waits))
    if not failed:
        return
    done = execution.begin(place, op, str(count))
    if done is None and waiting:
        await execution.check_signals(place)
        await execution.host.io(execution.commit, execution.done(place, op, str(count), r=failed[0]))
    first = errors[failed[0] if done is None else done["r"]]
    raise execution.failed(first, *(errors[number] for number in failed))


def error_in(future: Any) -> BaseException | None:
    """Return the exception of a future, or None if it has a result or was cancelled."""
    if future.cancelled():
        return None
    error: BaseException | None = future.exception()
    return error


def _is_signal(error: BaseException) -> bool:
    is_ours = isinstance(error, (*SIGNALS, ContinuedAsNew)) and not isinstance(error, Suspended)
    return is_ours or not isinstance(error, (Exception, Suspended))


async def in_turn(
    execution: Execution, place: str, works: Sequence[Callable[[], Coroutine[Any, Any, Any]]], concurrency: int
) -> list[Any]:
    """Run the coroutines of `works`, at most `concurrency` at a time. Return their results in order.

    An exception is raised only after all coroutines have ended or are suspended.
    """
    host, todo = execution.host, iter(enumerate(works))
    ended: dict[int, Any] = {}
    errors: dict[int, BaseException] = {}

    async def run_remaining() -> None:
        for number, work in todo:
            try:
                ended[number] = await host.in_order(f"{place}.{number}", work())
            except (Suspended, Exception) as error:  # noqa: BLE001 - the error is raised when all have ended
                errors[number] = error

    if len(works) == 1:
        await run_remaining()
    else:
        futures = [host.spawn(run_remaining()) for _ in range(min(concurrency, len(works)))]
        try:
            if futures:
                await host.wait(futures, first=False)
        except BaseException:  # The call was cancelled, so cancel its branches.
            for each in futures:
                host.abandon(each)
            raise
        stopped = {number: error for number, each in enumerate(futures) if (error := error_in(each)) is not None}
        await _raise_one(execution, place, "map", len(works), stopped)
    await _raise_one(execution, place, "map", len(works), errors)
    return [ended[number] for number in range(len(works))]


async def first_done(execution: Execution, place: str, branches: Sequence[Branch]) -> Branch:
    """Return the first branch that has ended, and record which one it is. Abandon the other branches."""
    done = execution.begin(place, "any", str(len(branches)))
    if done is not None:
        winner = branches[done["r"]]
    else:
        await execution.check_signals(place)
        winner = await _first(execution, branches)
        number = branches.index(winner)
        await execution.host.io(execution.commit, execution.done(place, "any", str(len(branches)), r=number))
    for each in branches:
        if each is not winner:
            execution.abandoned[each.place] = each.future
            execution.outstanding.pop(each.place, None)
            execution.host.abandon(each.future)
    return winner


async def _first(execution: Execution, branches: Sequence[Branch]) -> Branch:
    pending = list(branches)
    waits: list[Any] = []
    while pending:
        await execution.host.wait([each.future for each in pending], first=True)
        for each in [each for each in pending if each.future.done()]:
            error = error_in(each.future)
            if isinstance(error, Suspended):
                waits += error.waits
                pending.remove(each)
            elif error is not None and _is_signal(error):
                raise error
            else:
                return each
    raise Suspended(*waits)
