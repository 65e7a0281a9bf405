"""Names of spans, events, attributes and metrics. GUIDE.md here has the tables."""

from __future__ import annotations

from typing import Final

CONVENTIONS_VERSION: Final = "0.1.0"
"""The release of open-telemetry/semantic-conventions-genai that the `gen_ai.*` names on spans follow."""
SCOPE: Final = "statelog"

OPERATION: Final = "gen_ai.operation.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
ERROR: Final = "error.type"

MEMORY_STORE: Final = "gen_ai.memory.store.id"
MEMORY_RECORD: Final = "gen_ai.memory.record.id"
MEMORY_COUNT: Final = "gen_ai.memory.record.count"
MEMORY_QUERY: Final = "gen_ai.memory.query.text"
MEMORY_RECORDS: Final = "gen_ai.memory.records"

# These names are from the draft open-telemetry/semantic-conventions-genai#445.
PAUSED: Final = "gen_ai.agent.paused"
CHECKPOINTED: Final = "gen_ai.agent.checkpointed"
RESUMED: Final = "gen_ai.agent.resumed"
EXECUTION: Final = "gen_ai.agent.execution.id"
PAUSE: Final = "gen_ai.agent.pause.id"
PAUSE_REASON: Final = "gen_ai.agent.pause.reason"
CHECKPOINT: Final = "gen_ai.agent.checkpoint.id"
RESUMED_FROM_TYPE: Final = "gen_ai.agent.resumed_from.type"
RESUMED_FROM: Final = "gen_ai.agent.resumed_from.id"

# The conventions and the draft do not name these facts, so the names are this library's.
RESOLVED: Final = "statelog.pause.resolved"
RESOLUTION: Final = "statelog.pause.resolution"
DEADLINE: Final = "statelog.pause.deadline"
PARENT: Final = "statelog.run.parent.id"
STATUS: Final = "statelog.run.status"
STEP: Final = "statelog.step.name"
PLACE: Final = "statelog.step.place"
ATTEMPT: Final = "statelog.step.attempt"
ARGUMENTS: Final = "statelog.step.arguments"
RESULT: Final = "statelog.step.result"
DURABILITY: Final = "statelog.durability"
QUEUE: Final = "statelog.queue.name"
TAKEN: Final = "statelog.takeover.kind"

TRACE_PARENT: Final = "traceparent"
"""The key of the W3C trace context, for example in a checkpoint's metadata."""
