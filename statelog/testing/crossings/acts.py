"""Acts: each act makes one public call, or a few, with arguments drawn from a seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.errors import (
    AccessError,
    ConflictError,
    ExecutionError,
    FencedError,
    LimitError,
    StoreFullError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from statelog import Store
    from statelog.testing.crossings.clock import SimulatedClock

REFUSALS = (UsageError, ConflictError, LimitError, AccessError, ExecutionError)
"""Errors that an act may raise because its arguments did not fit the store. Any other error is a failure."""

_FAULTS = (StoreFullError, FencedError)


class Actor:
    """One process that acts on a store.

    Attributes:
        store: the store, as the process has it open.
        clock: the clock that all processes use.
        folder: a folder for the process's own files.
        name: the name of the process.
        held: claims, leases and other objects, by kind. A process that is killed loses them.
        objects: other objects that the process uses again, by name.
    """

    def __init__(self, store: Store, clock: SimulatedClock, folder: Path, name: str) -> None:
        self.store = store
        self.clock = clock
        self.folder = folder
        self.name = name
        self.held: dict[str, list[Any]] = {}
        self.objects: dict[str, Any] = {}

    def hold(self, kind: str, item: Any) -> None:
        """Keep an object for later acts. Of each kind, the newest eight objects are kept."""
        held = self.held.setdefault(kind, [])
        held.append(item)
        del held[:-8]

    def drop(self, kind: str, item: Any) -> None:
        """Forget an object that was kept by `hold`."""
        if item in self.held[kind]:
            self.held[kind].remove(item)

    def pick(self, kind: str, rng: Random) -> Any | None:
        """Return one of the objects of a kind, usually the newest, or None if there are none."""
        held = self.held.get(kind)
        return (held[-1] if is_likely(rng, 0.7) else rng.choice(held)) if held else None

    def close(self) -> None:
        """Forget all objects, without releasing the claims and leases among them."""
        self.held.clear()
        self.objects.clear()


class CrossingAct(NamedTuple):
    """One kind of act."""

    name: str
    do: Callable[[Actor, Random], Any]
    weight: int


class Family:
    """Acts on one feature. A run of the crossings draws some families, and some acts of each.

    Args:
        name: the prefix of the names of its acts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.acts: dict[str, CrossingAct] = {}

    def act(self, weight: int = 4) -> Callable[[Callable[[Actor, Random], Any]], Callable[[Actor, Random], Any]]:
        """Return a decorator that registers a function as an act. `weight` is its relative frequency."""

        def register(function: Callable[[Actor, Random], Any]) -> Callable[[Actor, Random], Any]:
            name = f"{self.name}.{function.__name__}"
            self.acts[name] = CrossingAct(name, function, weight)
            return function

        return register


def perform(act: CrossingAct, actor: Actor, seed: int) -> str:
    """Perform an act. Return "done", or the name of the error that refused it. Other errors propagate."""
    rng = Random(seed)  # noqa: S311 - the numbers are not secrets
    try:
        act.do(actor, rng)
    except _FAULTS:
        raise
    except REFUSALS as error:
        return type(error).__name__
    return "done"


def is_likely(rng: Random, chance: float) -> bool:
    """Return True with the probability `chance`."""
    return rng.random() < chance
