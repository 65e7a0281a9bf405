"""Pages that LMDB has freed, met where only pages in use should be (E3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.kernels import PAGE_FREE, address_of, page_in_use
from statelog.storage.file.residency import map_start

if TYPE_CHECKING:
    from statelog.storage.file.opened import Handles


def find_in_use(handles: Handles, lent: memoryview, key: bytes, snapshot_id: int, *, may_be_own: bool) -> int:
    """Return the number of a page that the index has led to, negative if it may be a write transaction's own.

    A damaged page number may lead to an older copy of the page: whole, and sealed. But LMDB has freed that.

    Args:
        handles: whose map it is.
        lent: a key or value that lies in the page.
        key: that was looked for.
        snapshot_id: of the commit whose pages are read; 0 to look for nothing.
        may_be_own: the page may be one that a write transaction has made, and lie elsewhere.

    Raises:
        CorruptionError: it is free. Facts: key.

    """
    if not handles.map_address:
        handles.map_address = map_start(address_of(lent), handles.descriptor)
    page_size_bytes = handles.page_size_bytes
    number = page_in_use(lent, page_size_bytes, handles.map_address, snapshot_id, handles.seen, may_be_own=may_be_own)
    if number == PAGE_FREE:
        freed = (address_of(lent) - handles.map_address) // page_size_bytes
        message = f"the index leads to page {freed}, which is free"
        raise CorruptionError(message, key=key)
    return number
