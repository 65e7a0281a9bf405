#!/usr/bin/env bash
# LangGraph: savers number versions in two ways. A fork under one of them overwrites values, and a thread that is copied
# from it to an official saver cannot go on.
#
# Versions: langgraph 1.2.24, langgraph-checkpoint 4.3.2, langgraph-checkpoint-sqlite 3.1.2,
# langgraph-checkpoint-plainredis 0.1.0, fakeredis 2.41.0, Python 3.12.
#
# The base class of savers numbers the versions of channels 1, 2, 3. The official savers override that with texts that end
# in chance. A saver that does not, and keeps values by channel and version, as RedisSaver of plainredis does, uses the
# same keys for two lines of one thread. After a run from an earlier checkpoint the checkpoints of the older line show the
# messages of the newer one.
#
# Such a thread can be put into SqliteSaver, checkpoint by checkpoint, and reads there as before. The next invoke raises
# TypeError: the saver makes a text of the next version, and LangGraph compares it with the numbers.
#
# We expected versions to be opaque to whoever copies a thread, and a fork to leave the older line as it was.
#
# Output seen:
#   the older line said ['soup', 'soup!', 'bread', 'bread!'], and after a fork ['soup', 'soup!', 'salad', 'salad!']
#   copied to SqliteSaver it says ['soup', 'soup!', 'salad', 'salad!'], and then TypeError: '>' not supported between
#   instances of 'str' and 'int'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q langgraph==1.2.24 langgraph-checkpoint==4.3.2 langgraph-checkpoint-sqlite==3.1.2 \
  langgraph-checkpoint-plainredis==0.1.0 fakeredis==2.41.0
cat > "$folder/probe.py" <<'PY'
import sys
import warnings

warnings.simplefilter("ignore")

import fakeredis  # noqa: E402
from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: E402
from langgraph.graph import START, MessagesState, StateGraph  # noqa: E402
from langgraph_checkpoint_plainredis import RedisSaver  # noqa: E402

THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def graph_on(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", f"{state['messages'][-1].content}!")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def said(graph, config):
    return [message.content for message in graph.get_state(config).values["messages"]]


redis = RedisSaver(client=fakeredis.FakeRedis())
graph = graph_on(redis)
for text in ("soup", "bread"):
    graph.invoke({"messages": [("user", text)]}, THREAD)
older = graph.get_state(THREAD).config
before = said(graph, older)
earlier = [each.config for each in graph.get_state_history(THREAD)][3]
graph.invoke({"messages": [("user", "salad")]}, earlier)
after = said(graph, older)
print(f"the older line said {before}, and after a fork {after}")

failure = None
with SqliteSaver.from_conn_string(":memory:") as sqlite:
    for each in reversed(list(redis.list(THREAD))):
        versions = each.checkpoint["channel_versions"]
        sqlite.put(each.parent_config or THREAD, each.checkpoint, each.metadata, versions)
    copied = said(graph_on(sqlite), THREAD)
    try:
        graph_on(sqlite).invoke({"messages": [("user", "tea")]}, THREAD)
    except TypeError as error:
        failure = str(error)
print(f"copied to SqliteSaver it says {copied}, and then TypeError: {failure}")
newer = ["soup", "soup!", "salad", "salad!"]
is_same = before == ["soup", "soup!", "bread", "bread!"] and after == copied == newer
sys.exit(not (is_same and failure is not None and "'str' and 'int'" in failure))
PY
"$folder/venv/bin/python" "$folder/probe.py"
