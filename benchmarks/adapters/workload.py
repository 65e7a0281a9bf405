"""The workload that measures the adapters of all installed frameworks, one row for each."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import cast

from benchmarks.result import Result
from benchmarks.workload import Bench, BenchWorkload, SkipError, is_installed

FRAMEWORKS = {
    "openai_agents": "agents",
    "pydantic_ai": "dbos",
    "google_adk": "google.adk",
    "crewai": "crewai",
    "claude_agent_sdk": "claude_agent_sdk",
    "strands": "strands",
    "agent_framework": "agent_framework",
}
"""Maps the name of each adapter, which is also the name of its row, to a module of its framework."""


def _measure(bench: Bench) -> Result:
    asked = bench.rows or tuple(FRAMEWORKS)
    here = [name for name in asked if is_installed(FRAMEWORKS[name])]
    if not here:
        message = f"none of these frameworks is installed: {', '.join(asked)}"
        raise SkipError(message)
    return Result.joined([_measure_one(name, bench) for name in here])


def _measure_one(name: str, bench: Bench) -> Result:
    folder = bench.directory / name
    folder.mkdir(parents=True)
    measure = import_module(f"{__package__}.{name}").measure
    return cast("Result", measure(replace(bench, directory=folder)))


ADAPTERS = BenchWorkload(
    "adapters",
    "Adapters, compared with the storage of their frameworks",
    "commit; the frameworks' own as they are shipped",
    _measure,
    needs_one_of=tuple(FRAMEWORKS.values()),
    rows=tuple(FRAMEWORKS),
)
