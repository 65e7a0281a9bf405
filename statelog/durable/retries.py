"""Retries of failed runs. A retried run continues from its record, without the calls that made it fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from statelog.durable.clock import clock
from statelog.durable.failures import error_text
from statelog.durable.infos import info_of
from statelog.durable.keys import HEADER, STEPS, run_key
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
    """Continue a failed run from its recorded steps, after a repair of its code or of a service that it uses.

    Recorded steps return their recorded results. Steps that made the run fail are called again, and so are all calls
    that were made after these failures. If a child made the run fail, the child is also retried. If compensations have
    undone steps, all calls from the first undone step on are made again, with new idempotency keys. The `timeout_s` of
    the run counts from now.

    A worker or `durable.run` continues the run, after other runs that wait for its thread.

    Args:
        store: the store.
        run: the id of the run.

    Returns:
        The run, which waits for a process.

    Raises:
        RunNotFoundError: there is no such run.
        RunEndedError: the run has completed, or was cancelled. Facts: run, status.
        ConflictError: the record of the run is no longer kept.
        UsageError: the run has not ended.
    """
    for child in _failed_children(store, find(store, run).value):
        try:
            retry(store, child)
        except (RunNotFoundError, RunEndedError, UsageError):  # The child has not failed. Its parent sees the outcome.
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
    """Return the calls that made a run fail.

    Earlier releases did not store these calls. If such a release ended the run, return the last call that failed with
    the same error as the run.
    """
    if "failed" in value or "traceback" in value:
        return list(value.get("failed", ()))
    said = value["error"]
    items = [item for item in recorded_of(store, value).items() if "e" in item and item["s"] == DONE]
    return [{"p": item["p"], "next": {}} for item in items if error_text(item["e"]) == said][-1:]


def _items(store: Store, value: Mapping[str, Any]) -> list[Item]:
    """Return the recorded items of a failed run. Raises ConflictError if they are no longer kept."""
    items = recorded_of(store, value).items()
    if not items:
        message = f"the record of run {value['id']!r} was removed, so the run cannot continue from it"
        raise ConflictError(message, run=value["id"])
    return items


def restore(store: Store, run: str, claim: Claim) -> Mapping[str, Any]:
    """Write to the run's thread the items from which the retry continues. Return the value of the run's entry.

    Raises:
        ConflictError: the record of the run is no longer kept.
        LeaseLostError: another process has claimed the run.
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
    """Return the items from which a retried run continues."""
    undone_at = _undone_at(items)
    before = items[: len(items) if undone_at is None else undone_at]
    places = {call["p"] for call in failed}
    first = next((number for number, item in enumerate(before) if item["p"] in places), len(before))
    calls = [*failed, *(_cut(item["p"]) for item in before[first:] if "x" in item)]
    dropped = {item["p"] for item in before if any(_is_led_to(item, call) for call in calls)}
    dropped |= _timers_of(before, dropped)
    return [item for item in before if item["s"] != UNDO and item["p"] not in dropped]


def _timers_of(items: Sequence[Item], dropped: Collection[str]) -> set[str]:
    """Return the places of timers that cancelled dropped calls. In a retry, they would cancel the new calls at once."""
    found, timer = set(), None
    for item in items:
        if item["o"] == "timer":
            timer = item["p"] if item["s"] == DONE else timer
        elif timer is not None and "x" in item and item["p"] in dropped:
            found.add(timer)
    return found


def _cut(place: str) -> Mapping[str, Any]:
    """Describe a cancelled call like a failed call, because it was cancelled after other calls had failed."""
    prefix, dot, number = place.rpartition(".")
    nexts = {f"{prefix}{dot}": [int(number) + 1, _NEVER, _NEVER, _NEVER]} if number.isdigit() else {}
    return {"p": place, "next": nexts}


def _undone_at(items: Sequence[Item]) -> int | None:
    """Return the index of the first item of an undone step, or None if no step was undone."""
    undone = {item["p"].removeprefix("undo.") for item in items if item["p"].startswith("undo.")}
    return next((number for number, item in enumerate(items) if item["p"] in undone), None)


def _is_led_to(item: Item, call: Mapping[str, Any]) -> bool:
    """Return True if an item belongs to the failed call, or to a call that was made after the failure."""
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
        if own.startswith("g") and item["o"] == "gather":  # A gather has recorded which failure came first.
            return True
    return bool(item["o"] == "map") and call["p"].startswith(f"{place}.")
