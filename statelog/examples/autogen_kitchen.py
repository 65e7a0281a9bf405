"""Let a team talk, one turn in each process. A new process continues after the last saved turn.

    python -m statelog.examples.autogen_kitchen agent.state "dinner?"
    python -m statelog.examples.autogen_kitchen agent.state "and with it?"

The model is a script that says which messages it has received.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat

import statelog
from statelog.adapters.autogen import load_team, save_team
from statelog.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

TEAM = "kitchen"


class Cook(BaseChatAgent):
    """An agent that remembers the messages that it receives."""

    def __init__(self) -> None:
        super().__init__("cook", "Cooks.")
        self.heard: list[str] = []

    @property
    def produced_message_types(self) -> Any:
        """The types of the messages that it sends."""
        return (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:  # noqa: ARG002 - the framework's
        """Answer with all messages received so far."""
        self.heard += [message.content for message in messages]
        return Response(chat_message=TextMessage(content=f"heard {self.heard}", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None:  # noqa: ARG002 - the framework's
        """Forget all messages."""
        self.heard = []

    async def save_state(self) -> Mapping[str, Any]:
        """Return the state."""
        return {"heard": self.heard}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.heard = list(state["heard"])


async def turn(store: statelog.Store, task: str) -> str:
    """Continue after the last turn, or begin. Return the answer when the turn is saved."""
    team = RoundRobinGroupChat([Cook()], max_turns=1)
    with suppress(NotFoundError):
        await load_team(store, TEAM, team)
    result = await team.run(task=task)
    await save_team(store, TEAM, team)
    return str(result.messages[-1].content)


if __name__ == "__main__":
    with statelog.open(sys.argv[1]) as opened:
        print(asyncio.run(turn(opened, sys.argv[2])))
