"""Makes spans and events for durable runs: a span each time a process drives a run, with a child span for each step."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from opentelemetry import trace

from statelog.durable.clock import moment_of
from statelog.durable.execution import RolledBackError, Stopped
from statelog.durable.record import BEGUN, DONE
from statelog.otel import names
from statelog.otel.contexts import conversation, links_to, text_of, with_trace
from statelog.otel.telemetry import content, fail
from statelog.otel.watches import watch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from opentelemetry.trace import Span

    from statelog.durable.execution import Execution, Wait
    from statelog.durable.record import Item
    from statelog.otel.watches import InstrumentedStore

_ENTRY: Final = "trace"
"""The field of a run's entry that has the trace context in which the run was started."""
_REASONS: Final = {"gate": "human_input", "mail": "external_system", "run": "external_system"}
"""The reason for a pause, by the first word of the wait's label. The draft defines no reason for waiting for a time."""


class _Segment:
    """Emits the events of a run on its span, while this process drives the run.

    Attributes:
        waited: the labels of the waits at which the run was last suspended.
        checkpoint: the id of the checkpoint from which the run continues, or None.
        has_progress: whether anything was recorded in the segment.
    """

    def __init__(self, watch: InstrumentedStore, execution: Execution, span: Span, checkpoint: str | None) -> None:
        self._watch, self._span, self._execution = watch, span, execution
        self.waited = set(execution.claim.value["waiting_for"]) if execution.claim is not None else set()
        self.checkpoint = checkpoint
        self.has_progress = False
        value = execution.value
        self.about = {
            names.EXECUTION: execution.id,
            names.CONVERSATION: value["thread"],
            names.AGENT: value["workflow"],
            names.PARENT: value.get("parent"),
        }

    @property
    def span(self) -> Span:
        """The span of the segment."""
        return self._span

    def emit(self, event: str, **more: Any) -> None:
        """Emit an event."""
        self._watch.telemetry.event(self._watch.engine, self._span, event, {**self.about, **more})

    def progress(self, items: Sequence[Item]) -> None:
        """Emit the events of recorded items: resolved pauses, and the resume if this is the first progress."""
        for item in items:
            if item["o"] == "gate" and item["s"] == DONE and "r" in item:
                self._resolved(item)
        if not self.has_progress:
            self.has_progress = True
            if self.waited:
                ended = {label for item in items if item["s"] == DONE for label in self._labels(item)}
                label = min(self.waited & ended, default=min(self.waited))
                self._resumed("pause", self._pause_of(label))
            elif self.checkpoint is not None:
                self._resumed("checkpoint", self.checkpoint)

    def _resumed(self, kind: str, id: str) -> None:
        self.emit(names.RESUMED, **{names.RESUMED_FROM_TYPE: kind, names.RESUMED_FROM: id})

    def _resolved(self, item: Item) -> None:
        answer = item["r"]
        how = "expired" if answer["is_timeout"] else "approved" if answer["approved"] else "refused"
        gate = next(iter(self._labels(item)), f"gate {item['p']}")
        self.emit(names.RESOLVED, **{names.PAUSE: self._pause_of(gate), names.RESOLUTION: how})

    def _labels(self, item: Item) -> Iterator[str]:
        """Yield the label of the wait that an item ends."""
        begun = self._execution.record.begun.get(item["p"], item)
        if item["o"] == "gate" and "g" in begun:
            yield f"gate {begun['g']}"
        elif item["o"] == "child" and "c" in begun:
            yield f"run {begun['c']}"
        elif item["o"] in ("recv", "sleep"):
            yield "time" if item["o"] == "sleep" else f"mail {item['n']}"

    def _pause_of(self, label: str) -> str:
        """Return the id of a pause at the wait `label`: the id of its gate, or the run's id joined with the label."""
        kind, _space, rest = label.partition(" ")
        return rest if kind == "gate" else f"{self._execution.id}/{label}"

    def paused(self, waits: Sequence[Wait]) -> None:
        """Emit a pause event for each wait, except those at which the run was already suspended."""
        for label, due_us in {wait.label: wait.due_us for wait in waits}.items():
            if self.has_progress or label not in self.waited:
                self.emit(
                    names.PAUSED,
                    **{
                        names.PAUSE: self._pause_of(label),
                        names.PAUSE_REASON: _REASONS.get(label.partition(" ")[0]),
                        names.DEADLINE: moment_of(due_us).isoformat() if due_us else None,
                    },
                )

    def ended(self, status: str, error: str | None, items: Sequence[Item]) -> None:
        """Set the run's status, and its error if it has failed, on the span."""
        self.progress(items)
        self._span.set_attribute(names.STATUS, status)
        if error is not None and status == "failed":
            kind, _colon, text = error.partition(": ")
            fail(self._watch.engine, self._span, kind, text)


