"""The type of the run of an async workflow for type checkers: the methods of `statelog.durable.Run`, as coroutines.

Nothing imports this file at run time. There, the run of an async workflow is a `statelog.durable.Run`, whose operations
return coroutines. tests/test_twins.py compares the parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from statelog.durable.branches import Branch
    from statelog.durable.waits import Answer
    from statelog.durable.workflows import P, R, StepOptions, Workflow
    from statelog.store.transaction import Transaction

T = TypeVar("T")


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
        """See `statelog.durable.Run.step`."""

    @overload
    def step_with(
        self, options: StepOptions, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step_with(
        self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    def step_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `statelog.durable.Run.step_with`."""

    @overload
    def start(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    @overload
    def start(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Branch[R]: ...
    def start(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `statelog.durable.Run.start`."""

    @overload
    def start_with(
        self, options: StepOptions, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    @overload
    def start_with(
        self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    def start_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `statelog.durable.Run.start_with`."""

    @overload
    def branch(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Branch[R]: ...
    @overload
    def branch(self, function: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Branch[R]: ...
    def branch(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `statelog.durable.Run.branch`."""

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
    def map(self, function: Any, items: Iterable[Any], *, concurrency: int = 16, **kwargs: Any) -> Any:
        """See `statelog.durable.Run.map`."""

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
        self, options: StepOptions, function: Any, items: Iterable[Any], *, concurrency: int = 16, **kwargs: Any
    ) -> Any:
        """See `statelog.durable.Run.map_with`."""

    def gather(self, *branches: Branch[Any] | Sequence[Branch[Any]]) -> Coroutine[Any, Any, list[Any]]:
        """See `statelog.durable.Run.gather`."""

    def wait_any(self, *branches: Branch[R] | Sequence[Branch[R]]) -> Coroutine[Any, Any, Branch[R]]:
        """See `statelog.durable.Run.wait_any`."""

    def now(self) -> Coroutine[Any, Any, datetime]:
        """See `statelog.durable.Run.now`."""

    def uuid(self) -> Coroutine[Any, Any, UUID]:
        """See `statelog.durable.Run.uuid`."""

    def random(self) -> Coroutine[Any, Any, float]:
        """See `statelog.durable.Run.random`."""

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """See `statelog.durable.Run.sleep`."""

    def patched(self, id: str) -> Coroutine[Any, Any, bool]:
        """See `statelog.durable.Run.patched`."""

    def deprecate_patch(self, id: str) -> Coroutine[Any, Any, None]:
        """See `statelog.durable.Run.deprecate_patch`."""

    def gate(self, name: str, payload: Any = None, *, timeout_s: float | None = None) -> Coroutine[Any, Any, Answer]:
        """See `statelog.durable.Run.gate`."""

    def recv(self, topic: str = "default", *, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        """See `statelog.durable.Run.recv`."""

    def child(
        self, workflow: Workflow[..., R], /, *args: Any, id: str | None = None, **kwargs: Any
    ) -> Coroutine[Any, Any, R]:
        """See `statelog.durable.Run.child`."""

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """See `statelog.durable.Run.continue_as_new`."""

    def commit(
        self, *updates: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> Coroutine[Any, Any, None]:
        """See `statelog.durable.Run.commit`."""

    def transact(
        self, function: Callable[Concatenate[Transaction, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """See `statelog.durable.Run.transact`."""

    def emit(self, topic: str, payload: Any = None) -> Coroutine[Any, Any, None]:
        """See `statelog.durable.Run.emit`."""

    def set_event(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        """See `statelog.durable.Run.set_event`."""
