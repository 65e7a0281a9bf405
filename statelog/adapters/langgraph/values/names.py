"""Maps LangGraph's names to names in a store: unique, of bounded length, and unchanged if possible.

| LangGraph | statelog |
|---|---|
| thread | thread with the same id |
| checkpoint of the root namespace | checkpoint with the same id |
| checkpoint of another namespace | checkpoint `namespace/id` |
| namespace | branch `main`, or `ns:` and the namespace |
| second checkpoint of one parent | branch of the namespace, `@`, checkpoint |
| channel | channel with the same name |
| pending writes | branch `writes`, one channel for tasks that end together, one each for an error, interrupt, resume |
"""

from __future__ import annotations

import os
import re
import time
from binascii import b2a_base64
from collections.abc import Collection
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.errors import UsageError
from statelog.limits import GRAPH_CHANNEL, NAME_SIZE_BYTES_MAX
from statelog.store.writes import check_thread_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig

CHECKPOINT_CHANNEL = GRAPH_CHANNEL
"""The channel for the fields of a LangGraph checkpoint other than its values."""

METADATA_CHANNEL = "langgraph:metadata"
"""The channel with metadata that is too large for a checkpoint's metadata."""

STORE_THREAD_ID = "langgraph:store"
"""The thread with the items of `StatelogStore`."""

CACHE_THREAD_ID = "langgraph:cache"
"""The thread with the entries of `StatelogCache`."""

_KEPT_THREADS = (STORE_THREAD_ID, CACHE_THREAD_ID)

AT_HEAD = "__statelog_at_head"
"""The key of an `AtHead` in a config. LangGraph's metadata leaves out keys that begin with `__`."""

ANSWERS = "__resume__"
"""LangGraph's channel for answers to interrupts."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""The task id under which LangGraph stores a thread's last answer. The first unanswered question uses this answer."""

WRITES_BRANCH = "writes"
_OURS = "langgraph:"
OF_FORK = "@"
"""The separator in a fork's branch name, between its namespace's branch name and the id of its first checkpoint."""
_OF_TASK = ":"
"""The separator in a namespace, between a node's name and the id of the node's task."""
_PLAIN = re.compile(r"[\w:|.\-]{1,100}", re.ASCII)
_DIGITS = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
)
"""Digits of base 64 in the order of ASCII, all greater than `+`."""

_DIGITS_MAX, _SIZE_BYTES_MAX = 12, 9
"""12 digits of base 64 represent 9 bytes."""

_TIME_WIDTH = 8
"""The number of digits for the time in LangGraph's ids, which are UUIDs of version 6, to 0.4 ms."""

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-")

_PLACE_WIDTH, _TASK_WIDTH = 8, 11
"""The number of digits for the digest of a checkpoint, and for the digest of a task."""

_INDEX_WIDTH = 3
_INDEX_MIN = -(1 << 17)
_INDEX_OF_GROUPS = 1
"""The index of groups. The indexes of tasks are 0 and negative."""


_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


class AtHead(NamedTuple):
    """What `resume_or_start` has seen of a thread before it runs the graph."""

    thread_id: str | None = None
    checkpoint_id: str = ""
    """The id of the last checkpoint; empty if there is none."""
    is_answered: bool = False
    """Whether the last answer was used, so that it must not also answer a later question."""


class CheckpointName(NamedTuple):
    """A checkpoint as a config names it; `id` is empty for the latest."""

    thread_id: str
    namespace: str
    id: str


def place_of(config: Any) -> CheckpointName:
    """Return the place that a config names.

    Raises:
        UsageError: the config names no thread or a reserved thread (of items or the cache), or a name is not a str.
    """
    configurable: Any = config.get("configurable") if hasattr(config, "get") else None
    thread_id = configurable.get("thread_id") if hasattr(configurable, "get") else None
    if thread_id is None:
        message = "a config for a checkpointer must have configurable.thread_id"
        raise UsageError(message, argument="thread_id", value=None)
    namespace = configurable.get("checkpoint_ns") or ""
    id = configurable.get("checkpoint_id") or ""
    if not type(thread_id) is type(namespace) is type(id) is str or thread_id in _KEPT_THREADS:
        thread_id = thread_id_of(thread_id)
        for argument, value in (("checkpoint_ns", namespace), ("checkpoint_id", id)):
            if not isinstance(value, str):
                message = f"configurable.{argument} must be a str, not {value!r}"
                raise UsageError(message, argument=argument, value=value)
    return _new(CheckpointName, (thread_id, namespace, id))


