"""Exceptions of steps are restored from the record with type, arguments and attributes, live and on replay."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import urllib.error
from dataclasses import dataclass
from typing import NamedTuple

import pytest

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.durable.failures import error_of, exception_of
from statelog.errors import ConflictError, LimitError, StepFailedError, ValueTypeError


class DeclinedError(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{reason} ({code})")
        self.code = code


class HardDeclinedError(DeclinedError):
    pass


class SlottedError(Exception):
    __slots__ = ("code", "never_set")

    def __init__(self, code):
        super().__init__()
        self.code = code


class Point(NamedTuple):
    x: int
    y: int


class WhereError(Exception):
    point: Point

    def __init__(self, point, client):
        super().__init__("there")
        self.point, self.client = point, client


class ClientError(Exception):
    def __init__(self, client):
        super().__init__("refused")
        self.client = client


class MadeOfTwoError(Exception):
    def __new__(cls, first, second):
        return super().__new__(cls, first, second)

    def __init__(self, first, second):
        super().__init__(f"{first}/{second}")
        self.first = first


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class BatchError(ExceptionGroup):
    def __new__(cls, batch, errors):
        made = super().__new__(cls, f"batch {batch}", errors)
        made.batch = batch
        return made


class AskingError(Exception):
    """Its attributes are read from another object, like those of urllib's HTTPError."""

    def __init__(self, client):
        super().__init__("no")
        self.client = client

    def __getattr__(self, name):
        return getattr(self.__dict__["client"], name)


class SpeakingError(Exception):
    def __init__(self, client):
        super().__init__()
        self.client = client

    def __str__(self):
        return f"{self.client[0]} has refused"


def caught_twice(tmp_path, error, raises=(), *, is_async=False):
    """Return the exceptions that a workflow catches live and on replay, and the number of calls of the step."""
    calls, caught = [], []

    def fail():
        calls.append(1)
        raise error

    if is_async:

        @durable.workflow(raises=raises)
        async def go(run):
            try:
                await run.step(fail)
            except Exception as raised:  # noqa: BLE001 - it is compared
                caught.append(raised)
            await run.recv()

        async def both():
            async with await aio.open(tmp_path / "a.state") as store:
                await aio_durable.run(store, go, id="a")
                await aio_durable.send(store, "a", 1)
                return await aio_durable.run(store, go, id="a")

        info = asyncio.run(both())
    else:

        @durable.workflow(raises=raises)
        def go(run):
            try:
                run.step(fail)
            except Exception as raised:  # noqa: BLE001 - it is compared
                caught.append(raised)
            run.recv()

        with statelog.open(tmp_path / "a.state") as store:
            durable.run(store, go, id="a")
            durable.send(store, "a", 1)
            info = durable.run(store, go, id="a")
    assert info.status == "completed"
    assert len(calls) == 1
    return caught


BUILTIN = [
    FileNotFoundError(2, "No such file", "a.pdf"),
    OSError(18, "Invalid link", "a", None, "b"),
    ModuleNotFoundError("no", name="nowhere", path="/x"),
    SyntaxError("bad", ("a.py", 3, 7, "x = (", 3, 8)),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
    AttributeError("no attribute", name="spam"),
    KeyError("a", 2),
]
NAMES = (
    "errno",
    "strerror",
    "filename",
    "filename2",
    "name",
    "path",
    "lineno",
    "text",
    "end_offset",
    "object",
    "reason",
)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("error", BUILTIN, ids=lambda each: type(each).__name__)
def test_a_builtin_exception_is_restored_with_its_arguments_and_attributes(tmp_path, error, is_async):
    for found in caught_twice(tmp_path, error, is_async=is_async):
        assert (type(found), found.args, str(found)) == (type(error), error.args, str(error))
        for name in NAMES:
            assert getattr(found, name, None) == getattr(error, name, None)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_class_that_passes_different_arguments_to_its_base_keeps_its_attributes(tmp_path, is_async):
    for found in caught_twice(tmp_path, DeclinedError(51, "no funds"), [DeclinedError], is_async=is_async):
        assert (type(found), found.code, str(found)) == (DeclinedError, 51, "no funds (51)")


def test_attributes_of_slots_and_notes_are_kept(tmp_path):
    error = SlottedError(7)
    error.add_note("look at the card")
    for found in caught_twice(tmp_path, error, [SlottedError]):
        assert (found.code, found.__notes__) == (7, ["look at the card"])
        assert not hasattr(found, "never_set")


