"""The object that a workflow receives, with the operations of its run."""

# mypy: disable-error-code="no-any-return"
# A host returns the result of an operation, or an awaitable of the result.

from __future__ import annotations

import inspect
import random
import uuid
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, TypeVar, overload

from statelog.deprecated import step_options
from statelog.durable import effects, keys
from statelog.durable.branches import Branch, first_done, gathered, in_turn
from statelog.durable.clock import now
from statelog.durable.execution import ContinuedAsNew, Execution, Scope, Suspended, current_scope
from statelog.durable.steps import StepCall, make_call, note_begun, take_step
from statelog.durable.waits import take_child, take_gate, take_mail, take_sleep
from statelog.durable.workflows import (
    NO_OPTIONS,
    P,
    R,
    StepOptions,
    check_callable,
    check_number,
    check_workflow,
    name_of,
)
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime

    from statelog.durable.waits import Answer
    from statelog.durable.workflows import Workflow
    from statelog.store.transaction import Transaction

T = TypeVar("T")


class Run:
    """A run, with the operations of its workflow.

    The code outside of steps must do the same each time the workflow is called: it may compute, and use the results of
    operations. In an `async def` workflow (`statelog.aio.durable`), await each operation. Annotate the run of such a
    workflow as `statelog.aio.durable.Run`, which declares these methods as awaitable.

    Attributes:
        id: the id of the run.
        thread_id: the id of the thread that the run writes to.
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

    # --- places of calls ----------------------------------------------------------------------

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
        if scope.caller is None:  # This is the first call of a task that was numbered when it was created.
            scope.caller = caller
        if scope.caller == caller:
            return scope
        if not self._host.is_async:
            message = "an operation of a run was called from another OS thread: start it with run.start or run.branch"
            raise UsageError(message, argument="run", value=self.id)
        return self._branch_off(scope.take_task(), caller)  # The event loop has not numbered this task.

    def _branch_off(self, place: str, caller: object) -> Scope:
        scope = Scope(self._execution, f"{place}.", caller)
        current_scope.set((self._execution, scope))
        return scope

    def _do(self, make: Callable[[str], Coroutine[Any, Any, Any]]) -> Any:
        """Assign a place to a call now. Return the outcome of the call, or an awaitable of the outcome."""
        scope = self._scope()
        place = scope.take()
        if scope is self._root:  # Elsewhere, a task may be cancelled before it begins the call.
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

    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with effects, once, and record its result or its exception.

        After a crash, a step whose result was recorded is not called again. If it was being called, nobody knows
        whether its effect happened. By default it is called again, with the same `current_step().idempotency_key`.

        All arguments go to the function. To give options, such as a retry or a compensation, call
        `run.step(charge.options(retry=...), 840)` if `@durable.step` decorates the function, or else `step_with`.

        In earlier releases, options were keywords of this method. Until the next release, a keyword with the name of an
        option (a field of `StepOptions`) is still an option, with a DeprecationWarning. But if the function has
        `**kwargs` or a parameter of this name, the keyword is an argument for the function.

        Args:
            function: the step. Its result is stored, and returned as it is stored. A return annotation (dataclass,
                pydantic) restores the type.
            *args: arguments for the function. Their digest is stored, and must be the same on replay.
            **kwargs: keyword arguments for the function, with the same rule.

        Raises:
            ValueTypeError, LimitError: an argument cannot be stored. The function was not called.
            UsageError: this is called within a step.
            StepFailedError: the function raised an exception that is neither a builtin nor in `raises=`. An exception
                that is one of these is raised unchanged.
            StepTimeoutError: an attempt took too long. A function that is not async is not interrupted.
            StepInterruptedError: with "at_most_once", the process died during the call.
        """
        call = _call(function, args, kwargs)
        return self._do(lambda place: take_step(self._execution, place, call))

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
        """Call a step with options: `run.step_with(durable.StepOptions(timeout_s=5), charge, 840)`. See `step`.

        Raises:
            UsageError: `options` are not StepOptions, or the compensation does not take the arguments.

        It also raises the errors of `step`.
        """
        call = make_call(function, args, kwargs, _checked(options))
        return self._do(lambda place: take_step(self._execution, place, call))

    def map(
        self,
        function: Callable[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> list[R]:
        """Call a step once for each item, several at a time. Return the results in the order of the items.

        All calls end before the first exception is raised. Options are given as for `step`.

        Args:
            function: the step, called as `function(item, **kwargs)`.
            items: the items.
            concurrency: the maximum number of calls at a time.
            **kwargs: further arguments for each call.
        """
        options, given = step_options(function, kwargs, stacklevel=3)
        return self._map(StepOptions(**options) if options else NO_OPTIONS, function, items, concurrency, given)

    def map_with(
        self,
        options: StepOptions,
        function: Callable[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> list[R]:
        """Call a step with options once for each item. See `map` and `step_with`."""
        return self._map(_checked(options), function, items, concurrency, kwargs)

    def _map(
        self,
        options: StepOptions,
        function: Callable[..., Any],
        items: Iterable[Any],
        concurrency: int,
        kwargs: Mapping[str, Any],
    ) -> Any:
        if type(concurrency) is not int or concurrency < 1:
            raise UsageError(
                f"concurrency must be a positive int, not {concurrency!r}", argument="concurrency", value=concurrency
            )
        calls = [make_call(function, (item,), kwargs, options) for item in items]

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

    @overload
    def start(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    @overload
    def start(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Branch[R]: ...
    def start(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin a step concurrently with the workflow. `Branch.result()`, `gather` and `wait_any` wait for it.

        All arguments go to the function; options are given as for `step`.
        """
        return self._start(_call(function, args, kwargs))

    @overload
    def start_with(
        self,
        options: StepOptions,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Branch[R]: ...
    @overload
    def start_with(
        self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    def start_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin a step with options, concurrently with the workflow. See `start` and `step_with`."""
        return self._start(make_call(function, args, kwargs, _checked(options)))

    def _start(self, call: StepCall) -> Branch[Any]:
        place = self._scope().take()
        self._execution.record.see(place)
        work = self._host.in_order(place, take_step(self._execution, place, call))
        return Branch(self._execution, place, work, self._awaited)

    @overload
    def branch(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    @overload
    def branch(self, function: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Branch[R]: ...
    def branch(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin `function(run, *args)` concurrently with the workflow. Its calls are numbered separately."""
        check_callable("function", function)
        place = self._scope().take()

        async def work() -> Any:
            scope = self._branch_off(place, self._host.place_of_caller())
            try:
                return await self._host.call(function, (self, *args), kwargs, None)
            finally:  # If the function has caught a suspension, raise it again.
                if scope.suspended is not None:
                    raise scope.suspended

        return Branch(self._execution, place, work(), self._awaited)

    def gather(self, *branches: Branch[Any] | Sequence[Branch[Any]]) -> list[Any]:
        """Return the results of branches in the given order. All branches end before the first exception is raised."""
        given = _branches(branches)
        scope = self._scope()
        place = scope.take_gathering()
        return self._host.operate(lambda: self._guard(scope, lambda: gathered(self._execution, place, given)), place)

    def wait_any(self, *branches: Branch[R] | Sequence[Branch[R]]) -> Branch[R]:
        """Return the first branch that has ended, and abandon the other branches. The choice is recorded.

        A step of an abandoned branch is interrupted only if it is async. If the step ends before the run ends, the
        result is recorded.
        """
        given = _branches(branches)
        return self._do(lambda place: first_done(self._execution, place, given))

    # --- values that a replay repeats -------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time as a datetime in UTC. A replay returns the same time."""
        return self._do(lambda place: effects.take_value(self._execution, place, "now", now))

    def uuid(self) -> uuid.UUID:
        """Return a random UUID. A replay returns the same UUID."""
        return self._do(
            lambda place: effects.take_value(self._execution, place, "uuid", lambda: str(uuid.uuid4()), uuid.UUID)
        )

    def random(self) -> float:
        """Return a random float of at least 0 and less than 1. A replay returns the same number."""
        make = random.random
        return self._do(lambda place: effects.take_value(self._execution, place, "random", make))

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. During a wait of more than five seconds, the run is suspended, and no process waits."""
        check_number("seconds", seconds, least=0)
        return self._do(lambda place: take_sleep(self._execution, place, seconds))

    def patched(self, id: str) -> bool:
        """Return True if the run follows a change of the code: `if run.patched("faster"): ... else: ...`.

        The result is True if the run reaches this call for the first time. It is False if the run has already recorded
        a later call, because it began with the old code. A run gets the same answer each time.
        """
        keys.check_part("patch", id)
        scope = self._scope()
        return self._host.operate(lambda: effects.take_patch(self._execution, scope.next_places, id))

    def deprecate_patch(self, id: str) -> None:
        """Declare that no open run needs the old code of a change. Replace the call of `patched` with this call.

        Runs that have recorded the patch can still be replayed.
        """
        keys.check_part("patch", id)
        return self._host.operate(lambda: effects.pass_patch(self._execution, id))

    # --- waits for others -----------------------------------------------------------------------------

    def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Answer:
        """Wait for an answer by `durable.answer`. The run is suspended, and its process may exit.

        Returns:
            The `Answer`. After `timeout_s` without an answer, `approved` is False and `is_timeout` is True.
        """
        return self._do(lambda place: take_gate(self._execution, place, name, payload, timeout_s))

    def recv(self, topic: str = "default", *, timeout_s: float | None = None) -> Any:
        """Wait for the next message on a topic, and return it. Return None after `timeout_s`. See `durable.send`."""
        return self._do(lambda place: take_mail(self._execution, place, topic, timeout_s))

    def child(self, workflow: Workflow[..., R], /, *args: Any, id: str | None = None, **kwargs: Any) -> R:
        """Run another workflow as a child run, and return its result. The child has its own id and thread.

        Raises:
            RunFailedError: the child has failed. RunCancelledError: the child was cancelled.
        """
        made = check_workflow(workflow)
        return self._do(
            lambda place: take_child(self._execution, place, made, args, kwargs, id, lambda run: self._drive(made, run))
        )

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin the workflow again with new arguments, as the same run. Its record and compensations are dropped.

        Use it in a workflow that repeats without end.
        """
        self._execution.check_stop()
        raise ContinuedAsNew(args, kwargs)

    # --- writes -----------------------------------------------------------------------------------

    def commit(self, *updates: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        """Write to the run's thread, exactly once, as `Thread.commit` with these arguments does."""
        return self._do(lambda place: effects.take_commit(self._execution, place, updates, metadata))

    def transact(self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function(transaction, *args)`. Its writes to the store and its result are one commit.

        The writes happen exactly once. The function may be called several times until then, so it must not have other
        effects. It must not be async, even in an async workflow.
        """
        check_callable("function", function)
        if inspect.iscoroutinefunction(function):
            message = (
                f"transaction {name_of(function)!r} is async: pass a function that is not async and returns at once"
            )
            raise UsageError(message, argument="function", value=function)
        return self._do(lambda place: effects.take_transaction(self._execution, place, function, args, kwargs))

    def emit(self, topic: str, payload: Any = None) -> None:
        """Put a message into the outbox. It is sent after this commit, at least once, and in order."""
        return self._do(lambda place: effects.take_emit(self._execution, place, topic, payload))

    def set_event(self, name: str, value: Any) -> None:
        """Set an event of the run, such as its progress, which other programs read with `durable.get_event`."""
        return self._do(lambda place: effects.take_event(self._execution, place, name, value))


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StepCall:
    options, given = step_options(function, kwargs)
    return make_call(function, args, given, StepOptions(**options) if options else NO_OPTIONS)


def _checked(options: StepOptions) -> StepOptions:
    if not isinstance(options, StepOptions):
        raise UsageError(f"options must be StepOptions, not {options!r}", argument="options", value=options)
    return options


def _branches(given: tuple[Any, ...]) -> list[Branch[Any]]:
    found = list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)
    for each in found:
        if not isinstance(each, Branch):
            raise UsageError(
                f"{each!r} is not a branch: pass the result of run.start or run.branch", argument="branches"
            )
    if not found:
        raise UsageError("pass at least one branch to wait for", argument="branches", value=())
    return found
