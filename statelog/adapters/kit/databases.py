"""Copies a framework's SQLite database, so that the framework's classes may write to the copy.

The classes create missing tables and indexes. The original file is only read.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import FormatError
from statelog.storage.registry import real_path

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DatabaseCopy", "copied"]


@contextmanager
def copied(path: Path, kind: str, *tables: str) -> Iterator[DatabaseCopy]:
    """Yield a consistent copy of a database.

    Args:
        path: the database. Other processes may write to it during the copy.
        kind: the kind of database for error messages, such as "the SDK's sessions".
        tables: the tables that the database must have.

    Raises:
        FormatError: the file is not a database, or lacks one of the tables.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = DatabaseCopy(Path(folder) / "copy.db", path, kind)
        try:
            with (
                closing(sqlite3.connect(f"{real_path(path).as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy.path)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise copy.error(error) from error
        missing = set(tables) - copy.tables()
        if missing:
            raise copy.error(f"no table {', '.join(sorted(missing))}")
        yield copy


class DatabaseCopy:
    """A copy of a database, which frameworks' classes may write to.

    Attributes:
        path: the file of the copy.
    """

    def __init__(self, path: Path, source: Path, kind: str) -> None:
        self.path = path
        self._source = source
        self._kind = kind

    def tables(self) -> set[str]:
        """Return the names of the database's tables."""
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def rows(self, query: str, *parameters: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. Raises FormatError if the database is damaged or of a different kind."""
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                yield from connection.execute(query, parameters)
        except sqlite3.Error as error:
            raise self.error(error) from error

    def error(self, reason: object) -> FormatError:
        """Return the error for a database that is not of the expected kind."""
        return FormatError(f"{self._source} is not a database of {self._kind}: {reason}", path=str(self._source))
