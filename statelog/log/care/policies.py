"""The store's retention policies for future threads, selected by patterns of thread ids.

A new thread gets the policy of the last pattern that matches its id. The policy becomes a record of the thread, so
later policies of the store do not change it.

A pattern without wildcards is the id of one thread. It is stored as a digest, like the mark of a deleted thread, so
that the id leaves the file when the thread is deleted. The policy is removed when that thread begins.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.format import cbor
from statelog.format.record import part_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POLICY_STEP_VERSIONS = 64
"""A policy is applied at every 64th version of a branch, so a branch may temporarily have up to 63 extra versions."""

_WILDCARDS = "*?[]"
_ALL = "*"


class PolicyRow(NamedTuple):
    """A stored pattern with its policy. Later rows take precedence.

    Attributes:
        pattern: a pattern of thread ids, in the syntax of file name patterns, or the part digest of one id.
        policy: the fields of a `retention.Policy`. If empty, the thread gets no policy, even if earlier patterns match.
    """

    pattern: str | bytes
    policy: dict[str, Any]


def decode_policies(payload: bytes | None) -> list[PolicyRow]:
    """Return the policies of the store in the order in which they were set."""
    return [] if payload is None else [PolicyRow(*row) for row in cbor.decode(payload)]


def encode_policies(rows: Sequence[PolicyRow]) -> bytes:
    """Return the payload that `decode_policies` decodes."""
    return cbor.encode([list(row) for row in rows])


def is_one_thread(pattern: str) -> bool:
    """Return True if a pattern has no wildcards."""
    return not any(wildcard in pattern for wildcard in _WILDCARDS)


def stored_pattern(pattern: str) -> str | bytes:
    """Return the stored form of a pattern: the digest of the id if it has no wildcards."""
    return part_digest(pattern.encode()) if is_one_thread(pattern) else pattern


def policy_of_new_thread(rows: Sequence[PolicyRow], thread_id: str) -> dict[str, Any]:
    """Return the policy of a new thread. It is empty if the thread gets none."""
    policy: dict[str, Any] = {}
    for row in rows:
        if _fits(thread_id, row.pattern):
            policy = row.policy
    return policy


def _fits(thread_id: str, pattern: str | bytes) -> bool:
    if isinstance(pattern, bytes):
        return pattern == part_digest(thread_id.encode())
    return fnmatchcase(thread_id, pattern)


def with_policy(rows: Sequence[PolicyRow], pattern: str | bytes, policy: dict[str, Any]) -> list[PolicyRow]:
    """Return `rows` with `policy` added. It replaces the policy with the same pattern; for `*`, it replaces all."""
    kept = [] if pattern == _ALL else [row for row in rows if row.pattern != pattern]
    return _without_idle([*kept, PolicyRow(pattern, policy)])


def without_thread(rows: Sequence[PolicyRow], thread_id: str) -> list[PolicyRow]:
    """Return `rows` without the policy for one thread's id, which is no longer needed once that thread has begun."""
    return without_id(rows, part_digest(thread_id.encode()))


def without_id(rows: Sequence[PolicyRow], digest: bytes) -> list[PolicyRow]:
    """Return `rows` without the policy for the thread id that has this part digest."""
    return _without_idle(row for row in rows if row.pattern != digest)


def _without_idle(rows: Iterable[PolicyRow]) -> list[PolicyRow]:
    """Return the rows without those empty policies that do not override an earlier policy."""
    kept: list[PolicyRow] = []
    for row in rows:
        if row.policy or any(_may_overlap(row.pattern, earlier.pattern) for earlier in kept):
            kept.append(row)
    return kept


def says_already(rows: Sequence[PolicyRow], pattern: str | bytes, policy: dict[str, Any]) -> bool:
    """Return True if setting a policy would change nothing."""
    place = next((number for number, row in enumerate(rows) if row.pattern == pattern), -1)
    held = rows[place].policy if place >= 0 else {}
    later = rows[place + 1 :]
    return held == policy and all(row.policy == policy or not _may_overlap(row.pattern, pattern) for row in later)


def _may_overlap(one: str | bytes, other: str | bytes) -> bool:
    """Return False if no id can match both patterns, because their parts before or after all wildcards differ."""
    if isinstance(one, bytes) or isinstance(other, bytes):
        return one == other or type(one) is not type(other)
    (start, end), (other_start, other_end) = _fixed_ends(one), _fixed_ends(other)
    starts_fit = start.startswith(other_start) or other_start.startswith(start)
    return starts_fit and (end.endswith(other_end) or other_end.endswith(end))


def _fixed_ends(pattern: str) -> tuple[str, str]:
    places = [at for at, character in enumerate(pattern) if character in _WILDCARDS]
    return pattern[: places[0]], pattern[places[-1] + 1 :]
