"""Histories of conversations: a session is a thread, its messages a list that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_framework import HistoryProvider, Message

from statelog import reducers
from statelog.adapters.kit.lives import write
from statelog.adapters.kit.naming import thread_id
from statelog.adapters.kit.ordered import of_all, read_list
from statelog.aio.running import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog import Store

__all__ = ["StatelogHistoryProvider"]

_MESSAGES = "messages"
_SCHEMA = {_MESSAGES: reducers.extend}


class StatelogHistoryProvider(HistoryProvider):
    """A `HistoryProvider` of Agent Framework: messages are appended, and those of one call are one commit.

    Messages of two processes on one session all stay, in the order of their commits.

    Args:
        store: an open store.
        source_id: the provider's name. Two providers with different names on one store have histories of their own.
        options: those of `HistoryProvider`, as `store_inputs=False`.

    """

    def __init__(self, store: Store, source_id: str = "statelog", **options: Any) -> None:
        super().__init__(source_id, **options)
        self.store = store

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Message]:
        """Return the messages of a session, oldest first. Without a session id it is the session "default"."""
        thread = self._thread_of(session_id)

        def read() -> list[Message]:
            kept = read_list(self.store.thread(thread, schema=_SCHEMA).state, _MESSAGES)
            return [Message.from_dict(message) for message in kept]

        return await run(read)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append messages, in one commit.

        Raises:
            ValueTypeError: a message holds what is not JSON, as bytes or a NaN. Nothing was written.

        """
        thread = self._thread_of(session_id)
        kept = of_all(message.to_dict() for message in messages)
        if kept:
            await run(write, self.store, thread, _SCHEMA, lambda history: history.commit({_MESSAGES: kept}))

    def _thread_of(self, session_id: str | None) -> str:
        return thread_id("agent-framework", "history", self.source_id, session_id or "default")
