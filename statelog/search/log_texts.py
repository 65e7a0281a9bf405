"""Finds the texts that the records of the log add.

A version adds the texts that the previous version on its branch does not have. So a text that was removed by a rollback
and added again has two rows, one for the first version of each run of consecutive versions that have the text.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from statelog.board.reads import VALUE
from statelog.display.graphs import is_inner
from statelog.errors import CorruptionError, ExpiredError, FormatError
from statelog.format import cbor
from statelog.format.record import FLAG_REDACTED, FLAGS_AT, TYPE_AT, TYPE_CHECKPOINT, TYPE_ENTRY, TYPE_ROLLBACK
from statelog.log.events import read_checkpoint
from statelog.log.kinds.entries import EntryEvent, is_lease
from statelog.log.kinds.table import decode_event
from statelog.log.nodes import read_node, read_nodes
from statelog.search.changes import GRAPH_KEY, UNKNOWN, Added, texts_added
from statelog.search.texts import item_text
from statelog.tree.node import ROOT, Workspace
from statelog.tree.tree import Tree
from statelog.tree.value import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.events import Digested
    from statelog.log.view import View
    from statelog.search.changes import Item
    from statelog.search.graphs import GraphThreads
    from statelog.search.texts import Path

THREAD, ENTRY, ITEM, RUN = range(4)
"""The kinds of sources: a thread, an entry of the board, an item of LangGraph's store, a durable run."""

KIND_NAMES = ("thread", "entry", "item", "run")

STORE_THREAD = "langgraph:store"
_ITEMS = "items"
_SKIPPED_THREADS = ("langgraph:cache",)
_OWN = "statelog:"
RUNS = "durable/runs/"
_OWN_ENTRIES = "durable/"
_RUN_TEXTS = frozenset(("args", "kwargs", "value", "error"))
_ESCAPED = re.compile(r"%u([0-9A-F]+)\.|%([0-9A-F]{2})")
"""The pattern of a character that `statelog.durable` has escaped in a key."""

_WRITES = "writes"
_UNREADABLE = (CorruptionError, ExpiredError, FormatError)
"""The errors for a damaged record or a removed node, whose texts are then not indexed. `verify` reports the damage."""


class TextSource(NamedTuple):
    """A source of texts: a list, a dict or a value in a branch, an entry, an item or a run."""

    kind: int
    thread: int
    """The LSN of the thread; 0 for an entry and a run."""
    branch: int
    path: Path
    """The path without the position in a list. It begins with the key of the entry, or the id of the run."""


class TextRows(NamedTuple):
    """The texts that one version adds to one source."""

    source: TextSource
    version: int
    """The version of the thread, or the LSN of the entry's record."""
    time_us: int
    items: list[Item]


class _LastRead(NamedTuple):
    """The last version of a branch that was read."""

    version: int
    found: Digested
    """The event of that version. If no version was read yet, the event of the next version."""
    tree: Tree
    keep: Callable[[str], bool]
    kind: int


