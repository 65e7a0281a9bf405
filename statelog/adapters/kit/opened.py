"""The base class of adapter objects that can open a store, and then also close it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import statelog
from statelog.aio.bridge import run
from statelog.errors import not_hiding

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["OpenedStore"]


class OpenedStore:
    """A context manager, for `with` and `async with`. At its end, it closes the store if `open` opened the store."""

    store: Any
    _owns_store = False

    @classmethod
    def _open(
        cls, path: str | os.PathLike[str], options: dict[str, Any], make: Callable[[statelog.Store], Self]
    ) -> Self:
        """Open a store, and return the object that `make` makes for it. Close the store if `make` raises."""
        store = statelog.open(path, **options)
        try:
            made = make(store)
        except BaseException:
            store.close()
            raise
        made._owns_store = True  # noqa: SLF001 - an attribute of this class
        return made

    def close(self) -> None:
        """End background work. Close the store if `open` opened it. A second call does nothing."""
        self._end()
        if self._owns_store:
            self.store.close()

    def _end(self) -> None:
        """End background work. A subclass with background work overrides this method."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            await run(self.close)
