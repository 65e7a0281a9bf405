"""Typical applications with five packages, and with models that always give the same answers.

`python applications.py NAME STORE CALL` runs two turns in a process that is killed at that call of a model.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from histories import config
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

RECURSION_MAX = 60


class Model(BaseChatModel):
    """A model that calls the tools of its script one after the other in each turn, and then answers."""

    name: str = "agent"
    script: tuple = ()
    """Of each call: a tool, and its arguments."""
    kill_at: Any = ()
    """The number of calls before the process kills itself, in a list that models share. Empty for no kill."""

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, _tools, **_options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_options):  # noqa: ARG002 - of the base
        if self.kill_at:
            self.kill_at[0] -= 1
            if not self.kill_at[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _answer(self, messages):
        asked = 0
        names = {name for name, _arguments in self.script}
        for message in reversed(messages):
            if message.type == "human":
                break
            asked += sum(call["name"] in names for call in getattr(message, "tool_calls", None) or ())
        if asked >= len(self.script):
            return AIMessage(f"{self.name} has read {len(messages)}. " + "So it is. " * 20)
        name, arguments = self.script[asked]
        call = {"name": name, "args": arguments, "id": f"{self.name}-{name}-{len(messages)}"}
        return AIMessage("", tool_calls=[call])


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"of {what}: " + "a line of what was found\n" * 30


@tool
def pay(amount: int) -> str:
    """Pay, once a person has approved it."""
    return f"paid {amount}"


def agent(kill_at, **savers):
    model = Model(script=(("look", {"what": "prices"}), ("pay", {"amount": 7})), kill_at=kill_at)
    return create_agent(model, [look, pay], middleware=[HumanInTheLoopMiddleware({"pay": True})], **savers)


def deep(kill_at, **savers):
    from deepagents import create_deep_agent

    helper = {
        "name": "helper",
        "description": "helps",
        "system_prompt": "help",
        "model": Model(name="helper", script=(("look", {"what": "details"}),), kill_at=kill_at),
        "tools": [look],
    }
    task = {"description": "find it", "subagent_type": "helper"}
    written = {"file_path": "/notes.md", "content": "what was found\n" * 20}
    script = (("write_file", written), ("task", task), ("look", {"what": "more"}))
    return create_deep_agent(model=Model(script=script, kill_at=kill_at), tools=[look], subagents=[helper], **savers)


def _helpers(kill_at, **tools):
    return [
        create_agent(
            Model(name=name, script=(("look", {"what": name}), *more), kill_at=kill_at), [look, *given], name=name
        )
        for name, (given, more) in tools.items()
    ]


def supervisor(kill_at, **savers):
    from langgraph_supervisor import create_supervisor

    script = (("transfer_to_reader", {}), ("transfer_to_writer", {}))
    model = Model(name="supervisor", script=script, kill_at=kill_at)
    helpers = _helpers(kill_at, reader=((), ()), writer=((), ()))
    return create_supervisor(helpers, model=model, output_mode="full_history").compile(**savers)


def swarm(kill_at, **savers):
    from langgraph_swarm import create_handoff_tool, create_swarm

    to_writer = create_handoff_tool(agent_name="writer")
    helpers = _helpers(kill_at, reader=((to_writer,), ((to_writer.name, {}),)), writer=((), ()))
    return create_swarm(helpers, default_active_agent="reader").compile(**savers)


def memory(kill_at, **savers):
    from langmem import create_manage_memory_tool, create_search_memory_tool

    manage, search = (make(namespace=("memories",)) for make in (create_manage_memory_tool, create_search_memory_tool))
    script = ((manage.name, {"content": "likes tea"}), (search.name, {"query": "tea"}))
    return create_agent(Model(script=script, kill_at=kill_at), [manage, search], **savers)


INDEX = {"dims": 2, "embed": lambda texts: [[1.0, 0.0] for _text in texts]}

APPLICATIONS = {each.__name__: each for each in (agent, deep, supervisor, swarm, memory)}
PACKAGES = {"deep": "deepagents", "supervisor": "langgraph_supervisor", "swarm": "langgraph_swarm", "memory": "langmem"}


def turn(graph, text, thread="t"):
    """Run a turn to its end, and approve all questions to a person."""
    from langgraph.types import Command

    options = {**config(thread), "recursion_limit": RECURSION_MAX}
    given = None if text is None else {"messages": [("user", text)]}
    result = graph.invoke(given, options, durability="sync")
    while graph.get_state(config(thread)).interrupts:
        result = graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), options, durability="sync")
    return result


def told(value):
    """Return the content of a value without random ids."""
    if isinstance(value, BaseMessage):
        return (value.type, str(value.content), value.name, str(getattr(value, "tool_calls", None)))
    if isinstance(value, dict):
        return {key: told(member) for key, member in value.items() if key not in ("created_at", "modified_at")}
    if isinstance(value, list | tuple):
        return [told(member) for member in value]
    return str(value)


if __name__ == "__main__":
    from statelog.adapters.langgraph import StatelogSaver, StatelogStore

    name, path, call = sys.argv[1:]
    with StatelogSaver.open(path) as saver:
        made = APPLICATIONS[name]([int(call)], checkpointer=saver, store=StatelogStore(saver.store, index=INDEX))
        for number in range(2):
            turn(made, f"question {number}")
