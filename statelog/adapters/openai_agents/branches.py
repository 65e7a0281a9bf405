"""Branches and turns of a conversation, with the method names of the SDK's AdvancedSQLiteSession.

A turn begins with a user message. A branch from a turn has all items before that turn.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit import items as stored_items
from statelog.adapters.kit.ordered import Json
from statelog.adapters.openai_agents.conversation import (
    DELETED,
    ITEMS,
    MAIN,
    RUN,
    TURNS,
    USAGE,
    Conversation,
    forget_usage,
)
from statelog.errors import AlreadyExistsError, CheckpointNotFoundError, ExpiredError

if TYPE_CHECKING:
    from agents import RunResultBase

_PREVIEW = 100
_NUMBERS = ("requests", "input_tokens", "output_tokens", "total_tokens")


class BranchedConversation(Conversation):
    """A conversation that can branch from any of its turns."""

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Create a branch with the items before a turn, and switch to it. The cost does not depend on their number.

        Args:
            turn_number: the turn of the current branch, from 1.
            branch_name: a name that this conversation has never used. By default, a generated name.

        Returns:
            The name of the branch.

        Raises:
            ValueError: the turn does not exist, or the name is blank or in use.
        """
        if branch_name is not None and not branch_name.strip():
            message = "Branch name cannot be empty"
            raise ValueError(message)
        name = branch_name or f"branch_from_turn_{turn_number}_{time.time_ns()}"
        await self._run(self._fork_before, self._branch, turn_number, name)
        self._branch = name
        return name

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Create a branch before the first turn whose user message contains a text; see `create_branch_from_turn`.

        Raises:
            ValueError: no turn contains the text. Also as for `create_branch_from_turn`.
        """
        found = await self.find_turns_by_content(search_term)
        if not found:
            message = f"No user turns found containing {search_term!r}"
            raise ValueError(message)
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    def _fork_before(self, branch: str, turn_number: int, name: str) -> None:
        try:
            with self.store.transaction() as tx:
                thread = tx.thread(self.thread_id, branch=branch)
                turns = thread.state.get(TURNS, ())
                if not 1 <= turn_number <= len(turns):
                    message = f"Turn {turn_number} does not exist in branch {branch!r}"
                    raise ValueError(message)
                count = turns[turn_number - 1]
                writes = [
                    stored_items.edit(ITEMS, count, len(thread.state[ITEMS]), []),
                    stored_items.edit(TURNS, turn_number - 1, len(turns), []),
                ]
                if thread.state.get(RUN) is not None:
                    writes.append(stored_items.remove(RUN))
                forked = thread.fork(name)
                stored_items.commit(forked, *writes, metadata={"from": branch, "turn": turn_number})
                if thread.state.get(USAGE):
                    forked.edit(lambda state: forget_usage(state, turn_number), lazy=True)
        except AlreadyExistsError as error:
            message = f"Branch {name!r} already exists"
            raise ValueError(message) from error

    async def switch_to_branch(self, branch_id: str) -> None:
        """Switch this object to another branch. Raises ValueError if the branch does not exist."""
        await self._run(self._head_on, branch_id)
        self._branch = branch_id

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch with all items that no other branch has. The conversation cannot use the name again.

        Args:
            branch_id: the branch, which cannot be "main".
            force: also delete the current branch. Then "main" becomes the current branch.

        Raises:
            ValueError: the branch does not exist, is "main", or is the current branch and `force` is not set.
        """
        if branch_id == MAIN or not branch_id.strip():
            message = "Cannot delete the 'main' branch" if branch_id else "Branch ID cannot be empty"
            raise ValueError(message)
        if branch_id == self._branch and not force:
            message = f"Cannot delete current branch {branch_id!r}. Use force=True or switch branches first"
            raise ValueError(message)
        await self._run(self._delete, branch_id)
        if branch_id == self._branch:
            self._branch = MAIN

    def _delete(self, branch_id: str) -> None:
        self._head_on(branch_id)
        thread = self.store.thread(self.thread_id, branch=branch_id)

        def empty(state: Any) -> None:
            for channel in list(state):
                del state[channel]
            state[DELETED] = True

        thread.edit(empty, lazy=True)
        base = next(info.base_version for info in thread.branches() if info.name == branch_id)
        self.store.expire([made for made in thread.history() if base < made.version < thread.version])

    async def list_branches(self) -> list[dict[str, Any]]:
        """Return the branches, oldest first: branch_id, message_count, user_turns, is_current, created_at."""

        def read() -> list[dict[str, Any]]:
            found = []
            with self.store.snapshot() as snapshot:
                thread = snapshot.thread(self.thread_id)
                for info in thread.branches():
                    branch = thread.checkout(info.name)
                    state = branch.state
                    if state.get(DELETED):
                        continue
                    try:
                        first = branch.at(min(info.base_version + 1, info.head_version))
                    except (CheckpointNotFoundError, ExpiredError):  # Retention has removed the first version.
                        first = branch.at(info.head_version)
                    found.append(
                        {
                            "branch_id": info.name,
                            "message_count": len(state.get(ITEMS, ())),
                            "user_turns": len(state.get(TURNS, ())),
                            "is_current": info.name == self._branch,
                            "created_at": first.time.strftime("%Y-%m-%d %H:%M:%S"),
                        }
                    )
            return found

        found: list[dict[str, Any]] = await self._run(read)
        return found

    # --- turns ----------------------------------------------------------------------

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the turns of a branch: turn, content (its beginning), full_content, can_branch.

        Raises:
            ValueError: the branch does not exist.
        """
        return [
            {"turn": number, "content": _preview(content), "full_content": content, "can_branch": True}
            for number, content in enumerate(await self._contents(branch_id), 1)
        ]

    async def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the turns whose user message contains a text. The case of ASCII letters is ignored."""
        sought = re.compile(re.escape(search_term), re.IGNORECASE | re.ASCII)
        turns = await self.get_conversation_turns(branch_id)
        return [turn for turn in turns if any(map(sought.search, _texts(turn["full_content"])))]

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[dict[str, str | None]]]:
        """Return, by turn, the type and tool name of each item. Items before the first turn are turn 0."""
        branch = self._branch if branch_id is None else branch_id

        def read() -> dict[int, list[dict[str, str | None]]]:
            state = self._state(branch)
            begins = {*state.get(TURNS, ())}
            found: dict[int, list[dict[str, str | None]]] = {}
            number = 0
            for at, item in enumerate(self._items_of(state)):
                number += at in begins
                found.setdefault(number, []).append({"type": _kind(item), "tool_name": _tool_name(item)})
            return found

        found: dict[int, list[dict[str, str | None]]] = await self._run(read)
        return found

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Return (tool, number of calls, turn) for each tool of each turn."""
        calls: dict[tuple[int, str], int] = {}
        for turn, items in (await self.get_conversation_by_turns(branch_id)).items():
            for item in items:
                name = item["tool_name"]
                if name is not None:
                    calls[turn, name] = calls.get((turn, name), 0) + 1
        return [(name, count, turn) for (turn, name), count in calls.items()]

    async def _contents(self, branch_id: str | None) -> list[Any]:
        branch = self._branch if branch_id is None else branch_id

        def read() -> list[Any]:
            state = self._state(branch)
            items = self._items_of(state)
            return [items[at].get("content", "") for at in state.get(TURNS, ())]

        contents: list[Any] = await self._run(read)
        return contents

    # --- usage ----------------------------------------------------------------------

    async def store_run_usage(self, result: RunResultBase) -> None:
        """Store the usage of a run in the last turn. Do nothing if the session has no turn."""
        usage = result.context_wrapper.usage
        kept = {name: getattr(usage, name) for name in _NUMBERS}
        for name in ("input_tokens_details", "output_tokens_details"):
            details: Any = getattr(usage, name, None)
            kept[name] = None if details is None else details.model_dump(mode="json")

        def write(state: Any) -> None:
            turn = len(state.get(TURNS, ()))
            if not turn:
                return
            if USAGE not in state:
                state[USAGE] = {}
            state[USAGE][str(turn)] = Json.of(kept)

        await self._write(lambda thread: thread.edit(write, lazy=True))

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the usage of a turn, or {} if none was stored. By default, return the usage of all turns."""
        branch = self._branch if branch_id is None else branch_id
        found = await self._run(self._usage, branch)
        if user_turn_number is not None:
            return dict(found.get(user_turn_number, {}))
        return [{"user_turn_number": turn, **usage} for turn, usage in found.items()]

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the total usage of a branch, or of all branches. Return None if no usage was stored.

        Usage that branches share is counted once.
        """

        def read() -> list[dict[str, Any]]:
            if branch_id is not None:
                return list(self._usage(branch_id).values())
            thread = self.store.thread(self.thread_id)
            kept = {
                (turn, text_of.text): text_of.value
                for info in thread.branches()
                for turn, text_of in thread.checkout(info.name).state.get(USAGE, {}).items()
            }
            return list(kept.values())

        turns = await self._run(read)
        if not turns:
            return None
        return {**{name: sum(turn[name] for turn in turns) for name in _NUMBERS}, "total_turns": len(turns)}

    def _usage(self, branch: str) -> dict[int, dict[str, Any]]:
        kept = self._state(branch).get(USAGE, {})
        return {int(turn): kept[turn].value for turn in sorted(kept, key=int)}


def _preview(content: Any) -> Any:
    if isinstance(content, str) and len(content) > _PREVIEW:
        return content[:_PREVIEW] + "..."
    return content


def _texts(content: Any) -> list[str]:
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    return [part for part in parts if isinstance(part, str)]


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("role") or item.get("type") or "other"
    return str(kind)


def _tool_name(item: dict[str, Any]) -> str | None:
    kind = item.get("type") or ""
    if kind == "function_call" or (kind.endswith("_call") and item.get("name")):
        return str(item.get("name") or "unknown")
    return kind.removesuffix("_call") if kind.endswith("_call") else None
