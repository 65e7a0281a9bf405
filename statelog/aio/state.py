"""A state that is read with `await`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from statelog.schema.typed import S, Typed
from statelog.store.views import ListView, MapView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from statelog.aio.bridge import Runner
    from statelog.schema.typed import D, Fields, Untyped


def _whole(value: Any) -> Any:
    return value.to_python() if isinstance(value, ListView | MapView) else value


class State(Typed[S]):
    """A state to read with `await`: `await state["x"]`, `await state.get("x")`, `await state.to_python()`.

    Values are plain lists and dicts. `await state.items_of("x", -20, None)` reads only a part of a long list.
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
        """Return a slice of a list channel. Only this slice is read."""
        return await self._runner.run(lambda: [_whole(item) for item in self._view()[channel][start:stop]])

    async def keys(self) -> list[str]:
        """Return the names of the channels."""
        return await self._runner.run(lambda: list(self._view()))

    async def to_python(self) -> S:
        """Return the whole state as plain Python values."""
        whole: Any = await self._runner.run(lambda: self._view().to_python())
        return whole  # type: ignore[no-any-return] # a dict, which is a TypedDict for type checkers

    def __await__(self) -> Generator[Any, None, S]:
        return self.to_python().__await__()


class StateOf:
    """The attribute `state` of a thread. If the schema is a TypedDict, awaiting the attribute returns that type."""

    @overload
    def __get__(self, instance: Typed[Untyped], owner: type | None = None) -> State[dict[str, Any]]: ...
    @overload
    def __get__(self, instance: Typed[D], owner: type | None = None) -> State[D]: ...
    @overload
    def __get__(self, instance: Typed[Fields], owner: type | None = None) -> State[dict[str, Any]]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._state()  # noqa: SLF001 - the method belongs to the class with this attribute
