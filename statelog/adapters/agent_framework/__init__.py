"""Microsoft Agent Framework on a store: checkpoints of workflows, histories and sessions."""

from statelog.adapters.agent_framework.checkpoints import StatelogCheckpointStorage
from statelog.adapters.agent_framework.history import StatelogHistoryProvider
from statelog.adapters.agent_framework.sessions import StatelogSessionStore

__all__ = ["StatelogCheckpointStorage", "StatelogHistoryProvider", "StatelogSessionStore"]
