"""Measures what `statelog.otel.instrument` adds to a commit: with no-op providers, and without an SDK."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks.measure import interleave
from benchmarks.result import Result, at_most
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from benchmarks.measure import Operation
    from statelog.storage.options import Durability

_PER_REPEAT = 1000
_BARE, _NO_OP, _NO_SDK = "not instrumented", "no-op providers", "no SDK"
_TIME_MAX = 1.02
_DURABILITIES: tuple[Durability, ...] = ("commit", "interval")


def _measure(bench: Bench) -> Result:
    return Result.joined([_measure_commits(bench, durability) for durability in _DURABILITIES])


def _measure_commits(bench: Bench, durability: Durability) -> Result:
    """Measure small commits of an instrumented store, alternating with commits of a store that is not instrumented."""
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.trace import NoOpTracerProvider

    import statelog.otel  # This needs OpenTelemetry's API, an extra.

    with ExitStack() as stack:
        stack.callback(statelog.otel.uninstrument)

        def commits(name: str, **providers: Any) -> Operation:
            path = bench.directory / f"{name}, {durability}.state"
            store = stack.enter_context(statelog.open(path, durability=durability))
            if name != _BARE:
                statelog.otel.instrument(store, **providers)
            thread = store.thread("t")
            numbers = iter(range(1 << 40))
            thread.commit({"n": 0})
            return lambda: thread.commit({"n": next(numbers)})

        measured = interleave(
            {
                _BARE: commits(_BARE),
                _NO_OP: commits(_NO_OP, tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider()),
                _NO_SDK: commits(_NO_SDK),
            },
            count=bench.repeats * bench.size(_PER_REPEAT, at_least=16),
        )
    bare, instrumented = measured[_BARE], measured[_NO_OP]
    what = f"commit of an instrumented store with a no-op tracer, {durability}: time, relative to one that is not"
    return Result(
        checks=(at_most(what, instrumented.p50_us / bare.p50_us, _TIME_MAX),),
        sides=tuple(each.side(f"{name}, {durability}") for name, each in measured.items()),
        notes=tuple(
            f"{durability}, {name}: {each.p50_us / bare.p50_us:.3f}x, "
            f"processor {each.processor_p50_us / bare.processor_p50_us:.3f}x"
            for name, each in measured.items()
        ),
    )


OTEL = BenchWorkload(
    "otel", "What traces cost a commit", "commit and interval", _measure, ("opentelemetry",), extra="otel"
)
