"""Histories of conversations. Each session is stored as a thread with a growing list of messages."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from agent_framework import HistoryProvider, Message

from statelog import reducers
from statelog.adapters.agent_framework.security_labels import HIDDEN, LABELS, labels_of, restore_labels, writes_of
from statelog.adapters.kit.lives import transact, write
from statelog.adapters.kit.ordered import of_all, read_list
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_framework import AgentSession, SessionContext, SupportsAgentRun

    from statelog import Store
    from statelog.store.transaction import Transaction

__all__ = ["StatelogHistoryProvider"]

_MESSAGES = "messages"
_SCHEMA = {_MESSAGES: reducers.extend, LABELS: reducers.merge, HIDDEN: reducers.merge}
_session: ContextVar[AgentSession | None] = ContextVar("statelog_agent_framework_session", default=None)
"""The session that `after_run` is saving. `save_messages` gets only its id."""


class StatelogHistoryProvider(HistoryProvider):
    """A `HistoryProvider` of Agent Framework. The messages of one call are appended in one commit.

    Two processes may append to one session: all messages stay, in the order of their commits. The same commit
    stores the session's security labels, and a run that loads the messages also loads the labels.

    Args:
        store: an open store.
        source_id: the provider's name. Providers with different names have separate histories.
        options: options of `HistoryProvider`, such as `store_inputs=False`.
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
        """Return the messages of a session, oldest first. The default session id is "default"."""
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
        """Append messages in one commit.

        Raises:
            ValueTypeError: a message has a value that JSON lacks, such as bytes or a NaN. Nothing was written.
        """
        thread, session = self._thread_of(session_id), _session.get()
        labels = [] if session is None else labels_of(session)
        kept = of_all(message.to_dict() for message in messages)
        if not kept:
            return
        if not labels:
            await run(write, self.store, thread, _SCHEMA, lambda history: history.commit({_MESSAGES: kept}))
            return

        def save(tx: Transaction) -> None:
            write(
                tx,
                thread,
                _SCHEMA,
                lambda history: history.commit({_MESSAGES: kept, **writes_of(labels, history.state)}),
            )

        await run(transact, self.store, save)

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Load the messages into a run, and the security labels into its session."""
        await super().before_run(agent=agent, session=session, context=context, state=state)
        thread = self._thread_of(context.session_id)
        restore_labels(session, await run(lambda: self.store.thread(thread, schema=_SCHEMA).state))

    async def after_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Store the messages of a run and the security labels of its session in one commit."""
        token = _session.set(session)
        try:
            await super().after_run(agent=agent, session=session, context=context, state=state)
        finally:
            _session.reset(token)

    def _thread_of(self, session_id: str | None) -> str:
        return thread_id("agent-framework", "history", self.source_id, session_id or "default")