class LogTexts:
    """Reads the texts of records, in order, through one view of the store.

    Args:
        engine: the engine of the store.
        view: a view that has the records.
        graphs: reads facts about versions in LangGraph's threads.
        keep: a function that returns False for a place (see `places`) that is not indexed; None if all are indexed.
    """

    def __init__(
        self,
        engine: Engine,
        view: View,
        graphs: GraphThreads,
        keep: Callable[[int, str, Path], bool] | None = None,
    ) -> None:
        self._view = view
        self._graphs = graphs
        transaction, cache = view.transaction, engine.cache
        self.workspace = Workspace(
            partial(read_node, transaction, cache), source_many=partial(read_nodes, transaction, cache)
        )
        self._keep = keep
        self._lines: dict[tuple[int, int], _LastRead] = {}

    def rows(self, lsn: int) -> list[TextRows]:
        """Return the texts that a record adds."""
        data = self._view.transaction.get_log(lsn)
        if data is None or data[FLAGS_AT] & FLAG_REDACTED:
            return []
        try:
            if data[TYPE_AT] in (TYPE_CHECKPOINT, TYPE_ROLLBACK):
                found = read_checkpoint(data, lsn)
                return self._of_version((self._view.checkpoint(lsn), b"") if found is None else found)
            if data[TYPE_AT] == TYPE_ENTRY:
                return self._of_entry(lsn)
        except _UNREADABLE:
            return []
        return []

    # --- versions -----------------------------------------------------------------------

    def _of_version(self, found: Digested) -> list[TextRows]:
        event = found[0]
        place = event.thread, event.branch
        line = self._lines.get(place)
        tree = self._tree(event.root_digest, event.root_lsn, event.root_node)
        # Version 0 of a LangGraph branch is empty.
        if line is None or line.version != event.version - 1 or line.version < 1:
            line = self._line_before(found, tree)
        if line is None:
            return []
        self._lines[place] = line._replace(version=event.version, found=found, tree=tree)
        old = line.tree if line.version >= 0 else None
        is_next = event.parent_version == line.version
        channels = split(event.written) if old is not None and not event.target and is_next else None
        added: Iterable[Added] = texts_added(old, tree, channels, line.keep)
        if line.keep is _is_applications:
            added = self._with_deltas(line, found, tree, added, is_next=channels is not None)
        return self._made(line.kind, place, event.version, event.time_us, added)

    def _with_deltas(
        self, line: _LastRead, found: Digested, tree: Tree, added: Iterable[Added], *, is_next: bool
    ) -> Iterator[Added]:
        """Yield the texts that a version of a graph adds, including the texts of its delta channels.

        LangGraph stores a delta channel as a whole in some checkpoints. The previous version already has most of these
        texts.
        """
        left_out = self._left_out(found, tree)
        before = self._left_out(line.found, line.tree) if line.version >= 0 else []
        known = {channel: {*self._delta_texts(line.found, channel)} for channel in before if channel not in left_out}
        for path, items in added:
            new = [each for each in items if each[1:] not in known.get(str(path[0]), ())]
            if new:
                yield Added(path, new)
        for channel in left_out:
            if is_next:
                row = self._view.thread(found[0].thread)
                texts = [*map(item_text, self._graphs.written_items(self._view, row.id, line.found, channel))]
            else:
                had = {*self._delta_texts(line.found, channel)} if channel in before else set()
                texts = [each for each in self._delta_texts(found, channel) if each not in had]
            yield Added((channel,), [(UNKNOWN, role, text) for role, text in texts if text])

    def _left_out(self, found: Digested, tree: Tree) -> list[str]:
        """Return the delta channels of a version that are not in its state."""
        channels = self._graphs.delta_channels(found[0])
        return [channel for channel in channels if tree.find(cbor.encode(channel))[1] is None]

    def _delta_texts(self, found: Digested, channel: str) -> list[tuple[str, str]]:
        thread_id = self._view.thread(found[0].thread).id
        return [*map(item_text, self._graphs.delta_items(self._view, thread_id, found, channel))]

    def _line_before(self, made: Digested, tree: Tree) -> _LastRead | None:
        """Return the previous version, or a result with version -1 if there is none.

        None if the branch has no texts for users.
        """
        event = made[0]
        view, thread, branch = self._view, event.thread, event.branch
        row = view.find_thread(thread)
        if row is None or row.id.startswith(_OWN) or row.id in _SKIPPED_THREADS:
            return None
        kind = THREAD
        keep: Callable[[str], bool] = _is_users
        if row.id == STORE_THREAD:
            kind, keep = ITEM, _ITEMS.__eq__
        elif tree.find(GRAPH_KEY)[1] is not None:
            keep = _is_applications
        elif view.branch(thread, branch).name == _WRITES and self._is_graph(thread):
            return None
        before = view.previous_version(thread, branch, event.version - 1)
        found = view.checkpoint_of(thread, branch, before) if before >= 0 else None
        if found is None:
            return _LastRead(-1, made, tree, keep, kind)
        parent = found[0]
        return _LastRead(before, found, self._tree(parent.root_digest, parent.root_lsn, parent.root_node), keep, kind)

    def _is_graph(self, thread: int) -> bool:
        head = self._view.head_checkpoint(thread, 0)
        if head is None:
            return False
        event = head[0]
        return self._tree(event.root_digest, event.root_lsn, event.root_node).find(GRAPH_KEY)[1] is not None

    def _tree(self, digest: bytes, lsn: int, number: int) -> Tree:
        return Tree(self.workspace, self.workspace.read(ROOT, digest, lsn, number))

    # --- entries ------------------------------------------------------------------------

    def _of_entry(self, lsn: int) -> list[TextRows]:
        record = self._view.record(lsn)
        event = cast("EntryEvent", decode_event(record))
        if event.root_digest is None or is_lease(event.key):
            return []
        kind, name = ENTRY, event.key
        if name.startswith(_OWN_ENTRIES):
            if not name.startswith(RUNS):
                return []
            kind, name = RUN, name.removeprefix(RUNS)
        tree = self._tree(event.root_digest, event.root_lsn, event.root_node)
        added = texts_added(self._entry_before(event), tree, None, VALUE.__eq__)
        named = (Added((name, *path[1:]), items) for path, items in added)
        if kind == RUN:
            named = (each for each in named if len(each.path) > 1 and each.path[1] in _RUN_TEXTS)
        return self._made(kind, (0, 0), lsn, record.time_us, named)

    def _entry_before(self, event: EntryEvent) -> Tree | None:
        """Return the previous value of the entry, or None if there was none or it can no longer be read."""
        if not event.before:
            return None
        try:
            record = self._view.record(event.before)
            if record.flags & FLAG_REDACTED:
                return None
            before = cast("EntryEvent", decode_event(record))
            if before.root_digest is None or not before.is_there:
                return None
            return self._tree(before.root_digest, before.root_lsn, before.root_node)
        except _UNREADABLE:
            return None

    def _made(
        self, kind: int, place: tuple[int, int], version: int, time_us: int, added: Iterable[Added]
    ) -> list[TextRows]:
        keep = self._keep
        thread_id = "" if keep is None or kind != THREAD else self._view.thread(place[0]).id
        return [
            TextRows(TextSource(kind, *place, path), version, time_us, items)
            for path, items in added
            if keep is None or keep(kind, thread_id, path)
        ]


def _is_users(channel: str) -> bool:
    return not channel.startswith(_OWN)


def _is_applications(channel: str) -> bool:
    return not is_inner(channel) and not channel.startswith(_OWN)


def run_id_of(quoted: str) -> str:
    """Return the id of a run, given its escaped form in a key of the board."""
    return _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), quoted) if "%" in quoted else quoted


def names_of(source: TextSource) -> tuple[str | None, str | None, str | None, Path]:
    """Return the key of an entry or item, the namespace of an item, the id of a run, and the path in the value."""
    path: Any = source.path
    if source.kind == ENTRY:
        return path[0], None, None, path[1:]
    if source.kind == RUN:
        return None, None, run_id_of(path[0]), path[1:]
    if source.kind == ITEM:
        return path[2], path[1], None, path[4:]
    return None, None, None, path
