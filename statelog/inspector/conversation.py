"""Messages of a state as one conversation, whatever framework wrote them.

A message becomes {role, name, text, size, calls, results}. `calls` are {id, name, arguments}, `results` are {id, text}.
What a message has besides is in the tree of the state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit.ordered import Json
from statelog.display.graphs import is_graph, shown_names
from statelog.display.lines import lazily, written
from statelog.display.packed import Constructed, unpacked
from statelog.format.quarantined import Quarantined
from statelog.inspector.deltas import delta_channels, delta_items

if TYPE_CHECKING:
    from statelog import Checkpoint, Store

Message = dict[str, Any]

_TEXT_CHARACTERS_MAX = 8000
_ARGUMENTS_CHARACTERS_MAX = 4000
_PROBED = 3
"""Items of a list in which a message is looked for."""

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


def conversation(store: Store, checkpoint: Checkpoint, *, before: int, limit: int) -> dict[str, Any]:
    """Return the messages of each channel that has some: the last `limit` below position `before`."""
    channels = []
    for name, items in _channels(store, checkpoint):
        end = min(before, len(items))
        start = max(0, end - limit)
        messages = [message_of(item) for item in items[start:end]]
        if any(messages):
            channels.append(
                {
                    "channel": name,
                    "start": start,
                    "total": len(items),
                    "messages": [
                        message or _other(item) for message, item in zip(messages, items[start:end], strict=True)
                    ],
                }
            )
    return {"channels": channels}


def _channels(store: Store, checkpoint: Checkpoint) -> list[tuple[str, Sequence[Any]]]:
    state = checkpoint.state.lazy
    found: list[tuple[str, Sequence[Any]]] = []
    for name in shown_names(state):
        items = _messages_in(state[name])
        if items is not None:
            found.append((name, items))
    if is_graph(state):
        for name in delta_channels(checkpoint):
            items = delta_items(store, checkpoint, name)
            if any(message_of(item) for item in items[-_PROBED:]):
                found.append((name, items))
    return found


def _messages_in(value: Any) -> Sequence[Any] | None:
    """Return the list of messages that a channel is, or has under a key such as `messages`; None if it has none."""
    value = _opened(value)
    if isinstance(value, Constructed) and isinstance(value.fields, dict):
        value = value.fields
    if isinstance(value, Mapping):
        for key in ("messages", "message_thread", "history", "events", "items"):
            if key in value:
                found = _messages_in(value[key])
                if found is not None:
                    return found
        return None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > 0:
        probes = [value[at] for at in {0, len(value) // 2, len(value) - 1}]
        if any(message_of(probe) for probe in probes):
            return value
    return None


def _opened(value: Any) -> Any:
    value = unpacked(value)
    return json.loads(value.text) if isinstance(value, Json) else lazily(value)


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dict or of an object; empty for any other value."""
    value = _opened(value)
    if isinstance(value, Constructed):
        return value.fields if isinstance(value.fields, dict) else {}
    return {key: value[key] for key in value} if isinstance(value, Mapping) else {}


# --- one message ---------------------------------------------------------------------


def message_of(item: Any) -> Message | None:
    """Return an item as a message; None if it is not one."""
    item = _opened(item)
    if isinstance(item, Quarantined):
        return _message("quarantined", f"quarantined by {item.check}: {item.reason}")
    if isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return _message(item[0], item[1])
    name = item.short_name if isinstance(item, Constructed) else ""
    fields = _fields(item)
    for inner in ("message", "content"):  # an envelope around a message
        wrapped = _fields(fields.get(inner)) if inner in fields else {}
        if "role" in wrapped and ("content" in wrapped or "parts" in wrapped or "contents" in wrapped):
            return message_of(wrapped)
    if fields.get("type") in ("function_call", "function_call_output", "reasoning") and "role" not in fields:
        return _of_responses(fields["type"], fields)
    role = fields.get("role") or _ROLES.get(name) or _role_of(fields)
    body = next((fields[key] for key in ("content", "parts", "contents") if key in fields), None)
    if not isinstance(role, str) or (body is None and "tool_calls" not in fields):
        return None
    message = _message(role, "")
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


def _role_of(fields: dict[str, Any]) -> Any:
    """Return the role of a message that has no `role`."""
    if "source" in fields:
        return "user" if fields["source"] == "user" else "assistant"
    return fields.get("kind") or fields.get("type")


def _message(role: str, text: str) -> Message:
    role = _ROLES.get(role, role)
    return {"role": role, "text": text[:_TEXT_CHARACTERS_MAX], "size": len(text), "calls": [], "results": []}


def _other(item: Any) -> Message:
    return _message("other", written(_opened(item), _TEXT_CHARACTERS_MAX))


def _of_responses(kind: str, fields: dict[str, Any]) -> Message:
    """Return an item of OpenAI's Responses API that is not a message."""
    if kind == "reasoning":
        parts = [_fields(part).get("text") for part in _list(fields.get("summary"))]
        return _message("reasoning", "\n".join(part for part in parts if isinstance(part, str)))
    message = _message("assistant" if kind == "function_call" else "tool", "")
    if kind == "function_call":
        _add_call(message, {"id": fields.get("call_id"), "name": fields.get("name"), "args": fields.get("arguments")})
    else:
        message["results"].append({"id": str(fields.get("call_id")), "text": _as_text(fields.get("output"))})
    return message


def _list(value: Any) -> Sequence[Any]:
    value = _opened(value)
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _add_body(message: Message, body: Any) -> None:
    """Add the text, calls and results of a body: a text, or a list of blocks of any framework."""
    body = _opened(body)
    if body is None:
        return
    if isinstance(body, str):
        _add_text(message, body)
        return
    for block in _list(body) or ([body] if isinstance(body, Mapping | Constructed) else []):
        block = _opened(block)
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
    message["text"] = f"{message['text']}\n{text}".lstrip("\n")[:_TEXT_CHARACTERS_MAX]


def _add_call(message: Message, call: Any) -> None:
    fields = _fields(call)
    inner = _fields(fields.get("function")) or fields
    arguments = _first(inner, "args", "arguments", "input")
    message["calls"].append(
        {
            "id": str(_first(fields, "id", "call_id", "tool_call_id", "toolUseId") or ""),
            "name": str(_first(inner, "name", "tool_name") or "?"),
            "arguments": _as_text(arguments)[:_ARGUMENTS_CHARACTERS_MAX],
        }
    )


def _add_result(message: Message, result: Any) -> None:
    fields = _fields(result)
    body = _first(fields, "content", "response", "result", "output")
    message["results"].append(
        {
            "id": str(_first(fields, "tool_use_id", "toolUseId", "tool_call_id", "call_id", "id") or ""),
            "text": _as_text(body)[:_TEXT_CHARACTERS_MAX],
        }
    )
    message["role"] = "tool"


def _as_text(value: Any) -> str:
    """Return a value as text: a text as it is, text blocks joined, any other value as JSON or as Python writes it."""
    value = _opened(value)
    if isinstance(value, str):
        return value
    blocks = [_fields(block).get("text") for block in _list(value)]
    if blocks and all(isinstance(block, str) for block in blocks):
        return "\n".join(str(block) for block in blocks)
    try:
        return json.dumps(value.to_python() if hasattr(value, "to_python") else value, ensure_ascii=False, indent=1)
    except (TypeError, ValueError):
        return written(value, _TEXT_CHARACTERS_MAX)
