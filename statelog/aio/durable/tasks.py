"""Tasks that a workflow begins are numbered as they are made: what is called in them has its identity by that.

The number of a task could be taken at its first call, too, but when that is depends on what it waits for before, and so
on the order in which others are done. `asyncio.create_task`, a gather and a TaskGroup all ask the loop's task factory.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.durable.execution import Scope, current_scope, in_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

F = TypeVar("F", bound="Callable[..., Any]")

_operations: set[CodeType] = set()


def is_operation(function: F) -> F:
    """Say that a coroutine function is that of operations, whose place is taken already: its tasks need no number."""
    _operations.add(function.__code__)
    return function


class _Numbering:
    """A task factory that gives tasks of workflows scopes of their own, and has another one make them."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.uses = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> Any:
        held = current_scope.get()
        is_ours = held is not None and not in_step.get() and getattr(coroutine, "cr_code", None) not in _operations
        if held is not None and is_ours and how.get("context") is None:
            execution, scope = held
            how["context"] = copy_context()
            how["context"].run(current_scope.set, (execution, Scope(execution, f"{scope.take_task()}.", None)))
        if self.before is None:
            return asyncio.Task(coroutine, loop=loop, **how)
        return self.before(loop, coroutine, **how)


@contextmanager
def numbered_tasks() -> Iterator[None]:
    """Have the tasks that workflows begin on this loop numbered while a block runs."""
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
