"""Chooses the images of power cuts to examine."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from statelog.testing.powerloss.disk import ALL_SECTORS, Choice

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from statelog.testing.powerloss.disk import Unit


class Mode(Enum):
    """How an image is chosen."""

    NONE = "none"
    """Only flushed changes reached the disk."""
    ALL = "all"
    """All changes reached the disk, as after a killed process."""
    ONE_DROPPED = "one dropped"
    ONE_APPLIED = "one applied"
    RANDOM = "random"
    TORN = "torn"


_CHANCES = (0.5, 0.5, 0.1, 0.9)


def systematic_choices(
    units: Sequence[Unit], generator: random.Random, *, units_max: int
) -> Iterator[tuple[Mode, Choice]]:
    """Yield these choices: no change, all changes, and then for each unit all changes except it, and only it.

    Args:
        units: the uncertain changes.
        generator: selects units if there are too many.
        units_max: the maximum number of units for which the last two choices are made.
    """
    none, full = [0] * len(units), [unit.levels for unit in units]
    yield Mode.NONE, Choice(tuple(none))
    if not units:
        return
    yield Mode.ALL, Choice(tuple(full))
    single: Sequence[int] = range(len(units))
    if len(units) > units_max:
        single = sorted(generator.sample(single, units_max))
    for position in single:
        yield Mode.ONE_DROPPED, Choice((*full[:position], 0, *full[position + 1 :]))
        yield Mode.ONE_APPLIED, Choice((*none[:position], full[position], *none[position + 1 :]))


def random_choice(units: Sequence[Unit], generator: random.Random) -> tuple[Mode, Choice]:
    """Choose at random which changes reach the disk. If any of them are pages, half of all choices have torn pages."""
    chance = generator.choice(_CHANCES)
    levels = []
    for unit in units:
        level = unit.levels if generator.random() < chance else 0
        if unit.levels > 1 and generator.random() < 0.5:
            level = generator.randrange(unit.levels + 1)
        levels.append(level)
    pages = [position for position, unit in enumerate(units) if unit.page is not None]
    if not pages or generator.random() < 0.5:
        return Mode.RANDOM, Choice(tuple(levels))
    torn = {}
    for position in generator.sample(pages, min(len(pages), generator.choice((1, 1, 2, 4)))):
        levels[position] = min(levels[position], units[position].levels - 1)
        torn[position] = generator.randrange(1, ALL_SECTORS)
    return Mode.TORN, Choice(tuple(levels), torn)
