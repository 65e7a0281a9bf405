"""Finds the ancestors of versions that store only the changes to a value and therefore need their ancestors.

The metadata of such a version lists channels under `statelog:needs`. The version does not contain the values of these
channels. The values are computed from its ancestors, back to the first one that does not list the channel. Retention
keeps these ancestors with the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.log.events import NEEDS_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.log.events import CheckpointEvent
    from statelog.log.view import View


def needed_by(view: View, lsns: Iterable[int]) -> set[int]:
    """Return the LSNs of the ancestors that the versions at `lsns` need."""
    needed: set[int] = set()
    walked: dict[int, set[str]] = {}
    """The channels that were followed back from each visited version, keyed by the LSN of the version."""
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
    """Return the channels for which a version needs its ancestors."""
    named = event.metadata_field(NEEDS_KEY)
    return {name for name in named if isinstance(name, str)} if isinstance(named, list) else set()
