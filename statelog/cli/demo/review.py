"""The demo's agent: reviews one package in each step and keeps all its state in a thread."""

from __future__ import annotations

import operator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from statelog import reducers
from statelog.cli.demo.sources import SourceFile, choose_packages, package_files, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog import Checkpoint, Thread

THREAD_ID = "review"
LONG_FUNCTION_LINES = 80


class Review(TypedDict):
    """The agent's state."""

    plan: list[str]
    long_function_lines: int
    files: Annotated[int, operator.add]
    lines: Annotated[int, operator.add]
    functions: Annotated[int, operator.add]
    longest_function_lines: Annotated[int, reducers.max]
    packages: Annotated[dict[str, Any], reducers.merge]
    findings: Annotated[list[dict[str, Any]], operator.add]
    messages: Annotated[list[dict[str, Any]], reducers.upsert("id")]


def begin(thread: Thread) -> Checkpoint:
    """Commit the plan as version 0. Version n is then the state after step n."""
    plan = choose_packages()
    task = {"id": "task", "role": "user", "content": f"Review these packages, one by one: {', '.join(plan)}."}
    return thread.commit(
        {
            "plan": plan,
            "long_function_lines": LONG_FUNCTION_LINES,
            "files": 0,
            "lines": 0,
            "functions": 0,
            "longest_function_lines": 0,
            "packages": {},
            "findings": [],
            "messages": [task],
        },
        metadata={"step": 0, "node": "plan"},
    )


def next_step(thread: Thread) -> int:
    """Return the next step. It depends only on the thread, so a new process can resume."""
    head = thread.head
    return 0 if head is None else int(head.metadata["step"]) + 1


def review_step(thread: Thread, step: int, *, halfway: Callable[[int, int], None] | None = None) -> Checkpoint:
    """Review one package and commit the findings: three writes of one superstep in one checkpoint.

    Args:
        thread: the thread whose state has the plan and the parameters.
        step: 1 is the first package of the plan.
        halfway: called with (files parsed, files in all) when half of the files are parsed.
    """
    state = thread.state
    package = state["plan"][step - 1]
    long_function_lines = state["long_function_lines"]
    paths = package_files(package)
    sources: list[SourceFile] = []
    for path in paths:
        sources.append(parse(path, long_function_lines=long_function_lines))
        if halfway is not None and len(sources) == (len(paths) + 1) // 2:
            halfway(len(sources), len(paths))
    findings = [asdict(finding) for source in sources for finding in source.findings]
    counts = {
        "files": len(sources),
        "lines": sum(source.lines for source in sources),
        "functions": sum(source.functions for source in sources),
    }
    longest = max(source.longest_function_lines for source in sources)
    answer = f"{package}: {len(findings)} findings.\n" + "\n".join(source.summary for source in sources)
    return thread.commit(
        {"findings": findings},
        {**counts, "longest_function_lines": longest, "packages": {package: {**counts, "findings": len(findings)}}},
        {"messages": [{"id": f"step-{step}", "role": "assistant", "content": answer}]},
        metadata={"step": step, "node": "review", "package": package},
    )
