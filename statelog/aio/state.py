"""A state that is read with `await`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.store.views import ListView, MapView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from statelog.aio.running import Runner


def _whole(value: Any) -> Any:
    return value.to_python() if isinstance(value, ListView | MapView) else value


class State:
    """A state to read with `await`: `await state["x"]`, `await state.get("x")`, `await state.to_python()`.

    Lists and dicts come whole and plain. For a part of a long list: `await state.items_of("x", -20, None)`.
    """

    def __init__(self, runner: Runner, view: Callable[[], MapView]) -> None:
        self._runner = runner
        self._view = view

    def __getitem__(self, channel: str) -> Awaitable[Any]:
        return self._runner.run(lambda: _whole(self._view()[channel]))

    async def get(self, channel: str, default: Any = None) -> Any:
        """Return a channel's value, or the default."""
        return await self._runner.run(lambda: _whole(self._view().get(channel, default)))

    async def items_of(self, channel: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        """Return a slice of a list channel, reading only what is in it."""
        return await self._runner.run(lambda: [_whole(item) for item in self._view()[channel][start:stop]])

    async def keys(self) -> list[str]:
        """Return the channels."""
        return await self._runner.run(lambda: list(self._view()))

    async def to_python(self) -> dict[str, Any]:
        """Return everything."""
        return await self._runner.run(lambda: self._view().to_python())

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.to_python().__await__()
