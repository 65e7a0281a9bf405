"""A thread as one HTML file: the page's own modules, and the answers that the page asks for, without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.errors import ExpiredError
from statelog.format import cbor
from statelog.inspector import page
from statelog.inspector.thread import PARTS, describe, describe_opened, describe_part, describe_version
from statelog.inspector.values import Room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Store, Thread

VERSIONS_DEFAULT = 100
_PAGE = 50
"""The versions that `thread.js` asks for at once."""
_PART_CHARACTERS_MIN = 60
"""A shorter part costs less where it is than a reference to it."""
_ENTRY = "exported.js"
_EXPORTED = Room(nodes=1500, items=200, characters=20_000, depth=12)
"""The room of each answer: no server can be asked for the rest."""

_Asked = tuple[str, dict[str, Any]]


def export_html(store: Store, thread: Thread, *, versions: int = VERSIONS_DEFAULT) -> str:
    """Return a thread as one HTML file. It runs no script but its own, and asks no server.

    Args:
        store: the store of the thread.
        thread: on the branch that the file shows first.
        versions: how many versions the file has of the branch that it shows first, from the head back. Of other
            branches it has their own versions, up to as many of each.

    """
    return cbor.decoded_loosely(partial(_export, store, versions=versions), thread)


def _export(store: Store, thread: Thread, *, versions: int) -> str:
    parts = _Parts()
    answers = [
        [page.asked(path, [(name, str(value)) for name, value in query.items()]), parts.reduce(answer)]
        for (path, query), answer in _answers(store, thread, versions)
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


def _answers(store: Store, thread: Thread, versions: int) -> Iterator[tuple[_Asked, Any]]:
    """Yield what the page asks for, with the answer."""
    described, id, head = describe(thread), thread.id, thread.head
    yield ("store", {}), {"path": store.path.name, "allow_writes": False, "thread": id}
    if head is None:
        return
    yield ("thread/open", {"id": id}), describe_opened(store, thread, head, "", _EXPORTED)
    for branch in described["branches"]:
        if branch["is_inner"] and branch["name"] != described["branch"]:
            continue
        on_branch = store.thread(id, branch=branch["name"])
        top = described["version"] if branch["name"] == described["branch"] else branch["head"]
        yield from _pages(on_branch, {"id": id, "branch": branch["name"]}, top, versions)
        own = versions if branch["name"] == described["branch"] else min(versions, top - branch["base"])
        for checkpoint in on_branch.history(own, before=top + 1):
            query = {"id": id, "branch": branch["name"], "version": checkpoint.version}
            try:
                for part in PARTS:
                    answer = describe_part(store, checkpoint, part, _EXPORTED)
                    yield ("thread/version", {**query, "part": part}), {**answer, "python": ""}
            except ExpiredError:  # retention goes on meanwhile
                continue


def _pages(thread: Thread, query: dict[str, Any], top: int, versions: int) -> Iterator[tuple[_Asked, Any]]:
    """Yield the pages of a list of versions, which begin at multiples of the page's size."""
    for low in range(top // _PAGE * _PAGE, max(-1, top - versions - _PAGE), -_PAGE):
        before = min(low + _PAGE, top + 1)
        rows = [describe_version(each) for each in thread.history(_PAGE, before=before)]
        yield ("thread/versions", {**query, "before": before, "limit": _PAGE}), {"versions": rows}


class _Parts:
    """Parts of answers that are stored once: a state shares most of its values with the one before."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._places: dict[str, int] = {}

    def reduce(self, value: Any) -> Any:
        """Return a value in which each list and object is a reference, `{"$part": number}`, unless it is short."""
        if isinstance(value, list):
            reduced: Any = [self.reduce(item) for item in value]
        elif isinstance(value, Mapping):
            reduced = {name: self.reduce(item) for name, item in value.items()}
        else:
            return value
        text = json.dumps(reduced)
        if len(text) < _PART_CHARACTERS_MIN:
            return reduced
        place = self._places.get(text)
        if place is None:
            place = self._places[text] = len(self.made)
            self.made.append(reduced)
        return {"$part": place}
