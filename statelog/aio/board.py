"""The board, on the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable
    from datetime import datetime

    from statelog.aio.running import Runner
    from statelog.reducers import Reducer
    from statelog.store.board import Board as SyncBoard
    from statelog.store.board import Entry


class Board:
    """See `statelog.Board`: the same names, awaited."""

    def __init__(self, runner: Runner, board: SyncBoard) -> None:
        self._runner = runner
        self._board = board

    def __repr__(self) -> str:
        return repr(self._board)

    async def get(self, key: str, *, at: int | datetime | None = None) -> Entry | None:
        """See `statelog.Board.get`."""
        return await self._runner.run(self._board.get, key, at=at)

    async def history(self, key: str, limit: int | None = None) -> builtins.list[Entry]:
        """See `statelog.Board.history`."""
        return await self._runner.run(self._board.history, key, limit)

    async def children(self, prefix: str = "") -> builtins.list[str]:
        """See `statelog.Board.children`."""
        return await self._runner.run(self._board.children, prefix)

    async def set(self, key: str, value: Any, *, ttl_s: float | None = None) -> Entry:
        """See `statelog.Board.set`."""
        return await self._runner.run(self._board.set, key, value, ttl_s=ttl_s)

    async def create(self, key: str, value: Any, *, ttl_s: float | None = None) -> Entry:
        """See `statelog.Board.create`."""
        return await self._runner.run(self._board.create, key, value, ttl_s=ttl_s)

    async def cas(self, key: str, value: Any, *, expected_version: int, ttl_s: float | None = None) -> Entry:
        """See `statelog.Board.cas`."""
        return await self._runner.run(self._board.cas, key, value, expected_version=expected_version, ttl_s=ttl_s)

    async def update(self, key: str, reducer: Reducer | Callable[[Any, Any], Any], value: Any) -> Entry:
        """See `statelog.Board.update`."""
        return await self._runner.run(self._board.update, key, reducer, value)

    async def delete(self, key: str, *, expected_version: int | None = None) -> bool:
        """See `statelog.Board.delete`."""
        return await self._runner.run(self._board.delete, key, expected_version=expected_version)

    async def rollback(self, prefix: str, *, to: int) -> builtins.list[str]:
        """See `statelog.Board.rollback`."""
        return await self._runner.run(self._board.rollback, prefix, to=to)

    async def sweep(self) -> int:
        """See `statelog.Board.sweep`."""
        return await self._runner.run(self._board.sweep)

    async def list(self, pattern: str = "**", *, limit: int | None = None, after: str = "") -> builtins.list[Entry]:
        """See `statelog.Board.list`."""
        return await self._runner.run(self._board.list, pattern, limit=limit, after=after)
