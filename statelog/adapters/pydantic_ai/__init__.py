"""pydantic-ai: stored conversations, and durable runs that record model requests and tool calls."""

from statelog.adapters.pydantic_ai.conversations import StatelogConversationStore
from statelog.adapters.pydantic_ai.durability import StatelogDurability

__all__ = ["StatelogConversationStore", "StatelogDurability"]
