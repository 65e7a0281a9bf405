"""A run of the crossings: acts in an order drawn from a seed, with all agreements checked in between."""

from __future__ import annotations

import dataclasses
import logging
import random
import tempfile
import threading
import time
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import statelog
from statelog.fleet import connect, owning
from statelog.testing.crossings.acts import Actor
from statelog.testing.crossings.agreements import ROADS, Agreements, Disagreement
from statelog.testing.crossings.clock import Clock, installed
from statelog.testing.crossings.families import families
from statelog.testing.crossings.processes import KILL, Answer, Call, Process, do_here
from statelog.testing.crossings.values import COPIES, THREADS
from statelog.testing.observation import differences, observe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statelog.fleet import Fleet

_SEGMENTS_MAX = 6
"""A base is due after so many segments, so that a run of some hundred acts makes several."""

_JUMPS_S = (0.001, 0.001, 0.02, 0.02, 1.0, 1.0, 10.0, 100.0, 4000.0, 100_000.0)
_POINTS = (
    "commit.before_lmdb_commit",
    "commit.after_lmdb_commit",
    "commit.before_put_log",
    "commit.after_put_index",
    "commit.after_delivery",
    "journal.before_append",
    "journal.after_append",
    "compaction.between_transactions",
    "compaction.before_rename",
    "compaction.after_rename",
)
"""Where a process kills itself."""


_IDS = (*THREADS, *COPIES, "lg-1", "lg-2", "lg-3", "from-afar")
"""Threads that may have been deleted."""


class Step(NamedTuple):
    """One entry of a plan.

    Attributes:
        what: the name of an act; or "check", "reopen", "kill", "jump".
        who: the process that does it: 0 is the one that checks.
        seed: of what the act draws.
        fault: as for `Call`; ("kill", N) kills the process from outside, N microseconds after it has begun.
        beside: acts that other processes do at the same time.

    """

    what: str
    who: int = 0
    seed: int = 0
    fault: tuple[str, int] | None = None
    beside: tuple[Step, ...] = ()

    @classmethod
    def of(cls, saved: Sequence[Any]) -> Step:
        """Return the step that was saved as JSON."""
        what, who, seed, fault, beside = saved
        return cls(what, who, seed, None if fault is None else tuple(fault), tuple(map(cls.of, beside)))


@dataclass(frozen=True)
class Plan:
    """Everything that a run does: the same plan is the same run, but for the order of what OS threads do."""

    steps: tuple[Step, ...]
    processes: int = 0
    is_shipped: bool = False
    durability: str = "interval"

    def with_steps(self, steps: Sequence[Step]) -> Plan:
        """Return the plan with other steps."""
        return dataclasses.replace(self, steps=tuple(steps))


@dataclass
class Failure:
    """What went wrong, and after which step."""

    at: int
    step: Step
    kinds: tuple[str, ...]
    text: str
    plan: Plan = field(default_factory=lambda: Plan(()))


