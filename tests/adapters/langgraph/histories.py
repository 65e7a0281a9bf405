"""Random histories of calls that LangGraph makes to a saver, and all queries."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Command, Send

THREADS = ("a", "b")
NAMESPACES = ("", "child:1", "child:1|leaf:2")
CHANNELS = ("messages", "x", "langgraph:checkpoint", "späte", "c" * 300)
IDS = [f"1ef{number:05d}-0000-6000-8000-000000000000" for number in range(12)] + ["short", "an/odd~id"]
TASKS = ("task-1", "task-2", "a/b c")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=40),
    st.binary(max_size=40),
)
messages = st.builds(
    lambda kind, text, name, extra: kind(content=text, id=name, additional_kwargs=extra),
    st.sampled_from((AIMessage, HumanMessage)),
    st.text(max_size=120),
    st.none() | st.sampled_from("12345"),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=1),
)
values = st.recursive(
    scalars | messages,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.sets(st.integers(0, 9))
    ),
    max_leaves=8,
)
growing = st.lists(messages | st.text(min_size=30, max_size=80), max_size=30)
"""A new value of a list channel: a part of the former value, and then these items."""

FORMS = {
    "state": lambda items: {"messages": items, "remaining": 3},
    "tool call": lambda items: [Send("tools", {"call": {"id": "1"}, "state": {"messages": items}}), Send("n", 1)],
    "command": lambda items: Command(goto="agent", update={"messages": items, "more": items[:3]}),
    "list": list,
}
"""How a graph passes on its values: to a subgraph, to a tool, to another agent, or as a result."""


class Handed(NamedTuple):
    """The last list of the thread's `messages` with further items, passed on by a node."""

    form: str
    more: list


handed = st.builds(Handed, st.sampled_from(sorted(FORMS)), growing)

metadata = st.fixed_dictionaries(
    {"source": st.sampled_from(("input", "loop", "update", "fork")), "step": st.integers(-1, 9)},
    optional={
        "run_id": st.sampled_from(("run-1", "run-2")),
        "parents": st.dictionaries(st.sampled_from(NAMESPACES), st.sampled_from(IDS), max_size=2),
        "odd' OR 1=1 --": st.text(max_size=5),
        "a.b": st.none() | st.floats(allow_nan=False),
    },
)
edits = st.one_of(
    st.tuples(st.just("append"), growing),
    st.tuples(st.just("trim"), growing),
    st.tuples(st.just("replace"), growing),
    st.tuples(st.just("insert"), growing),
    st.tuples(st.just("set"), values | handed),
    st.tuples(st.just("drop"), st.none()),
)
puts = st.fixed_dictionaries(
    {
        "kind": st.just("put"),
        "thread": st.sampled_from(THREADS),
        "namespace": st.sampled_from(NAMESPACES),
        "id": st.sampled_from(IDS),
        "parent": st.none() | st.sampled_from(IDS),
        "changes": st.dictionaries(st.sampled_from(CHANNELS), edits, max_size=3),
        "metadata": metadata,
    }
)
put_writes = st.fixed_dictionaries(
    {
        "kind": st.just("put_writes"),
        "thread": st.sampled_from(THREADS),
        "namespace": st.sampled_from(NAMESPACES),
        "id": st.sampled_from(IDS),
        "writes": st.lists(
            st.tuples(st.sampled_from((*CHANNELS, ERROR, INTERRUPT, RESUME)), values | handed), max_size=3
        ),
        "task": st.sampled_from(TASKS),
        "path": st.sampled_from(("", "~pull, a", "~pull, b")),
    }
)
filters = st.dictionaries(
    st.sampled_from(("source", "step", "run_id", "a.b", "odd' OR 1=1 --", "parents")),
    st.sampled_from(("loop", 1, "run-1", None, {})),
    max_size=2,
)


def config(thread, namespace="", id=None):
    named = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": named if id is None else {**named, "checkpoint_id": id}}


