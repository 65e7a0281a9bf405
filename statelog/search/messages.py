"""Converts messages of all frameworks to one form.

A message becomes {role, name, text, size, calls, results}. Each of `calls` is {id, name, arguments}, and each of
`results` is {id, text}. The state still has all other parts of a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from statelog.display.lines import lazily, written
from statelog.display.packed import Coded, Constructed, unpacked
from statelog.format import cbor
from statelog.format.quarantined import Quarantined

Message = dict[str, Any]

JSON = "json"
"""The name of the codec that stores a value as JSON text."""

_SHOWN_CHARACTERS_MAX = 8000
"""The maximum number of characters of a value that is shown as a Python literal."""

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "ToolMessage": "tool",
    "SystemMessage": "system",
    "function": "tool",
    "developer": "system",
    "request": "user",
    "response": "assistant",
}


def opened(value: Any) -> Any:
    """Return the plain values of a codec's stored form, if that form is known. Return other values unchanged."""
    if isinstance(value, str | dict | list):
        return value
    value = unpacked(value)
    codec = value.stored if isinstance(value, Coded) else cbor.payload_of(value)
    if codec is not None and codec[0] == JSON and isinstance(codec[1], str):
        return json.loads(codec[1])
    return lazily(value)


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dict or of an object; empty for any other value."""
    value = opened(value)
    if isinstance(value, Constructed):
        return value.fields if isinstance(value.fields, dict) else {}
    return {key: value[key] for key in value} if isinstance(value, Mapping) else {}


def message_of(item: Any) -> Message | None:
    """Convert an item to a message. Return None if the item is not a message."""
    item = opened(item)
    if isinstance(item, Quarantined):
        return make_message("quarantined", f"quarantined by {item.check}: {item.reason}")
    if isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return make_message(item[0], item[1])
    name = item.short_name if isinstance(item, Constructed) else ""
    fields = _fields(item)
    inner = _in_envelope(fields)
    if inner is not None:
        return message_of(inner)
    if fields.get("type") in ("function_call", "function_call_output", "reasoning") and "role" not in fields:
        return _of_responses(fields["type"], fields)
    role = fields.get("role") or _ROLES.get(name) or _role_of(fields)
    body = next((fields[key] for key in ("content", "parts", "contents") if key in fields), None)
    if not isinstance(role, str) or (body is None and "tool_calls" not in fields):
        return None
    message = make_message(role, "")
    named = fields.get("name") or fields.get("source")
    if isinstance(named, str):
        message["name"] = named
    _add_body(message, body)
    for call in fields.get("tool_calls") or ():
        _add_call(message, call)
    answered = fields.get("tool_call_id")
    if isinstance(answered, str):
        message["results"].append({"id": answered, "text": message["text"]})
        message["text"], message["size"] = "", 0
        message["role"] = "tool"
    return message


def _in_envelope(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of the message in an envelope; None if this is not an envelope."""
    for name in ("message", "content"):
        wrapped = _fields(fields.get(name)) if name in fields else {}
        if "role" in wrapped and ("content" in wrapped or "parts" in wrapped or "contents" in wrapped):
            return wrapped
    if isinstance(fields.get("type"), str) and "data" in fields:  # LangChain's `message_to_dict` returns this envelope.
        wrapped = _fields(fields["data"])
        if "content" in wrapped:
            return {**wrapped, "type": fields["type"]}
    return None


def _role_of(fields: dict[str, Any]) -> Any:
    """Return the role of a message that has no field `role`."""
    if "source" in fields:
        return "user" if fields["source"] == "user" else "assistant"
    return fields.get("kind") or fields.get("type")


def role_named(role: str) -> str:
    """Convert a framework's name for a role to the name that this module uses."""
    return _ROLES.get(role, role)


def make_message(role: str, text: str) -> Message:
    """Return a message with a text and no calls."""
    return {"role": role_named(role), "text": text, "size": len(text), "calls": [], "results": []}


def _of_responses(kind: str, fields: dict[str, Any]) -> Message:
    """Convert an item of OpenAI's Responses API that is not a message, such as a tool call."""
    if kind == "reasoning":
        parts = [_fields(part).get("text") for part in _list(fields.get("summary"))]
        return make_message("reasoning", "\n".join(part for part in parts if isinstance(part, str)))
    message = make_message("assistant" if kind == "function_call" else "tool", "")
    if kind == "function_call":
        _add_call(message, {"id": fields.get("call_id"), "name": fields.get("name"), "args": fields.get("arguments")})
    else:
        message["results"].append({"id": str(fields.get("call_id")), "text": _as_text(fields.get("output"))})
    return message


def _list(value: Any) -> Sequence[Any]:
    value = opened(value)
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _add_body(message: Message, body: Any) -> None:
    """Add the text, calls and results of a body: a text, or a list of blocks of any framework."""
    body = opened(body)
    if body is None:
        return
    if isinstance(body, str):
        _add_text(message, body)
        return
    for block in _list(body) or ([body] if isinstance(body, Mapping | Constructed) else []):
        block = opened(block)
        if isinstance(block, str):
            _add_text(message, block)
            continue
        fields = _fields(block)
        call = _first(fields, "toolUse", "function_call")
        result = _first(fields, "toolResult", "function_response")
        kind = fields.get("type") or fields.get("part_kind")
        if call is not None or kind in ("tool_use", "tool-call", "function_call") or {"arguments", "name"} <= {*fields}:
            _add_call(message, call or fields)
        elif result is not None or kind in ("tool_result", "tool-return", "function_result"):
            _add_result(message, result or fields)
        elif isinstance(_first(fields, "text", "content", "thinking"), str):
            if kind in ("system-prompt", "instructions"):
                message["role"] = "system"
            _add_text(message, _first(fields, "text", "content", "thinking"))
        else:
            _add_text(message, f"[{kind or 'block'}] {_as_text(block)[:200]}")


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _add_text(message: Message, text: str) -> None:
    message["size"] += len(text)
    message["text"] = f"{message['text']}\n{text}".lstrip("\n")


def _add_call(message: Message, call: Any) -> None:
    fields = _fields(call)
    inner = _fields(fields.get("function")) or fields
    message["calls"].append(
        {
            "id": str(_first(fields, "id", "call_id", "tool_call_id", "toolUseId") or ""),
            "name": str(_first(inner, "name", "tool_name") or "?"),
            "arguments": _as_text(_first(inner, "args", "arguments", "input")),
        }
    )


def _add_result(message: Message, result: Any) -> None:
    fields = _fields(result)
    body = _first(fields, "content", "response", "result", "output")
    message["results"].append(
        {
            "id": str(_first(fields, "tool_use_id", "toolUseId", "tool_call_id", "call_id", "id") or ""),
            "text": _as_text(body),
        }
    )
    message["role"] = "tool"


def _as_text(value: Any) -> str:
    """Return a value as text: a text unchanged, text blocks joined, other values as JSON or as their repr."""
    value = opened(value)
    if isinstance(value, str):
        return value
    blocks = [_fields(block).get("text") for block in _list(value)]
    if blocks and all(isinstance(block, str) for block in blocks):
        return "\n".join(str(block) for block in blocks)
    try:
        return json.dumps(value.to_python() if hasattr(value, "to_python") else value, ensure_ascii=False, indent=1)
    except (TypeError, ValueError):
        return written(value, _SHOWN_CHARACTERS_MAX)
