"""Numbers the tasks of a workflow when they are created. The identity of each call in a task contains that number.

A number given at the first call would depend on what a task waits for before it, and so on the order in which other
tasks end. `asyncio.create_task`, a gather and a TaskGroup all use the task factory of the loop.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.durable.execution import Scope, current_scope, in_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

F = TypeVar("F", bound="Callable[..., Any]")

_operations: set[CodeType] = set()

in_operation: ContextVar[bool] = ContextVar("in_operation", default=False)
"""True while an operation of a run is active. Tasks and timers that it creates do not belong to the workflow."""


def is_operation(function: F) -> F:
    """Mark a coroutine function as an operation. Tasks of an operation are not numbered: it already has an identity."""
    _operations.add(function.__code__)
    return function


class _Numbering:
    """A task factory that gives each task of a workflow a scope. The previous task factory creates the task."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.uses = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> Any:
        held = current_scope.get()
        if held is None or in_step.get() or in_operation.get():
            return self._task(loop, coroutine, how)
        execution, scope = held
        is_numbered = getattr(coroutine, "cr_code", None) not in _operations
        if is_numbered and how.get("context") is None:
            how["context"] = copy_context()
            how["context"].run(current_scope.set, (execution, Scope(execution, f"{scope.take_task()}.", None)))
        task = self._task(loop, coroutine, how)
        if execution.order is not None:
            execution.order.join(task)
        return task

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, how: dict[str, Any]) -> Any:
        if self.before is None:
            return asyncio.Task(coroutine, loop=loop, **how)
        return self.before(loop, coroutine, **how)


@contextmanager
def numbered_tasks() -> Iterator[None]:
    """Number the tasks that workflows begin on this loop during the block."""
    loop = asyncio.get_running_loop()
    held: Any = loop.get_task_factory()
    numbering = held if isinstance(held, _Numbering) else _Numbering(held)
    if numbering is not held:
        loop.set_task_factory(numbering)
    numbering.uses += 1
    try:
        yield
    finally:
        numbering.uses -= 1
        if not numbering.uses and loop.get_task_factory() is numbering:
            loop.set_task_factory(numbering.before)
