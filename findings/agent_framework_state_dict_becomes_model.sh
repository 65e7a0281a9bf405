#!/usr/bin/env bash
# Agent Framework: the type of a stored session value depends on what the process stored before.
#
# Versions: agent-framework-core 1.23.0, pydantic 2.14.4, Python 3.11.
#
# The state of an AgentSession holds a plain dict with a key "type". Its stored form loads as the
# same dict. Then the process stores another session, with a Pydantic model of the class Task in
# its state. The first stored form, unchanged, now loads as a Task, because the value of its key
# "type" is the name of that class in lower case. A further key of the dict is dropped.
#
# We expected a stored form to load the same way each time, and a dict to stay a dict. Storing a
# model registers its class for the whole process, and the loader does not tell a dict that has a
# "type" from a model. Two model classes of the same name cannot be stored by one process: the
# second to_dict raises ValueError.
#
# Output seen:
#   before: {'type': 'task', 'title': 'call', 'due': 'today'}
#   after: Task(title='call')
#   another class of the same name: ValueError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q agent-framework-core==1.23.0 pydantic==2.14.4
cat > "$folder/probe.py" <<'PY'
import json
import sys

from agent_framework import AgentSession
from pydantic import BaseModel, create_model


class Task(BaseModel):
    title: str


def stored(value):
    session = AgentSession(session_id="session")
    session.state["value"] = value
    return json.dumps(session.to_dict())


def loaded(text):
    return AgentSession.from_dict(json.loads(text)).state["value"]


plain = {"type": "task", "title": "call", "due": "today"}
text = stored(plain)
before = loaded(text)
stored(Task(title="another"))
after = loaded(text)
try:
    stored(create_model("Task", done=(bool, True))())
    second = "stored"
except ValueError:
    second = "ValueError"
print("before:", before)
print("after:", repr(after))
print("another class of the same name:", second)

sys.exit((before, after, second) != (plain, Task(title="call"), "ValueError"))
PY
"$folder/venv/bin/python" "$folder/probe.py"
