"""LangGraph threads in the shell: the head that LangGraph shows, messages instead of bytes, and no inner channels."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("langgraph.graph", reason="needs langgraph")

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import statelog
from statelog.adapters.langgraph import StatelogSaver


def graph_of(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [AIMessage("re: " + state["messages"][-1].content)]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


CONFIG = {"configurable": {"thread_id": "1"}}


@pytest.fixture
def travelled(path):
    """Return the ids of the head, the first and the third turn of a graph that went back after three turns."""
    with StatelogSaver.open(path) as saver:
        graph = graph_of(saver)
        turns = []
        for question in ("one", "two", "three"):
            graph.invoke({"messages": [HumanMessage(question)]}, CONFIG)
            turns.append(graph.get_state(CONFIG))
        graph.invoke({"messages": [HumanMessage("another way")]}, turns[0].config)
        places = [graph.get_state(CONFIG).config, turns[0].config, turns[2].config]
    return path, *[place["configurable"]["checkpoint_id"] for place in places]


def test_each_command_uses_the_head_that_langgraph_shows(run, travelled):
    path, head, _first, _third = travelled
    for command in ("show", "history", "diff"):
        answer = run(command, path, "1", "--json")
        document = answer.documents[0]
        assert (document.get("checkpoint") or document.get("new") or document)["id"] == head
    assert run("show", path, "1", "--path", "messages[-1].content").out == "re: another way\n"
    assert run("tag", path, "1", "here", "--json").document["checkpoint"]["id"] == head
    assert run("fork", path, "1", "mine", "--json").document["base"]["id"] == head


def test_history_shows_node_text_step_and_source(run, travelled):
    path, _head, _first, third = travelled
    answer = run("history", path, "1", "--absolute")
    assert answer.out.splitlines()[0].split() == ["version", "time", "node", "said", "step", "source"]
    told = [" ".join(line.split()[3:]) for line in answer.out.splitlines()[1:]]
    assert told == [
        "answer ai: re: another way 4 loop",
        "human: another way 3 loop",
        "human: another way 2 input",
        "answer ai: re: one 1 loop",
        "human: one 0 loop",
        "human: one -1 input",
    ]
    assert f"--branch {third}" in answer.err.replace("\n", " ")
    inner = run("history", path, "1", "--inner")
    assert "metadata" in inner.out
    assert "channels wri" in inner.out


def test_another_line_is_selected_by_its_checkpoint(run, travelled):
    path, _head, first, third = travelled
    for place in (("--branch", third), ("--at", third), ("--at", f"id:{third}")):
        assert run("show", path, "1", *place, "--path", "messages[-1].content").out == "re: three\n"
    assert run("show", path, "1", "--branch", "main", "--path", "messages[-1].content").out == "re: three\n"
    assert run("diff", path, "1", first, third).code == 0
    answer = run("show", path, "1", "--branch", third[:-1])
    assert (answer.code, "has no branch" in answer.err) == (3, True)


def test_inner_channels_are_shown_with_the_option(run, travelled):
    path, _head, _first, _third = travelled
    assert "langgraph:checkpoint" not in run("show", path, "1").out
    assert "langgraph:checkpoint" in run("show", path, "1", "--inner").out
    assert "langgraph:checkpoint" in run("show", path, "1", "--json").document["value"]
    assert run("show", path, "1", "--path", "langgraph:checkpoint").code == 0
    assert "langgraph" not in run("diff", path, "1").out
    assert "langgraph:checkpoint" in run("diff", path, "1", "--inner").out
    assert "writes" not in run("tree", path, "1").out
    assert "writes" in run("tree", path, "1", "--inner").out
    assert "Packed" not in run("show", path, "1", "--full").out


def test_the_tree_names_lines_by_their_last_checkpoints(run, travelled):
    path, head, _first, third = travelled
    out = run("tree", path, "1").out
    assert f"{head}, shown by LangGraph" in out
    assert f"{third}\n" in out
    assert "main" not in out


def test_a_rollback_changes_the_checkpoint_that_langgraph_shows(run, travelled):
    path, head, first, third = travelled
    answer = run("rollback", path, "1", third)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("LangGraph continues from checkpoint ")
    assert f"a copy of {third}" in answer.out.replace("\n", " ")
    with StatelogSaver.open(path) as saver:
        graph = graph_of(saver)
        assert graph.get_state(CONFIG).values["messages"][-1].content == "re: three"
        graph.invoke({"messages": [HumanMessage("on")]}, CONFIG)
        assert len(graph.get_state(CONFIG).values["messages"]) == 8
    assert run("rollback", path, "1", "-1", "--expected-version", 0).code == 4
    assert run("rollback", path, "1", head).code == run("rollback", path, "1", first).code == 0
    assert run("show", path, "1", "--path", "messages[-1].content").out == "re: one\n"


def test_a_rollback_that_langgraph_would_not_see_is_refused(run, path):
    with StatelogSaver.open(path) as saver:
        checkpoint = {"v": 1, "id": "a", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
        saver.put(CONFIG, checkpoint, {"source": "loop", "step": 0}, {})
    answer = run("rollback", path, "1", "a")
    assert (answer.code, "graph.update_state(" in answer.err) == (2, True)


def test_a_thread_without_checkpoints_is_reported(run, path):
    with StatelogSaver.open(path) as saver:
        graph_of(saver).invoke({"messages": [HumanMessage("one")]}, CONFIG)
        saver.prune(["1"], strategy="delete")
    answer = run("show", path, "1")
    assert (answer.code, "has removed all" in answer.err) == (3, True)
    assert run("history", path, "1").code == run("tree", path, "1").code == 0


def test_tool_calls_and_content_blocks_are_shown(run, path):
    call = {"name": "search", "args": {"q": "x"}, "id": "c", "type": "tool_call"}
    builder = StateGraph(MessagesState)
    builder.add_node("think", lambda _state: {"messages": [AIMessage("", tool_calls=[call])]})
    builder.add_node("tell", lambda _state: {"messages": [AIMessage([{"type": "text", "text": "found\nit \x1b[31m"}])]})
    builder.add_edge(START, "think")
    builder.add_edge("think", "tell")
    with StatelogSaver.open(path) as saver:
        builder.compile(checkpointer=saver).invoke({"messages": [HumanMessage("go")]}, CONFIG)
    out = run("history", path, "1").out
    assert "ai: calls search" in out
    assert "\x1b" not in out
    assert "found\\nit" in out


UNREGISTERED = """
import sys
sys.modules["langgraph"] = sys.modules["langchain_core"] = None
import statelog
with statelog.open(sys.argv[1], read_only=True) as store:
    thread = store.thread("1", branch=sys.argv[2])
    change = statelog.diff(thread.at(-2), thread.head)
    for each in (thread, thread.head, thread.state, thread.state.lazy["messages"], change):
        print(repr(each), each._repr_html_())
    assert "statelog.adapters.kit.packed" not in sys.modules
    try:
        thread.state["messages"][0]
    except statelog.UsageError as error:
        print(error)
    import statelog.adapters.langgraph
    print(thread.state["messages"][-1])
    print(store.thread("1").state)
