"""Hits: texts that the index found and the store confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Hit:
    """A text of the store that matches a query.

    Attributes:
        kind: "thread", "entry" (of the board), "item" (of LangGraph's store) or "run".
        thread: the id of the thread, None for an entry and a run.
        branch: the branch that has the text, None for an entry and a run.
        version: a version of the branch that has the text at `path`: the first such version, or else the version that
            was searched. For an entry and a run, the LSN of the record.
        path: the path of the text: the channel, then dict keys and at most one list position. For an entry, an item and
            a run, the path within the value.
        key: the key of the entry or of the item.
        namespace: the namespace of the item, its labels joined by dots.
        run: the id of the run.
        role: the author of a message: "user", "assistant", "system", "tool" or another name; empty for other texts.
        time: when the text was committed (UTC); down to the second if that version has expired.
        text: the whole text, as the store has it now; at most 100,000 characters.
        snippet: one line of the text around the first word of the query, at most 160 characters.
        score: how well the text matches. A higher score is better. Scores of different queries or stores cannot be
            compared.
    """

    kind: str
    thread: str | None
    branch: str | None
    version: int
    path: tuple[str | int, ...]
    key: str | None
    namespace: str | None
    run: str | None
    role: str
    time: datetime
    text: str
    snippet: str
    score: float


class Hits(list[Hit]):
    """The hits of a query, best first.

    Attributes:
        notes: the reasons why the index was rebuilt, for example a compaction. Empty if it was not rebuilt.
    """

    def __init__(self, hits: list[Hit], notes: tuple[str, ...] = ()) -> None:
        super().__init__(hits)
        self.notes = notes


def hit_document(hit: Hit) -> dict[str, Any]:
    """Return a hit as a dict that JSON can represent."""
    return {
        "kind": hit.kind,
        "thread": hit.thread,
        "branch": hit.branch,
        "version": hit.version,
        "path": list(hit.path),
        "key": hit.key,
        "namespace": hit.namespace,
        "run": hit.run,
        "role": hit.role,
        "time": hit.time.isoformat(),
        "score": hit.score,
        "snippet": hit.snippet,
        "text": hit.text,
    }
