"""The Claude Agent SDK on a store: transcripts with their summaries."""

from statelog.adapters.claude_agent_sdk.sessions import StatelogSessionStore

__all__ = ["StatelogSessionStore"]
