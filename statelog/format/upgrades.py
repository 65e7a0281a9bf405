"""Upgrades of the file format from version N to version N + 1.

A release that changes the format registers one function here, for the previous version. Opening an older store runs all
functions that the store needs, in one transaction, under the exclusive lock. If an upgrade is interrupted, the store is
either unchanged or upgraded. Version 1 is the first.
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
    """The tables of a store within one transaction, with keys and values in their stored form."""

    def get(self, table: bytes, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def put(self, table: bytes, key: bytes, value: bytes) -> None:
        """Store the value of a key."""

    def delete(self, table: bytes, key: bytes) -> None:
        """Delete a key."""

    def scan(self, table: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order. The scan may miss changes that are made during the scan."""


if TYPE_CHECKING:
    Upgrade = Callable[[Tables], None]
    """A function that converts the tables to the next version. It does not change the version in the header."""


def _allow_loans(_tables: Tables) -> None:
    """Do nothing: version 2 only adds a record type, and a field to another type."""


def _allow_lives(_tables: Tables) -> None:
    """Do nothing: version 3 only adds fields that let deleted threads be re-created."""


def _allow_entries(_tables: Tables) -> None:
    """Do nothing: version 4 only adds a record type for entries of the board."""


def _allow_removals(_tables: Tables) -> None:
    """Do nothing: version 5 only adds a record type that lists removed records."""


def _allow_names(_tables: Tables) -> None:
    """Do nothing: version 7 only lets removals list any record, and adds the flag `FLAG_NAMED`."""


UPGRADES: dict[int, Upgrade] = {
    1: _allow_loans,
    2: _allow_lives,
    3: _allow_entries,
    4: _allow_removals,
    5: _allow_names,
    6: _allow_names,
}
"""The upgrades by the version that they start from. Version 6 is version 5 with a key."""


def stored_version(header: bytes) -> int:
    """Return the version in a sealed header if it is older than this release's.

    Otherwise return this release's version.
    """
    try:
        fields = cbor.decode(unseal(HEADER_KEY, header))
    except CorruptionError:
        return FORMAT_VERSION
    version = fields.get("format") if isinstance(fields, dict) and fields.get("magic") == "statelog" else None
    return version if type(version) is int and 0 <= version < FORMAT_VERSION else FORMAT_VERSION


def upgrade(tables: Tables, version: int, mac: StoreMac | None = None) -> None:
    """Upgrade the tables from a version to this release's. `mac` computes the header's MAC if the store has a key.

    Raises:
        FormatError: this version cannot be upgraded. Nothing was changed. Facts: needed, supported.
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
