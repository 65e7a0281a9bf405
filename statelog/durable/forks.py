"""Shows the recorded calls of a run, begins a new run from them, and replays runs to check code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from statelog.durable import keys, observers
from statelog.durable.clock import moment_of
from statelog.durable.driver import rehearse_here
from statelog.durable.execution import RECORDED
from statelog.durable.failures import error_text
from statelog.durable.infos import get_run, runs
from statelog.durable.keys import HEADER, STEPS
from statelog.durable.record import BEGUN, DONE, PATCH, TRIED, Item
from statelog.durable.recorded import Recorded, recorded_of
from statelog.durable.runs import ENDED, Start, board_of, find, retried, stage_deadline, stage_task, thread_of
from statelog.durable.starts import Handle
from statelog.durable.values import decode, encode, guarded, storable
from statelog.durable.workflows import by_name, check_list
from statelog.errors import AlreadyExistsError, CheckpointNotFoundError, ExpiredError, NotFoundError, UsageError
from statelog.reducers import DROP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from statelog.durable.workflows import Workflow
    from statelog.errors import NondeterminismError
    from statelog.store.snapshot import Snapshot
    from statelog.store.store import Store


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt of a step that is followed by another attempt.

    Attributes:
        number: the number of the attempt, from 1.
        error: the exception, as `Type: message`.
        time: the time at which the attempt failed.
        next: the earliest time of the next attempt.
    """

    number: int
    error: str
    time: datetime
    next: datetime


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What a run has recorded about a call.

    Attributes:
        place: the place of the call in the run. `fork(at=place)` begins before it.
        kind: `step`, `gate`, `recv`, `sleep`, `child`, `commit`, `transact`, `emit`, `event`, `now`, ...
        status: `begun`, `tried` (the call has failed, and is tried again), `done`, `failed`, `closed` (the run ended
            while the call waited), `cut` (the workflow cancelled the call, for example by a timeout).
        result: the result of the call.
        error: the exception of the call, as `Type: message`.
        attempts: how often the function was called.
        began: the time of the first record of the call. For most calls, only the end is recorded.
        ended: the time at which the call ended.
        child: the id of the run that a call of kind `child` has begun.
        failed_attempts: the attempts that failed and were repeated. The last attempt is not one of them.
        version: the version of the step that has recorded the result. See `step`.
    """

    place: str
    kind: str
    name: str
    status: str
    result: Any
    error: str | None
    attempts: int
    began: datetime
    ended: datetime | None
    is_compensation: bool
    child: str | None = None
    failed_attempts: tuple[FailedAttempt, ...] = ()
    version: int = 1


def steps(store: Store, run: str) -> list[StepInfo]:
    """Return the recorded calls of a run, in the order of recording. For an ended run, return the calls at its end.

    The list is empty if the thread was deleted, or if retention has removed the version with the record.

    Raises:
        RunNotFoundError: there is no such run.
    """
    with store.snapshot() as seen:
        value = find(seen, run).value
        calls = calls_of(seen, value)
    return [step_info(place, items, has_ended=value["status"] in ENDED) for place, items in calls]


def calls_of(seen: Snapshot, value: Mapping[str, Any]) -> Iterable[tuple[str, list[Item]]]:
    """Return, by place, the items of each recorded call of a run, in the order in which the calls began.

    `value` is from the same snapshot, because the record of a run is in another version once the run has ended.
    """
    places: dict[str, list[Item]] = {}
    for item in recorded_of(seen, value).items():
        if item["s"] in (BEGUN, TRIED, DONE) and item["o"] != "timer":
            places.setdefault(item["p"], []).append(item)
    return places.items()


_WAITS = ("gate", "recv", "sleep", "child")


def step_info(place: str, items: Sequence[Item], *, has_ended: bool) -> StepInfo:
    """Return the public view of a call from its place and its items."""
    first, last = items[0], items[-1]
    is_done = last["s"] == DONE
    failure = last.get("e")
    status = ("failed" if failure else "done") if is_done else ("tried" if last["s"] == TRIED else "begun")
    if status == "begun" and has_ended and last["o"] in _WAITS:
        status = "closed"
    if "x" in last:
        status = "cut"
    tried = tuple(
        FailedAttempt(item["i"], error_text(item["e"]), moment_of(item["t"]), moment_of(item["u"]))
        for item in items
        if item["s"] == TRIED
    )
    return StepInfo(
        place.removeprefix("undo."),
        last["o"],
        last["n"],
        status,
        last.get("r"),
        None if failure is None else error_text(failure),
        last.get("i", len(tried) + 1),
        moment_of(first["t"]),
        moment_of(last["t"]) if is_done else None,
        place.startswith("undo."),
        next((item["c"] for item in items if "c" in item), None),
        tried,
        last.get("v", 1),
    )


def _back(head: Any, generations: int) -> Any:
    """Return the checkpoint `generations` before `head`, or None if there is none or retention has removed it."""
    try:
        return head.ancestor(generations)
    except (CheckpointNotFoundError, ExpiredError):
        return None


def _count_at(checkpoint: Any, known: Collection[str], first: Sequence[Item]) -> int:
    """Return the number of items of a run at a checkpoint.

    Return -1 if the run was not active at this checkpoint, or began with a different item, as before `continue_as_new`.
    """
    state = {} if checkpoint is None else checkpoint.state
    header = state.get(HEADER)
    held: Sequence[Item] = state.get(STEPS) or ()
    is_there = header is not None and header["run"] in known and held
    return len(held) if is_there and [held[0]] == first else -1


def _known_as(seen: Snapshot, value: Mapping[str, Any]) -> list[str]:
    """Return the ids that may be in the header of a run's record: its own id, and the runs it was forked from."""
    found = [value["id"]]
    while value.get("forked") and value["forked"] not in found:
        found.append(value["forked"])
        entry = board_of(seen).get(keys.run_key(found[-1]))
        if entry is None:
            break
        value = entry.value
    return found


