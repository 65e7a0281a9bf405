"""Exports the commits that were stranded when another owner took over, so that the store can import them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.fleet.scratch import scratch
from statelog.store.store import open_for_records

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Store
    from statelog.format.mac import StoreKey
    from statelog.portable.frames import ExportTarget


def export_lost(
    stranded: Path, live: Path | None, target: ExportTarget, *, suffix: str, key: StoreKey | None
) -> dict[str, str]:
    """Export the threads that a stranded file has continued after the store was taken over.

    If the store has also continued a thread, the export has a copy of the thread with a different
    id. All other threads keep their ids.

    Args:
        stranded: path of the file.
        live: path of the current store, or None if the store does not exist.
        target: a binary file. Nothing is written if no thread has continued.
        suffix: suffix of the ids of copies.
        key: the key of both files, or None if they have no key.

    Returns:
        A dict from each thread's id to its id in the export.
    """
    with scratch(stranded.parent) as folder:
        path = folder / "copy.state"
        with open_for_records(stranded, read_only=True, key=key) as store:
            store.image(path)  # A fenced file is read-only, so copy threads in an image.
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
    """Return the last LSN up to which two logs are equal."""
    last = 0
    for mine, theirs in zip(one.log(), other.log(), strict=False):
        if mine.digest != theirs.digest:
            break
        last = mine.lsn
    return last


def _changed(store: Store, after: int) -> set[str]:
    """Return the ids of threads that have records after an LSN."""
    return {record.thread_id for record in store.log(after) if record.thread_id}
