"""What a workflow is given: the operations of its run."""

from __future__ import annotations

import inspect
import random
import uuid
from typing import TYPE_CHECKING, Any

from statelog.durable import effects, naming
from statelog.durable.branches import Branch, first_done, gathered, in_turn
from statelog.durable.clock import now
from statelog.durable.execution import ContinuedAsNew, Execution, Scope, Suspended, current_scope
from statelog.durable.steps import make_call, note_begun, take_step
from statelog.durable.waits import take_child, take_gate, take_mail, take_sleep
from statelog.durable.workflows import check_callable, check_number, check_workflow, name_of
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping


class Run:
    """A run, as its workflow sees it.

    What a workflow does outside of steps has to be the same each time it is called: it may compute, and look at what
    its operations return. Of an `async def` workflow (`statelog.aio.durable`) every operation is awaited.

    Attributes:
        id: of the run.
        thread_id: of its thread.

    """

    def __init__(self, execution: Execution, drive: Any) -> None:
        self._execution = execution
        self._host = execution.host
        self._drive = drive
        self._root = Scope(execution, "", None)
        self.id = execution.id
        self.thread_id: str = execution.value["thread"]

    def __repr__(self) -> str:
        return f"<Run {self.id!r}>"

    # --- where a call stands ------------------------------------------------------------------

    def _enter(self) -> None:
        self._root.caller = self._host.place_of_caller()
        if self._host.is_async:
            current_scope.set((self._execution, self._root))

    def _scope_here(self) -> Scope:
        held = current_scope.get()
        return held[1] if held is not None and held[0] is self._execution else self._root

    def _scope(self) -> Scope:
        scope = self._scope_here()
        caller = self._host.place_of_caller()
        if scope.caller is None:  # of a task that was numbered as it was made
            scope.caller = caller
        if scope.caller == caller:
            return scope
        if not self._host.is_async:
            message = "an operation of a run is called from another OS thread: begin it with run.start or run.branch"
            raise UsageError(message, argument="run", value=self.id)
        return self._branch_off(scope.take_task(), caller)  # of a loop that numbers no tasks

    def _branch_off(self, place: str, caller: object) -> Scope:
        scope = Scope(self._execution, f"{place}.", caller)
        current_scope.set((self._execution, scope))
        return scope

    def _do(self, make: Callable[[str], Coroutine[Any, Any, Any]]) -> Any:
        """Take a place for a call, now, and return what it comes to, or an awaitable of it."""
        scope = self._scope()
        place = scope.take()
        if scope is self._root:  # another task may be cancelled before it comes to it
            self._execution.made.add(place)
        return self._host.operate(lambda: self._guard(scope, lambda: make(place), place), place)

    async def _guard(self, scope: Scope, make: Callable[[], Coroutine[Any, Any, Any]], place: str = "") -> Any:
        self._execution.made.discard(place)
        try:
            return await make()
        except Suspended as suspended:
            scope.suspended, suspended.scope = suspended, scope
            raise

    def _awaited(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the outcome of a branch, or an awaitable of the outcome."""
        scope = self._scope_here()
        place = scope.take_await()

        async def make() -> Any:
            self._execution.check_cut(place)
            return await work()

        return self._host.operate(lambda: self._guard(scope, make), place)

    # --- steps ----------------------------------------------------------------------------------

    def step(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call what has effects, once, and record what it returns, or raises.

        After a crash the step is not called again if its result was recorded. If it was being called, nobody knows
        whether its effect happened: by default it is called again, with the same `current_step().idempotency_key`.

        Args:
            function: the step. What it returns is stored, and handed out as it is stored; a return annotation
                (dataclass, pydantic) brings the type back.
            *args: for the function. They are stored as a digest, and must be the same on replay.
            **options: `retry`, a `Retry`; `timeout_s` of an attempt; `compensate`, what undoes it: called as
                `compensate(result, *args)` if the run fails later, and as `compensate(UNKNOWN, *args)` if nobody knows
                the result; `commit`, a function of the result that returns what is written to the thread in the same
                commit; `transact`, one of (transaction, result) that writes what it likes in it; `emit`, one of the
                result that returns (topic, payload); `semantics`, "at_least_once" or "at_most_once"; `name`. All others
                are arguments for the function.

        Raises:
            ValueTypeError, LimitError: an argument cannot be stored: the function was not called.
            UsageError: an option is none, or this stands inside a step.
            StepFailedError: it raised what is neither a builtin nor in `raises=`. Those come back as themselves.
            StepTimeoutError: it took too long. A function that is not async is not interrupted.
            StepInterruptedError: "at_most_once", and the process died during the call.

        """
        call = _call(function, args, options)
        return self._do(lambda place: take_step(self._execution, place, call))

    def map(self, function: Callable[..., Any], items: Iterable[Any], *, concurrency: int = 16, **options: Any) -> Any:
        """Call a step for each of some items, several at a time; return the results in the order of the items.

        All calls end before the first exception is raised.
        """
        if type(concurrency) is not int or concurrency < 1:
            raise UsageError(
                f"concurrency is an int above 0, not {concurrency!r}", argument="concurrency", value=concurrency
            )
        calls = [_call(function, (item,), options) for item in items]

        def begin(place: str) -> Coroutine[Any, Any, Any]:
            execution = self._execution
            places = [f"{place}.{number}" for number in range(len(calls))]
            for each, call in zip(places, calls, strict=True):
                execution.record.see(each)
                note_begun(execution, each, call)
            execution.check_cut(place)
            works = [
                lambda each=each, call=call: take_step(execution, each, call)
                for each, call in zip(places, calls, strict=True)
            ]
            return in_turn(self._execution, place, works, concurrency)

        return self._do(begin)

    def start(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Branch:
        """Begin a step beside the workflow. Its result is had by `result()` (or awaited), `gather` or `wait_any`."""
        call = _call(function, args, options)
        place = self._scope().take()
        self._execution.record.see(place)
        work = self._host.in_order(place, take_step(self._execution, place, call))
        return Branch(self._execution, place, work, self._awaited)

    def branch(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Branch:
        """Begin `function(run, *args)` beside the workflow: a part of it whose calls are counted for themselves."""
        check_callable("function", function)
        place = self._scope().take()

        async def work() -> Any:
            scope = self._branch_off(place, self._host.place_of_caller())
            try:
                return await self._host.call(function, (self, *args), kwargs, None)
            finally:  # whatever it made of that
                if scope.suspended is not None:
                    raise scope.suspended

        return Branch(self._execution, place, work(), self._awaited)

    def gather(self, *branches: Branch) -> Any:
        """Return what branches return, in the order given. All end before the first exception is raised."""
        given = _branches(branches)
        scope = self._scope()
        place = scope.take_gathering()
        return self._host.operate(lambda: self._guard(scope, lambda: gathered(self._execution, place, given)), place)

    def wait_any(self, *branches: Branch) -> Any:
        """Return the first branch that has ended. Which one it was is recorded, and the others are let go.

        A step of a branch that was let go is not interrupted, unless it is async. If it ends before the run does its
        result is recorded.
        """
        given = _branches(branches)
        return self._do(lambda place: first_done(self._execution, place, given))

    # --- what would differ ------------------------------------------------------------------------

    def now(self) -> Any:
        """Return the time (a datetime in UTC), on replay the same."""
        return self._do(lambda place: effects.take_value(self._execution, place, "now", now))

    def uuid(self) -> Any:
        """Return a random UUID, on replay the same."""
        return self._do(
            lambda place: effects.take_value(self._execution, place, "uuid", lambda: str(uuid.uuid4()), uuid.UUID)
        )

    def random(self) -> Any:
        """Return a random number from 0 to 1, on replay the same."""
        make = random.random
        return self._do(lambda place: effects.take_value(self._execution, place, "random", make))

    def sleep(self, seconds: float) -> Any:
        """Wait. For a long time the run is suspended, and no process waits with it."""
        check_number("seconds", seconds, least=0)
        return self._do(lambda place: take_sleep(self._execution, place, seconds))

    def patched(self, id: str) -> Any:
        """Whether a run goes by a change of the code: `if run.patched("faster"): ... else: ...`.

        True for a run that comes here for the first time; False for one that has recorded what comes after.
        """
        naming.check_part("patch", id)
        scope = self._scope()
        return self._host.operate(lambda: effects.take_patch(self._execution, scope.next_places, id))

    def deprecate_patch(self, id: str) -> Any:
        """Say that no run is open any more from before a change: what was recorded of it is passed over."""
        naming.check_part("patch", id)
        return self._host.operate(lambda: effects.pass_patch(self._execution, id))

    # --- others ---------------------------------------------------------------------------------------

    def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait for the answer of a person. The run is suspended, and its process may exit.

        Returns:
            An `Answer`; with `approved` False and `is_timeout` True if nobody has answered in time.

        """
        return self._do(lambda place: take_gate(self._execution, place, name, payload, timeout_s))

    def recv(self, topic: str = "default", *, timeout_s: float | None = None) -> Any:
        """Return the next message that was sent to the run, None if none came in time. See `durable.send`."""
        return self._do(lambda place: take_mail(self._execution, place, topic, timeout_s))

    def child(self, workflow: Any, /, *args: Any, id: str | None = None, **kwargs: Any) -> Any:
        """Return what a run of another workflow returns. It has an id and a thread of its own, and outlives a crash.

        Raises:
            RunFailedError, RunCancelledError: as its run has ended.

        """
        made = check_workflow(workflow)
        return self._do(
            lambda place: take_child(self._execution, place, made, args, kwargs, id, lambda run: self._drive(made, run))
        )

    def continue_as_new(self, *args: Any, **kwargs: Any) -> Any:
        """Begin the workflow anew with other arguments, as the same run. What it has recorded is dropped.

        For a loop without end. Compensations of what was done before are dropped, too.
        """
        self._execution.check_stop()
        raise ContinuedAsNew(args, kwargs)

    # --- what is written --------------------------------------------------------------------------

    def commit(self, *updates: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> Any:
        """Write to the run's thread, as `Thread.commit`, once."""
        return self._do(lambda place: effects.take_commit(self._execution, place, updates, metadata))

    def transact(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function(transaction, *args)`, whose writes to the store happen in the commit that records it.

        They happen exactly once. It may be called several times until then: it has no other effects. It is not async,
        also where the workflow is.
        """
        check_callable("function", function)
        if inspect.iscoroutinefunction(function):
            message = f"transaction {name_of(function)!r} is async: its function is not, and returns at once"
            raise UsageError(message, argument="function", value=function)
        return self._do(lambda place: effects.take_transaction(self._execution, place, function, args, kwargs))

    def emit(self, topic: str, payload: Any = None) -> Any:
        """Put a message into the outbox: it leaves after this commit, at least once, in order."""
        return self._do(lambda place: effects.take_emit(self._execution, place, topic, payload))

    def set_event(self, name: str, value: Any) -> Any:
        """Let others see how far the run is: see `durable.get_event`."""
        return self._do(lambda place: effects.take_event(self._execution, place, name, value))


_OPTIONS = frozenset(
    ("name", "retry", "timeout_s", "compensate", "commit", "transact", "emit", "semantics"),
)


def _call(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    kwargs = {name: value for name, value in options.items() if name not in _OPTIONS}
    return make_call(function, args, kwargs, **{name: value for name, value in options.items() if name in _OPTIONS})


def _branches(given: tuple[Any, ...]) -> list[Branch]:
    found = list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)
    for each in found:
        if not isinstance(each, Branch):
            raise UsageError(f"{each!r} is no branch: it is what run.start or run.branch returns", argument="branches")
    if not found:
        raise UsageError("there is no branch to wait for", argument="branches", value=())
    return found
