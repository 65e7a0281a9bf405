"""Exceptions of unusual classes are recorded, restored unchanged, and end their runs."""

from __future__ import annotations

import pytest
from executed import execute

from statelog import durable


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("it cannot say")


class TwoError(Exception):
    def __new__(cls, first, _second):
        return super().__new__(cls, first)

    def __init__(self, first, _second):
        super().__init__(first)


STRANGE = [
    SilentError(),
    TwoError("a", "b"),
    ExceptionGroup("several", [ValueError(1), KeyError(2)]),
    FileNotFoundError(2, "no", "\udc80.txt"),
    ValueError("\udc80"),
    ValueError("x" * 1_000_000),
    UnicodeDecodeError("utf-8", b"x" * 10_000, 0, 1, "no"),
    KeyError(object()),
]


@pytest.mark.parametrize("error", STRANGE, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("is_known", [False, True])
def test_an_exception_of_any_class_is_recorded_and_restored_unchanged(store, error, is_known):
    calls, got = [], []

    def fail():
        calls.append(1)
        raise error

    def body(run):
        try:
            run.step(fail)
        except Exception as raised:  # noqa: BLE001 - it is compared
            got.append(repr(raised))
        run.recv()

    raises = [type(error)] if is_known else []
    execute(store, body, raises=raises)
    durable.send(store, "evt-1", 1)
    assert execute(store, body, raises=raises).status == "completed"
    assert len(calls) == 1
    assert got[0] == got[1]


@pytest.mark.parametrize("error", STRANGE, ids=lambda each: type(each).__name__)
def test_a_workflow_that_fails_with_any_class_is_compensated_and_ends(store, error):
    undone = []

    def body(run):
        run.step_with(durable.StepOptions(compensate=lambda *_: undone.append(1)), abs, -1)
        raise error

    info = execute(store, body)
    assert (info.status, undone) == ("failed", [1])
    assert info.error.startswith(type(error).__name__)


@pytest.mark.parametrize("error", STRANGE, ids=lambda each: type(each).__name__)
def test_a_compensation_that_fails_with_any_class_is_reported(store, error):
    @durable.step(retry=durable.Retry(attempts=2, first_delay_s=0))
    def undo(*_):
        raise error

    def body(run):
        run.step_with(durable.StepOptions(compensate=undo), abs, -1)
        raise durable.Abort

    info = execute(store, body)
    assert (info.status, len(info.parked)) == ("failed", 1)
