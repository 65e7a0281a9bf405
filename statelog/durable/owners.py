"""Names the processes that claim runs, and detects dead ones. The claim of a dead process is taken over at once.

This works on Linux, among processes in one process-id namespace. Elsewhere, other processes wait until the claim
expires.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from statelog.durable.runs import board_of
from statelog.errors import ConflictError

if TYPE_CHECKING:
    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

_IMAGE = uuid4().hex[:12]
"""A random name of this program image. A process that executes another program keeps its id, but not its claims."""


class _Owner(NamedTuple):
    place: str
    """The boot id, and the namespace of process ids."""
    process_id: int
    started: str
    image: str


def me() -> str:
    """Return the name under which this process claims runs."""
    return _name(os.getpid())


@lru_cache(maxsize=2)
def _name(process_id: int) -> str:
    owner = _Owner(_place(), process_id, _started(process_id), _IMAGE)
    return ":".join(map(str, owner)) if owner.place else f"-:{process_id}:-:{_IMAGE}"


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(process_id: int) -> str:
    """Return the start time of a process in clock ticks since the boot, or "" if there is no such process."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if text[0] in (b"Z", b"X") else text[19].decode()


def is_gone(name: str | None) -> bool:
    """Return True if the process that `name` identifies is certainly dead."""
    parts = (name or "").split(":")
    if len(parts) != len(_Owner._fields) or not parts[1].isdigit() or parts[0] != _place() or not parts[0]:
        return False
    owner = _Owner(parts[0], int(parts[1]), parts[2], parts[3])
    if owner.process_id == os.getpid():
        return owner.image != _IMAGE
    return _started(owner.process_id) != owner.started


def claim_one(store: Store, key: str, lease_s: float, wait_s: float = 0.0) -> Claim | None:
    """Claim the entry of a key, even if a dead process has claimed it. Return None if it cannot be claimed in time."""
    board = board_of(store, me())
    claim = board.claim(key, lease_s=lease_s, wait_s=wait_s)
    if claim is None:
        task = board.get(key)
        if task is not None and free(store, task):
            claim = board.claim(key, lease_s=lease_s)
    return claim


def free(store: Store, task: Entry) -> bool:
    """Free a claimed entry if its process is dead. Return True if this call has freed it."""
    if task.claim is None or not is_gone(task.claim.holder):
        return False
    value = task.value
    if task.key.startswith("durable/tasks/"):
        value = {**value, "crashes": value.get("crashes", 0) + task.attempts}
    with suppress(ConflictError):  # Another process has freed the entry.
        with store.transaction() as tx:
            board = board_of(tx)
            board.delete(task.key, expected_version=task.version)
            board.create(task.key, value, priority=task.priority)
        return True
    return False


def free_all(store: Store) -> None:
    """Free all entries that dead processes have claimed: tasks of runs, slots of queues, messages to deliver."""
    for task in board_of(store).claims("durable/**"):
        free(store, task)
