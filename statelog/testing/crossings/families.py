"""All families of acts: the families of this package and of the installed adapters."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from statelog.testing.crossings import boards, care, runs, threads
from statelog.testing.extensions import extensions

if TYPE_CHECKING:
    from statelog.testing.crossings.acts import CrossingAct, Family


@cache
def families() -> dict[str, Family]:
    """Return the families, keyed by their names."""
    own = [threads.FAMILY, boards.FAMILY, runs.FAMILY, care.FAMILY]
    added = [family for extension in extensions().values() for family in extension.FAMILIES]
    return {family.name: family for family in (*own, *added)}


@cache
def acts() -> dict[str, CrossingAct]:
    """Return all acts, keyed by their names."""
    return {name: act for family in families().values() for name, act in family.acts.items()}
