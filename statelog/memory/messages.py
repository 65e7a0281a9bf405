"""Finds the messages of a conversation that belong together, in the formats of OpenAI, Anthropic and LangChain.

A model refuses a conversation that has a tool call without its answer, or an answer without its call. So a window or a
summary includes either all messages that belong together, or none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from statelog.errors import UsageError
from statelog.format import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CALL_TYPES = ("tool_use", "server_tool_use", "function_call", "custom_tool_call", "computer_call")
"""Types of Anthropic's content blocks and of OpenAI's items that are calls."""
_SYSTEM = ("system", "developer")
_BYTES_PER_TOKEN = 4


def stored_message(message: Any) -> dict[str, Any]:
    """Convert a message to a dict for storage.

    A LangChain message becomes the result of `message_to_dict`, which `messages_from_dict` reverses. A pydantic model
    becomes a dict of its fields.

    Raises:
        UsageError: the message has an unsupported type.
    """
    core = sys.modules.get("langchain_core.messages")
    if core is not None and isinstance(message, core.BaseMessage):
        made: dict[str, Any] = core.message_to_dict(message)
        return made
    if isinstance(message, Mapping):
        return dict(message)
    if hasattr(message, "model_dump") and not isinstance(message, type):
        return dict(message.model_dump(mode="json", exclude_none=True))
    text = f"a message must be a dict, or a message of LangChain or pydantic, not {type(message).__name__}"
    raise UsageError(text, argument="message", value=message)


def is_system(message: Mapping[str, Any]) -> bool:
    """Return True if a message has instructions for the model, which a window always keeps."""
    return message.get("role") in _SYSTEM or message.get("type") in _SYSTEM


def blocks(messages: Sequence[Mapping[str, Any]]) -> list[range]:
    """Divide messages into runs that must not be separated, and return the positions of each run.

    A call, its answers and everything in between are one run. A reasoning item of OpenAI and the next item are also one
    run. Some models reuse the ids of their calls in each turn, so an answer belongs to the last earlier call with its
    id.
    """
    begins: dict[str, int] = {}
    first_of = list(range(len(messages)))  # For each message, the index of the first message in its run.
    for at, message in enumerate(messages):
        called, answered = _ids(message)
        for each in answered:
            first_of[at] = min(first_of[at], begins.get(each, at))
        for each in called:
            begins[each] = at
        if at and messages[at - 1].get("type") == "reasoning":
            first_of[at] = min(first_of[at], at - 1)
    ends: list[range] = []
    for at in range(len(messages)):
        first = first_of[at]
        while ends and ends[-1].stop > first:
            first = min(first, ends.pop().start)
        ends.append(range(first, at + 1))
    return ends


def _ids(message: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls that a message makes, and the ids of the calls that it answers."""
    data = message.get("data")
    if isinstance(data, Mapping):  # LangChain's `message_to_dict` returns this form.
        message = data
    called = [each.get("id") for name in ("tool_calls", "invalid_tool_calls") for each in _dicts(message.get(name))]
    answered = [message.get("tool_call_id")]
    for part in (message, *_dicts(message.get("content"))):
        kind = part.get("type")
        if kind in _CALL_TYPES:
            called.append(part.get("call_id") or part.get("id"))
        elif isinstance(kind, str) and kind.endswith(("_call_output", "tool_result")):
            answered.append(part.get("call_id") or part.get("tool_use_id"))
    return [each for each in called if isinstance(each, str)], [each for each in answered if isinstance(each, str)]


def _dicts(parts: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(parts, list | tuple):
        yield from (each for each in parts if isinstance(each, Mapping))


def newest_that_fit(
    messages: Sequence[dict[str, Any]], tokens: int, count: Callable[[dict[str, Any]], int]
) -> list[dict[str, Any]]:
    """Return the newest messages that fit into `tokens`, in order. Calls stay with their answers."""
    left, first = tokens, len(messages)
    for block in reversed(blocks(messages)):
        left -= sum(count(messages[at]) for at in block)
        if left < 0:
            break
        first = block.start
    return list(messages[first:])


def cut_before(messages: Sequence[Mapping[str, Any]], keep_last: int) -> int:
    """Return the position before which messages are to be summarized.

    At least `keep_last` messages follow it, and it separates no call from its answer.
    """
    wanted = max(len(messages) - keep_last, 0)
    return max((block.start for block in blocks(messages) if block.start <= wanted), default=0)


def estimate_tokens(message: Mapping[str, Any]) -> int:
    """Estimate the number of tokens in a message: one token for every four bytes."""
    return len(cbor.encode(dict(message))) // _BYTES_PER_TOKEN + 1
