"""Branches as a thread lists them."""

from __future__ import annotations

from dataclasses import dataclass

from statelog.errors import BranchNotFoundError


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of a thread: versions 0..base_version are its parent's, the rest its own."""

    name: str
    parent: str | None
    base_version: int
    head_version: int


def no_branch(thread_id: str, branch: str) -> BranchNotFoundError:
    """Return the error for a branch that is not there."""
    message = f"thread {thread_id!r} has no branch {branch!r}"
    return BranchNotFoundError(message, thread=thread_id, branch=branch)
