"""Reads the branches and heads of one thread in one short read transaction. Every lookup is done once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from statelog.format import keys
from statelog.log.events import MAIN
from statelog.log.nodes import read_nodes
from statelog.store.targets import find_named
from statelog.tree.node import ROOT, Workspace
from statelog.tree.tree import Tree

if TYPE_CHECKING:
    from statelog.log.batch import Head
    from statelog.log.engine import Engine
    from statelog.log.view import View


class ThreadView:
    """A thread in a view of the store. All data is copied before the view ends.

    Attributes:
        thread: the number of the thread, or None if there is no such thread.
    """

    __slots__ = ("_branches", "_engine", "_view", "_workspace", "thread")

    def __init__(self, engine: Engine, view: View, thread_id: str) -> None:
        transaction = view.transaction
        self._engine = engine
        self._view = view
        self._workspace = Workspace(engine.reader_in(transaction), None, partial(read_nodes, transaction, engine.cache))
        self._branches = 0
        self.thread = view.thread_lsn(thread_id)

    def branch(self, name: str) -> int | None:
        """Return the number of a branch, or None if it does not exist."""
        return None if self.thread is None else self._view.branch_number(self.thread, name)

    def lines(self, name: str, separator: str, other: int | None) -> list[int]:
        """Return the numbers of a branch and of branches whose names begin with its name and a separator.

        Args:
            name: the name of the branch.
            separator: the string after `name` in the names of the other branches.
            other: the number of a branch that is known not to match.
        """
        thread = self.thread
        if thread is None:
            return []
        self._branches = self._view.thread(thread).branch_count
        if name == MAIN and self._branches == (1 if other is None else 2):
            return [0]
        prefix = keys.encode_branch_name_key(thread, name)
        size, rest = len(prefix), separator.encode()
        found = self._view.transaction.scan_index(prefix)
        return [keys.decode_u32(payload) for key, payload in found if key[size:].startswith(rest) or len(key) == size]

    def head(self, number: int) -> Head | None:
        """Return the last checkpoint of a branch, or None."""
        assert self.thread is not None
        return self._engine.head(self._view, self.thread, number)

    def is_last_of(self, head: Head, id: str) -> bool:
        """Return True if the head is the newest checkpoint that has the id `id`: it was not superseded."""
        assert self.thread is not None
        if head.event.id == id and self._branches <= 2:  # A superseding checkpoint would be in a further branch.
            return True
        lsn = self._view.transaction.get_index(keys.encode_tag_key(self.thread, id))
        return head.event.id == id if lsn is None else keys.decode_lsn(lsn) == head.event.lsn

    def named(self, name: str) -> Head | None:
        """Return the checkpoint that has the tag or id `name`, or None."""
        return None if self.thread is None else find_named(self._view, self.thread, name)

    def state(self, head: Head) -> Tree:
        """Return the state of a checkpoint."""
        event = head.event
        return Tree(self._workspace, self._workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node))
