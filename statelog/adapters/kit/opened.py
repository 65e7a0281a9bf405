"""What is made of a store: it may have opened the store itself, and closes it then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import statelog
from statelog.aio.running import run
from statelog.errors import not_hiding

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Opened"]


class Opened:
    """A context manager, also of `async with`, whose end closes the store if `open` opened it."""

    store: Any
    _owns_store = False

    @classmethod
    def _open(
        cls, path: str | os.PathLike[str], options: dict[str, Any], make: Callable[[statelog.Store], Self]
    ) -> Self:
        """Return what `make` makes of a store of its own, which is closed again if it makes nothing."""
        store = statelog.open(path, **options)
        try:
            made = make(store)
        except BaseException:
            store.close()
            raise
        made._owns_store = True  # noqa: SLF001 - of this class
        return made

    def close(self) -> None:
        """End what goes on in the background; close the file if `open` opened it. Harmless when repeated."""
        self._end()
        if self._owns_store:
            self.store.close()

    def _end(self) -> None:
        """End what goes on in the background: nothing, unless a class says so."""

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