def test_attributes_are_restored_by_annotation_and_lost_ones_are_named_in_a_note(tmp_path):
    for found in caught_twice(tmp_path, WhereError(Point(1, 2), object()), [WhereError]):
        assert type(found.point) is Point
        assert found.point == Point(1, 2)
        assert not hasattr(found, "client")
        assert found.__notes__ == ["statelog could not keep its client"]


def test_an_attribute_whose_type_is_not_annotated_is_named_in_a_note(tmp_path):
    for found in caught_twice(tmp_path, DeclinedError(Point(1, 2), "no"), [DeclinedError]):
        assert found.code == (1, 2)
        assert found.__notes__ == ["statelog could not keep its type of code"]


def test_an_attribute_that_cannot_be_stored_is_not_set(tmp_path):
    for found in caught_twice(tmp_path, ClientError(object()), [ClientError]):
        assert (type(found), str(found), hasattr(found, "client")) == (ClientError, "refused", False)
        assert found.__notes__ == ["statelog could not keep its client"]


@pytest.mark.parametrize("size", [4000, 5000], ids=["kept", "too long"])
def test_an_attribute_is_kept_up_to_the_size_limit_and_named_in_a_note_beyond_it(tmp_path, size):
    error = DeclinedError(b"x" * size, "no funds")
    error.args = ("no funds",)
    for found in caught_twice(tmp_path, error, [DeclinedError]):
        assert hasattr(found, "code") is (size == 4000)
        assert ("code" in "".join(getattr(found, "__notes__", ()))) is (size == 5000)


def test_a_subclass_of_a_class_in_raises_is_restored_with_its_class(tmp_path):
    for found in caught_twice(tmp_path, HardDeclinedError(51, "no funds"), [DeclinedError]):
        assert (type(found), found.code) == (HardDeclinedError, 51)


@pytest.mark.slow
def test_a_subclass_that_is_not_loaded_is_restored_as_the_class_in_raises(tmp_path):
    caught = []

    def fail():
        raise type("GoneError", (DeclinedError,), {"__module__": "gone"})(51, "no funds")

    @durable.workflow(raises=[DeclinedError])
    def go(run):
        try:
            run.step(fail)
        except DeclinedError as error:
            caught.append((error.code, str(error)))
        run.recv()

    with statelog.open(tmp_path / "a.state") as store:
        durable.run(store, go, id="a")
        gc.collect()
        durable.send(store, "a", 1)
        assert durable.run(store, go, id="a").status == "completed"
    assert caught == [(51, "no funds (51)")] * 2


def test_a_class_that_is_not_in_raises_becomes_step_failed(tmp_path):
    for found in caught_twice(tmp_path, DeclinedError(51, "no funds")):
        assert (type(found), found.type, found.text) == (StepFailedError, "DeclinedError", "no funds (51)")


def test_an_exception_of_the_standard_library_is_restored_with_its_fields(tmp_path):
    error = subprocess.CalledProcessError(3, ["ls"], b"out", b"err")
    for found in caught_twice(tmp_path, error, [subprocess.CalledProcessError]):
        assert (found.returncode, found.cmd, found.output, found.stderr) == (3, ["ls"], b"out", b"err")


def test_a_statelog_error_keeps_its_facts(tmp_path):
    for found in caught_twice(tmp_path, ConflictError("no", key="a", versions=(1, 2))):
        assert (type(found), found.key, found.facts) == (ConflictError, "a", {"key": "a", "versions": (1, 2)})


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_an_exception_group_is_restored_with_its_members(tmp_path, is_async):
    error = ExceptionGroup("two", [FileNotFoundError(2, "no", "a"), ExceptionGroup("in", [DeclinedError(5, "no")])])
    for found in caught_twice(tmp_path, error, [DeclinedError], is_async=is_async):
        assert type(found) is ExceptionGroup
        assert found.exceptions[0].filename == "a"
        assert found.subgroup(DeclinedError).exceptions[0].exceptions[0].code == 5


def test_a_large_exception_group_keeps_its_first_members_and_reports_the_number_of_the_others(tmp_path):
    for found in caught_twice(tmp_path, ExceptionGroup("many", [ValueError(each) for each in range(100)])):
        assert [each.args[0] for each in found.exceptions] == list(range(32))
        assert "68" in "".join(found.__notes__)


