"""Lives of a process, as far as a run can tell: it passes boundaries, and dies or is overtaken at one of them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from statelog.durable.record import BEGUN, DONE, TRIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Place = tuple[str, str]
"""A run, and the place of a call in it."""

_CHANCE = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class Killed(BaseException):
    """Raised in what a simulated kill has ended, wherever it would go on."""


class Effects:
    """What the steps of all lives have done, by their places."""

    def __init__(self, once: Iterable[Place] = ()) -> None:
        self.lock = threading.RLock()
        self.counts: Counter[Place] = Counter()
        self.names: dict[Place, str] = {}
        self.open: set[Place] = set()
        """Called (or, of those called at most once, begun), and neither the result nor a failure is recorded."""
        self.once = set(once)
        """Those of steps that are called at most once."""
        self.compensable: set[Place] = set()
        """Called, and to be compensated if the run fails."""

    def note_call(self, run: str, place: str, call: Any) -> None:
        """Note that a step is called."""
        key = run, place
        self.counts[key] += 1
        self.names[key] = call.name
        self.open.add(key)
        if call.is_at_most_once:
            self.once.add(key)
        if call.compensate is not None:
            self.compensable.add(key)

    def note_commit(self, run: str, what: Any) -> None:
        """Note that a commit is done."""
        if what == "beginning anew":
            self.compensable = {key for key in self.compensable if key[0] != run}
        if isinstance(what, tuple):
            self.open -= {(run, item["p"]) for item in what if item["s"] in (TRIED, DONE)}
            self.open |= {key for item in what if item["s"] == BEGUN and (key := (run, item["p"])) in self.once}


class Life:
    """One life of a process: a probe of what runs do in it (see statelog.durable.probes).

    Args:
        effects: where calls are counted.
        at: number of the boundary where something happens, from 1; 0: nowhere.
        then: what happens.
        before: it happens before a commit: at the next one, where the boundary is behind one. (What runs beside each
            other passes boundaries in another order each time.)

    """

    def __init__(
        self, effects: Effects, *, at: int = 0, then: Callable[[Life], None] | None = None, before: bool = False
    ) -> None:
        self.effects = effects
        self.passed: list[str] = []
        """The boundaries, in words."""
        self.in_flight: set[Place] = set()
        """Steps that were called, and of which nobody knew, when something happened to this life."""
        self._at, self._then, self._before = at, then, before
        self._is_dead = False
        self._struck_in: int | None = None
        """The thread in which it came to where something happens."""

    def __call__(self, moment: str, run: str, what: Any) -> None:
        """Take note of a place that a run passes. Raises Killed."""
        with self.effects.lock:
            if self._is_dead:
                raise Killed
            if moment == "call":
                self.effects.note_call(run, *what)
                if self._struck_in not in (None, threading.get_ident()):
                    self.in_flight.add((run, what[0]))  # another thread was about to call it
                return
            if moment == "before":
                _settle_chance(run, what)
            else:
                self.effects.note_commit(run, what)
            self.passed.append(f"{moment} {_words(what)} of run {run!r}")
            is_it = self._is_struck(moment)
            if is_it:
                self.in_flight = set(self.effects.open)
                self._struck_in = threading.get_ident()
        if is_it and self._then is not None:
            self._then(self)

    def die(self) -> None:
        """Let nothing more happen in this life. Raises Killed."""
        self._is_dead = True
        raise Killed

    def _is_struck(self, moment: str) -> bool:
        is_there = 0 < self._at <= len(self.passed) and self._struck_in is None
        return is_there and (moment == "before" or not self._before)


def _settle_chance(run: str, what: Any) -> None:
    """Let what is drawn by chance be the same in each life: of its place alone."""
    for item in what if isinstance(what, tuple) else ():
        if item["s"] == DONE and item["o"] == "uuid":
            item["r"] = str(uuid5(_CHANCE, f"{run}/{item['p']}"))
        elif item["s"] == DONE and item["o"] == "random":
            item["r"] = uuid5(_CHANCE, f"{run}/{item['p']}").int / 2**128


_STAGES = ("begin of", "failed attempt of", "end of", "patch", "beginning of")


def _words(what: Any) -> str:
    if isinstance(what, str):
        return what
    told = [f"the {_STAGES[item['s']]} {item['o']} {item['n']!r} at {item['p']}" for item in what]
    return " and ".join(told)
