"""A compact form of LangGraph's checkpoint data: the time, the channel versions, and the versions seen by nodes.

LangGraph writes a version as 43 characters, several times, and a time as 32 characters. This module stores each version
once, as a number and five bytes, each name once, and the time as a number. Data in any other form is left to the
serialiser.

The form is a list of names, followed by bytes. LangGraph's own names are stored as numbers. The channel of a node's
branch is stored as the node's name, in bytes. Numbers of any size are in LEB128, and all others are one byte.

The bytes are, in this order: `v`; the time in microseconds; the greatest version number; the count of versions; for
each version, the difference between the greatest number and its number, and its five bytes; the count of nodes that
have seen channels; the count of channels; for each channel, the positions of its name and its version; for each node,
its name, and the channels it has seen in the same way; the count of updated channels plus one, and their names, or 0
for None.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    _Encoded = tuple[list[str | int | bytes], bytes]

_KEYS = ["v", "ts", "channel_versions", "versions_seen", "updated_channels"]
_POSITIONS_MAX = 128
_NUMBER_WIDTH, _CHANCE_SIZE_BYTES = 32, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_PLAIN, _TEXT, _LISTS = {int, dict}, {str}, (list, type(None))


_OWN_NAMES = (
    "__start__",
    "__input__",
    "messages",
    "__interrupt__",
    "__pregel_tasks",
    "__root__",
    "model",
    "agent",
    "tools",
)
"""LangGraph's own names. The position of a name is its number in files, and must never change."""
_OWN_NUMBERS: dict[str, int] = {name: number for number, name in enumerate(_OWN_NAMES)}
_BRANCH = "branch:to:"


@lru_cache(maxsize=1024)
def _short_name(name: str) -> str | int | bytes:
    number = _OWN_NUMBERS.get(name)
    if number is not None:
        return number
    return name.removeprefix(_BRANCH).encode() if name.startswith(_BRANCH) else name


def _long_name(name: str | int | bytes) -> str:
    if type(name) is int:
        return _OWN_NAMES[name]
    return _BRANCH + name.decode() if isinstance(name, bytes) else str(name)


def encode(kept: Mapping[str, Any]) -> _Encoded | None:
    """Return names and numbers, or None if the data is not in LangGraph's form."""
    if [*kept] != _KEYS:
        return None
    try:
        return _encode(*kept.values())
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None


def _encode(v: Any, ts: Any, channel_versions: Any, versions_seen: Any, updated: Any) -> _Encoded | None:
    names: dict[str, int] = {}
    versions: dict[str, int] = {}
    out = bytearray([len(versions_seen)])
    for node, seen in ((None, channel_versions), *versions_seen.items()):
        if node is not None:
            out.append(names.setdefault(node, len(names)))
        out.append(len(seen))
        for channel, version in seen.items():
            out.append(names.setdefault(channel, len(names)))
            out.append(versions.setdefault(version, len(versions)))
    out.append(0 if updated is None else len(updated) + 1)
    out += bytes([names.setdefault(each, len(names)) for each in updated or ()])
    kinds = {type(v), type(versions_seen), type(channel_versions), *map(type, versions_seen.values())}
    is_plain = kinds <= _PLAIN and {type(ts), *map(type, names), *map(type, versions)} <= _TEXT
    if not is_plain or type(updated) not in _LISTS or type(v) is not int or not 0 <= v < _POSITIONS_MAX:
        return None
    if max(out) >= _POSITIONS_MAX or max(len(names), len(versions)) > _POSITIONS_MAX:
        return None
    pairs = [*map(_parse, versions)]
    time_us = _time_us(ts)
    if None in pairs or time_us is None:
        return None
    numbers = [pair[0] for pair in pairs if pair is not None]
    greatest = max(numbers, default=0)
    head = bytes([v]) + _leb128(time_us) + _leb128(greatest) + bytes([len(pairs)])
    middle = [
        (bytes([below]) if (below := greatest - pair[0]) < _POSITIONS_MAX else _leb128(below)) + pair[1]
        for pair in pairs
        if pair is not None
    ]
    "".join(names).encode()  # This raises UnicodeEncodeError for lone surrogates, so that `encode` returns None.
    return [*map(_short_name, names)], b"".join([head, *middle, out])


@lru_cache(maxsize=1024)
def _parse(version: str) -> tuple[int, bytes] | None:
    """Return the number and the random suffix of a version, or None if the version has a different form."""
    number, chance = int(version[:_NUMBER_WIDTH]), bytes.fromhex(version[_NUMBER_WIDTH + 1 :])
    is_exact = len(chance) == _CHANCE_SIZE_BYTES and number >= 0 and f"{number:032}.{chance.hex()}" == version
    return (number, chance) if is_exact else None


def _time_us(text: str) -> int | None:
    """Return a time in microseconds, or None if the string has a different form."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is not UTC or time < _EPOCH or time.isoformat() != text:
        return None
    return (time - _EPOCH) // _US


def _leb128(number: int) -> bytes:
    if number < _POSITIONS_MAX:
        return bytes([number])
    out = bytearray()
    while number >= _POSITIONS_MAX:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode(short_names: list[str | int | bytes], numbers: bytes) -> dict[str, Any]:
    """Return the data that was passed to `encode`."""
    names = [*map(_long_name, short_names)]
    time_us, at = _read(numbers, 1)
    greatest, at = _read(numbers, at)
    count, at = numbers[at], at + 1
    versions = []
    for _ in range(count):
        below, at = _read(numbers, at) if numbers[at] >= _POSITIONS_MAX else (numbers[at], at + 1)
        versions.append(f"{greatest - below:032}.{numbers[at : at + _CHANCE_SIZE_BYTES].hex()}")
        at += _CHANCE_SIZE_BYTES
    positions = iter(numbers[at:])
    nodes = next(positions)
    groups: list[tuple[str, dict[str, str]]] = []
    for number in range(nodes + 1):
        node = names[next(positions)] if number else ""
        groups.append((node, {names[next(positions)]: versions[next(positions)] for _ in range(next(positions))}))
    updated = next(positions)
    return {
        "v": numbers[0],
        "ts": (_EPOCH + timedelta(microseconds=time_us)).isoformat(),
        "channel_versions": groups[0][1],
        "versions_seen": dict(groups[1:]),
        "updated_channels": [names[next(positions)] for _ in range(updated - 1)] if updated else None,
    }


def _read(numbers: bytes, at: int) -> tuple[int, int]:
    """Decode a LEB128 number. Return the number and the offset after it."""
    number = shift = 0
    while True:
        byte = numbers[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < _POSITIONS_MAX:
            return number, at
        shift += 7
