"""Caches the data of threads, branches and versions that searches read.

A commit invalidates the cache, except the roots of versions, which never change.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from statelog import kernels
from statelog.format.keys import VERSIONS_PER_PAGE
from statelog.log.events import MAIN
from statelog.search.changes import TextFinder, ViewNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.kernels import VersionEntry
    from statelog.log.engine import Engine
    from statelog.log.events import Digested
    from statelog.log.view import ThreadRow, View
    from statelog.search.graphs import GraphThreads
    from statelog.search.texts import Path

_STATES_MAX: Final = 2048
_ROWS_MAX: Final = 4096
_PAGES_READ: Final = 4
"""The maximum number of version pages to read at once, starting with the page of a hit.

Most threads have fewer pages, so the last page that was read is the head's page.
"""


class Versions:
    """Reads threads, branches and versions through one view at a time, and each of them once.

    Only one OS thread may use it at a time.

    Args:
        engine: the engine of the store.
        graphs: reads facts about versions in LangGraph's threads.
        hash_of: a function that returns the hash of a text in the index.

    Attributes:
        view: the view that the last call of `begin` was given.
    """

    view: View

    def __init__(self, engine: Engine, graphs: GraphThreads, hash_of: Callable[[str], int]) -> None:
        self._engine = engine
        self._graphs = graphs
        self._hash_of = hash_of
        self._nodes = ViewNodes()
        self.clear()

    def clear(self) -> None:
        """Clear the cache, because the file of the store may have been replaced."""
        self._graphs.forget()
        self._commit_id: int | None = None
        self._states: dict[tuple[bytes, int], TextFinder] = {}
        self._threads: dict[int, ThreadRow | None] = {}
        self._branches: dict[int, list[tuple[int, str]]] = {}
        self._versions: dict[tuple[int, int, int | None], tuple[int, TextFinder | None, Digested | None]] = {}
        self._pages: dict[tuple[int, int], bytes | None] = {}
        """Version pages of main branches, keyed by thread and page number; None for a page that does not exist."""
        self._last_pages: dict[int, bytes] = {}
        """The last pages of main branches that were read, keyed by thread."""

    def begin(self, view: View) -> None:
        """Use this view for all further reads."""
        commit_id = view.snapshot_id()
        if commit_id != self._commit_id or max(len(self._threads), len(self._versions), len(self._pages)) > _ROWS_MAX:
            self._commit_id = commit_id
            self._threads, self._branches, self._versions = {}, {}, {}
            self._pages, self._last_pages = {}, {}
            # The value of a delta channel also depends on other versions, so its state is not kept.
            self._states = {root: state for root, state in self._states.items() if state.delta_items is None}
        if len(self._states) > _STATES_MAX:
            self._states, self._versions = {}, {}
        self.view = view
        self._nodes.begin(view.transaction, self._engine.cache)

    def thread(self, lsn: int) -> ThreadRow | None:
        """Return a thread's row; None if the thread was deleted."""
        if lsn not in self._threads:
            self._threads[lsn] = self.view.find_thread(lsn)
        return self._threads[lsn]

    def branches(self, row: ThreadRow) -> list[tuple[int, str]]:
        """Return the numbers and names of a thread's branches."""
        branches = self._branches.get(row.lsn)
        if branches is None:
            rows = self.view.branches(row.lsn) if row.branch_count > 1 else ()
            branches = self._branches[row.lsn] = [(each.number, each.name) for each in rows] or [(0, MAIN)]
        return branches

    def entry(self, thread: int, branch: int, version: int) -> VersionEntry | None:
        """Return the index entry of a version that a branch has or inherits; None if the version has expired."""
        if branch:
            return self.view.entry(thread, branch, version)
        place = thread, version // VERSIONS_PER_PAGE
        if place not in self._pages:
            found = self.view.pages(thread, 0, version, at_most=_PAGES_READ)
            self._pages[place] = None
            self._pages.update([((thread, number), page) for number, page in found])
            if 0 < len(found) < _PAGES_READ:
                self._last_pages[thread] = found[-1][1]
        page = self._pages[place]
        entry = None if page is None else kernels.page_find(page, version)
        return entry if entry is not None and entry.lsn else None

    def version(self, row: ThreadRow, branch: int, version: int | None, path: Path) -> tuple[int, TextFinder | None]:
        """Return a version of a branch, or its head if `version` is None, with its state.

        `path` is the path at which the caller will look for a text. The version is -1 if the branch has none. The state
        is None if the version has expired or was removed through LangGraph.
        """
        place = row.lsn, branch, version
        read = self._versions.get(place)
        if read is None:
            read = self._versions[place] = self._read_version(row, branch, version, path)
        found_version, state, found = read
        if state is not None and found is not None:
            state.delta_items = partial(self._delta_items, row.id, found)
        return found_version, state

    def _read_version(
        self, row: ThreadRow, branch: int, version: int | None, path: Path
    ) -> tuple[int, TextFinder | None, Digested | None]:
        view = self.view
        page = None if branch else self._last_pages.get(row.lsn)
        if version is None and page is not None:
            _first, last = kernels.page_range(page)
            found: Digested | None = view.checkpoint_at(row.lsn, last, kernels.page_read(page, last))
        elif version is None:
            found = view.head_checkpoint(row.lsn, branch)
        else:
            found = view.checkpoint_of(row.lsn, branch, version) if version >= 0 else None
        if found is None:
            return -1 if version is None else version, None, None
        event = found[0]
        state = self.state(event.root_digest, event.root_lsn, event.root_node)
        state.look(path)  # This also determines whether the version is LangGraph's.
        if not state.is_graph:
            return event.version, state, None
        return event.version, state if self._graphs.is_shown(view, row.id, found) else None, found

    def _delta_items(self, thread_id: str, found: Digested, channel: str) -> list[Any] | None:
        graphs = self._graphs
        if channel not in graphs.delta_channels(found[0]):
            return None
        return graphs.delta_items(self.view, thread_id, found, channel)

    def state(self, digest: bytes, lsn: int, number: int) -> TextFinder:
        """Return the finder of texts in the state with this root."""
        state = self._states.get((digest, lsn))
        if state is None:
            state = self._states[digest, lsn] = TextFinder((digest, lsn, number), self._nodes, self._hash_of)
        return state
