"""Kill a process in the middle of its work, and look at what it left.

A child process does a history to a store and says after each operation that it is done. It is
killed with SIGKILL: by itself at a named fault point, or by the parent. Then the parent opens
the store: what was acknowledged must be there, the one operation in flight whole or not at
all, and nothing else.
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
from statelog.testing.comparing import assert_matches
from statelog.testing.history import Commit, perform, perform_all
from statelog.testing.model import StoreModel
from statelog.testing.nursery import Born, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from statelog.testing.history import History

POINTS = faults.POINTS
"""Names of the fault points, in the order in which a creation and a commit pass them."""

FURTHER_COMMIT = Commit("after the crash", ({},))
"""What `assert_recovered` does to the store at last, to see that it works."""

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class CrashResult:
    """What came of one crash.

    Attributes:
        acknowledged: operations the child said were done.
        recovered: operations found in the store: as many, or one more.
        killed: whether the child died by SIGKILL; False: it finished, having passed the
            fault point less often than asked.

    """

    acknowledged: int
    recovered: int
    killed: bool


class Child:
    """A process that does a history to a store; a context manager that leaves no process behind.

    Args:
        path: of the store; created if it is not there.
        history: what to do.
        schema: of every thread; what it holds must be importable, as for pickle.
        durability: of the store.
        fault: "point:occurrence" at which it kills itself.
        acknowledges_early: say that an operation is done before doing it. Wrong, and meant to
            be: a harness that does not notice finds nothing.
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
        """Kill it, if it still runs."""
        self._process.close()

    def await_acknowledged(self, count: int) -> None:
        """Return once so many operations are done, or the child is."""
        while self.acknowledged < count and os.read(self._process.out, 1):  # unbuffered, as `wait` reads
            self.acknowledged += 1

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()

    def wait(self) -> bool:
        """Wait for its end; return whether it was killed.

        Raises:
            RuntimeError: it failed in another way; the message has its last words.

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
    """Do a history in a child that kills itself at a fault point, and check what it left.

    Args:
        path: where there is no store yet.
        history: what to do.
        point: one of `POINTS`.
        occurrence: 1 is the first pass of it.
        schema: of every thread.
        durability: of the store.
        acknowledges_early: see `Child`.
        key: the key of the store, or None if it has no key.

    Raises:
        AssertionError: something acknowledged is lost, or something else is there.

    """
    if point not in POINTS:
        message = f"no fault point {point!r}; there are {', '.join(POINTS)}"
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
    """Check that a store holds the first `acknowledged` operations, or one more, and is sound and usable.

    Leaves the store with one more commit, `FURTHER_COMMIT`.

    Returns:
        The number of operations it held.

    Raises:
        AssertionError: it does not.

    """
    if acknowledged and not Path(path).exists():
        message = f"{acknowledged} operations were acknowledged, and there is no file"
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
    """Return a job for `Born`: a function that its process can import, and what it is called with."""
    return pickle.dumps((sys.path, pickle.dumps((function, arguments))))


def _run_child() -> None:
    """Fork for every job; in each child do it."""
    job = serve(int(sys.argv[1]))
    faults.arm_from_environment()
    sys.path[:], call = pickle.loads(job)  # noqa: S301 - from the parent
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
    """Do a history to a store. One byte on stdout is one operation done."""
    with statelog.open(path, durability=durability, key=key) as store:
        for operation in history:
            if acknowledges_early:
                os.write(1, b".")
            perform(operation, store, schema=schema)
            if not acknowledges_early:
                os.write(1, b".")
