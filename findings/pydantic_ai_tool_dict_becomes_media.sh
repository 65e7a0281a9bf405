#!/usr/bin/env bash
# Pydantic AI: a plain dict that a tool returned comes back from the stored history as a media object.
#
# Versions: pydantic-ai-slim 2.68.0, pydantic 2.14.4, Python 3.11.
#
# A tool may return any JSON value. ModelMessagesTypeAdapter stores the history as JSON and loads
# it again. A returned dict with the keys "kind", "data" and "media_type" comes back as
# BinaryContent if its "kind" is "binary" and its "data" is base64: the dict is gone, and its text
# has been decoded to bytes. A dict with one key less, or with a text that is not base64, stays a
# dict. Code that indexes the result works in the first run and fails after a reload.
#
# We expected a dict to come back as a dict, because the history also holds real media objects and
# could mark them apart. The loader decides by the shape of the data.
#
# Output seen:
#   {'kind': 'binary', 'data': 'aGVsbG8=', 'media_type': 'text/plain'} -> BinaryContent b'hello'
#   {'kind': 'binary', 'data': 'hello!', 'media_type': 'text/plain'} -> dict
#   {'kind': 'binary', 'data': 'aGVsbG8='} -> dict
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pydantic-ai-slim==2.68.0 pydantic==2.14.4
cat > "$folder/probe.py" <<'PY'
import sys

from pydantic_ai.messages import BinaryContent, ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart

RETURNED = [
    {"kind": "binary", "data": "aGVsbG8=", "media_type": "text/plain"},
    {"kind": "binary", "data": "hello!", "media_type": "text/plain"},
    {"kind": "binary", "data": "aGVsbG8="},
]

seen = []
for value in RETURNED:
    history = [ModelRequest(parts=[ToolReturnPart(tool_name="fetch", content=value, tool_call_id="1")])]
    loaded = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
    content = loaded[0].parts[0].content
    seen.append((type(content).__name__, content.data if isinstance(content, BinaryContent) else content == value))
    print(value, "->", type(content).__name__, content.data if isinstance(content, BinaryContent) else "")

sys.exit(seen != [("BinaryContent", b"hello"), ("dict", True), ("dict", True)])
PY
"$folder/venv/bin/python" "$folder/probe.py"
