"""Observes LangGraph's saver and its store of items, and acts on both at random, for `statelog.testing`.

`statelog.testing` imports this module by its name (`testing/extensions.py`).
"""

from __future__ import annotations

import operator
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.errors import EmptyInputError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from statelog.adapters.langgraph.memory.cache import StatelogCache
from statelog.adapters.langgraph.memory.store import StatelogStore
from statelog.adapters.langgraph.saver.saver import StatelogSaver
from statelog.testing.crossings.acts import Family, is_likely
from statelog.testing.crossings.values import draw_text, draw_value
from statelog.testing.observation import plain

if TYPE_CHECKING:
    from random import Random

    from langgraph.checkpoint.base import CheckpointTuple

    from statelog import Store
    from statelog.testing.crossings.acts import Actor

_ALL = 1 << 30


def observe(store: Store) -> dict[str, Any]:
    """Return all checkpoints with their pending writes, heads, and all items, as LangGraph reads them from a store."""
    items = _items(store)
    found = list(StatelogSaver(store).list(None))
    threads = {
        each.config["configurable"]["thread_id"] for each in found if not each.config["configurable"]["checkpoint_ns"]
    }
    return {
        "checkpoints": [_checkpoint(each) for each in found],
        "heads": {id: _head_of(store, id) for id in sorted(threads)},
        "items": [
            {
                "key": "/".join((*item.namespace, item.key)),
                "value": plain(item.value),
                "created": item.created_at.isoformat(),
                "updated": item.updated_at.isoformat(),
            }
            for item in items.search((), limit=_ALL, refresh_ttl=False)
        ],
        "namespaces": [list(each) for each in items.list_namespaces(limit=_ALL)],
    }


def _head_of(store: Store, thread_id: str) -> str | None:
    """Return the id of the head that `store.thread` shows. It names the checkpoint that LangGraph shows."""
    head = store.thread(thread_id).head
    return None if head is None else head.id


def _checkpoint(found: CheckpointTuple) -> dict[str, Any]:
    named = found.config["configurable"]
    parent = None if found.parent_config is None else found.parent_config["configurable"]["checkpoint_id"]
    return {
        "id": f"{named['thread_id']}/{named['checkpoint_ns']}/{named['checkpoint_id']}",
        "parent": parent,
        "checkpoint": plain(found.checkpoint),
        "metadata": plain(found.metadata),
        "pending": sorted((plain(list(each)) for each in found.pending_writes or ()), key=repr),
    }


def _items(store: Store) -> StatelogStore:
    return StatelogStore(store, clock=lambda: time.time())  # noqa: PLW0108 - a test may replace `time.time`


# --- acts -----------------------------------------------------------------------------------

_SAVER = Family("langgraph")
_MEMORY = Family("memory")
FAMILIES = (_SAVER, _MEMORY)

_THREADS = ("lg-1", "lg-2", "lg-3")
_PRUNED = (*_THREADS, "graph-0", "graph-1", "graph-2")
_NAMESPACES = ("", "", "", "inner", "inner|deep")
_ITEM_NAMESPACES = (("a",), ("a", "b"), ("c",))


def _saver(actor: Actor) -> StatelogSaver:
    if "saver" not in actor.objects:
        actor.objects["saver"] = StatelogSaver(actor.store)
    saver: StatelogSaver = actor.objects["saver"]
    return saver


def _memory(actor: Actor) -> StatelogStore:
    if "memory" not in actor.objects:
        actor.objects["memory"] = _items(actor.store)
    memory: StatelogStore = actor.objects["memory"]
    return memory


def _place(rng: Random) -> dict[str, Any]:
    return {"configurable": {"thread_id": rng.choice(_THREADS), "checkpoint_ns": rng.choice(_NAMESPACES)}}


def _some_tuple(actor: Actor, rng: Random) -> CheckpointTuple | None:
    """Return a checkpoint, usually the latest of its namespace."""
    saver, config = _saver(actor), _place(rng)
    if is_likely(rng, 0.75):
        return saver.get_tuple(config)  # type: ignore[arg-type]
    found = list(saver.list(config, limit=6))  # type: ignore[arg-type]
    return rng.choice(found) if found else None


@_SAVER.act(10)
def put(actor: Actor, rng: Random) -> None:
    """Put a checkpoint after another one, or as the first one of a thread."""
    saver, found = _saver(actor), _some_tuple(actor, rng)
    checkpoint = empty_checkpoint() if found is None else {**found.checkpoint, "id": empty_checkpoint()["id"]}
    config = _place(rng) if found is None else found.config
    values, versions = {**checkpoint["channel_values"]}, {**checkpoint["channel_versions"]}
    new: dict[str, Any] = {}
    for channel in rng.sample(("messages", "plan", "n"), rng.randrange(1, 3)):
        new[channel] = versions[channel] = saver.get_next_version(versions.get(channel), None)  # type: ignore[arg-type]
        values[channel] = _value_of(channel, values.get(channel), rng)
    made: Any = {**checkpoint, "channel_values": values, "channel_versions": versions}
    metadata: Any = {"source": "loop", "step": rng.randrange(9), "run_id": f"r{rng.randrange(3)}"}
    actor.hold("configs", saver.put(config, made, metadata, new))  # type: ignore[arg-type]


def _value_of(channel: str, before: Any, rng: Random) -> Any:
    if channel == "messages":
        return [*(before or ()), {"role": "ai", "content": draw_text(rng, rng.choice((0, 30, 1200)))}]
    return rng.randrange(100) if channel == "n" else draw_value(rng)


