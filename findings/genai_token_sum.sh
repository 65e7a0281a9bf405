#!/usr/bin/env bash
# OpenTelemetry GenAI: the sum of gen_ai.usage.input_tokens over a trace is right for Pydantic AI
# and double for Strands.
#
# Versions: strands-agents 1.62.0, pydantic-ai-slim 2.68.0, opentelemetry-sdk 1.44.0, Python 3.11.
#
# Both libraries trace an agent run as a span "invoke_agent" with a span "chat" for each call of
# the model, and put gen_ai.usage.input_tokens on the chat spans. Strands also puts the total of
# the run on the invoke_agent span, under the same attribute. Pydantic AI puts the total under
# gen_ai.aggregated_usage.input_tokens instead. A query that adds up the attribute over all spans,
# to charge for a trace, counts each token of Strands twice and each token of Pydantic AI once.
# Each model call is scripted here: one call per run, of a known number of tokens.
#
# We expected spans of the same convention to add up the same way. Sum over the spans whose
# gen_ai.operation.name is "chat".
#
# Output seen:
#   Strands: 10 tokens used, sum over all spans 20, over chat spans 10
#   Pydantic AI: 10 tokens used, sum over all spans 10, over chat spans 10
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q strands-agents==1.62.0 pydantic-ai-slim==2.68.0 opentelemetry-sdk==1.44.0
cat > "$folder/probe.py" <<'PY'
import sys

import pydantic_ai
import strands
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.usage import RequestUsage
from strands.models.model import Model

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)


class Scripted(Model):
    def update_config(self, **config):
        pass

    def get_config(self):
        return {"model_id": "scripted"}

    async def structured_output(self, *args, **kwargs):
        yield {}

    async def stream(self, *args, **kwargs):
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": "done"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def scripted(messages, info):
    return ModelResponse(parts=[TextPart("done")], usage=RequestUsage(input_tokens=10, output_tokens=5))


def sums():
    finished = [dict(span.attributes) for span in spans.get_finished_spans()]
    spans.clear()
    chats = [each for each in finished if each.get("gen_ai.operation.name") == "chat"]
    return [sum(each.get("gen_ai.usage.input_tokens", 0) for each in group) for group in (finished, chats)]


strands.Agent(model=Scripted(), callback_handler=None)("hello")
seen = {"Strands": sums()}
settings = InstrumentationSettings(tracer_provider=provider)
pydantic_ai.Agent(FunctionModel(scripted), capabilities=[Instrumentation(settings)]).run_sync("hello")
seen["Pydantic AI"] = sums()
for name, (everywhere, chat) in seen.items():
    print(f"{name}: 10 tokens used, sum over all spans {everywhere}, over chat spans {chat}")

sys.exit(seen != {"Strands": [20, 10], "Pydantic AI": [10, 10]})
PY
"$folder/venv/bin/python" "$folder/probe.py"
