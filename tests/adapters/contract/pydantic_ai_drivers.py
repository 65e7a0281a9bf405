"""Conversations of Pydantic AI."""

from __future__ import annotations

from adapter_driver import Driver, holding_itself
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from statelog.adapters.pydantic_ai import StatelogConversationStore


class Conversations(Driver):
    kills = ("add", "delete")
    unstorable = object(), holding_itself(), "\ud800"
    unstorable_error = UserError, None
    no_names = ("", "\ud800")
    no_name_error = UserError, None

    async def add(self, name, *values):
        conversations = StatelogConversationStore(self.store)
        messages = [ModelRequest(parts=[ToolReturnPart("tool", value, tool_call_id="1")]) for value in values]
        while True:
            conversation = await conversations.load(name) or Conversation(conversation_id=name)
            conversation.messages += messages
            try:
                await conversations.save(conversation)
            except ConversationConflict:
                continue
            return

    async def read(self, name):
        conversation = await StatelogConversationStore(self.store).load(name)
        return [] if conversation is None else [each.parts[0].content for each in conversation.messages]

    async def delete(self, name):
        await StatelogConversationStore(self.store).delete(name)

    def thread_ids(self, name):
        return [f"pydantic-ai:{name}"]

    async def everything(self, names=("s", "t", "new")):
        listed = {
            each.conversation_id: each for each in await StatelogConversationStore(self.store).list_conversations()
        }
        found = {name: await self.read(name) for name in names}
        assert {name for name in names if found[name]} == listed.keys() & {*names}
        return found, sorted(listed)