def fork(
    store: Store,
    run: str,
    *,
    at: str | int | StepInfo,
    id: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    replace: Mapping[str, Any] | None = None,
) -> Handle:
    """Begin a new run at a step of another run, on a new branch of its thread, with the calls recorded before the step.

    This is one commit, whatever the length of the record. The branch begins with the state of the thread before
    the step. Later mail and answers are not copied, so gates ask again. `RunInfo` of the new run names the other run,
    the place and the replaced results. `compare_runs` shows the differences between the two runs.

    Args:
        store: the store.
        run: the id of the run, which may have ended.
        at: the step before which the new run begins: one of `steps`, the place of a call, `map` or `branch`, or the
            name of a step that is called once. Or the number of items of the record to keep. A step with a compensation
            has two items, one before the call and one for its outcome.
        id: the id of the new run, and the name of the branch.
        args: arguments for the workflow. The default is the arguments of the run.
        kwargs: keyword arguments for the workflow. The default is the keyword arguments of the run.
        replace: results of recorded calls at or after `at`, by the place of the call, or by its name if it is called
            once. The new run does not make such a call, and uses this result, also for the `commit`, `transact` and
            `emit` of a step. If the call at that place has a different name, it is made as usual. Results of steps,
            children and `recv` can be replaced.

    Raises:
        RunNotFoundError: there is no such run.
        AlreadyExistsError: there is a run or a branch with the new id.
        UsageError: the run has not recorded such a step, its thread is empty, or the record is no longer kept. Or a
            call of `replace` is not recorded, is before `at`, or cannot be replaced.
        ThreadNotFoundError, BranchNotFoundError, CheckpointNotFoundError: another process has just deleted or pruned
            the thread.
        ValueTypeError, LimitError: an argument or a result of `replace` cannot be stored. Facts: path.
    """
    keys.check_run_id(id)
    given_args = None if args is None else list(check_list("args", args, "a list of arguments"))
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(f"kwargs must be a dict of arguments, not {kwargs!r}", argument="kwargs", value=kwargs)
    # Read in one snapshot, because another process may end the run, or prune or delete its thread, at any time.
    with store.snapshot() as seen:
        source = find(seen, run).value
        if board_of(seen).get(keys.run_key(id)) is not None:
            raise AlreadyExistsError(f"run {id!r} already exists", run=id)
        recorded = recorded_of(seen, source)
        if recorded.thread is None or recorded.thread.version < 0:
            message = f"run {run!r} has recorded nothing, and its thread is empty: start another run instead"
            raise UsageError(message, argument="run", value=run)
        items = recorded.items()
        count = _count_before(run, items, at)
        found, missing = _last_with(recorded, items, count, _known_as(seen, source))
        branch = found.branch
        update: dict[str, Any] | None = None
        if missing is None:  # The run made the first commit of the thread, so the branch must be empty.
            update = dict.fromkeys(found.state, DROP)
        elif count:
            update = {HEADER: {"run": id, "workflow": source["workflow"]}, STEPS: missing}
    given = list(source["args"]) if given_args is None else given_args
    named = dict(source["kwargs"] if kwargs is None else kwargs)
    replaced = _replacements(store, run, items, count, {} if replace is None else replace)
    item = encode([given, named], f"arguments of workflow {source['workflow']!r}", depth=0)
    item = guarded(store, item, "arguments")
    start = Start(
        source["workflow"],
        item,
        storable(given),
        storable(named),
        id,
        source["thread"],
        branch=id,
        queue=source["queue"],
        priority=source["priority"],
        timeout_s=source["timeout_s"],
    )
    with store.transaction() as tx:
        # Pass the checkpoint, not its version, because the thread may have been re-created since.
        thread_of(tx, {**source, "branch": branch}).fork(id, at=found, update=update)
        board = board_of(tx)
        value = {**start.value(), "forked": run, "forked_at": items[count]["p"] if count < len(items) else None}
        if replaced:
            value["replaced"] = replaced
        value |= observers.started(store)
        board.create(keys.run_key(id), value)
        board.create(keys.line_key(source["thread"], id), [id])
        stage_task(board, value)
        stage_deadline(board, value)
    return Handle(store, id)


