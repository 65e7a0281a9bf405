"""Acts on the store as a whole: compaction, opening it again, shipping it."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING

from statelog.errors import StoreLockedError
from statelog.testing.crossings.acts import Actor, Family, is_likely

if TYPE_CHECKING:
    from random import Random

FAMILY = Family("care")


@FAMILY.act(4)
def compact(actor: Actor, rng: Random) -> None:
    """Put the store into a new file, unless another process does so."""
    del rng
    with suppress(StoreLockedError):
        actor.store.compact()


@FAMILY.act(2)
def flush(actor: Actor, rng: Random) -> None:
    """Wait for the disk."""
    del rng
    actor.store.flush()


@FAMILY.act(1)
def rebuild(actor: Actor, rng: Random) -> None:
    """Derive the index from the log again."""
    del rng
    actor.store.rebuild_index()


@FAMILY.act(1)
def import_own_export(actor: Actor, rng: Random) -> None:
    """Import what the store has itself: an import that is given again changes nothing."""
    target = io.BytesIO()
    since = rng.randrange(actor.store.last_lsn + 1) if is_likely(rng, 0.5) else 0
    actor.store.export(target, since=since)
    actor.store.import_(io.BytesIO(target.getvalue()))


@FAMILY.act(6)
def ship(actor: Actor, rng: Random) -> None:
    """Wait until all is outside; passed over by a store of no fleet, and by processes that do not own it."""
    del rng
    if "owner" in actor.objects:
        actor.store.flush()
        actor.store.remote.wait()


@FAMILY.act(1)
def send_base(actor: Actor, rng: Random) -> None:
    """Have an image sent."""
    if "owner" in actor.objects:
        actor.store.flush()
        actor.store.remote.base(is_fresh=is_likely(rng, 0.3))
