"""What a run has recorded: the items of its thread's channel, by place.

An item is a dict. A *place* is where a call stands: the number of the call within its scope, with the places of the
scopes around it before: `3`, `4.0`, `4.0.1`; `t0.2` is a call in a task of asyncio that the workflow began. See
DESIGN.md here for the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import NondeterminismError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Item = dict[str, Any]

BEGUN = 0
"""Stage of an item: what is called next is noted, before it is."""
TRIED = 1
"""An attempt has failed, and another one follows."""
DONE = 2
"""What the call came to."""
PATCH = 3
"""A change of the code that the run goes by."""
UNDO = 4
"""The workflow has failed: from here on its compensations run."""


def event_of(item: Mapping[str, Any]) -> str | None:
    """Return the key of the event of an asyncio workflow that an item records, or None if it records no event."""
    stage, place = item["s"], item["p"]
    if stage == PATCH:
        return f"patch {place}"
    return place if stage == DONE and not place.startswith("undo.") else None


class Record:
    """The items of a run."""

    def __init__(self, run: str, items: Iterable[Item] = ()) -> None:
        self.run = run
        self.count = 0
        self.done: dict[str, Item] = {}
        self.begun: dict[str, Item] = {}
        self.tried: dict[str, list[Item]] = {}
        self.patches: dict[str, bool] = {}
        """Whether the code has asked for it since."""
        self.undo: Item | None = None
        self.order: dict[str, int] = {}
        """Of the places: which was noted first."""
        self._seen: set[str] = set()
        self._events: dict[str, None] = {}
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """Take a recorded item in."""
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
    def cut_short(self) -> set[str]:
        """The places of calls that the workflow cancelled. On replay, it may cancel them before they begin."""
        return {place for place, item in self.done.items() if "x" in item}

    def events(self) -> list[str]:
        """Return the keys of the events of a workflow on the event loop, in their order.

        A cancelled call does not make its inner calls on replay, so the events of these inner calls are left out.
        """
        cut = self.cut_short
        return [event for event in self._events if not any(above in cut for above in _scopes_around(event))]

    def look(self, place: str, op: str, name: str, digest: bytes | None) -> Item | None:
        """Return what a call came to, None if it is not recorded.

        Raises:
            NondeterminismError: another call is recorded at its place.
        """
        self._seen.add(place)
        found = self.done.get(place)
        held = found or self.begun.get(place) or next(iter(self.tried.get(place, ())), None)
        if held is not None and (held["o"] != op or held["n"] != name or held.get("a") != digest):
            recorded, called = _shown(held["o"], held["n"]), _shown(op, name)
            why = "with other arguments" if recorded == called else f"where the code calls {called}"
            message = (
                f"run {self.run!r} has recorded {recorded} at place {place} {why}. "
                "It has stopped, and goes on with code that does as it did"
            )
            raise NondeterminismError(message, run=self.run, place=place, recorded=recorded, called=called)
        return found

    def has_after(self, place: str) -> bool:
        """Whether anything is recorded at a place, or behind it among the calls, or the tasks, of its scope."""
        scope, _dot, number = place.rpartition(".")
        is_task = number.startswith("t")
        first = int(number.removeprefix("t"))
        for each in list(self.order):  # another branch may add to it
            above, _dot, tail = each.rpartition(".")
            while above != scope and above.startswith(f"{scope}." if scope else ""):
                above, _dot, tail = above.rpartition(".")
            tail, is_kin = tail.removeprefix("t"), tail.startswith("t") is is_task
            if above == scope and is_kin and tail.isdigit() and int(tail) >= first:
                return True
        return False

    def see(self, place: str) -> None:
        """Note that a call is made, by a branch that may look later."""
        self._seen.add(place)

    def check_all_called(self, let_go: Iterable[str] = ()) -> None:
        """Refuse an end of the workflow before all that is recorded was called. Raises NondeterminismError.

        Nobody has waited for the branches that were let go: they may be anywhere.
        """
        cut = self.cut_short
        passed = ("undo.", *(f"{place}." for place in (*let_go, *cut)))
        missing = (self.done.keys() | self.begun.keys()) - self._seen - cut
        for place in sorted(missing, key=lambda each: self.order[each]):
            if not place.startswith(passed) and (self.done.get(place) or self.begun[place])["o"] != "timer":
                raise self.missing(place, "ends without it")
        for name, is_asked in self.patches.items():
            if not is_asked:
                message = f"run {self.run!r} goes by the patch {name!r}, which the code does not ask for any more"
                raise NondeterminismError(message, run=self.run, place=name, recorded=f"patch {name}", called=None)

    def missing(self, event: str, what: str) -> NondeterminismError:
        """Return the error of a run whose code does not make a recorded call. `what` says what the code does."""
        place = event.removeprefix("patch ")
        held = self.done.get(place) or self.begun.get(place) or {"o": "patch", "n": place}
        recorded = _shown(held["o"], held["n"])
        message = (
            f"run {self.run!r} has recorded {recorded} at place {place}, and the code {what}. "
            "It has stopped, and goes on with code that does as it did"
        )
        return NondeterminismError(message, run=self.run, place=place, recorded=recorded, called=None)


def _scopes_around(place: str) -> Iterator[str]:
    while "." in place:
        place = place.rpartition(".")[0]
        yield place


def _shown(op: str, name: str) -> str:
    return f"{op} {name!r}" if name else op
