"""Renames nodes in stored checkpoints, for graphs whose nodes were renamed since.

The name of a node is in the channels that lead to it (`branch:to:NODE`, `join:NODE+NODE:NODE`, the tasks that were sent
to it), in the versions that the node has seen, and in the ids of its tasks, under which its pending writes are stored.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.pregel import _algo
from langgraph.types import Interrupt, Send

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langgraph.checkpoint.base import PendingWrite

_BRANCH, _JOIN = "branch:to:", "join:"
_TASKS, _INTERRUPT, _ERROR_SOURCE = "__pregel_tasks", "__interrupt__", "__error_source_node__"
_PULL, _PUSH = "__pregel_pull", "__pregel_push"
_INTERRUPTS_MAX = 64
"""The maximum number of interrupts in one task whose ids are recognised."""


class Renaming:
    """Renames the nodes of checkpoints as they are read.

    Args:
        nodes: the former names of nodes, with their present names.

    Raises:
        UsageError: `nodes` is not a dict of this form.
    """

    def __init__(self, nodes: object) -> None:
        if not isinstance(nodes, Mapping) or not all(
            isinstance(name, str) and name for each in nodes.items() for name in each
        ):
            message = f"nodes must be a dict from old to new node names, not {nodes!r}"
            raise UsageError(message, argument="nodes", value=nodes)
        for former, present in nodes.items():
            if former == present or present in nodes:
                message = f"nodes: {former!r} maps to {present!r}, which is itself an old name"
                raise UsageError(message, argument="nodes", value=present)
        self._nodes: Mapping[str, str] = dict(nodes)

    def channel(self, name: str) -> str:
        """Return the present name of a channel."""
        if name.startswith(_BRANCH):
            return _BRANCH + self._node(name[len(_BRANCH) :])
        if name.startswith(_JOIN):
            first, _colon, end = name[len(_JOIN) :].rpartition(":")
            return f"{_JOIN}{'+'.join(map(self._node, first.split('+')))}:{self._node(end)}"
        return name

    def _node(self, name: str) -> str:
        return self._nodes.get(name, name)

    def renamed(self, versions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the versions of renamed channels, keyed by their present names."""
        return {name: versions[former] for former in versions if (name := self.channel(former)) not in versions}

    def _keys(self, found: Mapping[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
        """Return a dict with renamed keys. If both names exist, the value of the present name is used."""
        made = {rename(key): value for key, value in found.items() if rename(key) != key}
        return {
            **{key: value for key, value in found.items() if rename(key) == key},
            **{k: v for k, v in made.items() if k not in found},
        }

    def concerns(self, checkpoint: Mapping[str, Any]) -> bool:
        """Return True if a checkpoint has, or may have, the former name of a node."""
        versions = checkpoint.get("channel_versions") or ()
        return (
            not self._nodes.keys().isdisjoint(checkpoint.get("versions_seen") or ())
            or any(self.channel(name) != name for name in versions)
            or _TASKS in checkpoint["channel_values"]
        )

    def apply(
        self, checkpoint: dict[str, Any], namespace: str, step: object, pending: list[PendingWrite]
    ) -> list[PendingWrite]:
        """Rename the nodes of a checkpoint in place. Return its pending writes under the renamed nodes."""
        if not self.concerns(checkpoint):
            return pending
        ids = self._task_ids(checkpoint, namespace, step) if pending and type(step) is int else {}
        values = {name: self._value(name, value) for name, value in checkpoint["channel_values"].items()}
        checkpoint["channel_values"] = self._keys(values, self.channel)
        checkpoint["channel_versions"] = self._keys(checkpoint["channel_versions"], self.channel)
        seen = {node: self._keys(each, self.channel) for node, each in (checkpoint.get("versions_seen") or {}).items()}
        checkpoint["versions_seen"] = self._keys(seen, self._node)
        if checkpoint.get("updated_channels"):
            checkpoint["updated_channels"] = sorted(map(self.channel, checkpoint["updated_channels"]))
        return [
            (ids.get(task, (task,))[0], self.channel(channel), self._written(channel, value, ids.get(task)))
            for task, channel, value in pending
        ]

    def _value(self, channel: str, value: Any) -> Any:
        if channel == _TASKS and isinstance(value, list):
            return [self._send(each) for each in value]
        if channel.startswith(_JOIN):
            return self._node(value) if isinstance(value, str) else type(value)(map(self._node, value))
        return value

    def _send(self, sent: Any) -> Any:
        if isinstance(sent, Send) and sent.node in self._nodes:
            return Send(self._nodes[sent.node], sent.arg)
        return sent

    def _written(self, channel: str, value: Any, of: tuple[str, Mapping[str, str]] | None) -> Any:
        if channel == _TASKS:
            return self._send(value)
        if channel == _ERROR_SOURCE and isinstance(value, str):
            return self._node(value)
        if channel == _INTERRUPT and of is not None and isinstance(value, (list, tuple)):
            ids = of[1]
            return type(value)(
                Interrupt(each.value, ids[each.id]) if isinstance(each, Interrupt) and each.id in ids else each
                for each in value
            )
        return self._value(channel, value)

    # --- tasks ------------------------------------------------------------------------

    def _task_ids(
        self, checkpoint: Mapping[str, Any], namespace: str, step: Any
    ) -> dict[str, tuple[str, Mapping[str, str]]]:
        """Map a task's former id to its present id, and to a dict from former to present ids of its interrupts.

        LangGraph makes the id of a task from the checkpoint, the node and its trigger.
        """
        make = _algo._xxhash_str if checkpoint["v"] > 1 else _algo._uuid5_str  # noqa: SLF001 - the ids are LangGraph's
        above = binascii.unhexlify(checkpoint["id"].replace("-", ""))
        found: dict[str, tuple[str, Mapping[str, str]]] = {}

        def note(former: str, kind: str, before: Sequence[str], after: Sequence[str]) -> None:
            names = [f"{namespace}|{node}" if namespace else node for node in (former, self._nodes[former])]
            ids = [
                make(above, name, str(step + 1), node, kind, *triggers)
                for name, node, triggers in zip(names, (former, self._nodes[former]), (before, after), strict=True)
            ]
            spaces = [f"{name}:{id}" for name, id in zip(names, ids, strict=True)]
            found[ids[0]] = ids[1], dict(zip(*map(_interrupt_ids, spaces), strict=True))

        for former in self._nodes:
            joins = [
                name
                for name in checkpoint["channel_versions"]
                if name.startswith(_JOIN) and name.endswith(f":{former}")
            ]
            triggers = sorted([_BRANCH + former, *joins])
            note(former, _PULL, triggers, sorted(map(self.channel, triggers)))
            if joins:
                note(former, _PULL, [_BRANCH + former], [_BRANCH + self._nodes[former]])
        for number, sent in enumerate(checkpoint["channel_values"].get(_TASKS) or ()):
            if isinstance(sent, Send) and sent.node in self._nodes:
                note(sent.node, _PUSH, [str(number)], [str(number)])
        return found


def _interrupt_ids(namespace: str) -> Iterable[str]:
    make = getattr(_algo, "_interrupt_id", None)
    if make is None:
        return [Interrupt.from_ns(None, namespace).id]
    return [make(namespace, number) for number in range(_INTERRUPTS_MAX)]
