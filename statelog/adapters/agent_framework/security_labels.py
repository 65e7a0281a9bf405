"""Security labels of a session: they are stored beside its messages, and come back with them.

`agent_framework.security` keeps the label of a conversation, and the contents that it hides from the model, in
`session.state`. A history without them would read an untrusted text as trusted after a restart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.adapters.kit.naming import map_key
from statelog.adapters.kit.ordered import Json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_framework import AgentSession

    from statelog.store.views import MapView

__all__ = ["HIDDEN", "LABELS", "Labels", "labels_of", "restore_labels", "writes_of"]

LABELS, HIDDEN = "labels", "hidden"
"""Channels: the label by the name of its provider; the hidden contents by provider and id, each with their kind."""
_SCOPE, _LABEL = "scope_id", "context_label"
_KINDS = ("variables", "variable_metadata")


class Labels(NamedTuple):
    """What one provider keeps in a session's state: its label, and (kind, id, entry) of what it hides."""

    name: str
    label: str | None
    hidden: list[tuple[str, str, Any]]


def labels_of(session: AgentSession) -> list[Labels]:
    """Return a copy of the labels in a session's state."""
    sections = [(name, part) for name, part in session.state.items() if isinstance(part, dict) and _SCOPE in part]
    found = [
        Labels(name, part.get(_LABEL), [(kind, *pair) for kind in _KINDS for pair in (part.get(kind) or {}).items()])
        for name, part in sections
    ]
    return [labels for labels in found if labels.label is not None or labels.hidden]


def writes_of(found: Iterable[Labels], state: MapView) -> dict[str, Any]:
    """Return what a commit has to write, so that a history with this state has these labels, too.

    A label that is stored is combined with the new one, so two processes lose no restriction of each other.
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
    """Put the labels of a history into a session, combined with those that it has. Hidden contents come back, too."""
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
    """Return the most restrictive of labels, each as the framework stores it."""
    from agent_framework.security import ContentLabel, combine_labels

    combined = combine_labels(*(ContentLabel.from_dict(json.loads(label)) for label in labels))
    return json.dumps(combined.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