def draw_plan(
    seed: int, acts: int, *, check_every: int = 50, only: Sequence[str] = (), omit: Sequence[str] = ()
) -> Plan:
    """Draw a plan: which families and acts take part, how often each, in how many processes; and then the acts.

    Each run has some acts only, and some of these often: so it comes further in these than one that has all alike.
    Policies are set at the beginning, too, as programs do.

    Args:
        seed: the same seed draws the same plan.
        acts: how many.
        check_every: so many acts at most come between two checks.
        only: names of families; all, if left out.
        omit: names of acts that take no part.

    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    known = [family for name, family in families().items() if not only or name in only]
    chosen = [family for family in known if rng.random() < 0.6] or known
    weights = {
        act.name: act.weight * rng.choice((0, 1, 1, 1, 1, 6)) for family in chosen for act in family.acts.values()
    }
    weights = {name: weight for name, weight in weights.items() if weight and name not in omit} or {"threads.commit": 1}
    processes = rng.choice((0, 0, 1, 2))
    names, of = [*weights], [*weights.values()]
    jumps, together = rng.choice((0.02, 0.1, 0.3)), rng.choice((0.0, 0.1, 0.5))
    policies = [name for name in weights if name.endswith(".set_policy")]
    steps = [Step(rng.choice(policies), 0, rng.getrandbits(32)) for _policy in range(rng.randrange(4)) if policies]
    left = 0
    for what in rng.choices(names, of, k=acts):
        if left == 0:
            steps.append(Step("check"))
            left = rng.randrange(check_every // 2, check_every + 1)
        left -= 1
        if rng.random() < jumps:
            steps.append(Step("jump", 0, rng.getrandbits(32)))
        if rng.random() < 0.01:
            steps.append(Step("reopen"))
        who = rng.randrange(processes + 1)
        if who and rng.random() < 0.03:
            steps.append(Step("kill", who))
        step = Step(what, who, rng.getrandbits(32), _draw_fault(rng) if who else None)
        if processes and rng.random() < together:
            others = [each for each in range(processes + 1) if each != who]
            beside = tuple(
                Step(rng.choices(names, of)[0], each, rng.getrandbits(32), _draw_fault(rng) if each else None)
                for each in others
            )
            step = step._replace(beside=beside)
        steps.append(step)
    steps.append(Step("check"))
    return Plan(tuple(steps), processes, rng.random() < 0.5, rng.choice(("interval", "interval", "commit")))


def _draw_fault(rng: random.Random) -> tuple[str, int] | None:
    kind = rng.random()
    if kind < 0.02:
        return rng.choice(_POINTS), rng.randrange(1, 3)
    return (KILL, rng.choice((0, 100, 400, 1000, 3000))) if kind < 0.03 else None


class Driver:
    """Does plans, one after the other, with processes that stay. Use it as a context manager.

    Attributes:
        folder: where stores are made.
        acts: how many acts it has done.
        outcomes: what came of each kind of step, and how often.
        seconds: that each kind of step took.

    Args:
        folder: where stores are made; a folder in memory is best.
        roads: the agreements that are checked, of `ROADS`.

    """

    def __init__(self, folder: Path | None = None, *, roads: Sequence[str] = ROADS) -> None:
        self._roads = roads
        memory = Path("/dev/shm")  # noqa: S108 - of a file system in memory, if there is one
        self.folder = folder or (memory if memory.is_dir() else None)
        self._processes = [Process(f"process-{number}") for number in range(2)]
        self.acts = 0
        self.outcomes: dict[str, dict[str, int]] = {}
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._processes:
            process.kill()

    def run(self, plan: Plan) -> Failure | None:
        """Do a plan from an empty store on. Return the first failure, None if all agreed."""
        at, step = 0, Step("begin")
        with tempfile.TemporaryDirectory(
            prefix="statelog-crossing-", dir=self.folder, ignore_cleanup_errors=True
        ) as name:
            try:
                with self.crossing(plan, Path(name)) as crossing:
                    for at, step in enumerate(plan.steps):
                        begun_s = time.perf_counter()
                        failure = crossing.do(step)
                        self._note(step, crossing.outcome, time.perf_counter() - begun_s)
                        if failure is not None:
                            return Failure(at, step, tuple(failure[0].split("|")), failure[1], plan)
                    crossing.close()
            except Exception:  # noqa: BLE001 - it is reported
                return Failure(at, step, ("exception",), traceback.format_exc(), plan)
        return None

    @contextmanager
    def crossing(self, plan: Plan, folder: Path) -> Iterator[Crossing]:
        """Give a new store that the processes of this driver act on, by a clock that it moves."""
        processes = self._processes[: plan.processes]
        with installed(Clock()) as clock, _few_segments(), _listening() as heard:
            crossing = Crossing(plan, folder, clock, processes, self._roads, heard)
            try:
                yield crossing
            finally:
                crossing.abandon()
                for process in processes:
                    process.leave()

    def _note(self, step: Step, outcome: str, seconds: float) -> None:
        self.acts += ("." in step.what) + len(step.beside)
        counts = self.outcomes.setdefault(step.what, {})
        counts[outcome] = counts.get(outcome, 0) + 1
        self.seconds[step.what] = self.seconds.get(step.what, 0.0) + seconds


class _Listener(logging.Handler):
    """Collects what the library tells its log of exceptions: nobody else hears of these."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if record.exc_info and record.exc_info[0] is not None:
            self._heard.append(f"{record.getMessage()}\n{''.join(traceback.format_exception(*record.exc_info))}")


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Give a list of the exceptions that end in OS threads, or in the library's log."""
    heard: list[str] = []
    hook, threading.excepthook = threading.excepthook, lambda args: heard.append(_told(args))
    logger, listener = logging.getLogger("statelog"), _Listener(heard)
    logger.addHandler(listener)
    try:
        yield heard
    finally:
        logger.removeHandler(listener)
        threading.excepthook = hook


def _told(args: Any) -> str:
    return "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))


@contextmanager
def _few_segments() -> Iterator[None]:
    before = owning._SEGMENTS_MAX  # noqa: SLF001 - see _SEGMENTS_MAX
    owning._SEGMENTS_MAX = _SEGMENTS_MAX  # noqa: SLF001
    try:
        yield
    finally:
        owning._SEGMENTS_MAX = before  # noqa: SLF001


