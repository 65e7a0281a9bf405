"""Pages that LMDB has freed, met where only pages in use should be (E3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.kernels import is_page_free, page_number_at
from statelog.storage.residency import map_start

if TYPE_CHECKING:
    from statelog.storage.environment import Environment


def check_in_use(environment: Environment, address: int, key: bytes, snapshot_id: int, *, may_be_own: bool) -> int:
    """Return the number of a page that the index has led to.

    A damaged page number may lead to an older copy of the page: whole, and sealed. But LMDB has freed that.

    Args:
        environment: whose map it is.
        address: of the page.
        key: that was looked for.
        snapshot_id: of the commit whose pages are read; 0 to look for nothing.
        may_be_own: the page may be one that a write transaction has made, and lie elsewhere.

    Returns:
        -1 if it is such a page, or may be.

    Raises:
        CorruptionError: it is free. Facts: key.

    """
    if not environment.map_address:
        environment.map_address = map_start(address, environment.locks.descriptor)
    if not environment.map_address:
        return -1 if may_be_own else page_number_at(address)
    page_size_bytes = environment.handles.page_size_bytes
    number = (address - environment.map_address) // page_size_bytes
    if may_be_own and page_number_at(address) != number:
        return -1
    if is_page_free(environment.map_address, page_size_bytes, snapshot_id, number):
        message = f"the index leads to page {number}, which is free"
        raise CorruptionError(message, key=key)
    return number