@_SAVER.act(8)
def put_writes(actor: Actor, rng: Random) -> None:
    """Store the writes of a task."""
    if (found := _some_tuple(actor, rng)) is not None:
        channels = rng.sample(("messages", "plan", "__error__", "__interrupt__"), rng.randrange(1, 3))
        writes = [(channel, draw_value(rng, 1)) for channel in channels]
        _saver(actor).put_writes(found.config, writes, f"task-{rng.randrange(3)}")


def _joined(before: Any, writes: Any) -> list[Any]:
    return [*before, *[item for write in writes for item in write]]


class _Inner(TypedDict):
    messages: Annotated[list[Any], operator.add]


class _Outer(TypedDict):
    messages: Annotated[list[Any], operator.add]
    notes: Annotated[list[Any], DeltaChannel(_joined, snapshot_frequency=3)]


def _answer(state: Any) -> dict[str, Any]:
    return {"messages": [f"answer {len(state['messages'])}"]}


def _ask(state: Any) -> dict[str, Any]:
    count = len(state["messages"])
    said = interrupt(f"question {count}") if count % 4 == 0 else "nothing"
    return {"messages": [said], "notes": [f"note {count}"]}


@cache
def _graph() -> Any:
    inner: Any = StateGraph(_Inner)
    inner.add_node("answer", _answer)
    inner.add_edge(START, "answer")
    outer: Any = StateGraph(_Outer)
    outer.add_node("ask", _ask)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "ask")
    outer.add_edge("ask", "inner")
    return outer


@_SAVER.act(4)
def invoke(actor: Actor, rng: Random) -> None:
    """Run a graph with a subgraph and a delta channel. It may be interrupted, or resume after an interrupt."""
    config = {"configurable": {"thread_id": f"graph-{rng.randrange(3)}"}}
    graph = _graph().compile(checkpointer=_saver(actor))
    given: Any = rng.choice(({"messages": [draw_text(rng, 60)], "notes": ["asked"]}, Command(resume=draw_text(rng))))
    with suppress(EmptyInputError):  # No interrupt waits for this resume.
        graph.invoke(given, config, durability=rng.choice(("sync", "async", "exit")))


@_SAVER.act(1)
def update_state(actor: Actor, rng: Random) -> None:
    """Update the state of a graph at the latest checkpoint, or at an earlier one, which begins a fork."""
    config: Any = {"configurable": {"thread_id": f"graph-{rng.randrange(3)}"}}
    graph = _graph().compile(checkpointer=_saver(actor))
    earlier = list(graph.get_state_history(config, limit=4))
    if earlier:
        graph.update_state(rng.choice(earlier).config, {"messages": ["edited"]}, as_node="ask")


@_SAVER.act(1)
def delete_thread(actor: Actor, rng: Random) -> None:
    """Delete a thread."""
    _saver(actor).delete_thread(rng.choice(_PRUNED))


@_SAVER.act(1)
def copy_thread(actor: Actor, rng: Random) -> None:
    """Copy a thread."""
    _saver(actor).copy_thread(rng.choice(_PRUNED), rng.choice((*_THREADS, f"lg-copy-{rng.randrange(3)}")))


@_SAVER.act(2)
def prune(actor: Actor, rng: Random) -> None:
    """Prune the checkpoints of some threads."""
    threads = rng.sample(_PRUNED, rng.randrange(1, 3))
    _saver(actor).prune(threads, strategy=rng.choice(("keep_latest", "keep_latest", "delete")))


@_SAVER.act(1)
def delete_for_runs(actor: Actor, rng: Random) -> None:
    """Delete the checkpoints of some runs."""
    _saver(actor).delete_for_runs([f"r{rng.randrange(3)}"])


@_SAVER.act(1)
def prune_store(actor: Actor, rng: Random) -> None:
    """Remove old versions of LangGraph's threads."""
    actor.store.prune(keep_last=rng.choice((1, 3)), threads=rng.choice(("lg-*", "graph-*")))


@_MEMORY.act(8)
def put_item(actor: Actor, rng: Random) -> None:
    """Put an item, which may expire."""
    ttl = rng.choice((None, None, 0.01, 5.0))
    value = {"text": draw_value(rng, 1)}
    _memory(actor).put(rng.choice(_ITEM_NAMESPACES), f"i{rng.randrange(6)}", value, ttl=ttl)


@_MEMORY.act(4)
def get_item(actor: Actor, rng: Random) -> None:
    """Read an item, which may postpone its expiry."""
    _memory(actor).get(rng.choice(_ITEM_NAMESPACES), f"i{rng.randrange(6)}", refresh_ttl=is_likely(rng, 0.5))


@_MEMORY.act(3)
def delete_item(actor: Actor, rng: Random) -> None:
    """Delete an item."""
    _memory(actor).delete(rng.choice(_ITEM_NAMESPACES), f"i{rng.randrange(6)}")


@_MEMORY.act(1)
def sweep_items(actor: Actor, rng: Random) -> None:
    """Delete the items that have expired."""
    del rng
    _memory(actor).sweep_ttl()


def _cache(actor: Actor) -> Any:  # Its type takes an argument only where LangGraph is installed.
    return StatelogCache(actor.store, clock=lambda: time.time())  # noqa: PLW0108 - a test may replace `time.time`


@_MEMORY.act(2)
def cache_results(actor: Actor, rng: Random) -> None:
    """Cache results of nodes, which may expire, and read them."""
    keys = [(rng.choice(_ITEM_NAMESPACES), f"c{rng.randrange(6)}") for _key in range(rng.randrange(1, 4))]
    _cache(actor).set({key: ({"n": rng.randrange(9)}, rng.choice((None, 1, 60))) for key in keys})
    _cache(actor).get(keys)


@_MEMORY.act(1)
def clear_cache(actor: Actor, rng: Random) -> None:
    """Clear cached results of nodes."""
    _cache(actor).clear(rng.choice((None, [rng.choice(_ITEM_NAMESPACES)])))
