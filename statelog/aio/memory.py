"""Memories on the event loop."""

# ruff: noqa: SLF001 - these classes use private parts of the classes that they wrap
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from statelog.aio.generated import MemoryCalls, SessionCalls
from statelog.aio.store import Store
from statelog.errors import UsageError
from statelog.memory.memory import Memory as SyncMemory
from statelog.memory.tools import make_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import date
    from types import TracebackType

    from statelog.aio.bridge import Runner
    from statelog.memory.embedder import Embedder
    from statelog.memory.erasure import ForgetReport
    from statelog.memory.sessions import Session as SyncSession
    from statelog.memory.sessions import Turn as SyncTurn
    from statelog.memory.timeline import Fact
    from statelog.memory.tools import Action, Framework

    Message = dict[str, Any]


class Memory(MemoryCalls):
    """A memory with the methods of `statelog.Memory`, which are awaited. `embed` may be an async function."""

    def __init__(self, store: Store, scope: str, *, embed: Any = None, dims: int | None = None) -> None:
        if not isinstance(store, Store):
            message = f"store must be a store that statelog.aio.open returned, not {type(store).__name__}"
            raise UsageError(message, argument="store", value=store)
        self._runner = store._runner
        self.sync = SyncMemory(store.sync, scope, embed=embed, dims=dims)
        """The same memory for code on OS threads."""
        embedder = self.sync._embedder
        self._embedder: Embedder | None = embedder if embedder is not None and embedder.is_async else None
        self.is_async = self._embedder is not None
        """Whether `embed` is an async function."""

    def __repr__(self) -> str:
        return repr(self.sync)

    @property
    def store(self) -> Any:
        """The store of `sync`, for code on OS threads."""
        return self.sync.store

    async def remember(
        self,
        text: str,
        *,
        key: str | None = None,
        source: str | None = None,
        metadata: dict[str, Any] | None = None,
        pinned: bool = False,
        valid_from: date | None = None,
        valid_until: date | None = None,
    ) -> Fact:
        """Record a fact, in one commit. See `statelog.Memory.remember`."""
        more: dict[str, Any] = {
            "key": key,
            "source": source,
            "metadata": metadata,
            "pinned": pinned,
            "valid_from": valid_from,
            "valid_until": valid_until,
        }
        if self._embedder is None:
            return await self._runner.run(partial(self.sync.remember, text, **more))
        place, stored = self.sync._prepared(text, **more)
        vector = await self._embedder.vector_async(text)
        return await self._runner.run(self.sync._store_fact, place, stored, vector)

    async def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        source: str | None = None,
        metadata: dict[str, Any] | None = None,
        at: date | None = None,
        known_at: date | None = None,
    ) -> list[Fact]:
        """Return the pinned facts, and then the facts that fit a question best. See `statelog.Memory.recall`."""
        more: dict[str, Any] = {"source": source, "metadata": metadata, "at": at, "known_at": known_at}
        if self._embedder is None:
            return await self._runner.run(partial(self.sync.recall, query, limit=limit, **more))
        question = self.sync._question(query, limit=limit, **more)
        vector = await self._embedder.vector_async(query)
        return await self._runner.run(self.sync._recall_question, question, vector)

    @staticmethod
    async def forget_scope(store: Store, scope: str) -> ForgetReport:
        """Remove everything that belongs to a scope and to the scopes below it. See `statelog.Memory.forget_scope`."""
        return await store._runner.run(SyncMemory.forget_scope, store.sync, scope)

    def session(self, id: str, *, ttl_s: float | None = None) -> Session:
        """Return a session of the scope: the messages of one conversation. See `statelog.Memory.session`."""
        return Session(self._runner, self.sync.session(id, ttl_s=ttl_s))

    def tool(self, action: Action = "search", *, framework: Framework = "langgraph") -> Any:
        """Return a tool with which a model searches the memory, or changes it.

        See `statelog.Memory.tool`. The tool is awaited: `ainvoke` for LangGraph, an async function for `json`.
        """
        return make_tool(self, action, framework, is_async=True)


class Session(SessionCalls):
    """A session with the methods of `statelog.memory.Session`, which are awaited."""

    def __init__(self, runner: Runner, session: SyncSession) -> None:
        self._runner = runner
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session)

    def turn(self, event_id: str) -> Turn:
        """Return the turn that answers an event: `async with session.turn("evt-991") as turn`.

        See `statelog.memory.Session.turn`.
        """
        return Turn(self._runner, self._session.turn(event_id))

    async def summarize(self, model: Callable[[list[Message]], Awaitable[str]], *, keep_last: int = 20) -> str | None:
        """Replace older messages in the window with a summary.

        See `statelog.memory.Session.summarize`. `model` is an async function.
        """
        part = await self._runner.run(self._session._to_summarize, keep_last)
        if part is None:
            return None
        text = await model(part.messages)
        return await self._runner.run(self._session._store_summary, part, text)


class Turn:
    """A turn, as in `statelog.memory.Turn`. `await turn.set(name, value)` changes the working state."""

    def __init__(self, runner: Runner, turn: SyncTurn) -> None:
        self._runner = runner
        self._turn = turn
        self.event_id = turn.event_id

    def add(self, message: Any) -> None:
        """Add a message to the session. See `statelog.memory.Turn.add`."""
        self._turn.add(message)

    @property
    def is_resumed(self) -> bool:
        """Whether a turn of this event has begun before and has not ended. See `statelog.memory.Turn.is_resumed`."""
        return self._turn.is_resumed

    @property
    def is_completed(self) -> bool:
        """Whether the event is done. See `statelog.memory.Turn.is_completed`."""
        return self._turn.is_completed

    @property
    def working(self) -> Mapping[str, Any]:
        """The working state, for reading. `set` and `remove` change it."""
        return self._turn.working

    async def set(self, name: str, value: Any) -> None:
        """Store a value of the working state."""
        await self._runner.run(self._turn.working.__setitem__, name, value)

    async def remove(self, name: str) -> None:
        """Remove a value of the working state. Raises KeyError."""
        await self._runner.run(self._turn.working.__delitem__, name)

    async def __aenter__(self) -> Self:
        await self._runner.run(self._turn.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.finish(self._turn.__exit__, kind, error, trace)
