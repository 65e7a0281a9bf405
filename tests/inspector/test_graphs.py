"""Threads of LangGraph: their conversation, also of delta channels, and a rollback that LangGraph sees."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

import statelog
from statelog.cli import main
from statelog.inspector.export import export_html
from statelog.inspector.server import make_app

pytest.importorskip("langgraph", reason="LangGraph is not installed")

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from statelog.adapters.langgraph import StatelogSaver

HOST = "127.0.0.1:7777"
WRITE = {"x-statelog": "1", "origin": f"http://{HOST}"}


def client_of(store):
    client = TestClient(make_app(store, token="t", host=HOST), base_url=f"http://{HOST}", headers=WRITE)
    client.cookies.set("statelog-7777", "t")
    return client


def texts(client, **query):
    (channel,) = client.get("/api/thread/messages", params=query).json()["channels"]
    return [(each["role"], each["text"]) for each in channel["messages"]]


def built(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", f"answer {len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def test_the_graph_continues_from_a_rollback_by_the_page(path):
    config = {"configurable": {"thread_id": "t"}}
    with StatelogSaver.open(path) as saver:
        graph = built(saver)
        for question in ("one", "two"):
            graph.invoke({"messages": [("user", question)]}, config)
    with statelog.open(path) as store:
        client = client_of(store)
        assert [text for _role, text in texts(client, id="t")] == ["one", "answer 1", "two", "answer 3"]
        shown = client.get("/api/thread", params={"id": "t"}).json()
        early = next(
            each["version"]
            for each in client.get("/api/thread/versions", params={"id": "t"}).json()["versions"]
            if each.get("graph") and each["graph"][:3] == ["answer", "ai: answer 1", "1"]
        )
        asked = {"id": "t", "branch": shown["branch"], "version": early, "expected_version": shown["version"]}
        made = client.post("/api/thread/rollback", json=asked)
        assert made.status_code == 200, made.text
        assert client.get("/api/thread", params={"id": "t"}).json()["version"] == made.json()["version"]
    with StatelogSaver.open(path) as saver:
        graph = built(saver)
        assert [each.content for each in graph.get_state(config).values["messages"]] == ["one", "answer 1"]
        graph.invoke({"messages": [("user", "three")]}, config)
        assert [each.content for each in graph.get_state(config).values["messages"]][-2:] == ["three", "answer 3"]


def test_an_edit_that_langgraph_would_not_see_is_refused(path):
    with StatelogSaver.open(path) as saver:
        built(saver).invoke({"messages": [("user", "one")]}, {"configurable": {"thread_id": "t"}})
    with statelog.open(path) as store:
        edit = {"channel": "messages", "path": [0], "json": "1"}
        answer = client_of(store).post("/api/thread/fork", json={"id": "t", "name": "edited", "edit": edit})
        assert answer.status_code == 400
        assert "update_state" in answer.json()["message"]
        assert "edited" not in [branch.name for branch in store.thread("t").branches()]


class _Model(GenericFakeChatModel):
    def bind_tools(self, _tools, **_options):
        return self


@pytest.mark.filterwarnings("ignore")
def test_messages_of_delta_channels_are_those_of_the_graph(path):
    create_deep_agent = pytest.importorskip("deepagents", reason="deepagents is not installed").create_deep_agent

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
    said = iter([AIMessage("let me add", tool_calls=[call]), AIMessage("it is 3"), AIMessage("bye")])
    config = {"configurable": {"thread_id": "deep"}}
    with StatelogSaver.open(path) as saver:
        graph = create_deep_agent(model=_Model(messages=said), tools=[add], checkpointer=saver)
        for question in ("what is 1 + 2?", "thanks"):
            graph.invoke({"messages": [("user", question)]}, config)
        whole = graph.get_state(config).values["messages"]
        histories = {each.config["configurable"]["checkpoint_id"]: each for each in graph.get_state_history(config)}
    with statelog.open(path, read_only=True) as store:
        client = client_of(store)
        assert [text for _role, text in texts(client, id="deep")] == [
            "" if each.type == "tool" else each.content for each in whole
        ]
        state = client.get("/api/thread/version", params={"id": "deep", "part": "state"}).json()["state"]
        assert "messages" in state["deltas"]
        assert len(dict(state["items"])["messages"]["items"]) == len(whole)
        part = client.get("/api/thread/value", params={"id": "deep", "channel": "messages", "path": "0"}).json()
        assert "what is 1 + 2?" in str(part)
        rows = client.get("/api/thread/versions", params={"id": "deep"}).json()["versions"]
        for row in rows:
            expected = histories[row["id"]].values.get("messages", []) if row["id"] in histories else []
            channels = client.get("/api/thread/messages", params={"id": "deep", "version": row["version"]}).json()
            found = channels["channels"][0]["messages"] if channels["channels"] else []
            assert len(found) == len(expected), row
        added = [
            change["new"]
            for row in reversed(rows)
            for change in client.get("/api/thread/diff", params={"id": "deep", "version": row["version"]}).json()[
                "changes"
            ]
            if change["path"][0] == "messages"
        ]
        assert len(added) == len(whole)
        assert "it is 3" in str(added[3])
        text = export_html(store, store.thread("deep"))
        assert text.count('"kind":"added"') > 0
    told = CliRunner().invoke(main, ["diff", str(path), "deep", "1"]).output
    assert f"messages: {len(whole)} added" in told
