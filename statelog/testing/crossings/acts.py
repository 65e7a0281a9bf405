"""Acts: each is one public call, or a few, with arguments drawn from a seed."""

from __future__ import annotations

from contextlib import suppress
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
    from statelog.testing.crossings.clock import Clock

REFUSALS = (UsageError, ConflictError, LimitError, AccessError, ExecutionError)
"""What an act may raise: its arguments did not fit the store. Anything else is a fault."""

_FAULTS = (StoreFullError, FencedError)


class Actor:
    """One process that acts on a store: the store as it has it open, and what it holds of it.

    Attributes:
        store: the open store.
        clock: the clock that all processes go by.
        folder: for files of its own.
        held: claims, leases and other objects, by kind: what a process loses when it is killed.

    """

    def __init__(self, store: Store, clock: Clock, folder: Path, name: str) -> None:
        self.store = store
        self.clock = clock
        self.folder = folder
        self.name = name
        self.held: dict[str, list[Any]] = {}
        self.objects: dict[str, Any] = {}

    def hold(self, kind: str, item: Any) -> None:
        """Keep an object for later acts; the oldest goes when there are eight."""
        held = self.held.setdefault(kind, [])
        held.append(item)
        del held[:-8]

    def drop(self, kind: str, item: Any) -> None:
        """Hold an object no more."""
        if item in self.held[kind]:
            self.held[kind].remove(item)

    def pick(self, kind: str, rng: Random) -> Any | None:
        """Return one of the objects held, mostly the newest; None if there is none."""
        held = self.held.get(kind)
        return (held[-1] if is_likely(rng, 0.7) else rng.choice(held)) if held else None

    def close(self) -> None:
        """Let go of everything that is held, without giving it back."""
        for lease in self.held.get("leases", ()):
            lease._has_ended.set()  # noqa: SLF001 - the thread that renews it ends
        self.held.clear()
        self.objects.clear()


class Act(NamedTuple):
    """One kind of act."""

    name: str
    do: Callable[[Actor, Random], Any]
    weight: int


class Family:
    """Acts on one feature; a run of the crossings draws some families, and some acts of each.

    Args:
        name: what the names of its acts begin with.

    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.acts: dict[str, Act] = {}

    def act(self, weight: int = 4) -> Callable[[Callable[[Actor, Random], Any]], Callable[[Actor, Random], Any]]:
        """Make a function an act, which is drawn so often as `weight` says beside others."""

        def register(function: Callable[[Actor, Random], Any]) -> Callable[[Actor, Random], Any]:
            name = f"{self.name}.{function.__name__}"
            self.acts[name] = Act(name, function, weight)
            return function

        return register


def perform(act: Act, actor: Actor, seed: int) -> str:
    """Do an act; return "done", or the name of the error that refused it. Raises what no act may raise."""
    rng = Random(seed)  # noqa: S311 - no secret
    try:
        act.do(actor, rng)
    except _FAULTS:
        raise
    except REFUSALS as error:
        return type(error).__name__
    return "done"


def is_likely(rng: Random, chance: float) -> bool:
    """Return True with a chance."""
    return rng.random() < chance


__all__ = ["REFUSALS", "Act", "Actor", "Family", "is_likely", "perform", "suppress"]
