"""Versions that need others: each is read together with its ancestors, as a value of which only changes are kept.

A version says so in its metadata: under `statelog:needs` it names channels that it does not hold, and that are made of
what its ancestors hold, back to the first one that does not name the channel. Retention keeps these with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.log.events import NEEDS_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.log.events import CheckpointEvent
    from statelog.log.view import View


def needed_by(view: View, lsns: Iterable[int]) -> set[int]:
    """Return the LSNs of the ancestors that the versions in some records need."""
    needed: set[int] = set()
    walked: dict[int, set[str]] = {}
    """What was looked for from a version on, by its LSN."""
    for lsn in lsns:
        event = view.find_checkpoint(lsn)
        if event is None:
            continue
        missing = _names(event)
        while missing and event.parent_branch is not None and event.parent_version is not None:
            entry = view.entry(event.thread, event.parent_branch, event.parent_version)
            if entry is None or missing <= walked.get(entry.lsn, set()):
                break
            walked.setdefault(entry.lsn, set()).update(missing)
            needed.add(entry.lsn)
            event = view.checkpoint(entry.lsn)
            missing &= _names(event)
    return needed


def _names(event: CheckpointEvent) -> set[str]:
    """Return the channels that a version needs its ancestors for."""
    named = event.metadata_field(NEEDS_KEY)
    return {name for name in named if isinstance(name, str)} if isinstance(named, list) else set()
