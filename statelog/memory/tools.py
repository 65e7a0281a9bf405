"""Tools with which a model searches a memory and changes it, for LangGraph, the OpenAI Agents SDK, and plain JSON."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal, Protocol

from statelog.errors import NotFoundError, StatelogError, UsageError

if TYPE_CHECKING:
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
            "description": "What the fact is about, such as 'diet'. A new fact replaces the former one of its key."
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
    """What a tool uses of a memory."""

    def remember(self, text: str, *, key: str | None = None) -> Fact: ...
    def recall(self, query: str, *, limit: int = 5) -> list[Fact]: ...
    def forget(self, key: str) -> bool: ...


class MemoryTool:
    """A tool as a JSON schema and a function: what any framework or API needs.

    Attributes:
        name: `search_memory` or `manage_memory`.
        description: what the tool does, for the model.
        parameters: the JSON schema of the arguments. It is strict: each property is required, and no other is allowed.
    """

    def __init__(self, memory: _Remembers, action: Action) -> None:
        if action not in _ABOUT:
            message = f"action must be 'search' or 'manage', not {action!r}"
            raise UsageError(message, argument="action", value=action)
        self._memory = memory
        self._action = action
        self.name, self.description, self.parameters = _ABOUT[action]

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as `tools=[...]` of OpenAI's chat completions takes it."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters, "strict": True}
        return {"type": "function", "function": about}

    def __call__(self, arguments: str | dict[str, Any]) -> str:
        """Run the tool with a model's arguments, a dict or JSON. Return the answer for the model, as JSON.

        Arguments that a model got wrong are answered with an error for the model. Nothing is raised for them.
        """
        try:
            given = _object(json.loads(arguments) if isinstance(arguments, str) else arguments)
            answer = self._search(given) if self._action == "search" else self._manage(given)
        except (json.JSONDecodeError, UsageError) as error:
            answer = {"error": error.message if isinstance(error, StatelogError) else str(error)}
        return json.dumps(answer, ensure_ascii=False, default=str)

    def _search(self, given: dict[str, Any]) -> dict[str, Any]:
        limit = given.get("limit") or 5
        if type(limit) is not int or limit < 1:
            message = f"limit must be an int from 1 to {_LIMIT_MAX}, not {limit!r}"
            raise UsageError(message, argument="limit", value=limit)
        found = self._memory.recall(given.get("query") or "", limit=min(limit, _LIMIT_MAX))
        return {"facts": [_shown(fact) for fact in found]}

    def _manage(self, given: dict[str, Any]) -> dict[str, Any]:
        action, key = given.get("action"), given.get("key")
        if action == "remember":
            return {"remembered": _shown(self._memory.remember(given.get("text") or "", key=key))}
        if action != "forget":
            message = f"action must be 'remember' or 'forget', not {action!r}"
            raise UsageError(message, argument="action", value=action)
        if not self._memory.forget(key or ""):
            message = f"there is no fact with the key {key!r}"
            raise NotFoundError(message, key=key)
        return {"forgotten": key}


def make_tool(memory: _Remembers, action: Action, framework: Framework) -> Any:
    """Return a tool for a framework. See `Memory.tool`."""
    tool = MemoryTool(memory, action)
    if framework == "json":
        return tool
    if framework == "openai":
        return _for_openai(tool)
    if framework == "langgraph":
        return _for_langgraph(tool)
    message = f"framework must be 'langgraph', 'openai' or 'json', not {framework!r}"
    raise UsageError(message, argument="framework", value=framework)


def _for_langgraph(tool: MemoryTool) -> Any:
    try:
        from langchain_core.tools import StructuredTool
    except ModuleNotFoundError as error:
        message = "a tool for LangGraph needs LangChain: pip install 'statelog[langgraph]'"
        raise ModuleNotFoundError(message, name="langchain_core") from error

    def run(**arguments: Any) -> str:
        return tool(arguments)

    return StructuredTool.from_function(run, name=tool.name, description=tool.description, args_schema=tool.parameters)


def _for_openai(tool: MemoryTool) -> Any:
    try:
        from agents import FunctionTool
    except ModuleNotFoundError as error:
        message = "a tool for the Agents SDK needs it: pip install 'statelog[openai-agents]'"
        raise ModuleNotFoundError(message, name="agents") from error

    async def invoke(_context: Any, arguments: str) -> str:
        return await asyncio.to_thread(tool, arguments)

    return FunctionTool(tool.name, tool.description, tool.parameters, invoke)


def _object(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        message = "the arguments must be an object"
        raise UsageError(message, argument="arguments", value=given)
    return given


def _shown(fact: Fact) -> dict[str, Any]:
    return {"key": fact.key, "text": fact.text, "since": fact.valid_from.isoformat(), "source": fact.source}
