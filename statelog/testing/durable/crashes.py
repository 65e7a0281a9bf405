"""Kills a workflow at each of its boundaries and compares the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from statelog import durable
from statelog.durable.workflows import by_name
from statelog.errors import StatelogError, UsageError
from statelog.testing.durable.lives import Effects, Life, Place
from statelog.testing.durable.stories import RUN, Story, StoryOutcome, StoryPlan, kill_in, new_story
from statelog.testing.identity import identical

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from statelog.durable import Workflow
    from statelog.store.store import Store

HOW: Final = ("kill", "overtake", "cancel")


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
    """Run a workflow to its end. Then run it again for each boundary, kill it there, and resume it.

    A boundary is before or after a commit of the run or of one of its children. Each run has its own store and a
    skipping clock. At each boundary, one of three events happens, each in a separate run:

    - `kill`: the process seems to die, and another process continues the run.
    - `overtake`: the process is paused for longer than its lease. Another process finishes the run, and then the first
      process continues.
    - `cancel`: the process seems to die, and the run is cancelled before another process continues it.

    A killed or overtaken run must have the same result as an undisturbed run: status, value, error, threads with their
    number of checkpoints, the board, events, emitted messages, and the number of calls of each step. A step in flight
    may be called once more, except an at-most-once step. If an at-most-once step was in flight, the workflow gets
    StepInterruptedError and may end differently, so only calls are compared. In a cancelled run, every called step must
    be compensated.

    The workflow must be deterministic. Stub steps with effects outside of the store, because each run repeats them.
    `run.now()`, `run.uuid()` and `run.random()` return the same values in each run.

    Args:
        workflow: the workflow. An async workflow runs on its own event loop.
        *args: arguments of the workflow.
        answers: answers of gates by name: True, False, or the arguments of `durable.answer`. A gate without an answer
            times out.
        messages: by topic, the messages sent to the run before it begins.
        workflows: the workflows of its children.
        how: the events that happen.
        before: called with each new store before the run begins, for example to write its input or reset counters.
        directory: the directory of the stores. By default, a temporary one.
        **kwargs: keyword arguments of `durable.start`: `timeout_s`, and the keyword arguments of the workflow.

    Returns:
        A description of each boundary.

    Raises:
        AssertionError: a result differs. The message has the difference and the boundary.
        UsageError: an argument is not valid.
    """
    chosen = tuple(how)
    for each in chosen:
        if each not in HOW:
            raise UsageError(f"how must be of {', '.join(HOW)}, not {each!r}", argument="how", value=each)
    known = by_name((workflow, *workflows))
    plan = StoryPlan(workflow, args, kwargs, known, answers or {}, messages or {}, before, directory)
    with new_story(plan) as story:
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


def _kill(plan: StoryPlan, number: int, expected: StoryOutcome, counts: Mapping[Place, int]) -> None:
    with new_story(plan) as story:
        story.begin()
        life = kill_in(story, number)
        story.live(Life(story.effects))
        _compare(story, life, expected, counts)


def _overtake(plan: StoryPlan, number: int, expected: StoryOutcome, counts: Mapping[Place, int]) -> None:
    with new_story(plan) as story:

        def overtake(_life: Life) -> None:
            story.abandon()
            story.live(Life(story.effects))

        story.begin()
        life = Life(story.effects, at=number, then=overtake, before=True)
        story.live(life)
        _compare(story, life, expected, counts)


def _cancel(plan: StoryPlan, number: int, _expected: StoryOutcome, _counts: Mapping[Place, int]) -> None:
    with new_story(plan) as story:
        story.begin()
        kill_in(story, number)
        durable.cancel(story.store, RUN)
        story.live(Life(story.effects))
        effects = story.effects
        for run, place in sorted(effects.compensable):
            is_undone = effects.counts[run, f"undo.{place}"] > 0
            if not is_undone and durable.get_run(story.store, run).status in ("failed", "cancelled"):
                message = f"step {effects.names[run, place]!r} of run {run!r} was called, but not compensated"
                raise AssertionError(message)


_ACTS: Final = {"kill": _kill, "overtake": _overtake, "cancel": _cancel}


def _compare(story: Story, life: Life, expected: StoryOutcome, counts: Mapping[Place, int]) -> None:
    """Compare the outcome of a run with the outcome without a kill. Raises AssertionError."""
    effects = story.effects
    for key in sorted(effects.once):
        if effects.counts[key] > 1:
            raise AssertionError(f"{_step(effects, key)} must be called at most once: {effects.counts[key]} calls")
    if life.in_flight & effects.once:
        return  # The workflow got StepInterruptedError and may have taken a different path.
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
