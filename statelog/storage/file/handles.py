"""What an opening of LMDB's environment gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import lmdb


class Handles(NamedTuple):
    """What one opening of LMDB gave; replaced as a whole by a reopening."""

    raw: lmdb.Environment
    begin: Callable[..., lmdb.Transaction]
    meta: Any
    log: Any
    index: Any
    page_size_bytes: int
