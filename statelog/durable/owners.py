"""Which process has claimed a run, and whether it is gone: then nobody has to wait for its claim to run out.

It can be told on Linux, of processes that see each other. Elsewhere the claim runs out.
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
"""Of this program: a process that has begun another one under its id does not have the claims of the first."""


class _Owner(NamedTuple):
    place: str
    """Boot, and namespace of process ids."""
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
    """Return when a process began, "" if there is none."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if text[0] in (b"Z", b"X") else text[19].decode()


def is_gone(name: str | None) -> bool:
    """Whether the process that has claimed something is gone for certain."""
    parts = (name or "").split(":")
    if len(parts) != len(_Owner._fields) or not parts[1].isdigit() or parts[0] != _place() or not parts[0]:
        return False
    owner = _Owner(parts[0], int(parts[1]), parts[2], parts[3])
    if owner.process_id == os.getpid():
        return owner.image != _IMAGE
    return _started(owner.process_id) != owner.started


def claim_one(store: Store, key: str, lease_s: float, wait_s: float = 0.0) -> Claim | None:
    """Claim what has this key, a task of a run or its messages; also one whose process is gone."""
    board = board_of(store, me())
    claim = board.claim(key, lease_s=lease_s, wait_s=wait_s)
    if claim is None:
        task = board.get(key)
        if task is not None and free(store, task):
            claim = board.claim(key, lease_s=lease_s)
    return claim


def free(store: Store, task: Entry) -> bool:
    """Take what a process has claimed from it, if that is gone; tell whether it was."""
    if task.claim is None or not is_gone(task.claim.holder):
        return False
    value = task.value
    if task.key.startswith("durable/tasks/"):
        value = {**value, "crashes": value.get("crashes", 0) + task.attempts}
    with suppress(ConflictError):  # another has done so
        with store.transaction() as tx:
            board = board_of(tx)
            board.delete(task.key, expected_version=task.version)
            board.create(task.key, value, priority=task.priority)
        return True
    return False


def free_all(store: Store) -> None:
    """Take from processes that are gone what they have claimed: runs, places of a queue, messages to deliver."""
    for task in board_of(store).claims("durable/**"):
        free(store, task)
