"""The OpenAI Agents SDK on a store: sessions with branches, whose turns are one commit each."""

from statelog.adapters.openai_agents.session import StatelogSession

__all__ = ["StatelogSession"]