def thread_id_of(thread_id: Any) -> str:
    """Return the id of a thread in the store.

    Raises:
        UsageError: the id is reserved for items or the cache, or cannot name a thread. LimitError: the id is too long.
    """
    if thread_id is None or (isinstance(thread_id, bytes | Collection) and not isinstance(thread_id, str)):
        message = f"a thread_id must be a str, or an object whose str() names the thread, not {thread_id!r}"
        raise UsageError(message, argument="thread_id", value=thread_id)
    if thread_id in _KEPT_THREADS:
        message = f"thread_id {thread_id!r} is reserved for StatelogStore and StatelogCache"
        raise UsageError(message, argument="thread_id", value=thread_id)
    text = str(thread_id)
    check_thread_id(text)
    return text


def config_of(place: CheckpointName, thread_id: Any = None) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": place.thread_id if thread_id is None else thread_id,
            "checkpoint_ns": place.namespace,
            "checkpoint_id": place.id,
        }
    }


_PERSON = b"stlg-langgraph\0\0"


def _hash(parts: Sequence[str], size: int) -> Any:
    data = b""
    for part in parts:
        data += len(part).to_bytes(4) + part.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=size, person=_PERSON)


def _digest(*parts: str) -> str:
    digest: str = _hash(parts, 16).hexdigest()
    return digest


@lru_cache(maxsize=256)
def checkpoint_name(namespace: str, id: str) -> str:
    """Return the id that a checkpoint has in the store."""
    if _PLAIN.fullmatch(id) and (not namespace or _PLAIN.fullmatch(namespace)):
        return f"{namespace}/{id}" if namespace else id
    return f"#{_digest(namespace, id)}"


def place_in(name: str) -> tuple[str, str] | None:
    """Return the namespace and id of a checkpoint by its id in the store, or None if the id does not show them."""
    if name.startswith("#"):
        return None
    namespace, _slash, id = name.rpartition("/")
    return namespace, id


@lru_cache(maxsize=256)
def line_name(namespace: str) -> str:
    """Return the name of a namespace's branch."""
    if not namespace:
        return "main"
    return f"ns:{namespace}" if _PLAIN.fullmatch(namespace) else f"ns:#{_digest(namespace)}"


def caller_of(namespace: str, parents: Any) -> tuple[str, str] | None:
    """Return the namespace and id of the checkpoint that has called a graph, by the `parents` in its metadata.

    If a task calls several graphs, there may be a number between the two namespaces.
    """
    if not namespace or not isinstance(parents, dict):
        return None
    above = [each for each in parents if isinstance(each, str) and (not each or namespace.startswith(f"{each}|"))]
    caller = max(above, key=len, default=None)
    id = None if caller is None else parents[caller]
    return (caller, id) if caller is not None and isinstance(id, str) and id else None


def served_by(namespace: str, parents: Any) -> str | None:
    """Return the name (`checkpoint_name`) of the checkpoint that called the graph of a namespace with a task id.

    Return None for a namespace without a task id, because all calls share it (`checkpointer=True`).
    """
    caller = caller_of(namespace, parents) if _OF_TASK in namespace else None
    return None if caller is None else checkpoint_name(*caller)


def similar_lines(namespace: str) -> list[str]:
    """Return the branches of the namespace and of its caller, which may already store a checkpoint's lists."""
    return [line_name(namespace), line_name(namespace.rpartition("|")[0])] if namespace else [line_name("")]


def fork_name(namespace: str, id: str) -> str:
    """Return the name of the branch for a checkpoint whose parent already has a successor."""
    return f"{line_name(namespace)}{OF_FORK}{id if _PLAIN.fullmatch(id) else '#' + _digest(id)}"


def is_of_line(branch: str, line: str) -> bool:
    """Return True if `branch` is a namespace's branch `line`, or a fork of it."""
    return branch == line or branch.startswith(f"{line}{OF_FORK}")


@lru_cache(maxsize=1024)
def channel_name(channel: str) -> str:
    """Return the name that a channel has in the store."""
    try:
        size = len(channel.encode())
    except UnicodeEncodeError:
        size = 0
    is_itself = 0 < size <= NAME_SIZE_BYTES_MAX and not channel.startswith(_OURS)
    return str(channel) if is_itself else f"{_OURS}#{_digest(channel)}"


# --- pending writes: their names have one length, so that the names for one checkpoint are adjacent. Names are short,
# because each commit of a write also writes the latest names ------------------------------------------------


