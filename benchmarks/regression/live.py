"""Measures how much of a store's file is live: the part that readers of the kept versions can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.format.record import FLAG_REDACTED, decode_record
from statelog.tree.check import check_node
from statelog.tree.node import CHUNK, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stores import BenchStore
    from statelog.log.kinds.kind import NodeRef
    from statelog.log.view import View

LIVE = "live bytes: encoded nodes that kept versions reach, each once, and the envelopes and events of these versions"
KEPT = "kept bytes: live bytes, and envelopes and keys of expired versions, by which the log's chain verifies"

_KEY_SIZE_BYTES = 8
"""The size of an expired record's key. The key is the record's LSN, which the record itself mostly lacks."""


class Live(NamedTuple):
    """Sizes in bytes. See `LIVE` and `KEPT`."""

    live: int
    kept: int


def measure_live(store: BenchStore) -> Live:
    """Return the live and kept bytes of a store. This reads all versions."""
    reached: dict[int, set[int]] = {}
    with store.engine.read() as view:
        roots = list(_roots(view))
    pending = list(roots)
    while pending:
        type_, digest, lsn, number = pending.pop()
        numbers = reached.setdefault(lsn, set())
        if number not in numbers:
            numbers.add(number)
            if type_ in (ROOT, CHUNK):
                node = store.engine.read_node(type_, digest, lsn, number)
                pending.extend(check_node(type_, node.data, node.content_size, lsn))
    live = expired = 0
    for start in range(1, store.last_lsn + 1, 1000):
        with store.engine.read() as view:
            for lsn in range(start, min(start + 1000, store.last_lsn + 1)):
                data = view.transaction.get_log(lsn)
                assert data is not None
                record = decode_record(data, lsn)
                live += sum(kernels.record_node(data, number)[4] for number in reached.get(lsn, ()))
                head_size = record.size_bytes - sum(row[4] for row in kernels.record_nodes(data))
                if record.flags & FLAG_REDACTED:
                    expired += head_size + _KEY_SIZE_BYTES
                else:
                    live += head_size
    return Live(live, live + expired)


def _roots(view: View) -> Iterator[NodeRef]:
    for thread in view.threads():
        for branch in view.branches(thread.lsn):
            for _version, entry in view.entries(thread.lsn, branch.number):
                event = view.checkpoint(entry.lsn)
                yield ROOT, event.root_digest, event.root_lsn, event.root_node
