"""The base class of stores and transactions on the event loop, which return threads.

`python .ci/aio.py` generates this file from the synchronous API. Do not edit it.
"""

# ruff: noqa: SLF001 - a thread that is returned is new
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, overload

from statelog.deprecated import renamed_keyword

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.aio.thread import Thread
    from statelog.schema.typed import AnyWrite, D, M, S, Untyped, W
    from statelog.schema.versions import Versioned


class Threads(ABC):
    """Returns threads, typed by their schemas; see `statelog.store.threads.Threads`."""

    @overload
    def thread(
        self,
        id: str,
        *,
        schema: None = None,
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[Untyped, AnyWrite]: ...

    @overload
    def thread(  # type: ignore[overload-overlap] # the first overload that fits applies
        self,
        id: str,
        *,
        schema: Callable[[], D],
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[D, D]: ...

    @overload
    def thread(  # type: ignore[overload-overlap] # likewise
        self,
        id: str,
        *,
        schema: type[D],
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[D, AnyWrite]: ...

    @overload
    def thread(  # type: ignore[overload-overlap] # likewise
        self,
        id: str,
        *,
        schema: type[M],
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[M, M | AnyWrite]: ...

    @overload
    def thread(  # type: ignore[overload-overlap] # likewise
        self,
        id: str,
        *,
        schema: Versioned[S, W],
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[S, W]: ...

    @overload
    def thread(
        self,
        id: str,
        *,
        schema: object = None,
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[Untyped, AnyWrite]: ...

    @renamed_keyword("reborn", "recreate")
    def thread(
        self,
        id: str,
        *,
        schema: object = None,
        branch: str | None = None,
        recreate: bool = False,
        include_quarantined: bool = False,
    ) -> Thread[Any, Any]:
        """Return a thread. A new thread is created by its first commit. See `statelog.Store.thread`."""
        made = self._thread(id, schema, branch, recreate=recreate)
        return made._including_quarantined() if include_quarantined else made

    @abstractmethod
    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread[Any, Any]: ...