PREFIX_SIZE = _TIME_WIDTH + _PLACE_WIDTH
"""The length of `writes_prefix`."""


def writes_prefix(place: CheckpointName) -> str:
    """Return the prefix for the names of a checkpoint's writes. Later checkpoints mostly have greater prefixes."""
    return checkpoint_prefix(place.namespace, place.id)


@lru_cache(maxsize=256)
def checkpoint_prefix(namespace: str, id: str) -> str:
    """Return the `writes_prefix` of the checkpoint with this namespace and id. It does not depend on the thread."""
    time = bytes.fromhex(id[:8] + id[9:13]) if _UUID.match(id) else bytes(6)
    digits = _spell_with_digest(time + b"\0", namespace, id)
    return digits[:_TIME_WIDTH] + digits[_TIME_WIDTH + 1 : _TIME_WIDTH + 1 + _PLACE_WIDTH]


def write_name(prefix: str, task_id: str, index: int) -> str:
    """Return the channel of a write with a negative number. Older releases stored all writes of a task as number 0."""
    return f"{prefix}/{_short_digest(task_id)}{_index_digits(index)}"


def group_name(prefix: str, time_us: int) -> str:
    """Return the channel for the writes of tasks that are committed together. Later groups have greater names."""
    return f"{prefix}/{_spell(time_us.to_bytes(_SIZE_BYTES_MAX))[_DIGITS_MAX - _TASK_WIDTH :]}{_END_OF_GROUPS}"


def _short_digest(*parts: str) -> str:
    """Return 64 bits of a digest in digits, which are greater than `+`."""
    return _spell_with_digest(b"\0", *parts)[_DIGITS_MAX - _TASK_WIDTH :]


@lru_cache(maxsize=256)
def _index_digits(index: int) -> str:
    return _spell((index - _INDEX_MIN).to_bytes(_SIZE_BYTES_MAX))[_DIGITS_MAX - _INDEX_WIDTH :]


def _spell_with_digest(head: bytes, *parts: str) -> str:
    """Return a number and 64 bits of a digest, spelled in base-64 digits."""
    return _spell(head + _hash(parts, 8).digest())


def _spell(number: bytes) -> str:
    """Return bytes as digits, four for every three bytes."""
    return b2a_base64(number, newline=False).translate(_DIGITS).decode()


_END_OF_GROUPS = _index_digits(_INDEX_OF_GROUPS)


_UUID_6 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID_BEGINNING_US = 12_219_292_800_000_000
"""The time from the calendar reform of 1582, where UUID times begin, to 1970, in microseconds."""
_TICKS_WIDTH = 15
"""The number of hexadecimal digits of a UUID's time, which counts steps of 100 ns."""


@lru_cache(maxsize=256)
def time_us_of(id: str) -> int | None:
    """Return the creation time in an id of LangGraph, a UUID of version 6 (RFC 9562), or None for any other string."""
    if _UUID_6.fullmatch(id) is None:
        return None
    return int(id[:8] + id[9:13] + id[15:18], 16) // 10 - _UUID_BEGINNING_US


def id_after(id: str) -> str | None:
    """Return a new UUID of version 6 that is greater than `id`, or None if `id` is not of version 6."""
    if _UUID_6.fullmatch(id) is None:
        return None
    now = (time.time_ns() // 1000 + _UUID_BEGINNING_US) * 10
    ticks = f"{max(now, int(id[:8] + id[9:13] + id[15:18], 16) + 1):0{_TICKS_WIDTH}x}"
    if len(ticks) > _TICKS_WIDTH:
        return None
    chance = os.urandom(8).hex()
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-8{chance[:3]}-{chance[3:15]}"


def writes_range(prefix: str) -> tuple[str, str]:
    """Return the least name that a checkpoint's writes can have, and a name greater than all their names."""
    width = _TASK_WIDTH + _INDEX_WIDTH
    return f"{prefix}/{'+' * width}", f"{prefix}0{'+' * width}"


def hidden_name(prefix: str) -> str:
    """Return the channel that marks a checkpoint as removed."""
    return f"{prefix}-"


def orphan_name(prefix: str) -> str:
    """Return the channel that marks a checkpoint whose parent was removed, so that it has none.

    No write has this name. It sorts before the names of all writes, so it is read with them.
    """
    return writes_range(prefix)[0]


def awaited_name(prefix: str) -> str:
    """Return the channel that stores the time at which writes were committed before their checkpoint."""
    return f"{prefix}."
