"""What tests of runs share."""

from __future__ import annotations

from statelog import durable

CALLS = []
"""What `note` was called with; empty as each test of tests/durable begins."""


def note(value):
    """A step that records its calls."""
    CALLS.append(value)
    return value


class Crash(BaseException):
    """Looks like the end of the process to a run."""


def execute(store, body, *args, id="evt-1", raises=(), **how):
    """Run a body as a workflow."""
    return durable.run(store, durable.workflow(name="w", raises=raises)(body), *args, id=id, **how)
