"""Acts on the store as a whole: compacting it, rebuilding its index, shipping it to a fleet."""

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
    """Compact the store into a new file, unless another process holds the lock."""
    del rng
    with suppress(StoreLockedError):
        actor.store.compact()


@FAMILY.act(2)
def flush(actor: Actor, rng: Random) -> None:
    """Flush the store to disk."""
    del rng
    actor.store.flush()


@FAMILY.act(1)
def rebuild(actor: Actor, rng: Random) -> None:
    """Rebuild the index from the log."""
    del rng
    actor.store.rebuild_index()


@FAMILY.act(1)
def import_own_export(actor: Actor, rng: Random) -> None:
    """Import an export of the store itself. Importing known records changes nothing."""
    target = io.BytesIO()
    since = rng.randrange(actor.store.last_lsn + 1) if is_likely(rng, 0.5) else 0
    actor.store.export(target, since=since)
    actor.store.import_(io.BytesIO(target.getvalue()))


@FAMILY.act(6)
def ship(actor: Actor, rng: Random) -> None:
    """Wait until all commits are shipped. Do nothing if no fleet ships the store, or another process is its owner."""
    del rng
    if "owner" in actor.objects:
        actor.store.flush()
        actor.store.remote.wait()


@FAMILY.act(1)
def send_base(actor: Actor, rng: Random) -> None:
    """Send a base image to the fleet."""
    if "owner" in actor.objects:
        actor.store.flush()
        actor.store.remote.base(is_fresh=is_likely(rng, 0.3))


@FAMILY.act(1)
def collect(actor: Actor, rng: Random) -> None:
    """Collect objects that the fleet no longer needs: all of them, or those that are at least a minute old."""
    fleet = actor.objects.get("owner")
    if fleet is not None:
        age_s = rng.choice((0, 60))
        fleet.gc("s", keep_s=age_s, grace_s=age_s)


@FAMILY.act(1)
def check_fleet(actor: Actor, rng: Random) -> None:
    """Verify the shipped objects of the fleet."""
    del rng
    fleet = actor.objects.get("owner")
    if fleet is not None and (problems := fleet.check("s")):
        raise problems[0].error
