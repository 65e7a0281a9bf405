"""Starts a run of a graph, or resumes the run that a crash has interrupted, without dropping or repeating an input."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.pregel import _algo
from langgraph.types import Command

from statelog.adapters.langgraph.saver.paused_nodes import check_next_nodes
from statelog.adapters.langgraph.values.names import ANSWERS, AT_HEAD, NO_TASK, AtHead
from statelog.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from langchain_core.runnables import RunnableConfig

EVENT_ID = "event_id"
"""The key of the event's id in a checkpoint's metadata."""
_INPUT_CHANNEL = "__start__"
_INTERRUPTS = "__interrupt__"
_interrupt_id: Any = getattr(_algo, "_interrupt_id", None)
"""LangGraph's function that makes a question's id from its task and number, or None in releases without numbers."""
_STEPS_MAX = 10_000
"""The maximum number of checkpoints that are searched for the input of a run."""


class _Do(NamedTuple):
    """A method call to make on the graph or on its checkpointer."""

    name: str
    arguments: tuple[Any, ...]
    more: dict[str, Any]


def resume_or_start(
    graph: Any, input: Any, config: RunnableConfig, *, event_id: str | None = None, **options: Any
) -> Any:
    """Finish an unfinished run of the thread, and then run the graph on an input. Return the result of the last run.

    If a crash or an error has left a run unfinished, that run is resumed first. If it has the same input, nothing else
    is run, because the event was delivered again. If the thread waits for an answer, a new input is refused and not
    used. `Command(resume=...)` answers. A run that failed after an answer is resumed with that answer. If two calls run
    on one thread at once, one of them raises ConflictError, so that no input is lost: deliver its event again.

    Args:
        graph: a compiled graph with a checkpointer.
        input: the input of the graph, a Command, or None to resume only.
        config: as for `graph.invoke`.
        event_id: the id of the event that delivers the input, such as a message id. It shows whether two equal inputs
            are the same event. If the thread's state comes from a run with this id, no new run is started. Without an
            id, an input equal to the unfinished run's input is taken for the same event.
        options: as for `graph.invoke`.

    Raises:
        ConflictError: the thread waits for an answer, or at a breakpoint, and `input` is not a Command. The input was
            not used. Facts: thread, interrupts (their ids), next (the nodes). Or another call has continued the thread
            during this call (with a StatelogSaver). Facts: thread, expected_version, actual_version.
        NodeNotFoundError: the unfinished run is at a node that the graph does not have. The input was not used.
        UsageError: the graph has no checkpointer, or a Command resumes a thread that does not wait.
    """
    plan = _plan(graph, input, config, event_id, options)
    sent: Any = None
    while True:
        try:
            step = plan.send(sent)
        except StopIteration as end:
            return end.value
        if step.name == "history":
            sent = list(islice(graph.get_state_history(*step.arguments), _STEPS_MAX))
        elif step.name == "list":
            sent = list(graph.checkpointer.list(*step.arguments, **step.more))
        elif step.name == "get_tuple":
            sent = graph.checkpointer.get_tuple(*step.arguments)
        else:
            sent = getattr(graph, step.name)(*step.arguments, **step.more)


async def aresume_or_start(
    graph: Any, input: Any, config: RunnableConfig, *, event_id: str | None = None, **options: Any
) -> Any:
    """See `resume_or_start`."""
    plan = _plan(graph, input, config, event_id, options)
    sent: Any = None
    while True:
        try:
            step = plan.send(sent)
        except StopIteration as end:
            return end.value
        if step.name == "history":
            sent = [state async for state in graph.aget_state_history(*step.arguments, limit=_STEPS_MAX)]
        elif step.name == "list":
            sent = [each async for each in graph.checkpointer.alist(*step.arguments, **step.more)]
        elif step.name == "get_tuple":
            sent = await graph.checkpointer.aget_tuple(*step.arguments)
        else:
            sent = await getattr(graph, f"a{step.name}")(*step.arguments, **step.more)


def _plan(
    graph: Any, input: Any, config: RunnableConfig, event_id: str | None, options: dict[str, Any]
) -> Generator[_Do, Any, Any]:
    """Yield the calls to make, and return the result."""
    _check(graph, event_id)
    state = yield _Do("get_state", (config,), {})
    yield from _check_nodes(graph, config, state)
    answered = yield from _answered(state)
    if isinstance(input, Command) and not _is_repeated(input, config, state, answered):
        return (yield _Do("invoke", (input, _at_head(config, state)), options))
    if isinstance(input, Command):
        input = None
    is_known, is_done = yield from _known(input, config, state, event_id)
    waits = state.interrupts and answered is None
    if waits or (input is not None and _is_at_breakpoint(graph, state, options)):
        if is_known or input is None:
            return {**state.values, _INTERRUPTS: list(state.interrupts)} if waits else state.values
        raise _waiting(config, state)
    result = state.values
    if state.next:
        result = yield _Do("invoke", (None, _at_head(config, state, is_answered=answered is not None)), options)
    if is_known or is_done or input is None:
        return result
    if state.next:
        state = yield _Do("get_state", (config,), {})
        if state.next:  # Do not begin a new run, which would drop this question.
            raise _waiting(config, state)
    return (yield _Do("invoke", (input, _at_head(_with_event(config, event_id), state)), options))


def _check_nodes(graph: Any, config: RunnableConfig, state: Any) -> Generator[_Do, Any, None]:
    """Raise NodeNotFoundError if the thread is at a node that the graph lacks. To LangGraph, the run is finished."""
    if not state.next and state.created_at is not None:
        found = yield _Do("get_tuple", (config,), {})
        if found is not None:
            check_next_nodes(found, graph.channels, graph.nodes)


def _is_repeated(command: Command[Any], config: RunnableConfig, state: Any, answered: _Answered | None) -> bool:
    """Return True if a Command has the answer after which the run has failed.

    Raises:
        UsageError: there was no question.
        ConflictError: the question has received a different answer.
    """
    if command.resume is not None and not state.interrupts:
        message = (
            f"thread {_thread(config)!r} is not waiting for an answer, so Command(resume=...) would have no effect"
        )
        raise UsageError(message, argument="input", thread=_thread(config))
    if command.resume is None or answered is None:
        return False
    if command.resume != answered.answer:
        raise _was_answered(config, state)
    return True


def _with_event(config: RunnableConfig, event_id: str | None) -> RunnableConfig:
    if event_id is None:
        return config
    return {**config, "metadata": {**(config.get("metadata") or {}), EVENT_ID: event_id}}


def _at_head(config: RunnableConfig, state: Any, *, is_answered: bool = False) -> RunnableConfig:
    """Return a config with which a StatelogSaver refuses a run's checkpoints if another run has overtaken the run.

    `is_answered` is True if the run continues after an answer. This answer must not also answer a later question.
    """
    configurable = config.get("configurable") or {}
    if configurable.get("checkpoint_id"):  # The caller begins a new branch at an earlier checkpoint.
        return config
    return {
        **config,
        "configurable": {**configurable, AT_HEAD: AtHead(_thread(config), _id_in(state.config), is_answered)},
    }


def _check(graph: Any, event_id: object) -> None:
    if not getattr(graph, "checkpointer", None):
        message = "resume_or_start needs a graph that was compiled with a checkpointer"
        raise UsageError(message, argument="graph", value=graph)
    if event_id is not None and (not isinstance(event_id, str) or not event_id):
        message = f"event_id must be a non-empty str, not {event_id!r}"
        raise UsageError(message, argument="event_id", value=event_id)


def _known(
    input: Any, config: RunnableConfig, state: Any, event_id: str | None
) -> Generator[_Do, Any, tuple[bool, bool]]:
    """Return whether the unfinished run has this input, and whether the state comes from a run of this event."""
    is_done = False
    if event_id is not None:
        runs = yield _Do("list", (config,), {"filter": {EVENT_ID: event_id}})
        is_done = bool(runs) and (yield from _is_on_line({each.checkpoint["id"] for each in runs}, config, state))
    if not state.next or input is None:
        return False, is_done
    history = yield _Do("history", (config,), {})
    began = next((each for each in history if (each.metadata or {}).get("source") == "input"), None)
    if began is None:
        return False, is_done
    if event_id is not None:
        return began.metadata.get(EVENT_ID) == event_id, is_done
    found = yield _Do("get_tuple", (began.config,), {})
    values = {} if found is None else found.checkpoint["channel_values"]
    return _INPUT_CHANNEL in values and _are_equal(values[_INPUT_CHANNEL], input), is_done


def _is_on_line(ids: set[str], config: RunnableConfig, state: Any) -> Generator[_Do, Any, bool]:
    """Return True if the state or one of its ancestors is in `ids`. A run on a different branch does not count."""
    checkpoints = yield _Do("list", (config,), {"limit": _STEPS_MAX})
    parents = {each.checkpoint["id"]: _id_in(each.parent_config) for each in checkpoints}
    id = _id_in(state.config)
    while id in parents and id not in ids:
        id = parents[id]
    if id and id not in parents:  # Retention has removed this ancestor, so any older id may be its ancestor.
        return any(each <= id for each in ids)
    return id in ids


def _id_in(config: RunnableConfig | None) -> str:
    return ((config or {}).get("configurable") or {}).get("checkpoint_id") or ""


class _Answered(NamedTuple):
    """The last answer that a thread received. The run failed after it."""

    answer: Any


def _answered(state: Any) -> Generator[_Do, Any, _Answered | None]:
    """Return the last answer that a thread received, or None if one of its questions still waits for an answer.

    LangGraph shows a question until the node has finished, even if it was answered. Questions in a graph that a node
    calls count as waiting, because their answers are stored elsewhere.
    """
    asking = [task for task in state.tasks if task.interrupts]
    if not asking or _interrupt_id is None:
        return None
    found = yield _Do("get_tuple", (state.config,), {})
    answers = {task: value for task, channel, value in found.pending_writes or () if channel == ANSWERS}
    last = answers.get(NO_TASK)  # A pending write stays after its answer was used.
    used = {task.id: _listed(answers.get(task.id)) for task in asking}
    is_unused = last is not None and not any(each and each[-1] == last for each in used.values())
    for task in asking:
        count = len(used[task.id])
        ids = {_interrupt_id(f"{task.name}:{task.id}", number) for number in range(count + is_unused)}
        if not all(each.id in ids for each in task.interrupts):
            return None
    return _Answered(last)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_at_breakpoint(graph: Any, state: Any, options: dict[str, Any]) -> bool:
    """Return True if a person may have to look: the next node is a breakpoint, or the last one was."""
    before = options.get("interrupt_before") or graph.interrupt_before_nodes
    after = options.get("interrupt_after") or graph.interrupt_after_nodes
    if not state.next or not (before or after) or any(task.error for task in state.tasks):
        return False
    return before == "*" or bool({*state.next} & {*before}) or bool(after)


def _waiting(config: RunnableConfig, state: Any) -> ConflictError:
    return _unused(
        config, state, "is waiting", "the input was not used: answer with Command(resume=...), or continue the run"
    )


def _was_answered(config: RunnableConfig, state: Any) -> ConflictError:
    return _unused(config, state, "received an answer and then failed", "this answer was not used: continue the run")


def _unused(config: RunnableConfig, state: Any, what: str, advice: str) -> ConflictError:
    thread, nodes = _thread(config), list(state.next)
    message = f"thread {thread!r} {what} in {', '.join(nodes)}, so {advice} with the input None"
    return ConflictError(message, thread=thread, interrupts=[each.id for each in state.interrupts], next=nodes)


def _thread(config: RunnableConfig) -> Any:
    return (config.get("configurable") or {}).get("thread_id")


def _are_equal(stored: Any, given: Any) -> bool:
    """Return True if an input equals its stored form, in which tuples are lists and messages may have ids."""
    if isinstance(stored, BaseMessage) and isinstance(given, BaseMessage):
        return stored.type == given.type and _are_equal(
            stored.model_dump(exclude={"id"}), given.model_dump(exclude={"id"})
        )
    if isinstance(stored, Mapping) and isinstance(given, Mapping):
        return stored.keys() == given.keys() and all(_are_equal(stored[key], given[key]) for key in stored)
    if isinstance(stored, list | tuple) and isinstance(given, list | tuple):
        return len(stored) == len(given) and all(map(_are_equal, stored, given))
    if hasattr(stored, "dtype") and hasattr(stored, "tobytes"):  # Do not use `==`, which returns an array.
        return _array(stored) == _array(given)
    try:
        return bool(stored == given)
    except Exception:  # noqa: BLE001 - an application's class raised it; treat the input as new
        return False


def _array(value: Any) -> Any:
    """Return a value that is equal for equal arrays, even if they contain NaN."""
    if not (hasattr(value, "dtype") and hasattr(value, "tobytes")):
        return None
    return str(value.dtype), getattr(value, "shape", ()), value.tobytes()
