"""Kill a workflow at each of its boundaries, and see that nothing differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from statelog import durable
from statelog.durable.workflows import by_name
from statelog.errors import StatelogError, UsageError
from statelog.testing.durable.lives import Effects, Life, Place
from statelog.testing.durable.stories import RUN, Outcome, Plan, Story, kill_in, new_story
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

    The workflow must do the same each time. What steps do outside of the store they do each time: stub them. What
    `run.now()`, `run.uuid()` and `run.random()` return is the same each time.

    Args:
        workflow: what is run; an async one on an event loop of its own.
        *args: for the workflow.
        answers: of gates, by name: True, False, or the arguments of `durable.answer`. A gate that has no answer times
            out.
        messages: by topic: what is sent to the run before it begins.
        workflows: of its children.
        how: which of the three things happen.
        before: called with each new store before the run begins: writes what the run reads, resets counters.
        directory: where stores are made; a temporary one, if left out.
        **kwargs: of `durable.start`: `timeout_s` of the run, and those for the workflow.

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
    plan = Plan(workflow, args, kwargs, known, answers or {}, messages or {}, before, directory)
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


def _kill(plan: Plan, number: int, expected: Outcome, counts: Mapping[Place, int]) -> None:
    with new_story(plan) as story:
        story.begin()
        life = kill_in(story, number)
        story.live(Life(story.effects))
        _compare(story, life, expected, counts)


def _overtake(plan: Plan, number: int, expected: Outcome, counts: Mapping[Place, int]) -> None:
    with new_story(plan) as story:

        def overtake(_life: Life) -> None:
            story.abandon()
            story.live(Life(story.effects))

        story.begin()
        life = Life(story.effects, at=number, then=overtake, before=True)
        story.live(life)
        _compare(story, life, expected, counts)


def _cancel(plan: Plan, number: int, _expected: Outcome, _counts: Mapping[Place, int]) -> None:
    with new_story(plan) as story:
        story.begin()
        kill_in(story, number)
        durable.cancel(story.store, RUN)
        story.live(Life(story.effects))
        effects = story.effects
        for run, place in sorted(effects.compensable):
            is_undone = effects.counts[run, f"undo.{place}"] > 0
            if not is_undone and durable.get(story.store, run).status in ("failed", "cancelled"):
                message = f"step {effects.names[run, place]!r} of run {run!r} was called, and is not compensated"
                raise AssertionError(message)


_ACTS: Final = {"kill": _kill, "overtake": _overtake, "cancel": _cancel}


def _compare(story: Story, life: Life, expected: Outcome, counts: Mapping[Place, int]) -> None:
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
