"""A session that commits each turn at once: its items, and the run if it waits for an approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import Runner, RunState
from agents.memory.session import SessionABC, _CompactionSnapshot

from statelog.adapters.kit.ordered import Json
from statelog.adapters.openai_agents.branches import BranchedConversation
from statelog.adapters.openai_agents.conversation import (
    ITEMS,
    RUN,
    TURNS,
    USAGE,
    append_items,
    cut_items,
    encode_items,
)
from statelog.errors import ConflictError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agents import Agent, RunResult, RunResultStreaming
    from agents.items import TResponseInputItem

    from statelog import Checkpoint


class StatelogSession(BranchedConversation):
    """The SDK's `Session` on a thread of a store, with `run`, which commits a turn at once.

    Any number of processes may use a session. `add_items` appends after the items of other processes.

    Args:
        session_id: any string.
        store: an open store. The caller closes it. `StatelogSession.open(session_id, path)` opens a store itself.
        session_settings: settings of the SDK.
    """

    async def run(self, agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        """Run a turn like `Runner.run`. At its end, store its items in one commit.

        If the turn is interrupted for an approval, the same commit stores its state. If the process is killed before
        the commit, the conversation is unchanged. A repeated turn may run its tools again.

        Args:
            agent: the agent that begins.
            input: the user's text, items, or the RunState from `pending`.
            options: options of `Runner.run`, except `session`.

        Raises:
            ConflictError: the conversation has changed since the turn began, so the turn is not stored. Also raised
                before the turn begins if the conversation no longer waits for this answer.
            ReadOnlyError: the store is read-only. The turn does not begin.
            Exception: what the run raises. The turn is not stored.
        """
        turn = await self._begin(input)
        result = await Runner.run(agent, input, session=turn, **options)
        await turn.commit(result)
        return result

    async def run_streamed(self, agent: Agent[Any], input: Any, **options: Any) -> RunResultStreaming:
        """Run a turn like `Runner.run_streamed`. The turn is committed at the end of `stream_events()`.

        See `run`.
        """
        turn = await self._begin(input)
        result = Runner.run_streamed(agent, input, session=turn, **options)
        events = result.stream_events

        async def stream_events() -> AsyncIterator[Any]:
            async for event in events():
                yield event
            await turn.commit(result)

        result.stream_events = stream_events  # type: ignore[method-assign]  # Only this object changes.
        return result

    async def pending(self, agent: Agent[Any]) -> RunState[Any, Any] | None:
        """Return the state of the turn that waits for an answer, or None.

        Answer it with `state.approve(...)` and pass it to `run`. Every process gets this state until `run` commits.

        Args:
            agent: the agent with which the turn began.

        Raises:
            agents.UserError: the state belongs to different agents, or to a different version of the SDK.
        """
        kept = await self._run(lambda: self._state(self._branch).get(RUN))
        return None if kept is None else _marked(await RunState.from_json(agent, kept.value), kept)

    async def _begin(self, input: Any) -> _TurnSession:
        branch = self._branch
        head, items, waiting = await self._run(self._read_turn, branch)
        if self.store.read_only:  # Fail before a tool runs.
            message = f"{self.store.path} is open read-only: a turn could not be stored"
            raise ReadOnlyError(message, path=str(self.store.path))
        asked = getattr(input, _MARK, waiting)
        if asked != waiting:
            message = f"session {self.session_id!r} no longer waits for this answer"
            raise ConflictError(message, thread=self.thread_id)
        return _TurnSession(self, branch, head, items)

    def _read_turn(self, branch: str) -> tuple[Checkpoint[Any] | None, list[Any], Json | None]:
        head = self._head_on(branch)
        return (None, [], None) if head is None else (head, self._items_of(head.state), head.state.get(RUN))

    # --- methods that the SDK's compaction calls ---------------------------------------

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the last items, and a function that replaces some of them if they have not changed."""
        if type(self) is not StatelogSession:  # Do not compact a subclass, whose methods would be bypassed.
            return None
        branch = self._branch
        state = await self._run(self._state, branch)
        items = await self._run(self._items_of, state)
        shown = items[-limit:] if limit else []

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected = [Json.of(item) for item in shown[start:]]
            encoded, begins = encode_items(output)

            def replace(state: Any) -> bool:
                held = state.get(ITEMS, ())
                kept = len(held) - len(expected)
                if not expected or kept < 0 or list(held[kept:]) != expected:
                    return False
                cut_items(state, kept)
                if prune_prefix is not None:
                    _prune(state, prune_prefix)
                append_items(state, encoded, begins)
                return True

            done: bool = await self._write(lambda thread: thread.edit(replace, lazy=True), branch=branch)
            return done

        return _CompactionSnapshot(shown, len(items) <= limit, replace_suffix)


_MARK = "_statelog_waits_as"
"""The attribute of a RunState that has the stored form of the waiting turn."""


def _marked(state: RunState[Any, Any], kept: Json) -> RunState[Any, Any]:
    setattr(state, _MARK, kept)
    return state


def _prune(state: Any, is_stale: Callable[[Any], bool]) -> None:
    """Remove stale items from the beginning, and give the usage of the remaining turns their new numbers."""
    values = [kept.value for kept in state[ITEMS]]
    stale = next((at for at, value in enumerate(values) if not is_stale(value)), len(values))
    if stale:
        gone = sum(at < stale for at in state[TURNS])
        usage = {str(int(turn) - gone): kept for turn, kept in state.get(USAGE, {}).items() if int(turn) > gone}
        cut_items(state, 0)
        append_items(state, *encode_items(values[stale:]))
        if usage:
            state[USAGE] = usage


class _TurnSession(SessionABC):
    """The items that a running turn adds and removes. The turn's commit writes them to the conversation."""

    def __init__(self, session: StatelogSession, branch: str, head: Checkpoint[Any] | None, items: list[Any]) -> None:
        self.session_id = session.session_id
        self.session_settings = session.session_settings
        self._session = session
        self._branch = branch
        self._head = head
        self._items = items
        self._kept = len(items)
        """The number of the conversation's items that stay unchanged."""
        self._is_committed = False

    async def get_items(self, limit: int | None = None, *, wrapper: object = None) -> list[TResponseInputItem]:
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        start = 0 if limit is None or limit < 0 else max(len(self._items) - limit, 0)
        return list(self._items[start:])

    async def add_items(self, items: list[TResponseInputItem], *, wrapper: object = None) -> None:
        self._items += items

    async def pop_item(self, *, wrapper: object = None) -> TResponseInputItem | None:
        item = self._items.pop() if self._items else None
        self._kept = min(self._kept, len(self._items))
        return item

    async def clear_session(self, *, wrapper: object = None) -> None:
        self._items.clear()
        self._kept = 0

    async def commit(self, result: Any) -> None:
        """Commit the turn, once."""
        if self._is_committed:
            return
        self._is_committed = True
        waiting = None
        if result.interruptions:
            to_state = result.to_state
            waiting = kept = Json.of(to_state().to_json())
            # Mark the result's state, so that it can be answered only once.
            result.to_state = lambda: _marked(to_state(), kept)
        encoded, begins = encode_items(self._items[self._kept :])
        expected = -1 if self._head is None else self._head

        def write(state: Any) -> None:
            if len(state.get(ITEMS, ())) > self._kept:
                cut_items(state, self._kept)
            append_items(state, encoded, begins)
            if waiting is not None or state.get(RUN) is not None:
                state[RUN] = waiting

        await self._session._write(  # noqa: SLF001 - the session that created this turn
            lambda thread: thread.edit(write, lazy=True, expected_version=expected), branch=self._branch
        )
