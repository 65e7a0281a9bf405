"""The methods that users of LangGraph's other savers and stores call first: `from_conn_string` and `setup`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from statelog.adapters.kit.opened import OpenedStore
from statelog.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Generator


class ConnString(OpenedStore):
    """An object that `from_conn_string` can open."""

    if TYPE_CHECKING:

        @classmethod
        def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
            """Open a store. Each class defines its options."""

    @classmethod
    def from_conn_string(cls, conn_string: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store at a path, as `open` does. The result is for `with` and `async with`.

        Args:
            conn_string: the path of the file. It is created if it does not exist.
            options: as for `open`.

        Raises:
            UsageError: the string is the URL of a database, or `:memory:`. Facts: argument, value.
        """
        if isinstance(conn_string, str) and (conn_string == ":memory:" or "://" in conn_string):
            message = f"{cls.__name__}.from_conn_string needs the path of a file, not {conn_string!r}"
            if conn_string != ":memory:":
                message += "; `statelog import-langgraph` copies the threads of a database to a file"
            raise UsageError(message, argument="conn_string", value=conn_string)
        return cls.open(conn_string, **options)

    def setup(self) -> Done:
        """Do nothing, because `open` has created the file. The result may be awaited, as for async savers."""
        return Done()


class Done:
    """The awaitable result of a call that has ended."""

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        yield from ()
