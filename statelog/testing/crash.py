"""Kills a process during its work, and checks the store that it left.

A child process performs a history on a store and acknowledges each operation. It is killed
with SIGKILL, by itself at a named fault point or by the parent. Then the parent opens the
store. The store must have all acknowledged operations, and the operation in flight either
completely or not at all.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import statelog
from statelog.errors import UsageError
from statelog.storage import faults
from statelog.testing.comparison import assert_matches
from statelog.testing.history import Commit, perform, perform_all
from statelog.testing.model import StoreModel
from statelog.testing.nursery import Born, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from statelog.testing.history import History

POINTS = faults.POINTS
"""Names of the fault points, in the order in which the creation of a store and then a commit pass them."""

FURTHER_COMMIT = Commit("after the crash", ({},))
"""The last commit of `assert_recovered`, which checks that the store works."""

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class CrashResult:
    """The result of one crash.

    Attributes:
        acknowledged: the number of operations that the child acknowledged.
        recovered: the number of operations found in the store: `acknowledged`, or one more.
        killed: True if SIGKILL ended the child. False if it finished, because it passed the
            fault point less often than requested.
    """

    acknowledged: int
    recovered: int
    killed: bool


class Child:
    """A process that performs a history on a store. Use it as a context manager, which ends the process.

    Args:
        path: the store, which is created if it does not exist.
        history: the operations.
        schema: the schema of every thread. Its types must be importable, as for pickle.
        durability: the durability of the store.
        fault: the "point:occurrence" at which the process kills itself.
        acknowledges_early: acknowledge operations before doing them. This is a negative
            control, which the harness must notice.
        key: the key of the store, or None if it has no key.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        history: History,
        *,
        schema: object = None,
        durability: str = "commit",
        fault: str | None = None,
        acknowledges_early: bool = False,
        key: str | None = None,
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if name != faults.ENVIRONMENT_VARIABLE}
        if fault is not None:
            environment[faults.ENVIRONMENT_VARIABLE] = f"{fault}:kill"
        self.history = history
        self.acknowledged = 0
        arguments = os.fspath(path), history, schema, durability, acknowledges_early, key
        self._process = Born(job_of(_do_history, arguments), environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Kill the process if it still runs."""
        self._process.close()

    def await_acknowledged(self, count: int) -> None:
        """Wait until `count` operations are acknowledged, or the child has ended."""
        # Do not use a buffer, which would hide bytes from `wait`.
        while self.acknowledged < count and os.read(self._process.out, 1):
            self.acknowledged += 1

    def kill(self) -> None:
        """Send SIGKILL to the process."""
        self._process.kill()

    def wait(self) -> bool:
        """Wait for the process to end. Return whether it was killed.

        Raises:
            RuntimeError: the process failed in another way. The message has the end of its output.
        """
        rest, words = self._process.communicate(_TIMEOUT_S)
        self.acknowledged += len(rest)
        code = self._process.returncode
        if code not in (0, -signal.SIGKILL):
            message = f"the child ended with {code}: {words.decode(errors='replace')[-2000:]}"
            raise RuntimeError(message)
        return code != 0


def crash_at(
    path: str | os.PathLike[str],
    history: History,
    *,
    point: str,
    occurrence: int = 1,
    schema: object = None,
    durability: str = "commit",
    acknowledges_early: bool = False,
    key: str | None = None,
) -> CrashResult:
    """Perform a history in a child that kills itself at a fault point, and check the store.

    Args:
        path: a path without a store.
        history: the operations.
        point: one of `POINTS`.
        occurrence: the child dies when it passes the point for the n-th time, from 1.
        schema: the schema of every thread.
        durability: the durability of the store.
        acknowledges_early: see `Child`.
        key: the key of the store, or None if it has no key.

    Raises:
        AssertionError: an acknowledged operation is lost, or the store's contents are wrong.
    """
    if point not in POINTS:
        message = f"no fault point {point!r}; the fault points are {', '.join(POINTS)}"
        raise UsageError(message, fault=point)
    with Child(
        path,
        history,
        schema=schema,
        durability=durability,
        fault=f"{point}:{occurrence}",
        acknowledges_early=acknowledges_early,
        key=key,
    ) as child:
        killed = child.wait()
    recovered = assert_recovered(path, history, child.acknowledged, schema=schema, key=key)
    return CrashResult(child.acknowledged, recovered, killed)


def assert_recovered(
    path: str | os.PathLike[str],
    history: History,
    acknowledged: int,
    *,
    schema: object = None,
    key: str | None = None,
) -> int:
    """Check that a store has the first `acknowledged` operations, or one more, verifies, and is usable.

    The check adds one commit to the store, `FURTHER_COMMIT`.

    Returns:
        The number of operations found.

    Raises:
        AssertionError: the check fails.
    """
    if acknowledged and not Path(path).exists():
        message = f"{acknowledged} operations were acknowledged, but there is no file"
        raise AssertionError(message)
    with statelog.open(path, key=key) as store:
        problems = store.verify().problems
        if problems:
            message = f"after {acknowledged} operations: {problems[0]}"
            raise AssertionError(message)
        recovered = _assert_one_of(store, history, acknowledged, schema)
        model = _model(history[:recovered], schema)
        perform(FURTHER_COMMIT, store, schema=schema)
        perform(FURTHER_COMMIT, model, schema=schema)
        assert_matches(store, model)
    return recovered


def _assert_one_of(store: statelog.Store, history: History, acknowledged: int, schema: object) -> int:
    before = _model(history[:acknowledged], schema)
    if acknowledged < len(history) and store.last_lsn > before.last_lsn:
        assert_matches(store, _model(history[: acknowledged + 1], schema))
        return acknowledged + 1
    assert_matches(store, before)
    return acknowledged


def _model(history: History, schema: object) -> StoreModel:
    model = StoreModel()
    perform_all(history, model, schema=schema)
    return model


def job_of(function: Callable[..., object], arguments: tuple[Any, ...]) -> bytes:
    """Return a job for `Born`: a function that its process can import, and the arguments."""
    return pickle.dumps((sys.path, pickle.dumps((function, arguments))))


def _run_child() -> None:
    """Fork for every job, and do the job in the child."""
    job = serve(int(sys.argv[1]))
    faults.arm_from_environment()
    sys.path[:], call = pickle.loads(job)  # noqa: S301 - the data comes from the parent
    function, arguments = pickle.loads(call)  # noqa: S301
    function(*arguments)


def _do_history(
    path: str,
    history: History,
    schema: object,
    durability: Any,
    acknowledges_early: bool,  # noqa: FBT001
    key: str | None,
) -> None:
    """Perform a history on a store. Write one byte to stdout for each operation done."""
    with statelog.open(path, durability=durability, key=key) as store:
        for operation in history:
            if acknowledges_early:
                os.write(1, b".")
            perform(operation, store, schema=schema)
            if not acknowledges_early:
                os.write(1, b".")
