"""`instrument` and `uninstrument`: replace methods of other modules, and put the originals back."""

from __future__ import annotations

from functools import wraps
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING, Any

from statelog import aio
from statelog.board import holders
from statelog.durable import observers
from statelog.errors import ClosedError, UsageError
from statelog.memory.memory import Memory
from statelog.otel import facts, names
from statelog.otel.runs import RunObserver
from statelog.otel.telemetry import Telemetry
from statelog.otel.watches import InstrumentedStore, create_gauges, watch_of, watch_of_engine, watches
from statelog.store.claims import LeaseAttempt
from statelog.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_lock = RLock()
_replaced: list[tuple[type, str, Any]] = []
"""The replaced methods: the class, the name, and the original."""
_every: Telemetry | None = None
"""The telemetry for all stores that are opened later, or None."""


def instrument(
    store: Any = None,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> None:
    """Emit spans, events and metrics of a store, or of every store that this process opens from now on.

    Instrumenting a store twice changes nothing. OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is read now: without
    it, no content leaves the process.

    Args:
        store: a store of `statelog` or `statelog.aio`, read-only or not. None means all stores that are opened later.
        tracer_provider: makes spans, instead of the global provider.
        meter_provider: makes metrics, instead of the global provider.
        logger_provider: makes events, instead of the global provider.

    Raises:
        UsageError: `store` is not a store.
        ClosedError: the store is closed.
    """
    global _every  # noqa: PLW0603 - the process has one switch
    held = None if store is None else _store_of(store)
    if held is not None and held.closed:
        raise ClosedError(f"the store {held.path} is closed", path=str(held.path))
    with _lock:
        if watch_of(held) is not None if held is not None else _every is not None:
            return
        telemetry = Telemetry(tracer_provider, meter_provider, logger_provider)
        create_gauges(telemetry)
        _hook()
        if held is not None:
            InstrumentedStore(held, telemetry)
        else:
            _every = telemetry
            _replace(Store, "__init__", _watching)


def uninstrument(store: Any = None) -> None:
    """Stop instrumenting a store. Without a store, stop for all stores, including stores that are opened later.

    Raises:
        UsageError: `store` is not a store.
    """
    global _every  # noqa: PLW0603 - the process has one switch
    held = None if store is None else _store_of(store)
    with _lock:
        for watch in watches():
            if held is None or watch is watch_of(held):
                watch.end()
        if held is None:
            _every = None
        if _every is None and not watches():
            observers.observer = None
            while _replaced:
                kind, name, former = _replaced.pop()
                setattr(kind, name, former)


def _store_of(store: Any) -> Store:
    held = getattr(store, "sync", store)
    if not isinstance(held, Store):
        message = f"store must be the result of statelog.open or statelog.aio.open, not {store!r}"
        raise UsageError(message, argument="store", value=store)
    return held


def _replace(kind: type, name: str, make: Callable[[Any], Any]) -> None:
    former = vars(kind)[name]
    _replaced.append((kind, name, former))
    setattr(kind, name, make(former))


def _hook() -> None:
    """Observe runs, leases, memories and LangGraph. Calls for stores that are not instrumented are not changed."""
    if observers.observer is not None:
        return
    observers.observer = RunObserver()
    _replace(LeaseAttempt, "take", _counting_takeovers)
    for name, make in (
        ("remember", facts.remembered),
        ("recall", facts.recalled),
        ("get", facts.read),
        ("forget", facts.forgotten),
    ):
        _replace(Memory, name, make)
    _replace(aio.Memory, "remember", facts.remembered_on_loop)
    _replace(aio.Memory, "recall", facts.recalled_on_loop)
    if find_spec("langgraph") is not None:
        from statelog.adapters.langgraph import StatelogSaver, StatelogStore
        from statelog.otel.graphs import traced_put, traced_writes
        from statelog.otel.memories import traced, traced_async

        _replace(StatelogSaver, "put", traced_put)
        _replace(StatelogSaver, "put_writes", traced_writes)
        _replace(StatelogStore, "batch", traced)
        _replace(StatelogStore, "abatch", traced_async)


def _watching(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def init_watched(self: Store, *args: Any, **how: Any) -> None:
        init(self, *args, **how)
        if _every is not None:
            InstrumentedStore(self, _every)

    return init_watched


def _counting_takeovers(take: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(take)
    def take_counted(self: Any) -> Any:
        watch = watch_of_engine(self.session.engine)
        if watch is None:
            return take(self)
        with self.session.read() as view:
            former = holders.holder(view, self._name)
        lease = take(self)
        if lease is not None and former is not None and former.claim is not None:  # The previous lease has lapsed.
            watch.telemetry.takeovers.add(1, {names.TAKEN: "lease"})
        return lease

    return take_counted
