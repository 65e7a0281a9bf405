"""pydantic-ai: conversations in a store, and runs of agents whose model requests and tool calls are recorded."""

from statelog.adapters.pydantic_ai.conversations import StatelogConversationStore
from statelog.adapters.pydantic_ai.durability import StatelogDurability

__all__ = ["StatelogConversationStore", "StatelogDurability"]
