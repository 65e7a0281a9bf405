"""The store of one run of the crossings, the processes that act on it, and its copies."""

from __future__ import annotations

import random
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import statelog
from statelog.errors import FencedError
from statelog.fleet import connect
from statelog.testing.crossings.acts import Actor
from statelog.testing.crossings.agreements import Agreements, Disagreement
from statelog.testing.crossings.processes import ActRequest, ActResult, do_here, end_of
from statelog.testing.crossings.values import COPIES, THREADS
from statelog.testing.observation import differences, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from statelog.fleet import Fleet
    from statelog.fleet.ownership import Takeover
    from statelog.testing.crossings.clock import SimulatedClock
    from statelog.testing.crossings.plans import Plan, PlanStep
    from statelog.testing.crossings.processes import Process

_JUMPS_S = (0.001, 0.001, 0.02, 0.02, 1.0, 1.0, 10.0, 100.0, 4000.0, 100_000.0)
_IDS = (*THREADS, *COPIES, "lg-1", "lg-2", "lg-3", "from-afar")
"""Ids of threads that may have been deleted."""


_LATE = "late"
"""The thread to which an owner commits after another machine has taken the store over."""

_MACHINES = 3
"""The number of simulated machines between which the store of a fleet moves. Each has its own cache folder."""


class Crossing:
    """One store, the processes that act on it, and its copies."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        clock: SimulatedClock,
        processes: Sequence[Process],
        roads: Sequence[str],
        heard: list[str],
    ) -> None:
        self._roads, self._heard = roads, heard
        self._plan, self._folder, self._clock, self._processes = plan, folder, clock, processes
        self._closing = ExitStack()
        self.outcome = ""
        self._machine = 0
        self._ends: set[tuple[int, str]] = set()
        """LSNs and chain digests of acknowledged records, which must not be lost."""
        self._fleets: dict[int, Fleet] = {}
        """The fleet as each machine has opened it. Empty if no fleet ships the store."""
        (folder / "bucket").mkdir()
        (folder / "copies").mkdir()
        fleet = self._fleet_here() if plan.is_shipped else None
        self._agreements = Agreements(folder / "copies", fleet, deleted=_IDS, clock=clock)
        self._actor = self._open()

    def _fleet_here(self) -> Fleet:
        """Return the fleet as the current machine of the store has opened it."""
        if self._machine not in self._fleets:
            cache = self._folder / f"machine-{self._machine}"
            fleet = connect((self._folder / "bucket").as_uri(), cache=cache)
            self._fleets[self._machine] = self._closing.enter_context(fleet)
        return self._fleets[self._machine]

    def _open(self, takeover: Takeover = "wait") -> Actor:
        options: dict[str, Any] = {"durability": self._plan.durability, "interval_ms": 1}
        if not self._plan.is_shipped:
            store = statelog.open(self._folder / "s.state", **options)
        else:
            options |= {"ship_ms": 3_600_000, "keep_s": 1e9, "grace_s": 1e9, "park_after_s": None}
            store = self._fleet_here().open("s", takeover=takeover, **options)
        for process in self._processes:
            process.go_to(store.path, self._folder, self._plan.durability)
        own = self._folder / "process"
        own.mkdir(exist_ok=True)
        actor = Actor(store, self._clock, own, "process")
        if self._plan.is_shipped:
            actor.objects["owner"] = self._fleet_here()
        return actor

    def close(self) -> None:
        """Close everything."""
        for process in self._processes:
            process.leave()
        self._agreements.close()
        self._actor.close()
        self._actor.store.close()
        self._closing.close()

    def abandon(self) -> None:
        """Close everything after a failure. Errors are ignored, because a failure is already reported."""
        for close in (self._agreements.close, self._actor.store.close, self._closing.close):
            try:
                close()
            except Exception:  # noqa: BLE001, S112 - a failure is already reported
                continue

    def do(self, step: PlanStep) -> tuple[str, str] | None:
        """Do a step. Return the kind and the text of a failure, or None if the step succeeds."""
        failure = self._do(step)
        if self._heard:
            return "thread", "\n".join(self._heard)
        return failure or self._find_lost()

    def _find_lost(self) -> tuple[str, str] | None:
        """Return a failure if acknowledged records are missing or have changed."""
        store = self._actor.store
        for lsn, digest in self._ends:
            found = "none" if lsn > store.last_lsn else next(store.log(lsn - 1)).digest
            if found != digest:
                return "lost", f"record {lsn} was acknowledged with chain digest {digest}; now it is {found}"
        end = end_of(store)
        self._ends = {end} if end else set()
        return None

    def _do(self, step: PlanStep) -> tuple[str, str] | None:
        self.outcome = "done"
        known: dict[str, Callable[[], tuple[str, str] | None]] = {
            "check": self._check,
            "reopen": self._reopen,
            "reopen alone": self._reopen_alone,
            "move": partial(self._move, step.seed),
            "take over": partial(self._take_over, step.seed),
            "die": partial(self._die, step),
            "jump": partial(self._jump, step.seed),
            "kill": partial(self._kill, step.who),
        }
        return known[step.what]() if step.what in known else self._act((*step.beside, step))

    def _jump(self, seed: int) -> None:
        self._clock.advance(random.Random(seed).choice(_JUMPS_S))  # noqa: S311 - the numbers are not secrets

    def _kill(self, who: int) -> None:
        self._processes[who - 1].kill()

    def _reopen_alone(self) -> tuple[str, str] | None:
        """Reopen the store after all other processes have closed it."""
        for process in self._processes:
            process.leave()
        return self._reopen()

    def _move(self, seed: int) -> tuple[str, str] | None:
        """Move the store of a fleet to another machine, whose cache folder may have an older copy of the store."""
        if not self._plan.is_shipped:
            return None
        for process in self._processes:
            process.leave()
        former, self._machine = self._machine, seed % _MACHINES
        return self._reopen(machine=former)

    def _take_over(self, seed: int) -> tuple[str, str] | None:
        """Make another machine take over the store of a fleet while this machine still has it open."""
        if not self._plan.is_shipped:
            return None
        for process in self._processes:
            process.leave()
        former = self._actor
        former.store.flush()
        former.store.remote.wait()
        self._machine = (self._machine + 1 + seed % (_MACHINES - 1)) % _MACHINES
        with self._clock.standing():
            last_lsn = former.store.last_lsn
            before = observe(former.store, deleted=_IDS)
            self._actor = self._open(takeover="now")
            before = _without_late(before, last_lsn)
            after = _without_late(observe(self._actor.store, deleted=_IDS), last_lsn)
            lines = differences(before, after, ("the store", "taken over"))
        former.close()
        try:
            former.store.thread(_LATE).commit({"late": 1}, durable="remote")
        except FencedError:
            pass
        else:
            lines.append("the former owner was told that a commit survives")
        with suppress(FencedError):
            former.store.close()
        return ("taken over", "\n".join(lines)) if lines else None

    def _die(self, step: PlanStep) -> tuple[str, str] | None:
        """Close the store here, let only the other processes act, and kill them. Reopening the store recovers it."""
        if not self._processes:
            return None
        self._actor.close()
        self._actor.store.close()
        failures = [self._act((each,)) for each in step.beside if each.who <= len(self._processes)]
        for process in self._processes:
            process.kill()
        self._actor = self._open()
        return next(filter(None, failures), None)

    def _act(self, steps: Sequence[PlanStep]) -> tuple[str, str] | None:
        """Perform the acts of several processes at the same time."""
        self._clock.advance(0.0005)
        moment = self._clock.moment
        elsewhere = [each for each in steps if each.who]
        for each in elsewhere:
            self._processes[each.who - 1].send(ActRequest(each.what, each.seed, moment, each.fault))
        answers = [
            (each, do_here(self._actor, ActRequest(each.what, each.seed, moment))) for each in steps if not each.who
        ]
        answers += [(each, self._processes[each.who - 1].answer()) for each in elsewhere]
        return next((failure for each, answer in answers if (failure := self._failure_in(each, answer))), None)

    def _failure_in(self, step: PlanStep, answer: ActResult) -> tuple[str, str] | None:
        self.outcome = answer.outcome
        if answer.moment is not None:
            self._clock.set(answer.moment)
        if answer.end is not None:
            self._ends.add(answer.end)
        if answer.trace:
            return f"act|{step.what}|{_last_line(answer.trace)}", answer.trace
        if answer.outcome == "killed" and step.fault is None:
            return f"died|{step.what}", f"process {step.who} died in {step.what}"
        return None

    def _reopen(self, before: dict[str, Any] | None = None, machine: int | None = None) -> tuple[str, str] | None:
        """Reopen the store. Return a failure if its contents differ from `before`, or by default from those now.

        `machine` is the machine that has had the store open, by default the current one.
        """
        machine = self._machine if machine is None else machine
        with self._clock.standing():
            before = before or observe(self._actor.store, deleted=_IDS)
            self._actor.close()
            self._actor.store.close()
            self._actor = self._open()
            after = observe(self._actor.store, deleted=_IDS)
            if self._machine != machine:
                last_lsn = before["log"][-1]["lsn"] if before["log"] else 0
                before, after = _without_late(before, last_lsn), _without_late(after, last_lsn)
            lines = differences(before, after, ("the store", "opened again"))
        return ("reopened", "\n".join(lines)) if lines else None

    def _check(self) -> tuple[str, str] | None:
        with self._clock.standing():
            found: list[Disagreement] = self._agreements.check(self._actor.store, self._roads)
        if found:
            return "|".join(each.kind for each in found), "\n".join(map(str, found))
        return self._seen_elsewhere() or self._reopen(self._agreements.observed)

    def _seen_elsewhere(self) -> tuple[str, str] | None:
        """Return a failure if another process that has the store open sees different contents."""
        for process in self._processes:
            shown = process.observe(self._clock.moment, _IDS)
            lines = [] if shown is None else differences(self._agreements.observed, shown, ("the store", process.name))
            if lines:
                return "seen elsewhere", "\n".join(lines)
        return None


def _without_late(observed: dict[str, Any], last_lsn: int) -> dict[str, Any]:
    """Return an observation without the commits of a fenced owner.

    Such a commit becomes part of the store only if the fenced machine is the next to take over the store.
    """
    log = [each for each in observed["log"] if each["lsn"] <= last_lsn]
    threads = [each for each in observed["threads"] if each["id"] != _LATE]
    return {**observed, "log": log, "threads": threads}


def _last_line(trace: str) -> str:
    return trace.strip().rpartition("\n")[2][:60].replace("|", "/")
