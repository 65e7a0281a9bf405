"""The hooks of an instrumented store: around its commits and flushes, and in the threads that it returns."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from opentelemetry.metrics import Observation
from opentelemetry.trace import INVALID_SPAN, get_current_span

from statelog import durable
from statelog.errors import StatelogError
from statelog.otel import names
from statelog.otel.contexts import with_trace
from statelog.store.session import session_of
from statelog.store.thread import Thread
from statelog.store.transaction import transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.metrics import CallbackOptions

    from statelog.otel.telemetry import Telemetry
    from statelog.store.session import AnySession
    from statelog.store.store import Store
    from statelog.store.transaction import Transaction

_lock = Lock()
_KEPT = "statelog.otel"
"""The attribute under which an engine has its InstrumentedStore."""


class InstrumentedStore:
    """The hooks and the telemetry of one instrumented store.

    Attributes:
        engine: the engine of the store.
        telemetry: makes spans, events and measurements.
        is_on: False after `uninstrument`. Thread objects that the store returned earlier check it.
    """

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self.engine: Any = session_of(store).owner
        self.telemetry, self.is_on = telemetry, True
        self._store = store
        self._attributes = {names.DURABILITY: store.durability}
        self._is_timing = self._is_tracing = False
        vars(store).update({"_thread": partial(self._thread, session_of(store)), "transaction": self._transaction})
        vars(self.engine)[_KEPT] = self
        _watches.add(self)
        self.look()

    def look(self) -> None:
        """Install the hooks once an SDK is set up. Until then, commits run without hooks."""
        if not self._is_tracing:
            self._is_tracing = self.telemetry.is_tracing
        telemetry = self.telemetry
        if self._is_timing or not telemetry.is_measuring:
            return
        with _lock:
            if self._is_timing or not self.is_on:
                return
            self._is_timing = True
            for name, histogram in (("commit", telemetry.commit_duration), ("flush", telemetry.flush_duration)):
                vars(self.engine)[name] = self._timed(getattr(self.engine, name), histogram.record)

    def end(self) -> None:
        """Remove the hooks."""
        with _lock:
            self.is_on = False
        for held, placed in ((self.engine, ("commit", "flush", _KEPT)), (self._store, ("_thread", "transaction"))):
            for name in placed:
                vars(held).pop(name, None)
        _watches.discard(self)

    def _timed(self, call: Callable[..., Any], record: Callable[..., None]) -> Callable[..., Any]:
        attributes = self._attributes

        def timed(*work: Any, **how: Any) -> Any:
            began_s = perf_counter()
            try:
                result = call(*work, **how)
            except BaseException as error:
                record(perf_counter() - began_s, {**attributes, names.ERROR: type(error).__qualname__})
                raise
            record(perf_counter() - began_s, attributes)
            return result

        return timed

    def _thread(self, session: AnySession, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        self.look()
        made: Thread = (TracedThread if self._is_tracing else Thread)(session, id, schema, branch, recreate=recreate)
        if isinstance(made, TracedThread):
            made.watch = self
        return made

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with transaction(self.engine) as opened:
            session = session_of(opened)

            def thread(*what: Any, **how: Any) -> Thread:
                session.check_open()
                return self._thread(session, *what, **how)

            vars(opened)["_thread"] = thread
            yield opened

    def measured(self) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """Yield (name, value, attributes) of each gauge, or nothing if the store is closed."""
        self.look()
        store = self._store
        if store.closed:
            return
        try:
            yield "statelog.store.size", store.path.stat().st_size, {}
            for queue in durable.queues(store):
                yield "statelog.queue.depth", queue.waiting, {names.QUEUE: queue.name}
            if self.engine.remote is not None:
                status = self.engine.remote.status()
                yield "statelog.fleet.lag", status.lag_s, {}
                yield "statelog.fleet.lag.size", status.lag_bytes, {}
        except (StatelogError, OSError):  # The store has just been closed, or the disk has failed.
            return


_watches: WeakSet[InstrumentedStore] = WeakSet()


class TracedThread(Thread[Any, Any]):
    """A thread that adds the trace context of each commit to the metadata of its checkpoint."""

    watch: InstrumentedStore

    def checkout(self, branch: str) -> TracedThread:
        """See `Thread.checkout`. The returned thread is also traced."""
        made = super().checkout(branch)
        traced = object.__new__(TracedThread)
        vars(traced).update(vars(made), watch=self.watch)
        return traced

    def rollback(self, target: Any, *, metadata: Any = None, **how: Any) -> Any:
        """See `Thread.rollback`."""
        return super().rollback(target, metadata=self._traced(metadata), **how)

    def fork(self, name: str, *, update: Any = None, metadata: Any = None, **how: Any) -> Any:
        """See `Thread.fork`. Without `update` there is no checkpoint to trace."""
        traced = metadata if update is None else self._traced(metadata)
        return super().fork(name, update=update, metadata=traced, **how)

    def _commit_writes(self, prepared: Any, metadata: Any, **how: Any) -> Any:
        return super()._commit_writes(prepared, self._traced(metadata), **how)

    def _traced(self, metadata: Any) -> Any:
        """Return metadata with the trace context of the current span, if there is one."""
        if self.watch.is_on and (span := get_current_span()) is not INVALID_SPAN:
            return with_trace(metadata, span)
        return metadata


def watch_of(held: Any) -> InstrumentedStore | None:
    """Return the InstrumentedStore of a store or transaction, or None if the store is not instrumented."""
    found = watch_of_engine(session_of(held).owner)
    if found is not None:
        found.look()
    return found


def watch_of_engine(engine: Any) -> InstrumentedStore | None:
    """Return the InstrumentedStore of an engine, or None if the store is not instrumented."""
    found: InstrumentedStore | None = vars(engine).get(_KEPT)
    return found


def watches() -> list[InstrumentedStore]:
    """Return all instrumented stores."""
    return list(_watches)


_GAUGES = {
    "statelog.store.size": ("By", "Size of the file of a store"),
    "statelog.queue.depth": ("{run}", "Runs that wait for a worker"),
    "statelog.fleet.lag": ("s", "Age of the oldest record that the fleet's storage lacks"),
    "statelog.fleet.lag.size": ("By", "Approximate size of the records that the fleet's storage lacks"),
}


def create_gauges(telemetry: Telemetry) -> None:
    """Create the gauges, which are read when metrics are collected."""

    def reader(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_options: CallbackOptions) -> Iterator[Observation]:
            for watch in watches():
                if watch.telemetry is telemetry:
                    place = {"statelog.store.name": watch.engine.store_file.path.name}
                    yield from (
                        Observation(value, {**place, **more})
                        for found, value, more in watch.measured()
                        if found == name
                    )

        return read

    for name, (unit, description) in _GAUGES.items():
        telemetry.meter.create_observable_gauge(name, [reader(name)], unit, description)
