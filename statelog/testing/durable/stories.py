"""The story of a run in its own store. One or more lives of a process execute it to its end."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import statelog
from statelog import durable
from statelog.durable.probes import probe
from statelog.durable.runs import board_of
from statelog.durable.starts import drive_here
from statelog.errors import ConflictError, LeaseLostError
from statelog.testing.durable.event_loop import drive_on_loop
from statelog.testing.durable.lives import Effects, Killed, Life, Place
from statelog.testing.durable.skipped_time import SkippingClock, skipping_clock

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from statelog.durable import RunInfo, Workflow
    from statelog.store.store import Store

RUN: Final = "run"
"""The id of the run and of its thread."""

_ROUNDS_MAX: Final = 1000
_NOW_US: Final = 1_767_225_600_000_000


class StoryPlan(NamedTuple):
    """The workflow and its inputs."""

    workflow: Workflow
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    workflows: Mapping[str, Workflow]
    answers: Mapping[str, Any]
    messages: Mapping[str, Sequence[Any]]
    before: Callable[[Store], object] | None
    directory: str | os.PathLike[str] | None
    once: Iterable[Place] = ()
    """Places of at-most-once steps."""


class StoryOutcome(NamedTuple):
    """The outcome of a run."""

    status: str
    value: Any
    error: str | None
    parked: tuple[str, ...]
    threads: dict[str, Any]
    board: dict[str, Any]
    events: dict[str, Any]
    messages: list[tuple[Any, ...]]
    """The run, place, topic and payload of each emitted message."""


class Story:
    """A run in its own store, from beginning to end, through one or more lives."""

    def __init__(self, plan: StoryPlan, store: Store, clock: SkippingClock) -> None:
        self.plan, self.store, self.clock = plan, store, clock
        self.effects = Effects(plan.once)

    def begin(self) -> None:
        """Start the run and send its mail, before it waits for the mail."""
        plan = self.plan
        if plan.before is not None:
            plan.before(self.store)
        durable.start(self.store, plan.workflow, *plan.args, id=RUN, **plan.kwargs)
        for topic, messages in plan.messages.items():
            for message in messages:
                durable.send(self.store, RUN, message, topic=topic)

    def live(self, life: Life) -> None:
        """Execute the run to its end in a life. Raises Killed."""

        def work() -> None:
            probe.set(life)
            self._drive_to_end()

        Context().run(work)

    def _drive_to_end(self) -> None:
        seen: list[RunInfo] = []
        for _ in range(_ROUNDS_MAX):
            for info in durable.runs(self.store):
                workflow = self.plan.workflows.get(info.workflow)
                if workflow is not None and not info.has_ended:
                    self._drive(workflow, info.id)
            info = durable.get_run(self.store, RUN)
            if info.has_ended or info.status == "parked":
                return
            has_answered = self._answer()
            found = durable.runs(self.store)
            if not has_answered and found == seen:
                self._wait(found)
                found = []
            seen = found
        raise AssertionError(f"run {RUN!r} has not ended: it is {durable.get_run(self.store, RUN)}")

    def _drive(self, workflow: Workflow, run: str) -> None:
        if workflow.is_async:
            drive_on_loop(self.store, workflow, run)
        else:
            drive_here(self.store, workflow, run, wait_s=0.0, is_patient=False)

    def _answer(self) -> bool:
        has_answered = False
        for gate in durable.gates(self.store, pending=True):
            given = self.plan.answers.get(gate.name)
            if given is None:
                continue
            facts = {"approved": given} if isinstance(given, bool) else dict(given)
            try:
                durable.answer(self.store, gate.id, **facts)
            except ConflictError:  # The gate has timed out.
                continue
            has_answered = True
        return has_answered

    def _wait(self, infos: Iterable[RunInfo]) -> None:
        dues = [info.due for info in infos if info.due is not None and not info.has_ended]
        if not dues:
            waiting = {info.id: info.waiting_for for info in infos if not info.has_ended}
            raise AssertionError(f"the run waits without an answer or message: {waiting}; see answers= and messages=")
        left_s = min(dues).timestamp() - self.clock.now_us() / 1e6
        self.clock.advance(max(left_s, 0.0) + 1e-3)

    def abandon(self) -> None:
        """Make the claims of a life expire, as if its process had been killed."""
        board = board_of(self.store)
        for entry in board.list("durable/tasks/**"):
            if entry.claim is not None:
                with suppress(LeaseLostError):  # Another OS thread has ended the claim.
                    board.claim_of(entry.key, entry.claim.token).renew(1e-6)

    def outcome(self) -> StoryOutcome:
        """Return the outcome of the run."""
        info = durable.get_run(self.store, RUN)
        board = board_of(self.store)
        threads = {
            each.id: {"versions": each.versions, "state": self.store.thread(each.id).state.to_python()}
            for each in self.store.threads()
            if not each.id.startswith("statelog:stream/")
        }
        plain = {e.key: e.value for e in board.list("**") if not e.key.startswith("durable/")}
        events = {e.key: e.value for e in board.list("durable/events/**")}
        outbox = [(e.key.split("/"), e.value) for e in board.list("durable/outbox/**")]
        messages = sorted(  # Leave the keys out, because they end with a random part.
            ((run, place.partition("-")[0], value["topic"], value["payload"]) for (*_, run, place), value in outbox),
            key=lambda each: each[:3],
        )
        return StoryOutcome(info.status, info.value, info.error, info.parked, threads, plain, events, messages)


def _standing(store: Store) -> AbstractContextManager[SkippingClock]:
    return skipping_clock(store, suspends=True, stands_at_us=_NOW_US)


@contextmanager
def new_story(plan: StoryPlan) -> Iterator[Story]:
    """Create a store for a run."""
    with tempfile.TemporaryDirectory(dir=plan.directory) as directory:
        path = Path(directory) / "run.state"
        with statelog.open(path, durability="interval") as store, _standing(store) as clock:
            yield Story(plan, store, clock)


def kill_in(story: Story, number: int) -> Life:
    """Run a life that dies at boundary `number`. If the life passes fewer boundaries, it finishes the run instead."""
    life = Life(story.effects, at=number, then=Life.die)
    try:
        story.live(life)
    except Killed:
        story.abandon()
    return life
