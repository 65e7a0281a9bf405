"""Stores and restores the security labels of a session with its messages.

`agent_framework.security` stores in `session.state` a conversation's label and the contents hidden from the model.
If they were lost, an untrusted text would count as trusted after a restart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import map_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_framework import AgentSession

    from statelog.store.views import MapView

__all__ = ["HIDDEN", "LABELS", "Labels", "labels_of", "restore_labels", "writes_of"]

LABELS, HIDDEN = "labels", "hidden"
"""Names of two channels. `labels` has each provider's label, `hidden` each hidden content by kind, id and provider."""
_SCOPE, _LABEL = "scope_id", "context_label"
_KINDS = ("variables", "variable_metadata")


class Labels(NamedTuple):
    """One provider's section of a session's state: name, label, and hidden contents as (kind, id, entry)."""

    name: str
    label: str | None
    hidden: list[tuple[str, str, Any]]


def labels_of(session: AgentSession) -> list[Labels]:
    """Return, from a session's state, the labels of each provider that has a label or hidden contents."""
    sections = [(name, part) for name, part in session.state.items() if isinstance(part, dict) and _SCOPE in part]
    found = [
        Labels(name, part.get(_LABEL), [(kind, *pair) for kind in _KINDS for pair in (part.get(kind) or {}).items()])
        for name, part in sections
    ]
    return [labels for labels in found if labels.label is not None or labels.hidden]


def writes_of(found: Iterable[Labels], state: MapView) -> dict[str, Any]:
    """Return the writes that add the labels `found` to a history whose state is `state`.

    A stored label is combined with the new one, so concurrent processes keep each other's restrictions.
    """
    kept, hidden = state.get(LABELS, {}), state.get(HIDDEN, {})
    labels, contents = {}, {}
    for name, label, entries in found:
        key = map_key(name)
        if label is not None:
            labels[key] = Json.of([name, _combined(label, *([kept[key].value[1]] if key in kept else []))])
        for kind, id, entry in entries:
            if (each := map_key(f"{kind}/{id}/{name}")) not in hidden:
                contents[each] = Json.of([name, kind, id, entry])
    changed = {key: label for key, label in labels.items() if key not in kept or kept[key] != label}
    return {channel: write for channel, write in ((LABELS, changed), (HIDDEN, contents)) if write}


def restore_labels(session: AgentSession, state: MapView) -> None:
    """Add a history's labels and hidden contents to a session. A stored label is combined with the session's label."""
    for kept in state.get(LABELS, {}).values():
        name, label = kept.value
        section = session.state.setdefault(name, {})
        section.setdefault(_SCOPE, session.session_id)
        section[_LABEL] = _combined(label, *([section[_LABEL]] if _LABEL in section else []))
    for kept in state.get(HIDDEN, {}).values():
        name, kind, id, entry = kept.value
        section = session.state.setdefault(name, {})
        section.setdefault(_SCOPE, session.session_id)
        section.setdefault(kind, {}).setdefault(id, entry)


def _combined(*labels: str) -> str:
    """Return the most restrictive of `labels`, encoded as the framework stores it."""
    from agent_framework.security import ContentLabel, combine_labels

    combined = combine_labels(*(ContentLabel.from_dict(json.loads(label)) for label in labels))
    return json.dumps(combined.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
