"""Helpers that locate and damage pages of files."""

from __future__ import annotations

import struct

from statelog.portable.pages import PageFile

PAGE_SIZE_BYTES = 4096


def occurrences(data, needle):
    at = data.find(needle)
    while at >= 0:
        yield at
        at = data.find(needle, at + 1)


def page_of(data, page):
    return data[page * PAGE_SIZE_BYTES : (page + 1) * PAGE_SIZE_BYTES]


def wipe(data, pages):
    data = bytearray(data)
    for page in pages:
        data[page * PAGE_SIZE_BYTES : (page + 1) * PAGE_SIZE_BYTES] = bytes(PAGE_SIZE_BYTES)
    return bytes(data)


def kinds(data):
    """Return the flags by page number, except of pages that only continue a large value."""
    found, page = {}, 0
    while page * PAGE_SIZE_BYTES < len(data):
        flags, count = struct.unpack_from("=HI", data, page * PAGE_SIZE_BYTES + 10)
        found[page] = flags
        page += count if flags == 0x04 else 1
    return found


def leaves(data):
    return [page for page, flags in kinds(data).items() if flags & 0x02]


def index_pages(data, directory):
    """Return the pages with entries of the index, including unused ones."""
    path = directory / "index"
    path.write_bytes(data)
    with path.open("rb") as file:
        pages = PageFile(file.fileno())
        return [
            page
            for page in leaves(data)
            if any(entry.key[:1] in (b"T", b"B", b"v", b"L") for entry in pages.leaf_entries(page, page_of(data, page)))
        ]


def record_places(data, lsn):
    """Return the positions of a record and of its stray copies."""
    return [
        at - 16
        for at in occurrences(data, struct.pack(">Q", lsn))
        if at >= 16
        and data[at - 8] == 1  # format
        and 1 <= data[at - 7] & 127 <= 9  # type
        and data[at - 6 : at - 4] < b"\x00\x08"  # flags
        and 1 < int.from_bytes(data[at - 4 : at]) < 60_000  # size of the body
        and data[at + 8 : at + 10] == b"\x00\x06"  # time
    ]


def without(data, *lsns):
    """Return the file with all copies of some records damaged."""
    data = bytearray(data)
    for lsn in lsns:
        places = record_places(data, lsn)
        assert places
        for at in places:
            data[at + 58] ^= 1
    return bytes(data)
