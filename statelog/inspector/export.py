"""Exports a thread as one HTML file that needs no server, because it has the modules of the page and all answers."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.adapters.langgraph.deltas import find_changes
from statelog.errors import CorruptionError, ExpiredError
from statelog.format import cbor
from statelog.inspector import page
from statelog.inspector.answers import error_document
from statelog.inspector.conversation import conversation
from statelog.inspector.thread import (
    MESSAGES_SHOWN,
    PARTS,
    Unreadable,
    describe,
    describe_changes,
    describe_head,
    describe_opened,
    describe_state,
    describe_version,
    describe_versions,
    read_version,
    read_versions,
    readable,
)
from statelog.inspector.values import AnswerLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Checkpoint, Store, Thread

VERSIONS_DEFAULT = 200
_PAGE = 50
"""The number of versions that `thread.js` requests at once."""
_PART_CHARACTERS_MIN = 60
"""The minimum length of a part that a reference replaces. With shorter parts, the file would not become smaller."""
_REFERENCE_CHARACTERS = 16
_ENTRY = "exported.js"
_EXPORTED = AnswerLimits(nodes=1500, items=200, characters=20_000, depth=12)
"""The limits of each answer. They are large, because no server can return the rest."""

_Asked = tuple[str, dict[str, Any]]


def export_html(store: Store, thread: Thread, *, versions: int = VERSIONS_DEFAULT) -> str:
    """Return a thread as one HTML file. It runs only its own script, and contacts no server.

    Args:
        store: the store of the thread.
        thread: the thread, on the branch that the file shows first.
        versions: the number of versions of this branch in the file, from the head back. The file also has up to this
            number of versions of each other branch, without the versions that it shares with its parent.
    """
    return cbor.decoded_loosely(partial(_export, store, versions=versions), thread)


def _export(store: Store, thread: Thread, *, versions: int) -> str:
    parts = _AnswerParts()
    answers = [
        [page.asked(path, [(name, str(value)) for name, value in query.items()]), parts.reduce(answer)]
        for (path, query), answer in _answers(store, thread, versions, parts)
    ]
    style, script = page.read("style.css"), page.bundle(_ENTRY)
    policy = (
        f"default-src 'none'; script-src '{page.digest(script)}'; style-src '{page.digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    data = page.data(answers, parts.made, is_whole=True)
    return page.html(head, f'<script type="module">{script}</script>', data)


# --- answers -------------------------------------------------------------------------


def _answers(store: Store, thread: Thread, versions: int, parts: _AnswerParts) -> Iterator[tuple[_Asked, Any]]:
    """Yield all requests that the page may make, each with its answer."""
    thread = readable(thread)
    described, id = describe(thread), thread.id
    yield ("store", {}), {"path": store.path.name, "allow_writes": False, "thread": id}
    if described["version"] < 0:
        return
    yield ("thread/open", {"id": id}), describe_opened(store, thread, read_version(thread), "", _EXPORTED)
    for branch in described["branches"]:
        if branch["is_inner"] and branch["name"] != described["branch"]:
            continue
        on_branch = store.thread(id, branch=branch["name"])
        top = described["version"] if branch["name"] == described["branch"] else branch["head"]
        yield from _pages(on_branch, {"id": id, "branch": branch["name"]}, top, versions)
        own = versions if branch["name"] == described["branch"] else min(versions, top - branch["base"])
        known = _ParentParts(store, parts)
        for checkpoint in read_versions(on_branch, own, top + 1):
            query = {"id": id, "branch": branch["name"], "version": checkpoint.version}
            for part, answer in _parts_of(checkpoint, known).items():
                yield ("thread/version", {**query, "part": part}), answer


def _parts_of(checkpoint: Checkpoint | Unreadable, known: _ParentParts) -> dict[str, dict[str, Any]]:
    """Return an answer for each part of a version. If the version is damaged, each answer contains the error."""
    if isinstance(checkpoint, Unreadable):
        damaged = describe_version(checkpoint)
        return dict.fromkeys(PARTS, damaged)
    try:
        return known.parts_of(checkpoint)
    except ExpiredError:  # Retention has just removed the version.
        return {}
    except CorruptionError as error:
        damaged = {**describe_head(checkpoint), "python": "", "problem": error_document(error)}
        return dict.fromkeys(PARTS, damaged)


class _ParentParts:
    """Reuses the parts of a version for its parent, which is described next, because a step changes few channels."""

    def __init__(self, store: Store, parts: _AnswerParts) -> None:
        self._store, self._parts = store, parts
        self._of: str | None = None
        """The id of the version to which `_channels` and `_messages` belong."""
        self._channels: dict[str, Any] = {}
        self._messages: dict[str, Any] = {}

    def parts_of(self, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
        """Return an answer for each part of a version."""
        if checkpoint.id != self._of:
            self._channels, self._messages = {}, {}
        head = {**describe_head(checkpoint), "python": ""}
        try:
            parent = checkpoint.parent
            changes = find_changes(self._store, parent, checkpoint)
            described = {**head, "changes": describe_changes(parent, checkpoint, changes)}
        except CorruptionError as error:  # The parent is damaged. This version may be readable.
            parent, changes = None, []
            described = {**head, "problem": error_document(error)}
        state = describe_state(self._store, checkpoint, _EXPORTED, self._channels)
        messages = conversation(self._store, checkpoint, before=2**40, limit=MESSAGES_SHOWN, known=self._messages)
        answers = {
            "state": {**head, "state": state},
            "messages": {**head, "messages": messages},
            "changes": described,
        }
        changed = {str(each.path[0]) for each in changes}
        self._of = None if parent is None else parent.id
        self._parts.forget()
        self._channels, self._messages = (
            {name: self._parts.keep(shown) for name, shown in known.items() if name not in changed}
            for known in (self._channels, self._messages)
        )
        return answers


def _pages(thread: Thread, query: dict[str, Any], top: int, versions: int) -> Iterator[tuple[_Asked, Any]]:
    """Yield the requests for a list of versions, each with its answer. Pages begin at multiples of the page size."""
    for low in range(top // _PAGE * _PAGE, max(-1, top - versions - _PAGE), -_PAGE):
        before = min(low + _PAGE, top + 1)
        rows = describe_versions(thread, _PAGE, before)
        yield ("thread/versions", {**query, "before": before, "limit": _PAGE}), {"versions": rows}


class _AnswerParts:
    """Stores equal parts of answers once. A state shares most of its values with the previous one."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._places: dict[str, int] = {}
        self._reduced: dict[int, tuple[Any, Any]] = {}
        """The values passed to `keep`, keyed by identity: each value, and its reduced form."""

    def keep(self, value: Any) -> Any:
        """Reduce a value, and reuse its reduced form until `forget` is called."""
        reduced = self.reduce(value)
        self._reduced[id(value)] = (value, reduced)
        return reduced

    def forget(self) -> None:
        """Forget the values passed to `keep`."""
        self._reduced.clear()

    def reduce(self, value: Any) -> Any:
        """Return a value in which each list and object is a reference, `{"$part": number}`, unless it is short."""
        return self._reduce(value)[0]

    def _reduce(self, value: Any) -> tuple[Any, int]:
        """Return a reduced value, and the approximate number of its characters as JSON."""
        if isinstance(value, list):
            pairs = [self._reduce(item) for item in value]
            reduced: Any = [item for item, _characters in pairs]
            characters = sum(each for _item, each in pairs) + 2 * len(pairs)
        elif isinstance(value, dict):
            known = self._reduced.get(id(value))
            if known is not None:
                return known[1], _REFERENCE_CHARACTERS
            named = {name: self._reduce(item) for name, item in value.items()}
            reduced = {name: item for name, (item, _characters) in named.items()}
            characters = sum(len(name) + each + 6 for name, (_item, each) in named.items())
        else:
            return value, len(value) + 2 if isinstance(value, str) else 6
        if characters < _PART_CHARACTERS_MIN:
            return reduced, characters
        text = json.dumps(reduced)
        place = self._places.get(text)
        if place is None:
            place = self._places[text] = len(self.made)
            self.made.append(reduced)
        return {"$part": place}, _REFERENCE_CHARACTERS
