#!/usr/bin/env bash
# Strands Agents: a checkpoint that is resumed twice runs the next tool.
#
# Versions: strands-agents 1.62.0, Python 3.12.
#
# An agent with checkpointing=True pauses after the model, before its tools. The checkpoint that it returns has a position
# and a number, and nothing of the messages. If it is given to the agent again after it was resumed, it is accepted. The
# agent asks the model and runs the tool that is due next. It does not pause before that tool, because the position says
# that it has paused there.
#
# We expected a checkpoint that was resumed before to be refused, or to run the tool that it was made for. A retry after a
# lost reply is enough to meet this.
#
# Output seen:
#   asked: paused after_model, tools run: []
#   resumed: paused after_tools, tools run: ['first']
#   resumed again: paused after_tools, tools run: ['first', 'second']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q strands-agents==1.62.0
cat > "$folder/probe.py" <<'PY'
import json
import sys
import warnings

warnings.simplefilter("ignore")

from strands import Agent, tool  # noqa: E402
from strands.models.model import Model  # noqa: E402

done = []


@tool
def work(name: str) -> str:
    """Do a piece of work."""
    done.append(name)
    return "done"


class Scripted(Model):
    """Calls the tool for "first", then for "second"."""

    def update_config(self, **config): ...

    def get_config(self):
        return {}

    async def structured_output(self, *args, **options):
        yield {}

    async def stream(self, messages, *args, **options):
        number = sum(message["role"] == "assistant" for message in messages)
        call = {"name": "work", "toolUseId": f"call-{number}"}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {"toolUse": call}}}
        arguments = json.dumps({"name": ("first", "second")[number]})
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use"}}


agent = Agent(Scripted(), tools=[work], checkpointing=True, callback_handler=None)
result = agent("work")
checkpoint = result.checkpoint.to_dict()
seen = [(result.checkpoint.position, list(done))]
for _time in range(2):
    result = agent({"checkpointResume": {"checkpoint": checkpoint}})
    seen.append((result.checkpoint.position, list(done)))
for what, (position, tools) in zip(("asked", "resumed", "resumed again"), seen):
    print(f"{what}: paused {position}, tools run: {tools}")
sys.exit(seen != [("after_model", []), ("after_tools", ["first"]), ("after_tools", ["first", "second"])])
PY
"$folder/venv/bin/python" "$folder/probe.py"