def _count_before(run: str, items: Sequence[Item], at: str | int | StepInfo) -> int:
    """Return the number of items before a step. Raises UsageError."""
    if isinstance(at, int) and not isinstance(at, bool):
        count = len(items)
        if 0 < at < count:
            last, following = items[at - 1 : at + 1]
            if last["p"] == following["p"]:
                message = (
                    f"the first {at} items of run {run!r} end in the middle of a call: fork at its place, {last['p']!r}"
                )
                raise UsageError(message, argument="at", value=at)
        if 0 <= at <= count:
            return at
        raise UsageError(f"run {run!r} has recorded {count} items, not {at}", argument="at", value=at)
    at = _place_of(at) if isinstance(at, StepInfo) else at
    found = _named(items, at)
    if len(found) != 1:
        what = f"{len(found)} steps" if found else "no step"
        message = f"run {run!r} has recorded {what} {at!r}: `durable.steps` gives their places"
        raise UsageError(message, argument="at", value=at)
    place = found.pop()
    count = next(number for number, item in enumerate(items) if item["p"] == place)
    while count and items[count - 1]["o"] == "timer":  # Omit the timer that would cancel the call again.
        count -= 1
    return count


_REPLACEABLE: Final = ("step", "child", "recv")
_REPLACED_DEPTH: Final = 3
"""The depth of a replaced result in a run's entry, below the keys `replaced`, the place, and `r`."""