class Crossing:
    """One store, those who act on it, and its copies."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        clock: Clock,
        processes: Sequence[Process],
        roads: Sequence[str],
        heard: list[str],
    ) -> None:
        self._roads, self._heard = roads, heard
        self._plan, self._folder, self._clock, self._processes = plan, folder, clock, processes
        self._closing = ExitStack()
        self.outcome = ""
        self._end: tuple[int, str] | None = None
        """LSN and chain digest of the last record that was acknowledged."""
        self._fleet: Fleet | None = None
        if plan.is_shipped:
            (folder / "bucket").mkdir()
            self._fleet = self._closing.enter_context(connect((folder / "bucket").as_uri(), cache=folder / "cache"))
        (folder / "copies").mkdir()
        self._agreements = Agreements(folder / "copies", self._fleet, deleted=_IDS, clock=clock)
        self._actor = self._open()
        for process in processes:
            process.go_to(self._actor.store.path, folder, plan.durability)

    def _open(self) -> Actor:
        options: dict[str, Any] = {"durability": self._plan.durability, "interval_ms": 1}
        if self._fleet is None:
            store = statelog.open(self._folder / "s.state", **options)
        else:
            store = self._fleet.open("s", ship_ms=3_600_000, keep_s=1e9, grace_s=1e9, park_after_s=None, **options)
        own = self._folder / "process"
        own.mkdir(exist_ok=True)
        actor = Actor(store, self._clock, own, "process")
        if self._fleet is not None:
            actor.objects["owner"] = True
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
        """Close what can be closed, after a failure."""
        for close in (self._agreements.close, self._actor.store.close, self._closing.close):
            try:
                close()
            except Exception:  # noqa: BLE001, S112 - the failure is told already
                continue

    def do(self, step: Step) -> tuple[str, str] | None:
        """Do a step; return the kind of a failure and what it says, None if there is none."""
        failure = self._do(step)
        if self._heard:
            return "thread", "\n".join(self._heard)
        return failure or self._find_lost()

    def _find_lost(self) -> tuple[str, str] | None:
        """Return what is wrong if records that were acknowledged are not there, or are others."""
        store = self._actor.store
        last = store.last_lsn
        if self._end is not None:
            lsn, digest = self._end
            found = "none" if lsn > last else next(store.log(lsn - 1)).digest
            if found != digest:
                return "lost", f"record {lsn} was acknowledged with chain digest {digest}; now it is {found}"
        self._end = (last, next(store.log(last - 1)).digest) if last else None
        return None

    def _do(self, step: Step) -> tuple[str, str] | None:
        self.outcome = "done"
        if step.what == "check":
            return self._check()
        if step.what == "jump":
            self._clock.advance(random.Random(step.seed).choice(_JUMPS_S))  # noqa: S311 - no secret
        elif step.what == "kill":
            self._processes[step.who - 1].kill()
        elif step.what == "reopen":
            return self._reopen()
        else:
            return self._act(step)
        return None

    def _act(self, step: Step) -> tuple[str, str] | None:
        self._clock.advance(0.0005)
        moment = self._clock.moment
        all_steps = (*step.beside, step)
        elsewhere = [each for each in all_steps if each.who]
        for each in elsewhere:
            self._processes[each.who - 1].send(Call(each.what, each.seed, moment, each.fault))
        answers = [
            (each, do_here(self._actor, Call(each.what, each.seed, moment))) for each in all_steps if not each.who
        ]
        answers += [(each, self._processes[each.who - 1].answer()) for each in elsewhere]
        return next((failure for each, answer in answers if (failure := self._failure_in(each, answer))), None)

    def _failure_in(self, step: Step, answer: Answer) -> tuple[str, str] | None:
        self.outcome = answer.outcome
        if answer.moment is not None:
            self._clock.set(answer.moment)
        if answer.trace:
            return f"act|{step.what}|{_last_line(answer.trace)}", answer.trace
        if answer.outcome == "killed" and step.fault is None:
            return f"died|{step.what}", f"process {step.who} died in {step.what}"
        return None

    def _reopen(self, before: dict[str, Any] | None = None) -> tuple[str, str] | None:
        with self._clock.standing():
            before = before or observe(self._actor.store, deleted=_IDS)
            self._actor.close()
            self._actor.store.close()
            self._actor = self._open()
            lines = differences(before, observe(self._actor.store, deleted=_IDS), ("the store", "opened again"))
        return ("reopened", "\n".join(lines)) if lines else None

    def _check(self) -> tuple[str, str] | None:
        with self._clock.standing():
            found: list[Disagreement] = self._agreements.check(self._actor.store, self._roads)
        failure = self._reopen(self._agreements.observed)
        if not found:
            return failure
        return "|".join(each.kind for each in found), "\n".join(map(str, found))


def _last_line(trace: str) -> str:
    return trace.strip().rpartition("\n")[2][:60].replace("|", "/")


def shrink(plan: Plan, failure: Failure, driver: Driver, *, seconds: float = 120.0) -> Failure:
    """Return a failure of the same kind, of a plan with fewer steps: as few as are found in the time."""
    until_s = time.monotonic() + seconds
    best = failure
    steps = list(plan.steps[: failure.at + 1])
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < until_s:
        at, is_smaller = 0, False
        while at < len(steps) and time.monotonic() < until_s:
            fewer = steps[:at] + steps[at + size :]
            found = driver.run(plan.with_steps(fewer)) if fewer else None
            if found is not None and found.kinds[0] == failure.kinds[0]:
                best, steps, is_smaller = found, fewer[: found.at + 1], True
            else:
                at += size
        size = size if is_smaller and size > 1 else size // 2
    return best
