"""The processes that act on a store in addition to the driver's own. They may be killed at any time."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import statelog
from statelog.storage import faults
from statelog.testing.crossings.acts import Actor, perform
from statelog.testing.crossings.clock import ClockReading, SimulatedClock, installed
from statelog.testing.crossings.families import acts
from statelog.testing.crossings.listener import listening
from statelog.testing.observation import observe

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from statelog import Store

_STUCK_S = 60.0
KILL = "kill"
"""The fault that kills a process from outside, instead of at a named point."""


class ActRequest(NamedTuple):
    """A request to a process to perform an act.

    Attributes:
        act: the name of the act.
        seed: the seed of the act's random arguments.
        moment: the time at which the act begins.
        fault: a named point, and at which pass of that point the process kills itself. Or `KILL`, and the number of
            microseconds after which the process is killed. None if it is not killed.
    """

    act: str
    seed: int
    moment: ClockReading
    fault: tuple[str, int] | None = None


class ActResult(NamedTuple):
    """The result of an act.

    Attributes:
        outcome: "done", "killed", "fault", or the name of the error that refused the act.
        moment: the time at which the act ended.
        trace: the traceback of an exception that acts must not raise; empty if there was none.
        end: LSN and chain digest of the last record at the end of the act. This record was acknowledged.
    """

    outcome: str
    moment: ClockReading | None = None
    trace: str = ""
    end: tuple[int, str] | None = None


def do_here(actor: Actor, call: ActRequest) -> ActResult:
    """Perform an act in this process."""
    actor.clock.set(call.moment)
    random.seed(call.seed)  # The library also draws random numbers, for example for when to apply policies.
    try:
        outcome = perform(acts()[call.act], actor, call.seed)
    except Exception:  # noqa: BLE001 - the error is reported
        return ActResult("fault", actor.clock.moment, traceback.format_exc())
    return ActResult(outcome, actor.clock.moment, end=end_of(actor.store))


def end_of(store: Store) -> tuple[int, str] | None:
    """Return the LSN and the chain digest of the last record of a store, or None if it has no records."""
    last = store.last_lsn
    return (last, next(store.log(last - 1)).digest) if last else None


class Process:
    """A process that performs acts on a store. It is started, and opens the store, at its first act."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._place: tuple[str, str, str] | None = None
        self._process: Any = None
        self._pipe: Connection | None = None
        self._is_open = False
        self._kill_at_s: float | None = None

    def go_to(self, path: Path, folder: Path, durability: str) -> None:
        """Select the store of the next acts."""
        place = (str(path), str(folder), durability)
        if place != self._place:
            self.leave()
            self._place = place

    def leave(self) -> None:
        """Close the store in the process."""
        if self._is_open:
            self._ask(("close",))
        self._is_open = False

    def send(self, call: ActRequest) -> None:
        """Begin an act. `answer` waits for its end."""
        if not self._is_open:
            self._open()
        assert self._pipe is not None
        with suppress(BrokenPipeError):
            self._pipe.send(call)
        if call.fault is not None and call.fault[0] == KILL:
            self._kill_at_s = time.perf_counter() + call.fault[1] / 1e6

    def answer(self) -> ActResult:
        """Return the result of the act that was sent. If its fault is `KILL`, kill the process instead."""
        if self._kill_at_s is None:
            return self._receive()
        while time.perf_counter() < self._kill_at_s:
            pass
        self._kill_at_s = None
        self.kill()
        return ActResult("killed")

    def observe(self, moment: ClockReading, deleted: Iterable[str]) -> dict[str, Any] | None:
        """Return what the process observes in the store at `moment`, or None if the process does not have it open."""
        if not self._is_open:
            return None
        assert self._pipe is not None
        self._pipe.send(("observe", moment, tuple(deleted)))
        if not self._pipe.poll(_STUCK_S):
            raise TimeoutError(f"{self.name} is stuck for {_STUCK_S:g} s")
        shown: dict[str, Any] = self._pipe.recv()
        return shown

    def kill(self) -> None:
        """Kill the process. The next act starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def _open(self) -> None:
        assert self._place is not None
        if self._process is None:
            context = _context()
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=serve, args=(theirs, self.name), daemon=True)
            self._process.start()
            theirs.close()
        answer = self._ask(("open", *self._place))
        if answer.trace:
            raise RuntimeError(answer.trace)
        self._is_open = True

    def _ask(self, request: tuple[Any, ...]) -> ActResult:
        assert self._pipe is not None
        with suppress(BrokenPipeError):
            self._pipe.send(request)
        return self._receive()

    def _receive(self) -> ActResult:
        assert self._pipe is not None
        try:
            if not self._pipe.poll(_STUCK_S):
                self.kill()
                return ActResult("fault", trace=f"{self.name} is stuck for {_STUCK_S:g} s")
            answer: ActResult = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._end()
            return ActResult("killed")
        return answer

    def _end(self) -> None:
        self._process.join()
        assert self._pipe is not None
        self._pipe.close()
        self._process, self._pipe, self._is_open = None, None, False


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["statelog.testing.crossings.loaded"])
    return context


def serve(pipe: Connection, name: str) -> None:
    """Serve the requests of the parent process until the parent exits."""
    clock = SimulatedClock()
    actor: Actor | None = None
    with installed(clock), listening() as heard, suppress(EOFError):
        while True:
            request = pipe.recv()
            if isinstance(request, ActRequest):
                assert actor is not None
                if request.fault is not None and request.fault[0] != KILL:
                    faults.arm(request.fault[0], count=request.fault[1])
                answer = do_here(actor, request)
                faults.disarm()
                if heard and not answer.trace:
                    answer = answer._replace(trace="\n".join(heard))
                    heard.clear()
            elif request[0] == "observe":
                assert actor is not None
                clock.set(request[1])
                with clock.standing():
                    pipe.send(observe(actor.store, deleted=request[2]))
                continue
            else:
                answer, actor = _open_or_close(request, actor, clock, name)
            pipe.send(answer)
    os._exit(0)


def _open_or_close(
    request: tuple[str, ...], actor: Actor | None, clock: SimulatedClock, name: str
) -> tuple[ActResult, Actor | None]:
    try:
        if actor is not None:
            actor.close()
            actor.store.close()
        if request[0] == "close":
            return ActResult("done"), None
        _open, path, folder, durability = request
        store = statelog.open(path, durability=durability)  # type: ignore[arg-type]
        own = Path(folder, name)
        own.mkdir(exist_ok=True)
        return ActResult("done"), Actor(store, clock, own, name)
    except Exception:  # noqa: BLE001 - the error is reported
        return ActResult("fault", trace=traceback.format_exc()), None
