"""Tools: a model searches, remembers and forgets, and is told what it got wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

import statelog
from statelog import Memory
from statelog.errors import UsageError


@pytest.fixture
def memory(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        made = Memory(store, "user/42")
        made.remember("is vegan", key="diet", source="chat-7")
        yield made


def test_a_search_returns_facts_for_the_model(memory):
    tool = memory.tool(framework="json")
    (fact,) = json.loads(tool('{"query": "vegan", "limit": 5}'))["facts"]
    assert (fact["key"], fact["text"], fact["source"]) == ("diet", "is vegan", "chat-7")


def test_a_model_remembers_and_forgets(memory):
    tool = memory.tool("manage", framework="json")
    tool({"action": "remember", "text": "eats fish", "key": "diet"})
    assert memory.get("diet").text == "eats fish"
    assert json.loads(tool({"action": "forget", "text": None, "key": "diet"})) == {"forgotten": "diet"}
    assert memory.history("diet") == []


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("search", "{"),
        ("search", "[]"),
        ("search", {}),
        ("search", {"query": "x", "limit": "many"}),
        ("manage", {}),
        ("manage", {"action": "delete", "text": None, "key": "diet"}),
        ("manage", {"action": "forget", "text": None, "key": "*"}),
        ("manage", {"action": "forget", "text": None, "key": "nothing"}),
        ("manage", {"action": "remember", "text": "", "key": None}),
        ("manage", {"action": "remember", "text": "x", "key": "long" * 200}),
    ],
)
def test_wrong_arguments_of_a_model_are_answered_with_an_error(memory, action, arguments):
    assert "error" in json.loads(memory.tool(action, framework="json")(arguments))
    assert memory.get("diet").text == "is vegan"


def test_the_schema_is_that_of_a_strict_function(memory):
    for action in ("search", "manage"):
        schema = memory.tool(action, framework="json").schema["function"]
        assert schema["strict"]
        assert {*schema["parameters"]["required"]} == {*schema["parameters"]["properties"]}


@pytest.mark.parametrize("more", [{"action": "write"}, {"framework": "crewai"}])
def test_a_tool_that_does_not_exist_is_refused(memory, more):
    with pytest.raises(UsageError):
        memory.tool(**more)


def test_langgraph_runs_the_tools(memory):
    pytest.importorskip("langchain_core")
    search, manage = memory.tool(), memory.tool("manage")
    assert search.name == "search_memory"
    manage.invoke({"action": "remember", "text": "eats fish", "key": "diet"})
    assert "eats fish" in search.invoke({"query": "fish", "limit": 3})
    call = {"name": search.name, "args": {"query": "fish", "limit": 3}, "id": "c1", "type": "tool_call"}
    assert "eats fish" in search.invoke(call).content
    assert "eats fish" in asyncio.run(search.ainvoke({"query": "fish", "limit": 3}))


def test_the_agents_sdk_runs_the_tools(memory):
    agents = pytest.importorskip("agents")
    tool = memory.tool(framework="openai")
    assert isinstance(tool, agents.FunctionTool)
    assert "is vegan" in asyncio.run(tool.on_invoke_tool(None, '{"query": "vegan", "limit": 3}'))
