"""Google's Agent Development Kit on a store: sessions, artifacts and memory."""

from statelog.adapters.google_adk.artifacts import StatelogArtifactService
from statelog.adapters.google_adk.memory import StatelogMemoryService
from statelog.adapters.google_adk.registration import register
from statelog.adapters.google_adk.sessions import StatelogSessionService

__all__ = ["StatelogArtifactService", "StatelogMemoryService", "StatelogSessionService", "register"]