UNUSUAL = [
    (MadeOfTwoError("a", "b"), "first", "a"),
    (FrozenError(3), "code", 3),
    (urllib.error.HTTPError("http://x/", 404, "Not Found", {}, None), "code", 404),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize(("error", "name", "value"), UNUSUAL, ids=lambda each: type(each).__name__)
def test_a_class_with_its_own_constructor_is_restored_with_its_class(tmp_path, error, name, value, is_async):
    for found in caught_twice(tmp_path, error, [type(error)], is_async=is_async):
        assert (type(found), str(found), getattr(found, name)) == (type(error), str(error), value)


@pytest.mark.parametrize(("error", "name", "value"), UNUSUAL, ids=lambda each: type(each).__name__)
def test_a_run_can_fail_by_an_exception_whose_class_has_its_own_constructor(store, error, name, value):
    del name, value

    def fail():
        raise error

    @durable.workflow(raises=[type(error)])
    def go(run):
        run.step(fail)

    info = durable.run(store, go, id="a")
    assert (info.status, info.error) == ("failed", f"{type(error).__name__}: {error}")
    assert "in fail" in info.traceback


def test_a_class_whose_attributes_need_lost_data_is_restored_with_its_class(tmp_path):
    for found in caught_twice(tmp_path, AskingError(object()), [AskingError]):
        assert (type(found), str(found)) == (AskingError, "no")
        assert found.__notes__ == ["statelog could not keep its client"]


def test_a_subclass_of_an_exception_group_is_restored_with_members_and_attributes(tmp_path):
    error = BatchError(7, [DeclinedError(5, "no"), KeyError("a")])
    for found in caught_twice(tmp_path, error, [BatchError, DeclinedError]):
        assert (type(found), found.message, found.batch) == (BatchError, "batch 7", 7)
        assert [type(each) for each in found.exceptions] == [DeclinedError, KeyError]
        assert found.exceptions[0].code == 5


# --- texts and causes ----------------------------------------------------------------------------

LONG = [
    UnicodeDecodeError("utf-8", b"a" * 5000 + b"\xff", 5000, 5001, "invalid start byte"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    UnicodeTranslateError("a" * 5000, 4999, 5000, "no"),
    FileNotFoundError(2, "No such file", "x" * 4090),
    KeyError(object(), "line\n"),
    SpeakingError([object()]),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("error", LONG, ids=lambda each: type(each).__name__)
def test_an_exception_whose_data_is_lost_keeps_its_text(tmp_path, error, is_async):
    for found in caught_twice(tmp_path, error, [SpeakingError], is_async=is_async):
        assert isinstance(found, type(error))
        assert str(found) == str(error)[:4096]
        assert "could not keep" in "".join(found.__notes__)


def test_a_restored_exception_is_recorded_again_unchanged(tmp_path):
    once, again = (error_of(each) for each in caught_twice(tmp_path, LONG[0]))
    assert once == again
    assert (once["type"], once["message"]) == ("UnicodeDecodeError", str(LONG[0]))
    assert str(exception_of(once, ())) == str(LONG[0])


def test_the_error_of_a_run_has_the_text_of_an_exception_whose_data_is_lost(store):
    def fail():
        raise LONG[0]

    @durable.workflow
    def go(run):
        run.step(fail)

    assert durable.run(store, go, id="a").error == f"UnicodeDecodeError: {LONG[0]}"


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("raises", [(), (DeclinedError,)], ids=["not named", "named"])
def test_an_exception_has_no_cause_and_no_context_live_as_on_replay(tmp_path, raises, is_async):
    for found in caught_twice(tmp_path, DeclinedError(51, "no funds"), raises, is_async=is_async):
        assert (found.__cause__, found.__context__) == (None, None)


REFUSED = {
    "transaction": lambda run: run.transact(lambda _tx: 1 // 0),
    "result": lambda run: run.step(object),
    "commit": lambda run: run.step_with(durable.StepOptions(commit=lambda _: 1 // 0), len, "a"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_refusal_has_no_cause_and_no_context_live_as_on_replay(store, how):
    caught = []

    @durable.workflow
    def go(run):
        try:
            REFUSED[how](run)
        except Exception as error:  # noqa: BLE001 - it is compared
            caught.append((type(error), error.__cause__, error.__context__))
        run.recv()

    durable.run(store, go, id="a")
    durable.send(store, "a", 1)
    assert durable.run(store, go, id="a").status == "completed"
    assert caught[0] == caught[1]
    assert caught[0][1:] == (None, None)


# --- StopIteration ------------------------------------------------------------------------------


def test_stop_iteration_is_restored_if_the_workflow_is_a_function(tmp_path):
    for found in caught_twice(tmp_path, StopIteration(7)):
        assert (type(found), found.value) == (StopIteration, 7)


def test_stop_iteration_is_reported_in_asyncio_because_no_coroutine_can_raise_it(tmp_path):
    for found in caught_twice(tmp_path, StopIteration(7), is_async=True):
        assert type(found) is RuntimeError
        assert (type(found.__cause__), found.__cause__.value) == (StopIteration, 7)


def no_more(*_args):
    return next(iter([]))


WAYS = {
    "start": lambda run: run.start(no_more).result(),
    "map": lambda run: run.map(no_more, [1, 2]),
    "branch": lambda run: run.branch(lambda run: run.step(no_more)).result(),
    "gather": lambda run: run.gather(run.start(no_more), run.start(no_more)),
    "transact": lambda run: run.transact(no_more),
    "commit": lambda run: run.step_with(durable.StepOptions(commit=no_more), len, "a"),
}


@pytest.mark.parametrize("how", WAYS)
def test_stop_iteration_is_raised_by_every_way_to_call_a_step(tmp_path, how):
    @durable.workflow
    def go(run):
        try:
            return WAYS[how](run)
        except StopIteration:
            return "none"

    with statelog.open(tmp_path / "a.state") as store:
        assert durable.run(store, go, id="a").value == "none"


def test_a_workflow_and_a_compensation_can_raise_stop_iteration(tmp_path):
    @durable.workflow
    def go(run):
        run.step_with(durable.StepOptions(compensate=durable.step(retry=durable.Retry())(no_more)), len, "a")
        raise StopIteration(5)

    with statelog.open(tmp_path / "a.state") as store:
        info = durable.run(store, go, id="a")
    assert (info.status, info.error, info.parked) == ("failed", "StopIteration: 5", ("len: StopIteration",))


# --- results that cannot be stored ---------------------------------------------------------------


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize(("result", "kind"), [(object(), ValueTypeError), (nested(127), LimitError)])
def test_a_result_that_cannot_be_recorded_is_refused_and_its_step_is_not_called_again(tmp_path, result, kind, is_async):
    calls, caught = [], []

    def charge():
        calls.append(1)
        return result

    retry = durable.Retry(attempts=3, first_delay_s=0)
    if is_async:

        @durable.workflow
        async def go(run):
            try:
                await run.step_with(durable.StepOptions(retry=retry), charge)
            except (ValueTypeError, LimitError) as error:
                caught.append((type(error), str(error)))
            await run.recv()

        async def both():
            async with await aio.open(tmp_path / "a.state") as store:
                await aio_durable.run(store, go, id="a")
                await aio_durable.send(store, "a", 1)
                return await aio_durable.run(store, go, id="a")

        info = asyncio.run(both())
    else:

        @durable.workflow
        def go(run):
            try:
                run.step_with(durable.StepOptions(retry=retry), charge)
            except (ValueTypeError, LimitError) as error:
                caught.append((type(error), str(error)))
            run.recv()

        with statelog.open(tmp_path / "a.state") as store:
            durable.run(store, go, id="a")
            durable.send(store, "a", 1)
            info = durable.run(store, go, id="a")
    assert info.status == "completed"
    assert len(calls) == 1
    assert caught[0] == caught[1]
    assert caught[0][0] is kind


@pytest.mark.parametrize("levels", [126, 127, 128])
def test_a_workflow_whose_result_cannot_be_stored_fails_and_does_not_stop(tmp_path, levels):
    @durable.workflow
    def go(_run):
        return nested(levels)

    with statelog.open(tmp_path / "a.state") as store:
        info = durable.run(store, go, id="a")
        assert info.status == ("completed" if levels == 126 else "failed")


@pytest.mark.parametrize("levels", [125, 126, 127, 128])
def test_an_answer_that_the_run_cannot_record_is_refused_and_the_gate_stays_open(tmp_path, levels):
    @durable.workflow
    def go(run):
        answer = run.gate("approve")
        run.step(len, "abc")
        return answer.payload

    with statelog.open(tmp_path / "a.state") as store:
        durable.run(store, go, id="a")
        if levels > 125:
            with pytest.raises(LimitError):
                durable.answer(store, "a/0", approved=True, payload=nested(levels))
            assert durable.gates(store, pending=True)[0].id == "a/0"
            durable.answer(store, "a/0", approved=True, payload=nested(125))
        else:
            durable.answer(store, "a/0", approved=True, payload=nested(levels))
        assert durable.run(store, go, id="a").value == nested(125)


@pytest.mark.parametrize("bad", [{"payload": object()}, {"by": "\ud800"}, {"payload": "\ud800"}])
def test_an_answer_that_cannot_be_stored_leaves_the_gate_open(tmp_path, bad):
    @durable.workflow
    def go(run):
        return run.gate("approve").by

    with statelog.open(tmp_path / "a.state") as store:
        durable.run(store, go, id="a")
        with pytest.raises((ValueTypeError, LimitError)):
            durable.answer(store, "a/0", approved=True, **bad)
        durable.answer(store, "a/0", approved=True, by="ann")
        assert durable.run(store, go, id="a").value == "ann"
