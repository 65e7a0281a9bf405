"""Records of entries of the board, several at once."""

from __future__ import annotations

from itertools import accumulate
from struct import pack
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import lib
from statelog.kernels.calling import NUMBERS, OK, fail, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_entries_read: Callable[..., int] = lib.sl_entries_read

NO_AGENT: Final = (1 << 64) - 1
"""In `EntryFacts.agent_at`: nobody is named."""

ENTRIES_MAX: Final = 128
"""Entries that `entries_read` takes at most."""


class EntryFacts(NamedTuple):
    """What a plain record of an entry says. Offsets count in the bytes that `entries_read` returns with it.

    Attributes:
        is_plain: 0 if the record is not plain. Then the other numbers say nothing, except the LSN.
        agent_at: of the agent's name, which ends at `value_at`; `NO_AGENT` if there is none.
        value_at: of the value's item, or of the digest of its root,
        value_end: and the end of that.
        act: what was done.
        time_us: of the record.
        created_us: of the entry; 0 if that is the record's time.
        expires_us: 0 for never.
        rank: of its priority.
        ready_us: from when it may be claimed; 0: from the beginning.
        attempts: how often it was claimed.
        lsn: of the record.
        root_lsn: LSN of the record that has the root of the value; 0 if the value's item is there.
        root_node: number of the root in that record.

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
    """Read records of entries of the board, all or only the first ones.

    Args:
        records: at most `ENTRIES_MAX`, one after another.
        sizes: of the records.
        lsns: of the records, each as a key of the log.
        with_values: False to leave out the values.

    Returns:
        The `EntryFacts` of the entries read, as plain tuples; the bytes of agents and values; whether all these entries
        are plain. Where they are fewer than the records, the next one had no room, and is to be read by another call.
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
