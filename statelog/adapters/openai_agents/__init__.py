"""The OpenAI Agents SDK on a store: sessions with branches, in which each turn is one commit."""

from statelog.adapters.openai_agents.session import StatelogSession

__all__ = ["StatelogSession"]