def _replacements(
    store: Store, run: str, items: Sequence[Item], count: int, replace: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the replaced results, with operation and name, by place. Raises UsageError, ValueTypeError, LimitError."""
    if not isinstance(replace, Mapping):
        message = f"replace must be a dict from a call's place or name to its result, not {replace!r}"
        raise UsageError(message, argument="replace", value=replace)
    kept = {item["p"] for item in items[:count] if item["s"] == DONE}
    found: dict[str, dict[str, Any]] = {}
    for call, result in replace.items():
        item = _call_to_replace(run, items, call)
        place, op, name = item["p"], item["o"], item["n"]
        refusal = None
        if op == "gate":
            refusal = f"is the gate {name!r}: fork before it, and give the new run another answer with `durable.answer`"
        elif op not in _REPLACEABLE:
            refusal = f"is a call of {op}: only results of steps, children and `recv` can be replaced"
        elif place in kept:
            refusal = "had ended before the step at which the fork begins: fork before that call to replace its result"
        elif place in found:
            refusal = f"is the call at place {place!r}, which `replace` names twice"
        if refusal is not None:
            raise UsageError(f"call {call!r} of run {run!r} {refusal}", argument="replace", value=call)
        encoded = encode(result, f"replaced result of call {call!r}", depth=_REPLACED_DEPTH)
        found[place] = {"o": op, "n": name, "r": decode(guarded(store, encoded, RECORDED))}
    return found


def _call_to_replace(run: str, items: Sequence[Item], call: object) -> Item:
    """Return the first item of the call that a caller names by its place or its name. Raises UsageError."""
    calls = {item["p"]: item for item in reversed(items) if item["s"] in (BEGUN, TRIED, DONE)}
    if isinstance(call, str) and call in calls and not call.startswith("undo."):
        return calls[call]
    named = [item for place, item in calls.items() if item["n"] == call and not place.startswith("undo.")]
    if len(named) == 1:
        return named[0]
    what = f"{len(named)} calls" if named else "no call"
    message = f"run {run!r} has recorded {what} {call!r}: `durable.steps` gives their places"
    raise UsageError(message, argument="replace", value=call)


def _place_of(step: StepInfo) -> str:
    return f"undo.{step.place}" if step.is_compensation else step.place


def _named(items: Sequence[Item], at: object) -> set[str]:
    """Return the places that `at` selects.

    `at` is a place, the prefix of places in a `map` or branch (selects the first of them), or the name of a step
    (selects every place where that step was called).
    """
    for item in items:
        if item["p"] == at or str(item["p"]).startswith(f"{at}."):
            return {item["p"]}
    return {item["p"] for item in items if item["n"] == at and item["s"] != PATCH}


def _last_with(
    recorded: Recorded, items: Sequence[Item], count: int, known: Sequence[str]
) -> tuple[Any, list[Item] | None]:
    """Return the last checkpoint whose record has at most `count` items, and the items that it lacks.

    The missing items are ends of waits and timers, which are recorded with the next commit. They are None if `count` is
    0 and the run made the first commit of the thread: then nothing of the checkpoint may be kept. Versions that were
    rolled back are not considered.

    Raises:
        UsageError: there is no such checkpoint.
    """
    message = (
        f"the earlier record of run {recorded.run!r} was removed, or is in the same commit as the items that follow it"
    )
    refusal = UsageError(message, argument="at", value=count)
    if recorded.version < 0:
        raise refusal
    try:
        head, begun = recorded.thread.at(recorded.version), list(items[:1])
    except (CheckpointNotFoundError, ExpiredError):
        raise refusal from None
    near, far = 0, 1  # Both count generations before the head. Older checkpoints have fewer items.
    while _count_at(_back(head, far), known, begun) > count:
        near, far = far, far * 2
    while near < far:
        middle = (near + far) // 2
        if _count_at(_back(head, middle), known, begun) <= count:
            far = middle
        else:
            near = middle + 1
    found = _back(head, near)
    have = max(_count_at(found, known, begun), 0)
    missing = [] if have >= count else list(items[have:count])
    if found is not None and have <= count and all(_is_deferred(item) for item in missing):
        return found, missing
    first = _back(head, near - 1) if near else None
    if count == 0 and found is None and first is not None and not first.has_parent:
        return first, None
    raise refusal


def _is_deferred(item: Item) -> bool:
    """Return True if an item is recorded together with the next commit, not in a separate commit."""
    return item["o"] in ("gate", "sleep", "timer") and item["s"] == DONE


def check_replay(store: Store, workflows: Iterable[Workflow]) -> dict[str, NondeterminismError | NotFoundError]:
    """Replay all open runs with this code, without new calls. Return the differences from their records, by run id.

    Deploy the code only if the result is empty. A workflow runs up to the end of its record, so its effects outside of
    steps happen. Runs of async workflows are skipped; `statelog.aio.durable.check_replay` includes them.

    Args:
        store: the store.
        workflows: the workflows to deploy. Open runs of other workflows are reported as NotFoundError.
    """
    open_runs, found = to_check(store, workflows)
    for value, workflow in open_runs:
        if not workflow.is_async:
            differs = rehearse_here(store, workflow, value)
            if differs is not None:
                found[value["id"]] = differs
    return found


def to_check(
    store: Store, workflows: Iterable[Workflow]
) -> tuple[list[tuple[Mapping[str, Any], Workflow]], dict[str, NondeterminismError | NotFoundError]]:
    """Return the open runs with their workflows, and errors for those whose workflow is not given."""
    known = by_name(workflows)
    open_runs: list[tuple[Mapping[str, Any], Workflow]] = []
    found: dict[str, NondeterminismError | NotFoundError] = {}
    for info in runs(store):
        workflow = known.get(info.workflow)
        if info.has_ended:
            continue
        if workflow is None:
            message = f"run {info.id!r} belongs to workflow {info.workflow!r}, which was not passed"
            found[info.id] = NotFoundError(message, run=info.id, workflow=info.workflow)
        else:
            open_runs.append((find(store, info.id).value, workflow))
    return open_runs, found


def purge_run(store: Store, run: str) -> None:
    """Remove an ended run with its gates, events, messages and streams, in one commit. Its thread stays.

    After that, a new run may have the same id.

    Raises:
        RunNotFoundError: there is no such run.
        UsageError: the run has not ended.
    """
    info = get_run(store, run)
    if not info.has_ended:
        raise UsageError(f"run {run!r} has not ended: it is {info.status}", argument="run", value=run)
    quoted = keys.check_run_id(run)

    def work(tx: Any) -> None:
        outside, board = board_of(store), board_of(tx)
        for directory in ("gates", "events", "outbox", "outbox-parked", "children", "mail"):
            for entry in outside.list(f"durable/{directory}/{quoted}/**"):
                board.delete(entry.key, expected_version=entry.version)
        streams = tx.thread(f"statelog:stream/{quoted}")
        if STEPS in streams.state:
            streams.commit({STEPS: DROP})
        board.delete(keys.delivery_key(run))
        board.delete(keys.run_key(run))

    retried(store, work)
