"""Kill a workflow at each of its boundaries, and see that nothing differs."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import statelog
from statelog import durable
from statelog.durable.probes import probe
from statelog.durable.runs import board_of
from statelog.durable.starting import drive_here
from statelog.durable.workflows import by_name
from statelog.errors import ConflictError, StatelogError, UsageError
from statelog.testing.durable.lives import Effects, Killed, Life, Place
from statelog.testing.durable.skipping import SkippingClock, skipping_clock
from statelog.testing.identity import identical

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from statelog.durable import RunInfo, Workflow
    from statelog.store.store import Store

RUN: Final = "run"
"""Id of the run that is killed, and of its thread."""

HOW: Final = ("kill", "overtake", "cancel")

_ROUNDS_MAX: Final = 1000
_NOW_US: Final = 1_767_225_600_000_000


class _Plan(NamedTuple):
    """What is run."""

    workflow: Workflow
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    workflows: Mapping[str, Workflow]
    answers: Mapping[str, Any]
    messages: Mapping[str, Sequence[Any]]
    before: Callable[[Store], object] | None
    directory: str | os.PathLike[str] | None
    once: Iterable[Place] = ()
    """Places of steps that are called at most once."""


class _Outcome(NamedTuple):
    """What a run came to."""

    status: str
    value: Any
    error: str | None
    parked: tuple[str, ...]
    threads: dict[str, Any]
    board: dict[str, Any]
    events: dict[str, Any]
    messages: dict[str, Any]


class _Story:
    """A run in a store of its own, from its beginning to its end, through one life or several."""

    def __init__(self, plan: _Plan, store: Store, clock: SkippingClock) -> None:
        self.plan, self.store, self.clock = plan, store, clock
        self.effects = Effects(plan.once)

    def begin(self) -> None:
        """Begin the run, and send it its mail: before it waits for it."""
        plan = self.plan
        if plan.before is not None:
            plan.before(self.store)
        durable.start(self.store, plan.workflow, *plan.args, id=RUN, **plan.kwargs)
        for topic, messages in plan.messages.items():
            for message in messages:
                durable.send(self.store, RUN, message, topic=topic)

    def live(self, life: Life) -> None:
        """Drive the run to its end in a life. Raises Killed."""

        def work() -> None:
            probe.set(life)
            self._go_on()

        Context().run(work)

    def _go_on(self) -> None:
        seen: list[RunInfo] = []
        for _ in range(_ROUNDS_MAX):
            for info in durable.runs(self.store):
                workflow = self.plan.workflows.get(info.workflow)
                if workflow is not None and not info.has_ended:
                    drive_here(self.store, workflow, info.id, wait_s=0.0, is_patient=False)
            info = durable.get(self.store, RUN)
            if info.has_ended or info.status == "parked":
                return
            has_answered = self._answer()
            found = durable.runs(self.store)
            if not has_answered and found == seen:
                self._wait(found)
                found = []
            seen = found
        raise AssertionError(f"run {RUN!r} has not ended: it is {durable.get(self.store, RUN)}")

    def _answer(self) -> bool:
        has_answered = False
        for gate in durable.gates(self.store, pending=True):
            given = self.plan.answers.get(gate.name)
            if given is None:
                continue
            facts = {"approved": given} if isinstance(given, bool) else dict(given)
            try:
                durable.answer(self.store, gate.id, **facts)
            except ConflictError:  # its time is up
                continue
            has_answered = True
        return has_answered

    def _wait(self, infos: Iterable[RunInfo]) -> None:
        dues = [info.due for info in infos if info.due is not None and not info.has_ended]
        if not dues:
            waiting = {info.id: info.waiting_for for info in infos if not info.has_ended}
            raise AssertionError(f"nobody gives what is waited for: {waiting}; see answers= and messages=")
        left_s = min(dues).timestamp() - self.clock.now_us() / 1e6
        self.clock.advance(max(left_s, 0.0) + 1e-3)

    def abandon(self) -> None:
        """Let the claims of a life run out, as those of a process that was killed do."""
        board = board_of(self.store)
        for entry in board.list("durable/tasks/**"):
            if entry.claim is not None:
                board.claim_of(entry.key, entry.claim.token).renew(1e-6)

    def outcome(self) -> _Outcome:
        """Return what the run came to."""
        info = durable.get(self.store, RUN)
        board = board_of(self.store)
        threads = {
            each.id: {"versions": each.versions, "state": self.store.thread(each.id).state.to_python()}
            for each in self.store.threads()
            if not each.id.startswith("statelog:stream/")
        }
        plain = {e.key: e.value for e in board.list("**") if not e.key.startswith("durable/")}
        events = {e.key: e.value for e in board.list("durable/events/**")}
        messages = {e.key: (e.value["topic"], e.value["payload"]) for e in board.list("durable/outbox/**")}
        return _Outcome(info.status, info.value, info.error, info.parked, threads, plain, events, messages)


def crash_everywhere(
    workflow: Workflow,
    /,
    *args: Any,
    answers: Mapping[str, Any] | None = None,
    messages: Mapping[str, Sequence[Any]] | None = None,
    workflows: Iterable[Workflow] = (),
    how: Iterable[str] = HOW,
    before: Callable[[Store], object] | None = None,
    directory: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> list[str]:
    """Run a workflow to its end; then anew for each of its boundaries, at which it is killed, and resumed.

    A boundary is before or behind a commit of the run, or of one of its children. Each run has a store of its own and
    a clock that skips. Three things happen at each boundary, each to another run:

    - `kill`: the process dies, as far as the run can tell, and another one goes on.
    - `overtake`: the process is paused for longer than its lease, another one drives the run to its end, and then the
      first one goes on.
    - `cancel`: the process dies, and the run is cancelled before another one goes on.

    A run that was killed or overtaken has to come to what the run came to that was not: status, value, error, the
    threads with the number of their checkpoints, the board, events, what was emitted, and how often each step was
    called. A step in flight may have been called once more, one that is called at most once may not. Where such a step
    was in flight the workflow gets StepInterruptedError and may end otherwise: then only calls are counted. Of a run
    that was cancelled every step that was called has to be compensated.

    The workflow must do the same each time. What steps do outside of the store they do to nobody: stub them.
    What `run.now()`, `run.uuid()` and
    `run.random()` return is the same each time.

    Args:
        workflow: what is run.
        *args: for the workflow.
        answers: of gates, by name: True, False, or the arguments of `durable.answer`. A gate that has no answer times
            out.
        messages: by topic: what is sent to the run before it begins.
        workflows: of its children.
        how: which of the three things happen.
        before: called with each new store before the run begins: writes what the run reads, resets counters.
        directory: where stores are made; a temporary one, if left out.
        **kwargs: for the workflow.

    Returns:
        The boundaries, in words.

    Raises:
        AssertionError: something differs: what, and at which boundary.
        UsageError: an argument is none.

    """
    chosen = tuple(how)
    for each in chosen:
        if each not in HOW:
            raise UsageError(f"how is of {', '.join(HOW)}, not {each!r}", argument="how", value=each)
    known = by_name((workflow, *workflows))
    plan = _Plan(workflow, args, kwargs, known, answers or {}, messages or {}, before, directory)
    with _story(plan) as story:
        never_killed = Life(story.effects)
        story.begin()
        story.live(never_killed)
        expected, counts = story.outcome(), dict(story.effects.counts)
    plan = plan._replace(once=story.effects.once)
    for number, boundary in enumerate(never_killed.passed, 1):
        for each in chosen:
            if each == "overtake" and not boundary.startswith("before"):
                continue
            try:
                _ACTS[each](plan, number, expected, counts)
            except (AssertionError, StatelogError) as error:
                message = f"{each} at boundary {number} of {len(never_killed.passed)}, {boundary}: {error}"
                raise AssertionError(message) from error
    return never_killed.passed


def _standing(store: Store) -> AbstractContextManager[SkippingClock]:
    return skipping_clock(store, suspends=True, stands_at_us=_NOW_US)


@contextmanager
def _story(plan: _Plan) -> Iterator[_Story]:
    """Make a store for a run, in which nothing waits."""
    with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
        path = Path(directory) / "run.state"
        with statelog.open(path, durability="interval") as store, _standing(store) as clock:
            yield _Story(plan, store, clock)


def _kill(plan: _Plan, number: int, expected: _Outcome, counts: Mapping[Place, int]) -> None:
    with _story(plan) as story:
        story.begin()
        life = _killed(story, number)
        story.live(Life(story.effects))
        _compare(story, life, expected, counts)


def _overtake(plan: _Plan, number: int, expected: _Outcome, counts: Mapping[Place, int]) -> None:
    with _story(plan) as story:

        def overtake(life: Life) -> None:
            life.is_overtaken()
            story.abandon()
            story.live(Life(story.effects))

        story.begin()
        life = Life(story.effects, at=number, then=overtake)
        story.live(life)
        _compare(story, life, expected, counts)


def _cancel(plan: _Plan, number: int, _expected: _Outcome, _counts: Mapping[Place, int]) -> None:
    with _story(plan) as story:
        story.begin()
        _killed(story, number)
        durable.cancel(story.store, RUN)
        story.live(Life(story.effects))
        effects = story.effects
        for run, place in sorted(effects.compensable):
            is_undone = effects.counts[run, f"undo.{place}"] > 0
            if not is_undone and durable.get(story.store, run).status in ("failed", "cancelled"):
                message = f"step {effects.names[run, place]!r} of run {run!r} was called, and is not compensated"
                raise AssertionError(message)


_ACTS: Final = {"kill": _kill, "overtake": _overtake, "cancel": _cancel}


def _killed(story: _Story, number: int) -> Life:
    """Let a life die at a boundary."""
    life = Life(story.effects, at=number, then=Life.die)
    try:
        story.live(life)
    except Killed:
        story.abandon()
        return life
    raise AssertionError("the run does not come here each time")


def _compare(story: _Story, life: Life, expected: _Outcome, counts: Mapping[Place, int]) -> None:
    """Compare what a run came to with what it came to without a kill. Raises AssertionError."""
    effects = story.effects
    for key in sorted(effects.once):
        if effects.counts[key] > 1:
            raise AssertionError(f"{_step(effects, key)} is to be called once at most: {effects.counts[key]} calls")
    if life.in_flight & effects.once:
        return  # the workflow was told, and may have gone another way
    found = story.outcome()
    for name, value in expected._asdict().items():
        if not identical(getattr(found, name), value):
            raise AssertionError(f"{name} is {getattr(found, name)!r}, not {value!r}")
    for key in sorted(counts.keys() | effects.counts.keys()):
        calls, least = effects.counts[key], counts.get(key, 0)
        if not least <= calls <= least + (key in life.in_flight):
            raise AssertionError(f"{_step(effects, key)} was called {calls} times, not {least}")


def _step(effects: Effects, key: Place) -> str:
    return f"step {effects.names.get(key)!r} at {key[1]} of run {key[0]!r}"
