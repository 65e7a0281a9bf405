"""Messages of a conversation, in the shapes of OpenAI, Anthropic and LangChain: which of them belong together.

A model refuses a conversation with a tool call and no answer, or with an answer and no call. So a window or a summary
takes such messages together, or none of them.
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
    """Return a message as a dict to be stored.

    A message of LangChain becomes what `message_to_dict` makes of it, and `messages_from_dict` makes it again. A model
    of pydantic becomes its fields.

    Raises:
        UsageError: it is none of these.
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
    """Return the positions of messages in runs that must not be separated.

    A call, its answers and everything in between are one run. So are a reasoning item of OpenAI and the next item. Some
    models restart the numbers of their calls in each turn. So an answer belongs to the last call before it that has its
    id.
    """
    begins: dict[str, int] = {}
    first_of = list(range(len(messages)))  # For each message, the first one that it cannot be separated from.
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
    """Return the ids of the calls that a message makes, and of those that it answers."""
    data = message.get("data")
    if isinstance(data, Mapping):  # LangChain's `message_to_dict`.
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
    """Return the newest messages that fit into a number of tokens, in their order. Calls stay with their answers."""
    left, first = tokens, len(messages)
    for block in reversed(blocks(messages)):
        left -= sum(count(messages[at]) for at in block)
        if left < 0:
            break
        first = block.start
    return list(messages[first:])


def cut_before(messages: Sequence[Mapping[str, Any]], keep_last: int) -> int:
    """Return the position at which to cut, so that at least `keep_last` messages stay and no call loses its answer."""
    wanted = max(len(messages) - keep_last, 0)
    return max((block.start for block in blocks(messages) if block.start <= wanted), default=0)


def estimate_tokens(message: Mapping[str, Any]) -> int:
    """Return about how many tokens a message has: a token for every four bytes."""
    return len(cbor.encode(dict(message))) // _BYTES_PER_TOKEN + 1
