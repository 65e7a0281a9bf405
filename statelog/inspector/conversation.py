"""Messages of a state as one conversation, whatever framework wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statelog.display.graphs import is_graph, shown_names
from statelog.display.lines import written
from statelog.display.packed import Constructed
from statelog.inspector.deltas import delta_channels, delta_items
from statelog.search.messages import make_message, message_of, opened

if TYPE_CHECKING:
    from statelog import Checkpoint, Store
    from statelog.search.messages import Message

_TEXT_CHARACTERS_MAX = 8000
_ARGUMENTS_CHARACTERS_MAX = 4000
_PROBED = 3
"""Items of a list in which a message is looked for."""


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
                        _cut(message or _other(item)) for message, item in zip(messages, items[start:end], strict=True)
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
    """Return a message with texts of the length that the page shows. `size` stays that of the whole text."""
    return message | {
        "text": message["text"][:_TEXT_CHARACTERS_MAX],
        "calls": [each | {"arguments": each["arguments"][:_ARGUMENTS_CHARACTERS_MAX]} for each in message["calls"]],
        "results": [each | {"text": each["text"][:_TEXT_CHARACTERS_MAX]} for each in message["results"]],
    }
