"""Upgrades of the file format: what makes a store of version N one of version N + 1.

A release that changes the format registers one function here, for the version before. At open a
store that is older goes through all of them that it needs, in one transaction, under the exclusive
lock: cut anywhere, it is as it was or as it has to be. Version 1 is the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from statelog.errors import CorruptionError, FormatError
from statelog.format import cbor
from statelog.format.header import FORMAT_VERSION, HEADER_KEY
from statelog.format.seal import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.format.mac import StoreMac

META = b"meta"
LOG = b"log"
INDEX = b"index"


class Tables(Protocol):
    """The tables of a store within one transaction, keys and values as they stand in the file."""

    def get(self, table: bytes, key: bytes) -> bytes | None:
        """Return a value, None if there is none."""

    def put(self, table: bytes, key: bytes, value: bytes) -> None:
        """Put a value."""

    def delete(self, table: bytes, key: bytes) -> None:
        """Delete a key."""

    def scan(self, table: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order; what is put or deleted meanwhile may be passed over."""


if TYPE_CHECKING:
    Upgrade = Callable[[Tables], None]
    """Makes the tables those of the next version, but for the version in the header."""


def _allow_loans(_tables: Tables) -> None:
    """Version 2 has one more type of record, and more to say in another: what is there stays as it is."""


def _allow_lives(_tables: Tables) -> None:
    """Version 3 lets an id begin anew: a thread's record and a tombstone may say more, those that are there stay."""


def _allow_entries(_tables: Tables) -> None:
    """Version 4 has one more type of record, for entries of the board: what is there stays as it is."""


def _allow_removals(_tables: Tables) -> None:
    """Version 5 adds a record type that lists removed records. Existing records do not change."""


def _allow_names(_tables: Tables) -> None:
    """Version 7 lets removals list any record, and a log say that it lists all. Existing records do not change."""


UPGRADES: dict[int, Upgrade] = {
    1: _allow_loans,
    2: _allow_lives,
    3: _allow_entries,
    4: _allow_removals,
    5: _allow_names,
    6: _allow_names,
}
"""By the version they begin with. Version 6 is version 5 with a key."""


def stored_version(header: bytes) -> int:
    """Return the version of a sealed header if it is an older one, else this release's: `decode_header` judges it."""
    try:
        fields = cbor.decode(unseal(HEADER_KEY, header))
    except CorruptionError:
        return FORMAT_VERSION
    version = fields.get("format") if isinstance(fields, dict) and fields.get("magic") == "statelog" else None
    return version if type(version) is int and 0 <= version < FORMAT_VERSION else FORMAT_VERSION


def upgrade(tables: Tables, version: int, mac: StoreMac | None = None) -> None:
    """Bring the tables from a version to this release's. `mac` computes the MAC of the header, if the store has a key.

    Raises:
        FormatError: there is no way from that version; nothing was changed. Facts: needed, supported.
    """
    steps = range(version, FORMAT_VERSION)
    if any(step not in UPGRADES for step in steps):
        message = f"the store has format {version}, which this release (format {FORMAT_VERSION}) cannot upgrade"
        raise FormatError(message, needed=version, supported=FORMAT_VERSION)
    for step in steps:
        UPGRADES[step](tables)
        value = tables.get(META, HEADER_KEY)
        assert value is not None
        fields = {**cbor.decode(unseal(HEADER_KEY, value)), "format": step + 1}
        if mac is not None:
            del fields["mac"]
            fields["mac"] = mac.header_mac(cbor.encode(fields))
        tables.put(META, HEADER_KEY, seal(HEADER_KEY, cbor.encode(fields)))
