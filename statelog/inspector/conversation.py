"""The messages of a state as one conversation, whichever framework wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statelog.adapters.langgraph.deltas import delta_channels_left_out, delta_items
from statelog.display.graphs import is_graph, shown_names
from statelog.display.lines import written
from statelog.display.packed import Constructed
from statelog.search.messages import make_message, message_of, opened

if TYPE_CHECKING:
    from statelog import Checkpoint, Store
    from statelog.search.messages import Message

_TEXT_CHARACTERS_MAX = 8000
_ARGUMENTS_CHARACTERS_MAX = 4000
_PROBED = 3
"""The number of last items of a delta channel that are checked for a message."""


def conversation(
    store: Store, checkpoint: Checkpoint, *, before: int, limit: int, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the messages of each channel that has some: the last `limit` messages before the position `before`.

    `known` caches the messages of each channel, or None for a channel without messages. Missing channels are added.
    """
    state = checkpoint.state.lazy
    known = {} if known is None else known
    names = [name for name in shown_names(state) if name not in known]
    known.update((name, _document(name, _messages_in(state[name]), before, limit)) for name in names)
    deltas = delta_channels_left_out(checkpoint) if is_graph(state) else []
    for name in deltas:
        items = delta_items(store, checkpoint, name)
        has_messages = any(message_of(item) for item in items[-_PROBED:])
        known[name] = _document(name, items if has_messages else None, before, limit)
    return {"channels": [known[name] for name in (*shown_names(state), *deltas) if known[name] is not None]}


def _document(name: str, items: Sequence[Any] | None, before: int, limit: int) -> dict[str, Any] | None:
    if items is None:
        return None
    end = min(before, len(items))
    start = max(0, end - limit)
    messages = [message_of(item) for item in items[start:end]]
    if not any(messages):
        return None
    shown = [_cut(message or _other(item)) for message, item in zip(messages, items[start:end], strict=True)]
    return {"channel": name, "start": start, "total": len(items), "messages": shown}


def _messages_in(value: Any) -> Sequence[Any] | None:
    """Return the messages in a value: the value itself, or a member such as `messages`. Return None if it has none."""
    value = opened(value)
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


def _other(item: Any) -> Message:
    return make_message("other", written(opened(item), _TEXT_CHARACTERS_MAX))


def _cut(message: Message) -> Message:
    """Return a message with texts cut to the length that the page shows. `size` is the size of the whole text."""
    return message | {
        "text": message["text"][:_TEXT_CHARACTERS_MAX],
        "calls": [each | {"arguments": each["arguments"][:_ARGUMENTS_CHARACTERS_MAX]} for each in message["calls"]],
        "results": [each | {"text": each["text"][:_TEXT_CHARACTERS_MAX]} for each in message["results"]],
    }