"""


def test_a_process_without_the_adapter_shows_messages_and_names_the_import(travelled):
    path, *_ids = travelled
    with statelog.open(path, read_only=True) as store:
        branch = store.thread("1").head.branch
    told = subprocess.run(
        [sys.executable, "-c", UNREGISTERED, str(path), branch], capture_output=True, text=True, check=True
    ).stdout
    assert "AIMessage(content='re: another way'" in told
    assert "UsageError" not in told
    assert "msgpack" not in told.replace("codec 'msgpack'", "")
    assert "`import statelog.adapters.langgraph` registers it" in told
    assert "langgraph:checkpoint" not in told.splitlines()[0]
    assert "langgraph:checkpoint" not in told.splitlines()[-1]


def test_bytes_that_name_a_module_do_not_import_it(path, run, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import ormsgpack

    from statelog.adapters.kit.packed import Packed

    inner = ormsgpack.packb(["trap", "Thing", {"content": "hello", "type": "ai"}, "method"])
    with statelog.open(path) as store:
        store.thread("own").commit({"x": Packed(ormsgpack.packb(ormsgpack.Ext(5, inner)))})
        assert "Thing(content='hello'" in repr(store.thread("own").state)
    assert "Thing(content='hello'" in run("show", path, "own").out
    assert "trap" not in sys.modules


def test_a_negative_version_in_a_diff_counts_from_the_end_of_its_line(run, travelled):
    path, head, first, third = travelled
    document = run("diff", path, "1", f"{third}@-2", third, "--json").document
    assert (document["old"]["version"], document["new"]["id"]) == (document["new"]["version"] - 1, third)
    assert run("diff", path, "1", f"{third}@", head, "--json").document["old"]["id"] == third
    assert run("diff", path, "1", f"{third}@{first}", third, "--json").document["old"]["id"] == first
    refused = run("diff", path, "1", f"{third}@-99", third)
    assert refused.code != 0
    assert "no checkpoint -99" in refused.err
    refused = run("diff", path, "1", f"{third[:-1]}x@-2", third)
    assert refused.code != 0
    assert "no branch of that name either" in refused.err


def test_a_checkpoint_id_selects_its_line(travelled):
    path, head, first, third = travelled
    with statelog.open(path) as store:
        line = store.thread("1", branch=third)
        assert (line.branch, line.head.id) == ("main", third)
        assert store.thread("1", branch=first).head.id == third  # The line of that checkpoint.
        assert store.thread("1").checkout(head).head.id == head
        for branch in ("no-such", f"{third}0", "2026-01-01"):
            with pytest.raises(statelog.errors.BranchNotFoundError, match=branch):
                store.thread("1", branch=branch)
        other = store.thread("other")
        made = other.commit({"n": 1}, id="mine")
        with pytest.raises(statelog.errors.BranchNotFoundError):
            store.thread("other", branch=made.id)


def test_history_omits_pruned_checkpoints_that_another_line_needs(run, travelled):
    path, head, first, _third = travelled
    with StatelogSaver.open(path) as saver:
        versions = [each.version for each in saver.store.thread("1").history()]
        saver.prune(["1"])
        thread = saver.store.thread("1")
        assert [each.id for each in thread.history() if each.version] == [head]
        assert [each.id for each in thread.history(1)] == [head]
        assert first in [each.id for each in saver.store.thread("1", branch=thread.head.branch).history()]
        assert thread.at(first).id == first
        with pytest.raises(statelog.UsageError):
            thread.history(-1)
    rows = run("history", path, "1", "--json").documents
    assert [row["id"] for row in rows if row["version"]] == [head]
    rows = run("history", path, "1", "--branch", head, "--json").documents
    assert first in [row["id"] for row in rows]
    assert len(versions) > 4


def test_a_thread_whose_checkpoints_are_all_removed_has_no_history(run, travelled):
    path, *_ids = travelled
    with StatelogSaver.open(path) as saver:
        assert len([*saver.store.thread("1").history()]) > 1
        saver.prune(["1"], strategy="delete")
        thread = saver.store.thread("1")
        assert (thread.head, thread.version, [*thread.history()]) == (None, -1, [])
        with pytest.raises(statelog.UsageError):
            thread.history(before="x")
        assert len([*thread.checkout("main").history()]) > 1
    assert run("history", path, "1", "--json").documents == []
