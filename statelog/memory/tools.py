"""Tools that let a model search and change a memory, for LangGraph, the OpenAI Agents SDK, and plain JSON."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from statelog.errors import EmbeddingError, LimitError, NotFoundError, StatelogError, StoreFullError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.memory.timeline import Fact

Action = Literal["search", "manage"]
Framework = Literal["langgraph", "openai", "json"]

_LIMIT_MAX = 20

_SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, as a question or as words."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": _LIMIT_MAX,
            "description": "The maximum number of facts to return. 5 is usual.",
        },
    },
    "required": ["query", "limit"],
    "additionalProperties": False,
}
_MANAGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["remember", "forget"], "description": "What to do with the fact."},
        "text": {"type": ["string", "null"], "description": "The fact as a sentence. Null to forget."},
        "key": {
            "type": ["string", "null"],
            "description": "What the fact is about, such as 'diet'. A new fact replaces the previous one of its key."
            " Null for a fact that replaces none. Required to forget.",
        },
    },
    "required": ["action", "text", "key"],
    "additionalProperties": False,
}
_ABOUT = {
    "search": ("search_memory", "Search what is remembered from earlier conversations.", _SEARCH),
    "manage": (
        "manage_memory",
        "Remember a fact for later conversations, or forget one if the user asks for that.",
        _MANAGE,
    ),
}


class _Remembers(Protocol):
    """The part of a memory that tools use. The methods of an async memory return awaitables."""

    def remember(self, text: str, *, key: str | None = None) -> Any: ...
    def recall(self, query: str, *, limit: int = 5) -> Any: ...
    def forget(self, key: str) -> Any: ...


class _ToolCall(NamedTuple):
    """A request from a model to a memory."""

    run: Callable[[], Any]
    """A function that calls the memory."""
    shown: Callable[[Any], dict[str, Any]]
    """A function that converts the result to the answer for the model. Raises NotFoundError."""


class _Tool:
    """What sync and async tools share."""

    def __init__(self, memory: _Remembers, action: Action) -> None:
        if action not in _ABOUT:
            message = f"action must be 'search' or 'manage', not {action!r}"
            raise UsageError(message, argument="action", value=action)
        self._memory = memory
        self._action = action
        self.name, self.description, self.parameters = _ABOUT[action]

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the format of the argument `tools=[...]` of OpenAI's chat completions."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters, "strict": True}
        return {"type": "function", "function": about}

    def _call(self, arguments: str | dict[str, Any]) -> _ToolCall:
        given = _object(json.loads(arguments) if isinstance(arguments, str) else arguments)
        return self._search(given) if self._action == "search" else self._manage(given)

    def _search(self, given: dict[str, Any]) -> _ToolCall:
        limit = given.get("limit") or 5
        if type(limit) is not int or limit < 1:
            message = f"limit must be an int from 1 to {_LIMIT_MAX}, not {limit!r}"
            raise UsageError(message, argument="limit", value=limit)
        recall = partial(self._memory.recall, given.get("query") or "", limit=min(limit, _LIMIT_MAX))
        return _ToolCall(recall, lambda found: {"facts": [_shown(fact) for fact in found]})

    def _manage(self, given: dict[str, Any]) -> _ToolCall:
        action, key = given.get("action"), given.get("key")
        if action == "remember":
            remember = partial(self._memory.remember, given.get("text") or "", key=key)
            return _ToolCall(remember, lambda fact: {"remembered": _shown(fact)})
        if action != "forget":
            message = f"action must be 'remember' or 'forget', not {action!r}"
            raise UsageError(message, argument="action", value=action)

        def shown(was_there: Any) -> dict[str, Any]:
            if not was_there:
                message = f"there is no fact with the key {key!r}"
                raise NotFoundError(message, key=key)
            return {"forgotten": key}

        return _ToolCall(partial(self._memory.forget, key or ""), shown)


class MemoryTool(_Tool):
    """A tool that consists of a JSON schema and a function, for any framework or API.

    Attributes:
        name: `search_memory` or `manage_memory`.
        description: what the tool does, for the model.
        parameters: the JSON schema of the arguments. It is strict: each property is required, and no other property is
            allowed.
    """

    def __call__(self, arguments: str | dict[str, Any]) -> str:
        """Run the tool with a model's arguments, which are a dict or JSON. Return the answer for the model as JSON.

        For invalid or too large arguments, and for a failed embedding, the answer is an error message for the model. No
        exception is raised.
        """
        try:
            call = self._call(arguments)
            answer = call.shown(call.run())
        except StoreFullError:
            raise
        except _ANSWERED as error:
            answer = _error_shown(error)
        return json.dumps(answer, ensure_ascii=False, default=str)


class AsyncMemoryTool(_Tool):
    """A `MemoryTool` of a `statelog.aio.Memory`, whose calls are awaited."""

    async def __call__(self, arguments: str | dict[str, Any]) -> str:
        """See `MemoryTool`."""
        try:
            call = self._call(arguments)
            answer = call.shown(await call.run())
        except StoreFullError:
            raise
        except _ANSWERED as error:
            answer = _error_shown(error)
        return json.dumps(answer, ensure_ascii=False, default=str)


_ANSWERED = (json.JSONDecodeError, UsageError, LimitError, EmbeddingError)
"""The errors that a model can handle, or report to the user."""


def _error_shown(error: Exception) -> dict[str, Any]:
    return {"error": error.message if isinstance(error, StatelogError) else str(error)}


def make_tool(memory: _Remembers, action: Action, framework: Framework, *, is_async: bool = False) -> Any:
    """Return a tool for a framework. See `Memory.tool`."""
    tool: MemoryTool | AsyncMemoryTool = (AsyncMemoryTool if is_async else MemoryTool)(memory, action)
    if framework == "json":
        return tool
    if framework == "openai":
        return _for_openai(tool)
    if framework == "langgraph":
        return _for_langgraph(tool)
    message = f"framework must be 'langgraph', 'openai' or 'json', not {framework!r}"
    raise UsageError(message, argument="framework", value=framework)


def _for_langgraph(tool: MemoryTool | AsyncMemoryTool) -> Any:
    try:
        from langchain_core.tools import StructuredTool
    except ModuleNotFoundError as error:
        message = "a tool for LangGraph needs LangChain: pip install 'statelog[langgraph]'"
        raise ModuleNotFoundError(message, name="langchain_core") from error

    about: dict[str, Any] = {"name": tool.name, "description": tool.description, "args_schema": tool.parameters}
    if isinstance(tool, AsyncMemoryTool):

        async def run_async(**arguments: Any) -> str:
            return await tool(arguments)

        return StructuredTool.from_function(coroutine=run_async, **about)

    def run(**arguments: Any) -> str:
        return tool(arguments)

    return StructuredTool.from_function(run, **about)


def _for_openai(tool: MemoryTool | AsyncMemoryTool) -> Any:
    try:
        from agents import FunctionTool
    except ModuleNotFoundError as error:
        message = "a tool for the Agents SDK needs openai-agents: pip install 'statelog[openai-agents]'"
        raise ModuleNotFoundError(message, name="agents") from error

    async def invoke(_context: Any, arguments: str) -> str:
        return await (tool(arguments) if isinstance(tool, AsyncMemoryTool) else asyncio.to_thread(tool, arguments))

    return FunctionTool(tool.name, tool.description, tool.parameters, invoke)


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        message = "the arguments must be an object"
        raise UsageError(message, argument="arguments", value=given)
    return given


def _shown(fact: Fact) -> dict[str, Any]:
    return {"key": fact.key, "text": fact.text, "since": fact.valid_from.isoformat(), "source": fact.source}
