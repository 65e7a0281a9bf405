"""Having a run that failed go on: from what it had recorded, but for the calls that it failed by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from statelog.durable.clock import clock
from statelog.durable.failures import error_text
from statelog.durable.infos import info_of
from statelog.durable.naming import HEADER, STEPS, run_key
from statelog.durable.record import DONE, UNDO, Item
from statelog.durable.recorded import recorded_of
from statelog.durable.runs import OF_THE_END, board_of, find, is_at_work, retried, stage_deadline, stage_turn, thread_of
from statelog.errors import ConflictError, RunEndedError, RunNotFoundError, UsageError
from statelog.reducers import Overwrite

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from statelog.durable.infos import RunInfo
    from statelog.store.claims import Claim
    from statelog.store.store import Store


_NEVER: Final = 1 << 62


def retry(store: Store, run: str) -> RunInfo:
    """Have a run that failed go on from the steps that it has recorded: after its code, or what it calls, was mended.

    What was recorded returns what it returned. Steps that it has failed by are called again, and so is all that was
    called after they had failed. A child that it has failed by is retried, too. Where compensations have undone steps,
    all from the first of those on is called again, with other idempotency keys. Its `timeout_s` counts from now.

    A worker takes it up, behind other runs of its thread, or `durable.run` does.

    Args:
        store: the store.
        run: id of the run.

    Returns:
        The run, as it waits to be taken up.

    Raises:
        RunNotFoundError: there is no such run.
        RunEndedError: it has completed, or was cancelled. Facts: run, status.
        ConflictError: what it had recorded is not kept any more.
        UsageError: it has not ended.

    """
    for child in _failed_children(store, find(store, run).value):
        try:
            retry(store, child)
        except (RunNotFoundError, RunEndedError, UsageError):  # it is at work, or ended otherwise: its parent sees
            continue

    def work(tx: Any) -> None:
        entry = find(store, run)
        value = entry.value
        _check_failed(value)
        opened = {name: each for name, each in value.items() if name not in OF_THE_END}
        opened |= {"status": "open", "due": 0, "dedup": None, "retried": clock().now_us()}
        if value.get("checkpoint") and not is_at_work(store, value):
            opened["retry"] = {"checkpoint": value["checkpoint"], "failed": _failed(store, value)}
            if _undone_at(_items(store, value)) is not None:
                opened["visit"] = value.get("visit", 0) + 1
        board_of(tx).cas(entry.key, opened, expected_version=entry.version)
        stage_turn(board_of(tx), store, opened)
        stage_deadline(board_of(tx), opened)

    retried(store, work)
    return info_of(store, find(store, run))


def _check_failed(value: Mapping[str, Any]) -> None:
    run, status = value["id"], value["status"]
    if status in ("completed", "cancelled"):
        raise RunEndedError(f"run {run!r} has not failed: it is {status}", run=run, status=status)
    if status != "failed":
        raise UsageError(f"run {run!r} has not failed: it has not ended", argument="run", value=run)


def _failed_children(store: Store, value: Mapping[str, Any]) -> list[str]:
    _check_failed(value)
    failed = {call["p"] for call in _failed(store, value)}
    items = recorded_of(store, value).items() if failed else []
    return [item["c"] for item in items if item["p"] in failed and "c" in item]


def _failed(store: Store, value: Mapping[str, Any]) -> list[Any]:
    """Return the calls that a run has failed by; of one that an earlier release has ended the last with its error."""
    if "failed" in value or "traceback" in value:
        return list(value.get("failed", ()))
    said = value["error"]
    items = [item for item in recorded_of(store, value).items() if "e" in item and item["s"] == DONE]
    return [{"p": item["p"], "next": {}} for item in items if error_text(item["e"]) == said][-1:]


def _items(store: Store, value: Mapping[str, Any]) -> list[Item]:
    """Return what a failed run had recorded. Raises ConflictError."""
    items = recorded_of(store, value).items()
    if not items:
        message = f"what run {value['id']!r} had recorded is not kept any more: it cannot go on from there"
        raise ConflictError(message, run=value["id"])
    return items


def restore(store: Store, run: str, claim: Claim) -> Mapping[str, Any]:
    """Write into its thread what a run goes on from that is retried; return the run's entry.

    Raises:
        ConflictError: that is not kept any more.
        LeaseLostError: another process has the run.

    """

    def work(tx: Any) -> Mapping[str, Any]:
        entry = find(store, run)
        value: Mapping[str, Any] = entry.value
        if "retry" not in value:
            return value
        restored = {name: each for name, each in value.items() if name != "retry"}
        if not is_at_work(store, value):
            items = kept(_items(store, value), value["retry"]["failed"])
            header = {"run": run, "workflow": value["workflow"]}
            if items:
                thread_of(tx, value).commit({HEADER: header, STEPS: Overwrite(items)}, fence=claim)
        board_of(tx).cas(run_key(run), restored, expected_version=entry.version, fence=claim)
        return restored

    found: Mapping[str, Any] = retried(store, work)
    return found


def kept(items: Sequence[Item], failed: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return what a run that is retried goes on from."""
    undone_at = _undone_at(items)
    before = items[: len(items) if undone_at is None else undone_at]
    places = {call["p"] for call in failed}
    first = next((number for number, item in enumerate(before) if item["p"] in places), len(before))
    calls = [*failed, *(_cut(item["p"]) for item in before[first:] if "x" in item)]
    dropped = {item["p"] for item in before if any(_is_led_to(item, call) for call in calls)}
    dropped |= _timers_of(before, dropped)
    return [item for item in before if item["s"] != UNDO and item["p"] not in dropped]


def _timers_of(items: Sequence[Item], dropped: Collection[str]) -> set[str]:
    """Return the places of the timers that have cut calls which are dropped: they would cut the next calls at once."""
    found, timer = set(), None
    for item in items:
        if item["o"] == "timer":
            timer = item["p"] if item["s"] == DONE else timer
        elif timer is not None and "x" in item and item["p"] in dropped:
            found.add(timer)
    return found


def _cut(place: str) -> Mapping[str, Any]:
    """Return a call that was cancelled as others had failed, as one that has failed itself."""
    prefix, dot, number = place.rpartition(".")
    nexts = {f"{prefix}{dot}": [int(number) + 1, _NEVER, _NEVER, _NEVER]} if number.isdigit() else {}
    return {"p": place, "next": nexts}


def _undone_at(items: Sequence[Item]) -> int | None:
    """Return which item is the first of a step that was undone, None if none was."""
    undone = {item["p"].removeprefix("undo.") for item in items if item["p"].startswith("undo.")}
    return next((number for number, item in enumerate(items) if item["p"] in undone), None)


def _is_led_to(item: Item, call: Mapping[str, Any]) -> bool:
    """Whether an item is of a call that has failed, or of one that was made after it had."""
    place = item["p"]
    if place == call["p"] or place.startswith(f"{call['p']}."):
        return True
    for prefix, nexts in call["next"].items():
        if not place.startswith(prefix):
            continue
        own = place[len(prefix) :].partition(".")[0]
        for sign, number in zip(("", "t", "w", "z"), nexts, strict=False):
            counted = own.removeprefix(sign)
            if own.startswith(sign) and counted.isdigit() and int(counted) >= number:
                return True
        if own.startswith("g") and item["o"] == "gather":  # which failure came first
            return True
    return bool(item["o"] == "map") and call["p"].startswith(f"{place}.")
