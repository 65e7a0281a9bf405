"""Makes spans for the operations of a `statelog.Memory`, on OS threads and on the event loop."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from statelog.otel import names
from statelog.otel.contexts import conversation
from statelog.otel.telemetry import content
from statelog.otel.watches import watch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog.memory.timeline import Fact

    Note = Callable[[Sequence[Fact]], None]


def remembered(remember: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Memory.remember` in a span."""

    @wraps(remember)
    def remember_traced(self: Any, text: str, *, key: str | None = None, **more: Any) -> Any:
        with _span(self, "create_memory" if key is None else "upsert_memory", key=key) as note:
            fact = remember(self, text, key=key, **more)
            note([fact])
        return fact

    return remember_traced


def recalled(recall: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Memory.recall` in a span."""

    @wraps(recall)
    def recall_traced(self: Any, query: str, **more: Any) -> Any:
        with _span(self, "search_memory", query=query) as note:
            facts = recall(self, query, **more)
            note(facts)
        return facts

    return recall_traced


def read(get: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Memory.get` in a span."""

    @wraps(get)
    def get_traced(self: Any, key: str, **more: Any) -> Any:
        with _span(self, "search_memory", key=key) as note:
            fact = get(self, key, **more)
            note([] if fact is None else [fact])
        return fact

    return get_traced


def forgotten(forget: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Memory.forget` in a span."""

    @wraps(forget)
    def forget_traced(self: Any, key: str) -> Any:
        with _span(self, "delete_memory", key=key):
            return forget(self, key)

    return forget_traced


def remembered_on_loop(remember: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `statelog.aio.Memory.remember` in a span. If `embed` is not async, `Memory.remember` makes the span."""

    @wraps(remember)
    async def remember_traced(self: Any, text: str, *, key: str | None = None, **more: Any) -> Any:
        if not self.is_async:
            return await remember(self, text, key=key, **more)
        with _span(self.sync, "create_memory" if key is None else "upsert_memory", key=key) as note:
            fact = await remember(self, text, key=key, **more)
            note([fact])
        return fact

    return remember_traced


def recalled_on_loop(recall: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `statelog.aio.Memory.recall` in a span. If `embed` is not async, `Memory.recall` makes the span."""

    @wraps(recall)
    async def recall_traced(self: Any, query: str, **more: Any) -> Any:
        if not self.is_async:
            return await recall(self, query, **more)
        with _span(self.sync, "search_memory", query=query) as note:
            facts = await recall(self, query, **more)
            note(facts)
        return facts

    return recall_traced


@contextmanager
def _span(memory: Any, operation: str, *, key: Any = None, query: Any = None) -> Iterator[Note]:
    """Make a span if the store is instrumented. Yield a function that notes facts in the span."""
    watch = watch_of(memory.store)
    if watch is None:
        yield lambda _facts: None
        return
    attributes: dict[str, Any] = {
        names.OPERATION: operation,
        names.MEMORY_STORE: memory.scope,
        names.CONVERSATION: conversation.get(),
        names.MEMORY_RECORD: None if key is None else str(key),
    }
    if query is not None and watch.telemetry.has_content:
        attributes[names.MEMORY_QUERY] = query
    with watch.telemetry.span(watch.engine, operation, attributes) as span:

        def note(facts: Sequence[Fact]) -> None:
            span.set_attribute(names.MEMORY_COUNT, len(facts))
            records = [{"id": fact.key, "content": fact.text} for fact in facts]
            if watch.telemetry.has_content and (text := content(watch.engine, records)) is not None:
                span.set_attribute(names.MEMORY_RECORDS, text)

        yield note
