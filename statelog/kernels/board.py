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

ENTRIES_MAX: Final = 64
"""Entries that `entries_read` takes at most."""


class EntryFacts(NamedTuple):
    """What a plain record of an entry says. Offsets count in the bytes that `entries_read` returns with it.

    Attributes:
        is_plain: 0 if the record is not plain. Then the other numbers say nothing.
        agent_at: of the agent's name, which ends at `value_at`; `NO_AGENT` if there is none.
        value_at: of the value's item,
        value_end: and its end.
        act: what was done.
        time_us: of the record.
        created_us: of the entry; 0 if that is the record's time.
        expires_us: 0 for never.
        rank: of its priority.
        ready_us: from when it may be claimed; 0: from the beginning.
        attempts: how often it was claimed.

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


_FIELDS: Final = len(EntryFacts._fields)
assert _FIELDS * ENTRIES_MAX <= NUMBERS


def entries_read(
    records: Sequence[bytes], lsns: Sequence[bytes], keys: Sequence[bytes], *, with_values: bool
) -> tuple[list[tuple[int, ...]], bytes]:
    """Read records of entries of the board, all or only the first ones.

    Args:
        records: at most `ENTRIES_MAX`.
        lsns: of the records, each as a key of the log.
        keys: the keys that the entries should have.
        with_values: False to leave out the values.

    Returns:
        The `EntryFacts` of the entries read, as plain tuples, and the bytes of agents and values. These are fewer than
        the records if no more had room. The next call goes on with the first one that is missing.
    """
    count = len(records)
    scratch = take()
    status = _entries_read(
        b"".join(records), pack(f">{count}Q", *accumulate(map(len, records))), b"".join(lsns),
        b"".join(keys), pack(f">{count}Q", *accumulate(map(len, keys))), count, with_values,
        scratch.output, scratch.entry_facts, scratch.count,
    )  # fmt: skip
    if status != OK:
        fail(status, "record of an entry")
    numbers = iter(unpack_numbers(scratch.numbers, _FIELDS * scratch.count[0]))
    data = unpack_bytes(scratch.characters, scratch.output.size)
    reuse(scratch)
    return list(zip(*[numbers] * _FIELDS, strict=True)), data
