"""The workload: the rows of each framework that is installed."""

from __future__ import annotations

from importlib import import_module

from statelog.bench.result import Result
from statelog.bench.workload import Bench, SkipError, Workload, is_installed

FRAMEWORKS = {
    "openai_agents": "agents",
    "google_adk": "google.adk",
    "pydantic_ai": "dbos",
}
"""By the adapter's name, which is that of its rows: the framework's module."""


def _measure(bench: Bench) -> Result:
    asked = bench.rows or tuple(FRAMEWORKS)
    here = [name for name in asked if is_installed(FRAMEWORKS[name])]
    if not here:
        message = f"none of their frameworks is installed: {', '.join(asked)}"
        raise SkipError(message)
    return Result.joined([import_module(f"statelog.bench.adapters.{name}").measure(bench) for name in here])


ADAPTERS = Workload(
    "adapters",
    "Adapters beside the storage that their frameworks bring",
    "commit; the frameworks' own as they are shipped",
    _measure,
    needs_one_of=tuple(FRAMEWORKS.values()),
    rows=tuple(FRAMEWORKS),
)
