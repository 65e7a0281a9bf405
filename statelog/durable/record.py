"""The record of a run: the items of the channel `statelog:steps` of its thread, by place.

An item is a dict, described in DESIGN.md. The *place* of a call is its number within its scope, after the places of the
scopes around it: `3`, `4.0`, `4.0.1`. `t0.2` is the third call in the first asyncio task that the workflow began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import NondeterminismError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Item = dict[str, Any]

BEGUN = 0
"""The stage of an item that is recorded before a call is made."""
TRIED = 1
"""The stage of an item that records a failed attempt that is followed by another."""
DONE = 2
"""The stage of an item that records the outcome of a call."""
PATCH = 3
"""The stage of an item that records a patch which the run follows."""
UNDO = 4
"""The stage of an item that records the failure of the workflow. After it, only compensations run."""


def event_of(item: Mapping[str, Any]) -> str | None:
    """Return the key of the event (D32) that an item records, or None if the item does not record an event."""
    stage, place = item["s"], item["p"]
    if stage == PATCH:
        return f"patch {place}"
    return place if stage == DONE and not place.startswith("undo.") else None


class RunRecord:
    """The recorded items of a run."""

    def __init__(self, run: str, items: Iterable[Item] = ()) -> None:
        self.run = run
        self.count = 0
        self.done: dict[str, Item] = {}
        self.begun: dict[str, Item] = {}
        self.tried: dict[str, list[Item]] = {}
        self.patches: dict[str, bool] = {}
        """Recorded patches, by name. True if this execution has called `patched` or `deprecate_patch` for the patch."""
        self.undo: Item | None = None
        self.order: dict[str, int] = {}
        """For each place, the number of its first item in the record. Numbers begin at 1."""
        self._seen: set[str] = set()
        self._events: dict[str, None] = {}
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """Add a recorded item."""
        stage, place = item["s"], item["p"]
        self.count += 1
        self.order.setdefault(place, self.count)
        if (event := event_of(item)) is not None:
            self._events[event] = None
        if stage == DONE:
            self.done[place] = item
        elif stage == BEGUN:
            self.begun[place] = item
        elif stage == TRIED:
            self.tried.setdefault(place, []).append(item)
        elif stage == PATCH:
            self.patches[place] = False
        else:
            self.undo = item

    @property
    def cancelled_places(self) -> set[str]:
        """The places of calls that the workflow cancelled. A replay may cancel these calls before they begin."""
        return {place for place, item in self.done.items() if "x" in item}

    def events(self) -> list[str]:
        """Return the keys of the recorded events of an asyncio workflow, in order.

        A cancelled call does not make its inner calls on replay, so the events of these inner calls are left out.
        """
        cut = self.cancelled_places
        return [event for event in self._events if not any(above in cut for above in _scopes_around(event))]

    def look(self, place: str, op: str, name: str, digest: bytes | None) -> Item | None:
        """Return the item that records a call's outcome, or None. From then on, the call counts as made.

        Raises:
            NondeterminismError: a different call is recorded at this place.
        """
        self._seen.add(place)
        found = self.done.get(place)
        held = found or self.begun.get(place) or next(iter(self.tried.get(place, ())), None)
        if held is not None and (held["o"] != op or held["n"] != name or held.get("a") != digest):
            recorded, called = _shown(held["o"], held["n"]), _shown(op, name)
            why = "with different arguments" if recorded == called else f"where the code calls {called}"
            message = (
                f"run {self.run!r} has recorded {recorded} at place {place} {why}. "
                "It has stopped. It continues when it runs with code that makes the recorded calls"
            )
            raise NondeterminismError(message, run=self.run, place=place, recorded=recorded, called=called)
        return found

    def has_after(self, place: str) -> bool:
        """Return True if anything is recorded at a place, or at a later place of the same kind in its scope."""
        scope, _dot, number = place.rpartition(".")
        is_task = number.startswith("t")
        first = int(number.removeprefix("t"))
        for each in list(self.order):  # Copy the keys, because another branch may add items.
            above, _dot, tail = each.rpartition(".")
            while above != scope and above.startswith(f"{scope}." if scope else ""):
                above, _dot, tail = above.rpartition(".")
            tail, is_kin = tail.removeprefix("t"), tail.startswith("t") is is_task
            if above == scope and is_kin and tail.isdigit() and int(tail) >= first:
                return True
        return False

    def see(self, place: str) -> None:
        """Count a call as made, even if its branch has not yet looked it up."""
        self._seen.add(place)

    def check_all_called(self, abandoned: Iterable[str] = ()) -> None:
        """Raise NondeterminismError if the workflow has ended without making a recorded call.

        Calls in the branches `abandoned` are not checked, because these branches may still run.
        """
        cut = self.cancelled_places
        passed = ("undo.", *(f"{place}." for place in (*abandoned, *cut)))
        missing = (self.done.keys() | self.begun.keys()) - self._seen - cut
        for place in sorted(missing, key=lambda each: self.order[each]):
            if not place.startswith(passed) and (self.done.get(place) or self.begun[place])["o"] != "timer":
                raise self.missing(place, "ends without it")
        for name, is_asked in self.patches.items():
            if not is_asked:
                message = f"run {self.run!r} follows the patch {name!r}, but the code no longer calls patched({name!r})"
                raise NondeterminismError(message, run=self.run, place=name, recorded=f"patch {name}", called=None)

    def missing(self, event: str, what: str) -> NondeterminismError:
        """Return the error for a run whose code does not make a recorded call. `what` says what the code does."""
        place = event.removeprefix("patch ")
        held = self.done.get(place) or self.begun.get(place) or {"o": "patch", "n": place}
        recorded = _shown(held["o"], held["n"])
        message = (
            f"run {self.run!r} has recorded {recorded} at place {place}, and the code {what}. "
            "It has stopped. It continues when it runs with code that makes the recorded calls"
        )
        return NondeterminismError(message, run=self.run, place=place, recorded=recorded, called=None)


def _scopes_around(place: str) -> Iterator[str]:
    while "." in place:
        place = place.rpartition(".")[0]
        yield place


def _shown(op: str, name: str) -> str:
    return f"{op} {name!r}" if name else op
