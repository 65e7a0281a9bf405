"""Branches that serve a version. Such a branch expires with the version that it serves.

The metadata of a branch's head names the id of the served version under `statelog:serves`. For example, a tool call
names its caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.format import keys
from statelog.log.events import SERVES_KEY

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent
    from statelog.log.view import View

UNMET_US = 86_400 * 1_000_000
"""How long a branch is kept if the version that it serves does not exist.

The version may still be committed; after a day it has surely been abandoned.
"""


def served_id(event: CheckpointEvent) -> str | None:
    """Return the id of the version that a version serves, or None."""
    named = event.metadata_field(SERVES_KEY)
    return named if isinstance(named, str) and named else None


def find_served(view: View, thread: int, id: str) -> CheckpointEvent | None:
    """Return the version that has the id `id`, or None. If it was superseded, a tag `id` leads to its last form."""
    for key in (keys.encode_tag_key(thread, id), keys.encode_checkpoint_id_key(thread, id)):
        payload = view.transaction.get_index(key)
        lsn = 0 if payload is None else keys.decode_lsn(payload)
        event = view.find_checkpoint(lsn) if lsn else None
        if event is not None:
            return event
    return None
