"""What was stranded with an owner that another has taken over from, as an export that the store takes in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.fleet.scratch import scratch
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Store
    from statelog.format.mac import StoreKey
    from statelog.portable.frames import Target


def export_lost(
    stranded: Path, live: Path | None, target: Target, *, suffix: str, key: StoreKey | None
) -> dict[str, str]:
    """Write the threads that have gone on in a stranded file behind where the store was taken over.

    Where the store has gone on with a thread, too, a copy goes out by another id. All others go by their own ones.

    Args:
        stranded: the file.
        live: the store as it is now; None if there is none.
        target: what is written to. Nothing is, if no thread has gone on.
        suffix: of the ids of copies.
        key: the key of both files, or None if they have no key.

    Returns:
        By the id of each thread: the one by which it went out.

    """
    with scratch(stranded.parent) as folder:
        path = folder / "copy.state"
        with open_for_records(stranded, read_only=True, key=key) as store:
            store.image(path)  # it may be fenced: then nothing can be copied in it
        with open_for_records(path, durability="interval", key=key) as store:
            if live is None:
                changed = set()
                lost = _changed(store, 0)
            else:
                with open_for_records(live, read_only=True, key=key) as other:
                    common = _common(store, other)
                    changed = _changed(other, common)
                lost = _changed(store, common)
            exported = {info.id: info.id for info in store.threads() if info.id in lost}
            for id in sorted(exported.keys() & changed):
                exported[id] = store.copy_thread(id, f"{id}{suffix}").id
            if exported:
                store.export(target, threads=exported.values())
    return exported


def _common(one: Store, other: Store) -> int:
    """Return the last LSN up to which two logs are the same."""
    last = 0
    for mine, theirs in zip(one.log(), other.log(), strict=False):
        if mine.digest != theirs.digest:
            break
        last = mine.lsn
    return last


def _changed(store: Store, after: int) -> set[str]:
    """Return the ids of threads that have records behind an LSN."""
    return {record.thread_id for record in store.log(after) if record.thread_id}
