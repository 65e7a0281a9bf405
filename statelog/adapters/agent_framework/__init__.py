"""Microsoft Agent Framework: checkpoints of workflows, histories and sessions, in one file."""

from statelog.adapters.agent_framework.checkpoints import StatelogCheckpointStorage
from statelog.adapters.agent_framework.history import StatelogHistoryProvider
from statelog.adapters.agent_framework.sessions import StatelogSessionStore

__all__ = ["StatelogCheckpointStorage", "StatelogHistoryProvider", "StatelogSessionStore"]
