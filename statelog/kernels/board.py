"""The kernel that reads several records of board entries in one C call."""

from __future__ import annotations

from itertools import accumulate
from struct import pack
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import lib
from statelog.kernels.calls import NUMBERS, OK, fail, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_entries_read: Callable[..., int] = lib.sl_entries_read

NO_AGENT: Final = (1 << 64) - 1
"""The value of `EntryFacts.agent_at` if the record has no agent."""

ENTRIES_MAX: Final = 128
"""The maximum number of records that one call of `entries_read` reads."""


class EntryFacts(NamedTuple):
    """The fields of an entry's plain record. Offsets refer to the bytes that `entries_read` returns.

    A record is plain if it is undamaged, and belongs to an existing entry that nobody has claimed, without an error.

    Attributes:
        is_plain: 0 if the record is not plain. In that case, only `lsn` is valid.
        agent_at: offset of the agent's name, which ends at `value_at`; `NO_AGENT` if there is no agent.
        value_at: offset of the encoded value, or of the digest of the entry's root if `root_lsn` is not 0.
        value_end: end of the encoded value or digest.
        act: the act of the record.
        time_us: time of the record.
        created_us: time of the entry's creation; 0 if it is the time of the record.
        expires_us: expiry time; 0 for never.
        rank: the entry's rank: `RANK` minus its priority.
        ready_us: the time from which the entry may be claimed; 0 if there was no delay.
        attempts: the number of claims.
        lsn: LSN of the record.
        root_lsn: LSN of the record with the entry's root; 0 if the bytes contain the encoded value.
        root_node: node number of the root in that record.
    """

    is_plain: int
    agent_at: int
    value_at: int
    value_end: int
    act: int
    time_us: int
    created_us: int
    expires_us: int
    rank: int
    ready_us: int
    attempts: int
    lsn: int
    root_lsn: int
    root_node: int


_FIELDS: Final = len(EntryFacts._fields)
_PLAIN_AT: Final = _FIELDS * ENTRIES_MAX
assert _PLAIN_AT < NUMBERS


def entries_read(
    records: bytes, sizes: Sequence[int], lsns: Sequence[bytes], *, with_values: bool
) -> tuple[list[tuple[int, ...]], bytes, bool]:
    """Read records of board entries, in order, up to the capacity of the output.

    Args:
        records: up to `ENTRIES_MAX` records, joined.
        sizes: the sizes of the records.
        lsns: the LSNs of the records, encoded as keys of the log.
        with_values: False to omit the values.

    Returns:
        The `EntryFacts` of the records read, as plain tuples; the bytes of agents and values; True if all records read
        are plain. If there are fewer facts than records, the output was full. Read the other records with another call.
    """
    count = len(sizes)
    ends = len(records).to_bytes(8) if count == 1 else pack(f">{count}Q", *accumulate(sizes))
    scratch = take()
    done, facts = scratch.count, scratch.numbers
    status = _entries_read(
        records, ends, b"".join(lsns), count, with_values, scratch.output, scratch.entry_facts, done, facts + _PLAIN_AT
    )
    if status != OK:
        fail(status, "record of an entry")
    numbers = unpack_numbers(facts, _FIELDS * done[0])
    data = unpack_bytes(scratch.characters, scratch.output.size)
    are_plain = facts[_PLAIN_AT] == done[0]
    reuse(scratch)
    found = [tuple(numbers)] if count == 1 else list(zip(*[iter(numbers)] * _FIELDS, strict=True))
    return found, data, are_plain