class World:
    """Applies the same history to several savers."""

    def __init__(self, *savers):
        self.savers = savers
        self.known = {}
        """The values and versions of each checkpoint, as in its last put."""
        self.version = 0
        self.lists = {}
        """Of each thread, what its messages were last."""

    def apply(self, step):
        if step["kind"] == "put":
            self._put(step)
        else:
            named = config(step["thread"], step["namespace"], step["id"])
            writes = [(channel, self._handed(step["thread"], value)) for channel, value in step["writes"]]
            for saver in self.savers:
                saver.put_writes(named, writes, step["task"], step["path"])

    def _handed(self, thread, value):
        if not isinstance(value, Handed):
            return value
        return FORMS[value.form]([*self.lists.get(thread, ()), *value.more])

    def _put(self, step):
        place = (step["thread"], step["namespace"])
        values, versions = self.known.get((*place, step["parent"]), ({}, {}))
        values, versions, new = dict(values), dict(versions), {}
        for channel, (edit, content) in step["changes"].items():
            self.version += 1
            new[channel] = versions[channel] = f"{self.version:032}.{self.version / 7:016}"
            if edit == "drop":
                values.pop(channel, None)
            else:
                values[channel] = edited(edit, values.get(channel), self._handed(step["thread"], content))
                if channel == "messages" and isinstance(values[channel], list):
                    self.lists[step["thread"]] = values[channel]
        checkpoint = {
            "v": 2,
            "id": step["id"],
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"node": dict(versions)},
            "updated_channels": sorted(new) or None,
            "pending_sends": [],
        }
        for saver in self.savers:
            kept = {**checkpoint, "channel_values": dict(values)}
            made = saver.put(config(*place, step["parent"]), kept, step["metadata"], dict(new))
            assert made == config(*place, step["id"])
        self.known[*place, step["id"]] = (values, versions)


def edited(edit, held, content):
    if edit == "set" or not isinstance(held, list):
        return content
    if edit == "append":
        return [*held, *content]
    if edit == "trim":
        return [*held[len(held) // 2 :], *content]
    if edit == "insert":
        return [*held[:1], *content, *held[1:]]
    return [*held[: len(held) // 2], *content, *held[len(held) // 2 + len(content) :]]


def answer(found):
    """Return the answer of a saver in a form that can be compared."""
    return (
        None
        if found is None
        else (found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes)
    )


def ask_everything(saver, wanted):
    """Return all answers of a saver, by question."""
    answers = {}
    for thread in THREADS:
        for namespace in NAMESPACES:
            answers[thread, namespace] = answer(saver.get_tuple(config(thread, namespace)))
            listed = [answer(each) for each in saver.list(config(thread, namespace))]
            answers[thread, namespace, "list"] = listed
            answers[thread, namespace, "filter"] = [
                answer(each) for each in saver.list(config(thread, namespace), filter=wanted)
            ]
            answers[thread, namespace, "limit"] = [
                answer(each) for each in saver.list(config(thread, namespace), limit=2)
            ]
            for id in IDS:
                answers[thread, namespace, id] = answer(saver.get_tuple(config(thread, namespace, id)))
                before = saver.list(config(thread, namespace), before=config(thread, namespace, id), limit=3)
                answers[thread, namespace, id, "before"] = [answer(each) for each in before]
                delta = saver.get_delta_channel_history(
                    config=config(thread, namespace, id), channels=["messages", "x"]
                )
                answers[thread, namespace, id, "delta"] = delta
        everything = saver.list({"configurable": {"thread_id": thread}})
        answers[thread, "all"] = sorted((answer(each) for each in everything), key=repr)
    answers["all"] = sorted((answer(each) for each in saver.list(None)), key=repr)
    return answers


class Line:
    """Puts one checkpoint after the other."""

    def __init__(self, saver, thread="t"):
        self.saver = saver
        self.config = config(thread)
        self.number = 0

    def put(self, **values):
        self.number += 1
        versions = dict.fromkeys(values, f"{self.number:032}.0000000000000000")
        checkpoint = {
            "v": 2,
            "id": f"1ef00000-0000-6000-8000-{self.number:012}",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        self.config = self.saver.put(self.config, checkpoint, {"source": "loop", "step": self.number}, versions)
        return self.read()

    def read(self):
        return self.saver.get_tuple(self.config).checkpoint["channel_values"]
