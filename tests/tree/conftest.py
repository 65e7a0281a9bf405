"""A log in memory: what trees are read from, and committed to."""

from __future__ import annotations

import pytest

from statelog.format import cbor
from statelog.tree.check import check_node
from statelog.tree.node import Node, ValueSlot, Workspace, node_digest
from statelog.tree.value import encode_slot, read_item


class MemoryLog:
    """Records of nodes. Counts the nodes read, and checks every node committed."""

    def __init__(self):
        self.records = []
        self.reads = 0

    def source(self, type_, digest, lsn, number):
        self.reads += 1
        row = self.records[lsn - 1][number]
        assert (row.type, row.digest) == (type_, digest)
        return Node(row.data, row.content_size, lsn)

    def workspace(self):
        return Workspace(self.source)

    def commit(self, workspace, slot):
        """Append the new nodes as a record; return the slot as others see it."""
        if workspace.has_garbage:
            slot = workspace.collect(slot)
        self.records.append(workspace.rows)
        lsn = len(self.records)
        for number, row in enumerate(workspace.rows):
            self._check(lsn, number, row)
        return ValueSlot(slot.data, slot.lsn or lsn, slot.number) if slot.is_ref else slot

    def _check(self, lsn, number, row):
        assert node_digest(row.type, row.data[: row.content_size]) == row.digest
        for child_type, digest, child_lsn, child in check_node(row.type, row.data, row.content_size, lsn):
            assert (child_lsn, child) < (lsn, number), "children come before parents"
            held = self.records[child_lsn - 1][child]
            assert (held.type, held.digest) == (child_type, digest)

    def put(self, value, *, top=True, key=b""):
        """Store a value from scratch."""
        workspace = self.workspace()
        return self.commit(workspace, encode_slot(workspace, cbor.encode(value), top=top, key=key))

    def change(self, function, *args, **options):
        """Commit what `function(workspace, ...)` makes."""
        workspace = self.workspace()
        return self.commit(workspace, function(workspace, *args, **options))

    def get(self, slot):
        """Read a value whole."""
        return cbor.decode(read_item(self.workspace(), slot))

    def nodes_written(self):
        """Return the size in nodes and bytes of the last record."""
        rows = self.records[-1]
        return len(rows), sum(len(row.data) for row in rows)


@pytest.fixture
def log():
    return MemoryLog()


@pytest.fixture(scope="session")
def new_log():
    """For properties, which need a log for each example."""
    return MemoryLog
