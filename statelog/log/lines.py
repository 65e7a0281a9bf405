"""How a checkpoint goes back from where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import LimitError
from statelog.limits import VERSIONS_MAX

if TYPE_CHECKING:
    from statelog.log.batch import Batch, Head, Jump

Line = tuple[int, int, int, int | None, int | None, bytes | None, int | None, int | None, int, int]
"""The first fields of an event: thread, branch, version, and how it goes back from there."""


def line_of(batch: Batch, thread: int, branch: int, version: int, parent: Head | None) -> Line:
    """Return how a child of `parent` goes back.

    The jump pointer is that of a skew-binary list (Myers 1983): either the parent, or where the parent's leads on
    to. Where retention has broken that way, the parent serves: every pointer to an ancestor is a right one.

    From one checkpoint to the next, versions of a thread of one branch grow as depths do, or by more in a rollback.
    So where version and depth are equal they are equal in all ancestors, and which version is meant is known.

    Raises:
        LimitError: too many versions.

    """
    if version > VERSIONS_MAX:
        message = f"a branch of {version} versions"
        raise LimitError(message, actual=version, limit=VERSIONS_MAX)
    if parent is None:
        return thread, branch, version, None, None, None, None, None, 0, 0
    event = parent.event
    parent_branch, parent_version, parent_depth = event.branch, event.version, event.depth
    jump: Jump = (parent_branch, parent_version, parent_depth)
    depth = parent_depth + 1
    jump_depth = kernels.jump_depth(depth)
    has_one_branch = batch.has_one_branch(thread)
    jump_branch, jump_version = event.jump_branch, event.jump_version
    if jump_depth < parent_depth and jump_branch is not None and jump_version is not None:
        if has_one_branch and jump_version == event.jump_depth:
            jump = (jump_branch, jump_depth, jump_depth)
        else:
            far = batch.jump(thread, jump_branch, jump_version)
            if far is not None and far[0] is not None and far[2] == jump_depth:
                jump = far
    return (
        thread, branch, version, parent_branch, parent_version, parent.digest, jump[0], jump[1], depth, jump[2]
    )  # fmt: skip
