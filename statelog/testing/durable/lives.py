"""Simulated lives of a process. A life passes boundaries, and dies or is overtaken at one of them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from statelog.durable.record import BEGUN, DONE, TRIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Place = tuple[str, str]
"""The id of a run, and the place of a call in the run."""

_CHANCE = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class Killed(BaseException):
    """Raised in all code of a life that was killed."""


class Effects:
    """The effects of the steps in all lives, by place."""

    def __init__(self, once: Iterable[Place] = ()) -> None:
        self.lock = threading.RLock()
        self.counts: Counter[Place] = Counter()
        self.names: dict[Place, str] = {}
        self.open: set[Place] = set()
        """Steps without a recorded result or failure that were called, or are at-most-once and recorded as begun."""
        self.once = set(once)
        """Places of at-most-once steps."""
        self.compensable: set[Place] = set()
        """Called steps that must be compensated if the run fails."""

    def note_call(self, run: str, place: str, call: Any) -> None:
        """Record the call of a step."""
        key = run, place
        self.counts[key] += 1
        self.names[key] = call.name
        self.open.add(key)
        if call.is_at_most_once:
            self.once.add(key)
        if call.compensate is not None:
            self.compensable.add(key)

    def note_commit(self, run: str, what: Any) -> None:
        """Record a commit."""
        if what == "beginning anew":
            self.compensable = {key for key in self.compensable if key[0] != run}
        if isinstance(what, tuple):
            self.open -= {(run, item["p"]) for item in what if item["s"] in (TRIED, DONE)}
            self.open |= {key for item in what if item["s"] == BEGUN and (key := (run, item["p"])) in self.once}


class Life:
    """One life of a process, as a probe of its runs (see statelog.durable.probes).

    Args:
        effects: the effects of all lives, which count calls.
        at: the number of the boundary at which the event happens, from 1. 0 means never.
        then: the event.
        before: make the event happen before a commit. If boundary `at` is after a commit, the event waits for the next
            commit. This is possible because concurrent code passes boundaries in varying order.
    """

    def __init__(
        self, effects: Effects, *, at: int = 0, then: Callable[[Life], None] | None = None, before: bool = False
    ) -> None:
        self.effects = effects
        self.passed: list[str] = []
        """A description of each boundary."""
        self.in_flight: set[Place] = set()
        """Called steps whose calls were not recorded when the event happened."""
        self._at, self._then, self._before = at, then, before
        self._is_dead = False
        self._struck_in: int | None = None
        """The OS thread in which the event happened."""

    def __call__(self, moment: str, run: str, what: Any) -> None:
        """Record a moment of a run. Raises Killed if the life ends at this moment."""
        with self.effects.lock:
            if self._is_dead:
                raise Killed
            if moment == "call":
                self.effects.note_call(run, *what)
                if self._struck_in not in (None, threading.get_ident()):
                    self.in_flight.add((run, what[0]))  # Another OS thread was about to call this step.
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
        """End this life. Raises Killed."""
        self._is_dead = True
        raise Killed

    def _is_struck(self, moment: str) -> bool:
        is_there = 0 < self._at <= len(self.passed) and self._struck_in is None
        return is_there and (moment == "before" or not self._before)


def _settle_chance(run: str, what: Any) -> None:
    """Replace recorded random values by values that depend only on their place, so that they are equal in all lives."""
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
