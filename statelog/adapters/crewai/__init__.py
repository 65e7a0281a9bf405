"""CrewAI on a store: states of flows, checkpoints of crews, and memory."""

from statelog.adapters.crewai.checkpoints import StatelogCheckpointProvider
from statelog.adapters.crewai.flows import StatelogFlowPersistence
from statelog.adapters.crewai.installation import install
from statelog.adapters.crewai.memory import StatelogMemoryStorage

__all__ = ["StatelogCheckpointProvider", "StatelogFlowPersistence", "StatelogMemoryStorage", "install"]
