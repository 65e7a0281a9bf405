"""The type of the run of an async workflow for type checkers.

Nothing imports this file at run time. There, the run is a `statelog.durable.Run`, whose operations return coroutines.

`python .ci/aio.py` generates this file from the synchronous API. Do not edit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, Protocol, overload

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime

    from statelog.durable.branches import Branch
    from statelog.durable.run import T
    from statelog.durable.waits import Answer
    from statelog.durable.workflows import P, R, StepOptions, Workflow
    from statelog.store.transaction import Transaction


class Run(Protocol):
    """A run, with the operations of its async workflow. See `statelog.durable.Run`.

    Attributes:
        id: the id of the run.
        thread_id: the id of the thread that the run writes to.
    """

    id: str
    thread_id: str

    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with effects, once, and record its result or its exception.

        See `statelog.durable.Run.step`.
        """

    @overload
    def step_with(
        self, options: StepOptions, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def step_with(
        self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...

    def step_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a step with options: `run.step_with(durable.StepOptions(timeout_s=5), charge, 840)`.

        See `statelog.durable.Run.step_with`.
        """

    @overload
    def map(
        self,
        function: Callable[Concatenate[T, ...], Coroutine[Any, Any, R]],
        items: Iterable[T],
        *,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, list[R]]: ...

    @overload
    def map(
        self, function: Callable[Concatenate[T, ...], R], items: Iterable[T], *, concurrency: int = 16, **kwargs: Any
    ) -> Coroutine[Any, Any, list[R]]: ...

    def map(
        self, function: Callable[Concatenate[T, ...], R], items: Iterable[T], *, concurrency: int = 16, **kwargs: Any
    ) -> Any:
        """Call a step once for each item, several at a time. Return the results in the order of the items.

        See `statelog.durable.Run.map`.
        """

    @overload
    def map_with(
        self,
        options: StepOptions,
        function: Callable[Concatenate[T, ...], Coroutine[Any, Any, R]],
        items: Iterable[T],
        *,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, list[R]]: ...

    @overload
    def map_with(
        self,
        options: StepOptions,
        function: Callable[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, list[R]]: ...

    def map_with(
        self,
        options: StepOptions,
        function: Callable[Concatenate[T, ...], R],
        items: Iterable[T],
        *,
        concurrency: int = 16,
        **kwargs: Any,
    ) -> Any:
        """Call a step with options once for each item. See `statelog.durable.Run.map_with`."""

    @overload
    def start(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...

    @overload
    def start(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Branch[R]: ...

    def start(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin a step concurrently with the workflow. `Branch.result()`, `gather` and `wait_any` wait for it.

        See `statelog.durable.Run.start`.
        """

    @overload
    def start_with(
        self, options: StepOptions, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...

    @overload
    def start_with(
        self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...

    def start_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin a step with options, concurrently with the workflow. See `statelog.durable.Run.start_with`."""

    @overload
    def branch(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...

    @overload
    def branch(self, function: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Branch[R]: ...

    def branch(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin `function(run, *args)` concurrently with the workflow. Its calls are numbered separately.

        See `statelog.durable.Run.branch`.
        """

    def gather(self, *branches: Branch[Any] | Sequence[Branch[Any]]) -> Coroutine[Any, Any, list[Any]]:
        """Return the results of branches in the given order. All branches end before the first exception is raised.

        See `statelog.durable.Run.gather`.
        """

    def wait_any(self, *branches: Branch[R] | Sequence[Branch[R]]) -> Coroutine[Any, Any, Branch[R]]:
        """Return the first branch that has ended, and abandon the other branches. The choice is recorded.

        See `statelog.durable.Run.wait_any`.
        """

    def now(self) -> Coroutine[Any, Any, datetime]:
        """Return the time as a datetime in UTC. A replay returns the same time. See `statelog.durable.Run.now`."""

    def uuid(self) -> Coroutine[Any, Any, uuid.UUID]:
        """Return a random UUID. A replay returns the same UUID. See `statelog.durable.Run.uuid`."""

    def random(self) -> Coroutine[Any, Any, float]:
        """Return a random float of at least 0 and less than 1. A replay returns the same number.

        See `statelog.durable.Run.random`.
        """

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait for `seconds`. During a wait of more than five seconds, the run is suspended, and no process waits.

        See `statelog.durable.Run.sleep`.
        """

    def patched(self, id: str) -> Coroutine[Any, Any, bool]:
        """Return True if the run follows a change of the code: `if run.patched("faster"): ... else: ...`.

        See `statelog.durable.Run.patched`.
        """

    def deprecate_patch(self, id: str) -> Coroutine[Any, Any, None]:
        """Declare that no open run needs the old code of a change. Replace the call of `patched` with this call.

        See `statelog.durable.Run.deprecate_patch`.
        """

    def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Coroutine[Any, Any, Answer]:
        """Wait for an answer by `durable.answer`. The run is suspended, and its process may exit.

        See `statelog.durable.Run.gate`.
        """

    def recv(self, topic: str = "default", *, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        """Wait for the next message on a topic, and return it. Return None after `timeout_s`.

        See `statelog.durable.Run.recv`.
        """

    def child(
        self, workflow: Workflow[..., R], /, *args: Any, id: str | None = None, **kwargs: Any
    ) -> Coroutine[Any, Any, R]:
        """Run another workflow as a child run, and return its result. The child has its own id and thread.

        See `statelog.durable.Run.child`.
        """

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin the workflow again with new arguments, as the same run. Its record and compensations are dropped.

        See `statelog.durable.Run.continue_as_new`.
        """

    def commit(
        self, *updates: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> Coroutine[Any, Any, None]:
        """Write to the run's thread, exactly once, as `Thread.commit` with these arguments does.

        See `statelog.durable.Run.commit`.
        """

    def transact(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Call `function(transaction, *args)`. Its writes to the store and its result are one commit.

        See `statelog.durable.Run.transact`.
        """

    def emit(self, topic: str, payload: Any = None) -> Coroutine[Any, Any, None]:
        """Put a message into the outbox. It is sent after this commit, at least once, and in order.

        See `statelog.durable.Run.emit`.
        """

    def set_event(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        """Set an event of the run, such as its progress, which other programs read with `durable.get_event`.

        See `statelog.durable.Run.set_event`.
        """
