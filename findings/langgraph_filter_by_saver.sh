#!/usr/bin/env bash
# LangGraph: the same metadata filter finds different checkpoints in SqliteSaver and InMemorySaver.
#
# Versions: langgraph-checkpoint 4.3.2, langgraph-checkpoint-sqlite 3.1.2, Python 3.11.
#
# Both savers list checkpoints by a filter on metadata. Two filters part them.
# SqliteSaver reads the key "user.name" as a path: it finds the checkpoint whose metadata holds
# {"user": {"name": "ann"}}, and misses the one whose metadata holds the key "user.name" itself.
# InMemorySaver does the opposite.
# SqliteSaver compares a nested dict as text: a filter finds only the metadata that was written
# with its keys in the same order. InMemorySaver compares dicts, and finds both orders.
# Nothing is raised.
#
# We expected the two savers to agree, and equality to mean equality of values. Dotted keys are
# the usual form of tracing attributes, so metadata often holds them.
#
# Output seen:
#   {'user.name': 'ann'}   InMemorySaver ['dotted']   SqliteSaver ['nested']
#   {'range': {'low': 1, 'high': 2}}   InMemorySaver ['high first', 'low first']   SqliteSaver ['low first']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q langgraph-checkpoint==4.3.2 langgraph-checkpoint-sqlite==3.1.2
cat > "$folder/probe.py" <<'PY'
import sqlite3
import sys

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

METADATA = {
    "dotted": {"user.name": "ann"},
    "nested": {"user": {"name": "ann"}},
    "low first": {"range": {"low": 1, "high": 2}},
    "high first": {"range": {"high": 2, "low": 1}},
}
FILTERS = [{"user.name": "ann"}, {"range": {"low": 1, "high": 2}}]
EXPECTED = [
    {"InMemorySaver": ["dotted"], "SqliteSaver": ["nested"]},
    {"InMemorySaver": ["high first", "low first"], "SqliteSaver": ["low first"]},
]

savers = [InMemorySaver(), SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))]
for saver in savers:
    for label, metadata in METADATA.items():
        config = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {**metadata, "label": label}, {})

seen = []
for chosen in FILTERS:
    config = {"configurable": {"thread_id": "thread"}}
    found = {type(each).__name__: sorted(t.metadata["label"] for t in each.list(config, filter=chosen)) for each in savers}
    print("   ".join([str(chosen), *(f"{name} {labels}" for name, labels in found.items())]))
    seen.append(found)

sys.exit(seen != EXPECTED)
PY
"$folder/venv/bin/python" "$folder/probe.py"
