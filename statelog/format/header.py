"""The header, which marks a file as a store of statelog. FORMAT.md section 2.

The header is written at creation. Each opening reads the header before it trusts anything else in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import (
    CorruptionError,
    ForgeryError,
    FormatError,
    KeyMissingError,
    NewerFormatError,
    UnkeyedStoreError,
    WrongKeyError,
)
from statelog.format import cbor
from statelog.format.seal import seal, unseal

if TYPE_CHECKING:
    from statelog.format.mac import StoreKey, StoreMac

FORMAT_VERSION = 7
_KEYED_FORMAT_VERSION = 6
"""The format number that earlier releases gave to stores with a key. Stores without a key had a number up to 5.

A store of any later format may have a key, whatever its number.
"""
FORMAT_VERSION_READ_MIN = 1
"""The earliest format that can be read without an upgrade, because this release understands all of its contents."""
HEADER_KEY = b"header"
STORE_ID_SIZE_BYTES = 16

_MAGIC = "statelog"
_DIGEST = "blake2b-160"
_CHECKSUM = "xxh3-64"
_MAC = "blake2b-mac"
_CHECK_SIZE_BYTES = 16
_FIELDS = frozenset({"magic", "format", "store_id", "created_us", "digest", "checksum"})
_KEYED_FIELDS = _FIELDS | {"key_check", "mac"}


def encode_header(*, store_id: bytes, created_us: int, key: StoreKey | None = None) -> bytes:
    """Return the sealed header of a store.

    Args:
        store_id: 16 random bytes.
        created_us: microseconds since 1970.
        key: the key of the store, or None for a store without a key.
    """
    if len(store_id) != STORE_ID_SIZE_BYTES:
        message = f"a store id has {STORE_ID_SIZE_BYTES} bytes, not {len(store_id)}"
        raise ValueError(message)
    fields: dict[str, Any] = {
        "magic": _MAGIC,
        "format": FORMAT_VERSION,
        "store_id": store_id,
        "created_us": created_us,
        "digest": _DIGEST,
        "checksum": _CHECKSUM,
    }
    if key is not None:
        mac = key.for_store(store_id)
        fields |= {"checksum": _MAC, "key_check": mac.check}
        fields["mac"] = mac.header_mac(cbor.encode(fields))
    return seal(HEADER_KEY, cbor.encode(fields))


def decode_header(value: bytes | memoryview) -> dict[str, Any]:
    """Return the checked fields of a header. `check_key` checks the MAC if the store has a key.

    Raises:
        CorruptionError: the seal does not match, or a field is not what the format allows.
        NewerFormatError: the format is newer. Facts: needed, supported.
        FormatError: the file is not a store. Facts: needed, supported.
    """
    header = cbor.decode(unseal(HEADER_KEY, value))
    if not isinstance(header, dict) or header.get("magic") != _MAGIC:
        message = "the file is an LMDB file, but not a statelog store"
        raise FormatError(message, needed=None, supported=FORMAT_VERSION)
    needed = header.get("format")
    if type(needed) is int and needed > FORMAT_VERSION:
        message = f"the store has format {needed}; this release reads up to format {FORMAT_VERSION}"
        raise NewerFormatError(message, needed=needed, supported=FORMAT_VERSION)
    if not _is_sound(header):
        message = f"the header is damaged: {header!r}"
        raise CorruptionError(message, header=header)
    return header


def check_key(header: dict[str, Any], key: StoreKey | None) -> StoreMac | None:
    """Check that `key` is the key of the store. Return the store's MACs, or None if it has no key.

    Args:
        header: the fields of the header, from `decode_header`.
        key: the key that the store should have, or None if it should have no key.

    Raises:
        KeyMissingError: the store has a key, and `key` is None.
        UnkeyedStoreError: the store has no key, and `key` is not None.
        WrongKeyError: the store has a different key.
        ForgeryError: the key is right, but the MAC of the header does not match.
    """
    if "mac" not in header:
        if key is not None:
            message = "the store has no key: another file was put in its place, or it needs `statelog rekey` first"
            raise UnkeyedStoreError(message)
        return None
    if key is None:
        message = "the store has a key: open it with key=, or in the shell with --key-env or STATELOG_KEY"
        raise KeyMissingError(message)
    mac = key.for_store(header["store_id"])
    if mac.check != header["key_check"]:
        message = "the given key is not the key of the store"
        raise WrongKeyError(message)
    fields = {name: value for name, value in header.items() if name != "mac"}
    if mac.header_mac(cbor.encode(fields)) != header["mac"]:
        message = "the header is damaged or forged: its MAC does not match"
        raise ForgeryError(message)
    return mac


def _is_sound(header: dict[str, Any]) -> bool:
    is_keyed = "mac" in header
    store_id, created_us = header.get("store_id"), header.get("created_us")
    return (
        header.keys() == (_KEYED_FIELDS if is_keyed else _FIELDS)
        and (not is_keyed or all(_is_check(header[name]) for name in ("key_check", "mac")))
        and type(header["format"]) is int
        and header["format"] >= FORMAT_VERSION_READ_MIN
        and (header["format"] > _KEYED_FORMAT_VERSION or is_keyed == (header["format"] == _KEYED_FORMAT_VERSION))
        and type(store_id) is bytes
        and len(store_id) == STORE_ID_SIZE_BYTES
        and type(created_us) is int
        and created_us >= 0
        and header["digest"] == _DIGEST
        and header["checksum"] == (_MAC if is_keyed else _CHECKSUM)
    )


def _is_check(field: object) -> bool:
    return type(field) is bytes and len(field) == _CHECK_SIZE_BYTES
