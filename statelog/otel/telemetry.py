"""Makes spans, events and measurements whose values a guard allows and an exporter can encode."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from math import isfinite
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import LogRecord, get_logger
from opentelemetry.trace import SpanKind, Status, StatusCode

from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.limits import DEPTH_MAX
from statelog.otel import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, TracerProvider

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING: Final = ("true", "1", "span_only", "span_and_event")
"""Values of `CAPTURE` that put content on spans. `event_only` is not one: this library puts content only on spans."""


class Telemetry:
    """The tracer, logger, and instruments of this library.

    Args:
        tracer_provider: makes spans, or None for the global provider.
        meter_provider: makes metrics, or None for the global provider.
        logger_provider: makes events, or None for the global provider.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        self._tracer_provider, self._meter_provider = tracer_provider, meter_provider
        self.tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        self.logger = get_logger(names.SCOPE, logger_provider=logger_provider)
        self.meter = meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self.has_content = os.environ.get(CAPTURE, "").strip().lower() in _CAPTURING
        self.commit_duration = meter.create_histogram(
            "statelog.commit.duration", "s", "Duration of commits, including the flush that they wait for"
        )
        self.flush_duration = meter.create_histogram(
            "statelog.flush.duration", "s", "Duration of flushes that a caller asked for"
        )
        self.takeovers = meter.create_counter(
            "statelog.takeovers", "{takeover}", "Leases and runs that were taken over from a holder that did not finish"
        )

    @property
    def is_tracing(self) -> bool:
        """Whether a tracing SDK is set up, so that spans are kept."""
        return not _is_of_api(self._tracer_provider or trace.get_tracer_provider())

    @property
    def is_measuring(self) -> bool:
        """Whether a metrics SDK is set up, so that measurements are kept."""
        return not _is_of_api(self._meter_provider or metrics.get_meter_provider())

    @contextmanager
    def span(
        self,
        engine: Any,
        name: str,
        attributes: Mapping[str, Any],
        *,
        links: Sequence[Link] = (),
        shown: Callable[[BaseException], BaseException | None] = lambda error: error,
    ) -> Iterator[Span]:
        """Make a new span the current span. An exception sets the span's status, with text that the guard allows.

        `shown` gets the exception that was raised. It returns the exception to show, or None to show no error.
        """
        with self.tracer.start_as_current_span(
            _encodable(safe(engine, name)),
            kind=SpanKind.INTERNAL,
            links=links,
            attributes=clean(engine, attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                if (cause := shown(error)) is not None:
                    fail(engine, span, type(cause).__qualname__, _message(cause))
                raise

    def event(self, engine: Any, span: Span, name: str, attributes: Mapping[str, Any]) -> None:
        """Emit an event in the context of a span."""
        context = trace.set_span_in_context(span)
        record = LogRecord(event_name=name, timestamp=time_ns(), context=context, attributes=clean(engine, attributes))
        self.logger.emit(record)


def _is_of_api(provider: object) -> bool:
    """Return True for a provider from the API package, which drops everything or is replaced when an SDK is set up."""
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def fail(engine: Any, span: Span, kind: str, text: str) -> None:
    """Set the class and text of an error on a span, without secrets."""
    span.set_attribute(names.ERROR, _encodable(kind))
    span.set_status(Status(StatusCode.ERROR, _encodable(safe(engine, text))))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of a program's class may fail
        return ""


def clean(engine: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without None values. Strings are made safe and encodable, so they may leave the process."""
    return {
        name: _encodable(safe(engine, value)) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }


def safe(engine: Any, text: str) -> str:
    """Return `text` as the store's guard would let it be stored."""
    guard = engine.guard
    return text if guard is None else str(guard.error(text, "telemetry", None))


def _encodable(text: str) -> str:
    """Return a string that protobuf can encode. A lone surrogate becomes an escape sequence."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def content(engine: Any, value: Any) -> str | None:
    """Return a value as JSON, in the form that the store's guard allows. Return None if it cannot be stored."""
    try:
        item = cbor.encode(value, path="content", around=0)
        guard = engine.guard
        stored = cbor.decode(item if guard is None else guard.recorded(item, "telemetry"))
    except StatelogError:
        return None
    return json.dumps(_plain(stored), ensure_ascii=False)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value in a form that JSON can represent. Keys become strings, because exporters may drop other keys."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)  # JSON has no NaN.
    if depth > DEPTH_MAX:
        return "..."
    if isinstance(value, dict):
        return {str(key): _plain(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(member, depth + 1) for member in value]
    return f"<{len(value):,} bytes>" if isinstance(value, bytes) else str(value)
