"""Converts a span's trace context to a string that can be stored, and makes links to the spans of such strings."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from statelog.otel.names import TRACE_PARENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.trace import Span, SpanContext

_PROPAGATOR = TraceContextTextMapPropagator()

conversation: ContextVar[str | None] = ContextVar("conversation", default=None)
"""The thread id of the durable run that the current context drives."""


def text_of(span: Span) -> str | None:
    """Return a span's `traceparent`, or None if the span has no valid context."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def context_of(text: object) -> SpanContext | None:
    """Return the context that a `traceparent` names, or None if `text` is not a valid `traceparent`."""
    if not isinstance(text, str):
        return None
    found = trace.get_current_span(_PROPAGATOR.extract({TRACE_PARENT: text}, context=Context()))
    context = found.get_span_context()
    return context if context.is_valid else None


def links_to(texts: Iterable[object]) -> list[Link]:
    """Return a link to each span that `texts` name, except the current span. Each span is linked once."""
    seen = {trace.get_current_span().get_span_context().span_id}
    links = []
    for text in texts:
        context = context_of(text)
        if context is not None and context.span_id not in seen:
            seen.add(context.span_id)
            links.append(Link(context))
    return links


def with_trace(metadata: Mapping[str, Any] | None, span: Span | None = None) -> Mapping[str, Any] | None:
    """Add the `traceparent` of the current span to metadata, unless the caller has set one. Return the metadata."""
    found = trace.get_current_span() if span is None else span
    if found is trace.INVALID_SPAN or (text := text_of(found)) is None:
        return metadata
    return {TRACE_PARENT: text} if metadata is None else {TRACE_PARENT: text, **metadata}
