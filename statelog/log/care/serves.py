"""Branches that serve a version: each goes with the version it serves.

A version says so in its metadata: under `statelog:serves` it names the id of the version that its branch was begun for,
as one that calls another names its caller. What its branch's head says counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.format import keys
from statelog.log.events import SERVES_KEY

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent
    from statelog.log.view import View

UNMET_US = 86_400 * 1_000_000
"""So long what belongs to a version that is not there waits, as a branch that serves it does. That may be committed
later; only what was committed a day ago has surely been left behind."""


def served_id(event: CheckpointEvent) -> str | None:
    """Return the id of the version that one says it serves, None if it serves none."""
    named = event.metadata_field(SERVES_KEY)
    return named if isinstance(named, str) and named else None


def find_served(view: View, thread: int, id: str) -> CheckpointEvent | None:
    """Return the version of an id, the last one if it was superseded; None if it is not there."""
    for key in (keys.encode_tag_key(thread, id), keys.encode_checkpoint_id_key(thread, id)):
        payload = view.transaction.get_index(key)
        lsn = 0 if payload is None else keys.decode_lsn(payload)
        event = view.find_checkpoint(lsn) if lsn else None
        if event is not None:
            return event
    return None
