"""Shows checkpoints of LangGraph threads: the node that ran, the message, the step and the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelog.display import graph_versions
from statelog.display.packed import Constructed, unpacked
from statelog.limits import GRAPH_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.display.shapes import CheckpointShape

GRAPH_COLUMNS = ("node", "said", "step", "source")

_INNER = ("langgraph:", "branch:", "join:", "start:", "__")
_INPUT = "__start__"
_MESSAGES = "messages"
_OWN_PARTS = 4
_SHORT, _SHORT_PARTS = 1, 7
_PAIR = 2
_SAID_MAX = 3
"""The maximum number of channels, or members of an input, in one row."""


def is_inner(channel: str) -> bool:
    """Return True if a channel is LangGraph's own, not the application's."""
    return channel.startswith(_INNER)


def is_graph(state: Mapping[str, Any]) -> bool:
    """Return True if a state belongs to a LangGraph branch."""
    return GRAPH_CHANNEL in state


def is_checkpoint(state: Mapping[str, Any]) -> bool:
    """Return True if the state is of a LangGraph checkpoint, not the empty state that ends a removed branch."""
    return is_graph(state) and state[GRAPH_CHANNEL] is not None


def shown_names(members: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of a dict. For a LangGraph state, yield only the application's channels."""
    return (name for name in members if not is_inner(name)) if is_graph(members) else iter(members)


def graph_cells(checkpoint: CheckpointShape, parent: CheckpointShape | None) -> tuple[str, ...]:
    """Return the cells of `GRAPH_COLUMNS` for a checkpoint, with full texts."""
    metadata = checkpoint.metadata
    step, source = metadata.get("step", ""), metadata.get("source", "")
    return (", ".join(_nodes(checkpoint, parent)), said(checkpoint), str(step), str(source))


def _nodes(checkpoint: CheckpointShape, parent: CheckpointShape | None) -> list[str]:
    """Return the nodes that ran since the parent: the versions that they have seen differ from those in the parent."""
    before = {} if parent is None else _versions_seen(parent)
    after = _versions_seen(checkpoint)
    return sorted(node for node, seen in after.items() if not node.startswith("__") and seen != before.get(node))


def _versions_seen(checkpoint: CheckpointShape) -> Mapping[str, Any]:
    state = checkpoint.state
    kept = unpacked(state[GRAPH_CHANNEL]) if GRAPH_CHANNEL in state else None
    rest = kept[_OWN_PARTS] if isinstance(kept, list) and len(kept) > _OWN_PARTS else None
    if isinstance(kept, list) and len(kept) == _SHORT_PARTS and kept[0] == _SHORT:
        try:
            rest = graph_versions.decode(*kept[-2:])
        except (LookupError, StopIteration, TypeError, ValueError):  # LangGraph's data may have an unknown form.
            rest = None
    seen = rest.get("versions_seen") if isinstance(rest, dict) else None
    return seen if isinstance(seen, dict) else {}


def said(checkpoint: CheckpointShape) -> str:
    """Return the content that a checkpoint adds: the last message, or the values of the written channels."""
    state = getattr(checkpoint.state, "lazy", checkpoint.state)
    written = [name for name in checkpoint.channels_written if not is_inner(name) and name in state]
    told = [_told(name, unpacked(state[name])) for name in sorted(written, key=_messages_first)]
    if not written and _INPUT in checkpoint.channels_written and _INPUT in state:
        given = unpacked(state[_INPUT])
        members = sorted(given.items(), key=lambda pair: _messages_first(pair[0])) if isinstance(given, Mapping) else ()
        told = [_told(str(name), unpacked(value)) for name, value in islice(members, _SAID_MAX)] or [repr(given)]
    more = f", and {len(told) - _SAID_MAX} more" if len(told) > _SAID_MAX else ""
    return "; ".join(told[:_SAID_MAX]) + more


def _messages_first(name: str) -> tuple[bool, str]:
    return name != _MESSAGES, name


def _told(name: str, value: Any) -> str:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    last = unpacked(value[-1]) if is_list and len(value) > 0 else value
    message = _message(last)
    if message is not None:
        return message
    return f"{name}: {'… ' if is_list and len(value) > 1 else ''}{last!r}"


def _message(value: Any) -> str | None:
    """Return a message as `who: text`, or None for any other value."""
    if isinstance(value, Constructed) and isinstance(value.fields, dict) and "content" in value.fields:
        fields = value.fields
        who = fields.get("type") or value.short_name
        calls = fields.get("tool_calls") or []
        called = [str(each.get("name")) for each in calls if isinstance(each, dict)]
        text = _text(fields["content"])
        return f"{who}: {text}" + (f"{' ' if text else ''}calls {', '.join(called)}" if called else "")
    if isinstance(value, dict) and isinstance(value.get("content"), str) and isinstance(value.get("role"), str):
        return f"{value['role']}: {value['content']}"
    if isinstance(value, list | tuple) and len(value) == _PAIR and all(isinstance(each, str) for each in value):
        return f"{value[0]}: {value[1]}"
    return None


def _text(content: Any) -> str:
    """Return the text of a message's content. The content may be a list of blocks."""
    if isinstance(content, list):
        texts = [each.get("text") if isinstance(each, dict) else each for each in content]
        return " ".join(each for each in texts if isinstance(each, str)) or f"{len(content)} blocks"
    return content if isinstance(content, str) else repr(content)
