"""What searches have read of threads, branches and versions.

It serves later searches until somebody commits. The root of a version never changes, and serves them for longer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from statelog.log.events import MAIN
from statelog.log.nodes import read_node, read_nodes
from statelog.search.changes import State
from statelog.tree.node import ROOT, Workspace
from statelog.tree.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.engine import Engine
    from statelog.log.events import Digested
    from statelog.log.view import ThreadRow, View
    from statelog.search.graphs import GraphThreads

_STATES_MAX: Final = 512
_ROWS_MAX: Final = 4096


class Versions:
    """Reads threads, branches and versions through one view at a time, each once. Used by one OS thread at a time.

    Args:
        engine: of the store.
        graphs: answers for versions of LangGraph.
        hash_of: returns the hash by which the index knows a text.

    Attributes:
        view: the view of the last `begin`.
        workspace: the nodes of that view.
    """

    view: View
    workspace: Workspace

    def __init__(self, engine: Engine, graphs: GraphThreads, hash_of: Callable[[str], int]) -> None:
        self._engine = engine
        self._graphs = graphs
        self._hash_of = hash_of
        self.clear()

    def clear(self) -> None:
        """Forget everything, because the file of the store may have been replaced."""
        self._graphs.forget()
        self._commit_id: int | None = None
        self._states: dict[tuple[bytes, int], State] = {}
        self._threads: dict[int, ThreadRow | None] = {}
        self._branches: dict[int, list[tuple[int, str]]] = {}
        self._versions: dict[tuple[int, int, int | None], tuple[int, State | None, Digested | None]] = {}

    def begin(self, view: View) -> None:
        """Read through a view from now on."""
        commit_id = view.snapshot_id()
        if commit_id != self._commit_id or max(len(self._threads), len(self._versions)) > _ROWS_MAX:
            self._commit_id = commit_id
            self._threads, self._branches, self._versions = {}, {}, {}
            # The value of a delta channel depends on other versions, too.
            self._states = {root: state for root, state in self._states.items() if state.delta_items is None}
        if len(self._states) > _STATES_MAX:
            self._states, self._versions = {}, {}
        self.view = view
        transaction, cache = view.transaction, self._engine.cache
        self.workspace = Workspace(
            partial(read_node, transaction, cache), source_many=partial(read_nodes, transaction, cache)
        )

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

    def version(self, row: ThreadRow, branch: int, version: int | None) -> tuple[int, State | None]:
        """Return a version of a branch, or its head if `version` is None, with its state.

        The version is -1 if there is none. The state is None if the version has expired or was
        removed for LangGraph.
        """
        place = row.lsn, branch, version
        read = self._versions.get(place)
        if read is None:
            read = self._versions[place] = self._read_version(row, branch, version)
        found_version, state, found = read
        if state is not None:
            state.tree.workspace = self.workspace
            if found is not None:
                state.delta_items = partial(self._delta_items, row.id, found)
        return found_version, state

    def _read_version(
        self, row: ThreadRow, branch: int, version: int | None
    ) -> tuple[int, State | None, Digested | None]:
        view = self.view
        if version is None:
            found = view.head_checkpoint(row.lsn, branch)
        else:
            found = view.checkpoint_of(row.lsn, branch, version) if version >= 0 else None
        if found is None:
            return -1 if version is None else version, None, None
        event = found[0]
        state = self.state(event.root_digest, event.root_lsn, event.root_node)
        if not state.is_graph:
            return event.version, state, None
        return event.version, state if self._graphs.is_shown(view, row.id, found) else None, found

    def _delta_items(self, thread_id: str, found: Digested, channel: str) -> list[Any] | None:
        graphs = self._graphs
        if channel not in graphs.delta_channels(found[0]):
            return None
        return graphs.delta_items(self.view, thread_id, found, channel)

    def state(self, digest: bytes, lsn: int, number: int) -> State:
        """Return the state under a root."""
        state = self._states.get((digest, lsn))
        if state is None:
            tree = Tree(self.workspace, self.workspace.read(ROOT, digest, lsn, number))
            state = self._states[digest, lsn] = State(tree, self._hash_of)
        state.tree.workspace = self.workspace
        return state
