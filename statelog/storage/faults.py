"""Fault points: named points at which a test kills the process or raises an error.

Crash tests arm one point in a child process, through the environment:

    STATELOG_FAULT="commit.before_lmdb_commit:3:kill"

This kills the process with SIGKILL the third time that it passes the point. `arm` arms a point of its own process. A
point that is not armed costs one call and one test of an empty dictionary.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT_VARIABLE = "STATELOG_FAULT"

POINTS = (
    "creation.before_temporary",
    "creation.after_temporary",
    "creation.before_lmdb_commit",
    "creation.after_lmdb_commit",
    "creation.before_link",
    "creation.after_link",
    "creation.after_directory_sync",
    "creation.after_unlink",
    "commit.before_begin",
    "commit.after_begin",
    "commit.before_put_log",
    "commit.after_put_log",
    "commit.before_put_index",
    "commit.after_put_index",
    "commit.between_works",
    "commit.before_lmdb_commit",
    "commit.after_lmdb_commit",
    "commit.before_delivery",
    "commit.after_delivery",
    "compaction.before_temporary",
    "compaction.after_temporary",
    "compaction.between_transactions",
    "compaction.before_first_sync",
    "compaction.before_file_sync",
    "compaction.after_file_sync",
    "compaction.before_rename",
    "compaction.after_rename",
    "compaction.after_directory_sync",
    "compaction.between_removals",
    "purge.after_directory_sync",
    "journal.before_append",
    "journal.after_append",
    "journal.after_flush",
    "checkpoint.before_sync",
    "checkpoint.after_sync",
    "checkpoint.before_slot_flush",
    "checkpoint.after_slot",
    "checkpoint.after_pin",
    "checkpoint.before_flag_flush",
    "checkpoint.before_unlink",
    "checkpoint.after_unlink",
    "recovery.before_restore",
    "recovery.after_restore",
    "recovery.between_transactions",
    "recovery.before_unlink",
    "upgrade.before_lmdb_commit",
    "upgrade.after_lmdb_commit",
)
"""All points, in the order in which creation, commit, compaction, purge and upgrade pass them."""

armed: dict[str, _Fault] = {}
"""The armed faults, keyed by the name of their point.

Frequently executed code tests this dict first: `if armed: point(...)`.
"""


class _Fault:
    """The action at a fault point, and the number of passes until it runs."""

    __slots__ = ("action", "passes_left")

    def __init__(self, passes_left: int, action: Callable[[], None]) -> None:
        self.passes_left = passes_left
        self.action = action


def point(name: str) -> None:
    """Run the action if `name` is armed. Otherwise do nothing, in less than 100 ns."""
    if armed:
        _pass(name)


def arm(name: str, *, count: int = 1, action: str | Callable[[], None] = "kill") -> None:
    """Arm a point: its `count`-th pass runs the action, once.

    Args:
        name: one of `POINTS`.
        count: the number of the pass that runs the action; 1 is the next pass.
        action: "kill" (SIGKILL to this process), or a function, which may raise.

    Raises:
        UsageError: the point, the count or the action is not valid. Facts: fault.
    """
    if name not in POINTS or count < 1 or (isinstance(action, str) and action != "kill"):
        message = f"not a valid fault: {name}:{count}:{action}"
        raise UsageError(message, fault=name)
    armed[name] = _Fault(count, _kill if isinstance(action, str) else action)


def disarm() -> None:
    """Disarm every point."""
    armed.clear()


def arm_from_environment() -> None:
    """Arm the faults of STATELOG_FAULT: "name:count:action", separated by commas."""
    for fault in filter(None, os.environ.get(ENVIRONMENT_VARIABLE, "").split(",")):
        name, _, rest = fault.partition(":")
        count, _, action = rest.partition(":")
        if not count.isascii() or not count.isdigit():
            message = f"{ENVIRONMENT_VARIABLE} must be name:count:action, not {fault!r}"
            raise UsageError(message, fault=fault)
        arm(name, count=int(count), action=action)


def _pass(name: str) -> None:
    fault = armed.get(name)
    if fault is None:
        return
    fault.passes_left -= 1
    if fault.passes_left == 0:
        del armed[name]
        fault.action()


def _kill() -> None:
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


arm_from_environment()