class RunObserver:
    """Observes durable runs and makes spans and events. It ignores runs in stores that are not instrumented."""

    def __init__(self) -> None:
        self._segments: WeakKeyDictionary[Any, _Segment] = WeakKeyDictionary()

    def started(self, store: Any) -> Mapping[str, Any]:
        """Return the field with the trace context to store in a run's entry."""
        text = None if watch_of(store) is None else text_of(trace.get_current_span())
        return {} if text is None else {_ENTRY: text}

    @contextmanager
    def executing(self, execution: Execution) -> Iterator[None]:
        """Make a span for the time in which this process drives a run, and make it the current span."""
        watch = watch_of(execution.store)
        if watch is None or execution.claim is None:
            yield
            return
        value = execution.value
        head = execution.thread.head if execution.has_header else None
        began, last = value.get(_ENTRY), None if head is None else head.metadata.get(names.TRACE_PARENT)
        attempts = execution.claim.attempt + execution.claim.value.get("crashes", 0)
        if attempts > 1:
            watch.telemetry.takeovers.add(1, {names.TAKEN: "run"})
        attributes = {
            names.OPERATION: "invoke_agent",
            names.AGENT: value["workflow"],
            names.CONVERSATION: value["thread"],
            names.EXECUTION: execution.id,
            names.PARENT: value.get("parent"),
        }
        with ExitStack() as stack:
            span = stack.enter_context(
                watch.telemetry.span(
                    watch.engine,
                    f"invoke_agent {value['workflow']}",
                    attributes,
                    links=links_to((began, last)),
                    shown=_shown,
                )
            )
            here = conversation.set(value["thread"])
            stack.callback(conversation.reset, here)
            self._segments[execution] = _Segment(watch, execution, span, None if head is None else head.id)
            yield

    @contextmanager
    def calling(self, execution: Execution, place: str, call: Any, attempt: int) -> Iterator[Callable[[Any], None]]:
        """Make a span for one attempt of a step the current span. Yield a function that records the step's result."""
        watch = watch_of(execution.store)
        if watch is None:
            yield _ignore
            return
        engine, telemetry = watch.engine, watch.telemetry
        attributes: dict[str, Any] = {
            names.CONVERSATION: execution.value["thread"],
            names.EXECUTION: execution.id,
            names.STEP: call.name,
            names.PLACE: place,
            names.ATTEMPT: attempt,
        }
        if telemetry.has_content:
            attributes[names.ARGUMENTS] = content(engine, [list(call.args), dict(call.kwargs)])
        with telemetry.span(engine, f"step {call.name}", attributes) as span:

            def record_result(result: Any) -> None:
                if telemetry.has_content and (text := content(engine, result)) is not None:
                    span.set_attributes({names.RESULT: text})

            yield record_result

    def metadata(self, execution: Execution, metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return `metadata` with the trace context of the run's current span."""
        segment = self._segments.get(execution)
        return metadata if segment is None else with_trace(metadata, segment.span)

    def recorded(self, execution: Execution, items: Sequence[Item], checkpoint: str) -> None:
        """Emit the events for a commit that recorded `items`."""
        segment = self._segments.get(execution)
        if segment is not None:
            segment.progress(items)
            pause = next((f"{item['g']}" for item in items if item["s"] == BEGUN and "g" in item), None)
            segment.emit(names.CHECKPOINTED, **{names.CHECKPOINT: checkpoint, names.PAUSE: pause})

    def suspended(self, execution: Execution, waits: Sequence[Wait]) -> None:
        """Emit the events for a run that is suspended at `waits`."""
        segment = self._segments.get(execution)
        if segment is not None:
            segment.paused(waits)

    def ended(self, execution: Execution, status: str, error: str | None, items: Sequence[Item]) -> None:
        """Set the run's status on its span. The guard has already checked the error text."""
        segment = self._segments.get(execution)
        if segment is not None:
            segment.ended(status, error, items)


def _shown(error: BaseException) -> BaseException | None:
    """Return the error that stopped a run, or None if the run continues at once after a rollback of its thread."""
    cause = error.error if isinstance(error, Stopped) else error
    return None if isinstance(cause, RolledBackError) else cause


def _ignore(_result: Any) -> None:
    """Ignore a result."""
