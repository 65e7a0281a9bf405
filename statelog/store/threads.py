"""What threads are got from: a store, a transaction, a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, overload

from statelog.deprecated import renamed_keyword

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.schema.typed import AnyWrite, D, M, S, Untyped, W
    from statelog.schema.versions import Versioned
    from statelog.store.thread import Thread


class Threads(ABC):
    """Hands out threads, typed by their schemas.

    Of a TypedDict that requires no key an instance can be made of nothing. By that type checkers tell it from others:
    its writes are checked key by key, whereas a write to a schema with required keys may leave out some of them, for
    which Python has no type.
    """

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
    def thread(  # type: ignore[overload-overlap] # the first that fits counts: later ones are for the classes left
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
        """Return a thread; it comes to be with its first commit.

        Args:
            id: the caller's stable id.
            schema: a TypedDict, dataclass or pydantic model class, or a dict of reducers; or one of these with a
                name and a version (`statelog.versioned`). Without one the thread takes any channel with `replace`, or
                has the reducers it remembers, and shows states as they were written.
            branch: one of the thread's branches. If it is left out, the thread is on `main`; a thread of LangGraph
                shows the checkpoint that `graph.get_state` shows, on whatever branch that lies.
            recreate: re-create the thread if it was deleted. Handles of the deleted thread still raise
                ThreadDeletedError. The log has both threads.
            include_quarantined: whether reads of the thread return values that a check of a guard has quarantined. If
                False, they return a `guard.Quarantined` in place of such a value.

        Raises:
            SchemaError: the thread remembers other reducers, or a schema of another name; the message shows both.
            BranchNotFoundError: no such branch.
            UsageError: `recreate` is not a bool, the thread with this id is not deleted, or this is a snapshot.
        """
        made = self._thread(id, schema, branch, recreate=recreate)
        return made._including_quarantined() if include_quarantined else made  # noqa: SLF001 - it is new

    @abstractmethod
    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread[Any, Any]: ...
