"""Makes spans for memory operations: the reads and writes of a LangGraph graph in a `StatelogStore`."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.store.base import GetOp, PutOp, SearchOp

from statelog.otel import names
from statelog.otel.contexts import conversation
from statelog.otel.telemetry import content
from statelog.otel.watches import watch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.trace import Span

    from statelog.otel.watches import InstrumentedStore


def conversation_here() -> str | None:
    """Return the thread id of the current LangGraph run or, without one, of the current durable run."""
    config = var_child_runnable_config.get()
    found = ((config or {}).get("configurable") or {}).get("thread_id")
    return conversation.get() if found is None else str(found)


@contextmanager
def _spans(watch: InstrumentedStore, operations: Sequence[Any]) -> Iterator[list[Span | None]]:
    """Make a span for each operation. The spans begin and end together, because a batch is one commit."""
    with ExitStack() as stack:
        spans: list[Span | None] = []
        for each in operations:
            about = _about(watch, each)
            span = None if about is None else stack.enter_context(watch.telemetry.span(watch.engine, *about))
            spans.append(span)
        yield spans


def _about(watch: InstrumentedStore, operation: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the name and attributes of an operation's span, or None if the conventions do not define a span for it."""
    has_content, engine = watch.telemetry.has_content, watch.engine
    more: dict[str, Any]
    if isinstance(operation, PutOp):
        name = "delete_memory" if operation.value is None else "upsert_memory"
        place, more = operation.namespace, {names.MEMORY_RECORD: str(operation.key), names.MEMORY_COUNT: 1}
        if has_content and operation.value is not None:
            record = {"id": operation.key, "content": operation.value}
            more[names.MEMORY_RECORDS] = content(engine, [record])
    elif isinstance(operation, GetOp):
        name, place, more = "search_memory", operation.namespace, {names.MEMORY_RECORD: str(operation.key)}
    elif isinstance(operation, SearchOp):
        name, place, more = "search_memory", operation.namespace_prefix, {}
        if has_content:
            more[names.MEMORY_QUERY] = operation.query
    else:
        return None
    about = {names.OPERATION: name, names.MEMORY_STORE: "/".join(map(str, place))}
    return name, {**about, names.CONVERSATION: conversation_here(), **more}


def _note_results(
    watch: InstrumentedStore, operations: Sequence[Any], spans: Sequence[Span | None], results: Sequence[Any]
) -> None:
    """Set the span attributes of each read: the number of records and, if content is captured, the records."""
    for operation, span, result in zip(operations, spans, results, strict=True):
        if span is None or isinstance(operation, PutOp):
            continue
        found = result if isinstance(result, list) else [] if result is None else [result]
        span.set_attribute(names.MEMORY_COUNT, len(found))
        if watch.telemetry.has_content:
            records = [{"id": each.key, "content": each.value} for each in found]
            if (text := content(watch.engine, records)) is not None:
                span.set_attribute(names.MEMORY_RECORDS, text)


def traced(batch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `StatelogStore.batch` that makes spans."""

    @wraps(batch)
    def traced_batch(self: Any, ops: Any) -> Any:
        watch = watch_of(self.store)
        if watch is None:
            return batch(self, ops)
        operations = list(ops)
        with _spans(watch, operations) as spans:
            results = batch(self, operations)
            _note_results(watch, operations, spans, results)
        return results

    return traced_batch


def traced_async(abatch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `StatelogStore.abatch` that makes spans."""

    @wraps(abatch)
    async def traced_abatch(self: Any, ops: Any) -> Any:
        watch = watch_of(self.store)
        if watch is None:
            return await abatch(self, ops)
        operations = list(ops)
        with _spans(watch, operations) as spans:
            results = await abatch(self, operations)
            _note_results(watch, operations, spans, results)
        return results

    return traced_abatch
