"""The base class of a store, a transaction and a snapshot, which return threads."""

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
    """Returns threads, typed by their schemas.

    A TypedDict without required keys can be called without arguments. Type checkers recognise such a TypedDict by this,
    and check writes to it key by key. A write to any other TypedDict may leave out required keys. No Python type can
    express that, so type checkers do not check such a write.
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
        """Return a thread. A new thread is created by its first commit.

        Args:
            id: the caller's stable id.
            schema: a TypedDict, dataclass or pydantic model class, or a dict of reducers; or one of these with a name
                and a version (`statelog.versioned`). Without a schema, the thread accepts any channel with `replace`,
                or uses the reducers that it has stored. States are then returned as they were written.
            branch: a branch of the thread; the default is `main`. For a thread of LangGraph, the default is the branch
                of the checkpoint that `graph.get_state` shows.
            recreate: re-create the thread if it was deleted. Handles of the deleted thread still raise
                ThreadDeletedError. The log contains both threads.
            include_quarantined: whether reads of the thread return values that a check of a guard has quarantined. If
                False, they return a `guard.Quarantined` in place of such a value.

        Raises:
            SchemaError: the thread has stored different reducers, or a schema with a different name. The message shows
                both.
            BranchNotFoundError: there is no such branch.
            UsageError: `recreate` is not a bool, the thread with this id is not deleted, or this is a snapshot.
        """
        made = self._thread(id, schema, branch, recreate=recreate)
        return made._including_quarantined() if include_quarantined else made  # noqa: SLF001 - it is new

    @abstractmethod
    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread[Any, Any]: ...
