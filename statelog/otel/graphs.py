"""Emits events of LangGraph graphs, derived from the data that graphs store: checkpoints, interrupts and resumes."""

from __future__ import annotations

from collections import deque
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from statelog.otel import names
from statelog.otel.contexts import context_of, with_trace
from statelog.otel.watches import watch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langgraph.checkpoint.base import CheckpointTuple

    from statelog.otel.watches import InstrumentedStore

_INTERRUPT: Final = "__interrupt__"
_RESUME: Final = "__resume__"
_RUNTIME: Final = "__pregel_runtime"
_REMEMBERED: Final = 1024
"""How many pauses, and how many invocations, are remembered, so that each is reported once."""


def traced_put(put: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `StatelogSaver.put` that adds the trace context to the metadata, and emits an event."""

    @wraps(put)
    def put_with_trace(self: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        watch = watch_of(self.store)
        if watch is None:
            return put(self, config, checkpoint, metadata, new_versions)
        traced = with_trace(metadata) if isinstance(metadata, dict) else metadata
        made = put(self, config, checkpoint, traced, new_versions)
        _emit(watch, names.CHECKPOINTED, made)
        return made

    return put_with_trace


def traced_writes(put_writes: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `StatelogSaver.put_writes` that emits events of interrupts and resumes."""

    @wraps(put_writes)
    def put_writes_with_events(self: Any, config: Any, writes: Any, task_id: str, task_path: str = "") -> Any:
        watch = watch_of(self.store)
        written = list(writes)
        if watch is None or not any(channel in (_INTERRUPT, _RESUME) for channel, _value in written):
            return put_writes(self, config, written, task_id, task_path)
        before = self._get_tuple(config)  # Not `get_tuple`, which would wait for this call to end.
        put_writes(self, config, written, task_id, task_path)
        _note(watch, config, before, written, task_id)
        return None

    return put_writes_with_events


def _note(
    watch: InstrumentedStore, config: Any, before: CheckpointTuple | None, written: Sequence[Any], task_id: str
) -> None:
    """Emit events for interrupts that were not stored before, and for the first resume of an invocation.

    A graph that is invoked again without an answer calls the interrupted node again, and stores the interrupt again.
    The interrupt of a subgraph is stored twice, by the subgraph and by the graph around it.
    """
    pending = [] if before is None else list(before.pending_writes or ())
    known = {_key(config, each) for each in _interrupts(pending)}
    for each in _interrupts([(task_id, channel, value) for channel, value in written]):
        if _key(config, each) not in known and _is_first(_pauses, _key(config, each)):
            _emit(watch, names.PAUSED, config, **{names.PAUSE: each.id})
    if any(channel == _RESUME for channel, _value in written) and _is_first(_invocations, _Invocation(config)):
        _resumed(watch, config, before, pending)


def _interrupts(pending: Sequence[Any]) -> Iterator[Any]:
    for _task, channel, value in pending:
        if channel == _INTERRUPT:
            yield from value if isinstance(value, list | tuple) else (value,)


def _key(config: Any, interrupt: Any) -> tuple[str, str, str]:
    return str(config["configurable"]["thread_id"]), str(interrupt.id), repr(interrupt.value)


class _Invocation:
    """Identifies one call of a graph by the runtime object that LangGraph creates for each call.

    LangGraph stores the answer to an interrupt several times during a call: for the graph and for its tasks. This
    identity lets only the first of them emit a resume event.
    """

    def __init__(self, config: Any) -> None:
        place = config["configurable"]
        self._runtime, self._namespace = place.get(_RUNTIME), place.get("checkpoint_ns")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Invocation):
            return NotImplemented
        return self._runtime is other._runtime is not None and self._namespace == other._namespace

    __hash__ = None  # type: ignore[assignment]  # a runtime is compared by identity, and cannot be hashed


_lock = Lock()
_pauses: deque[Any] = deque(maxlen=_REMEMBERED)
_invocations: deque[Any] = deque(maxlen=_REMEMBERED)


def _is_first(seen: deque[Any], key: Any) -> bool:
    """Return True if a key was not seen before, and remember it. A graph's tasks run on several OS threads."""
    with _lock:
        if key in seen:
            return False
        seen.append(key)
        return True


def _resumed(watch: InstrumentedStore, config: Any, before: CheckpointTuple | None, pending: Sequence[Any]) -> None:
    """Emit an event for a resume, and link the current span to the span in which the graph was interrupted."""
    pauses = [each.id for each in _interrupts(pending)]
    kind, id = ("pause", pauses[0]) if pauses else ("checkpoint", config["configurable"].get("checkpoint_id"))
    _emit(watch, names.RESUMED, config, **{names.RESUMED_FROM_TYPE: kind, names.RESUMED_FROM: id})
    link = None if before is None else context_of(before.metadata.get(names.TRACE_PARENT))
    span = trace.get_current_span()
    if link is not None and link.span_id != span.get_span_context().span_id:
        span.add_link(link)


def _emit(watch: InstrumentedStore, event: str, config: Any, **more: Any) -> None:
    place = config["configurable"]
    about = {
        names.EXECUTION: str(place["thread_id"]),
        names.CONVERSATION: str(place["thread_id"]),
        names.CHECKPOINT: place.get("checkpoint_id"),
    }
    watch.telemetry.event(watch.engine, trace.get_current_span(), event, {**about, **more})
