"""Check the nodes of records in log order, each against the records before it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError, FormatError, StatelogError, UsageError
from statelog.portable.events import check_roots
from statelog.portable.nodes import Seams, check_content, check_refs
from statelog.tree.node import CHUNK, PIECE, Node

_IDENTITIES_MAX = 131_072
_CHECKPOINTS_MAX = 8192

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.events import CheckpointEvent, Event
    from statelog.portable.nodes import NodeHeader

    GetLog = Callable[[int], memoryview | bytes | None]


def is_of_content(error: StatelogError) -> bool:
    """Return True if an error means that the checked bytes are invalid, which kernels may report as UsageError."""
    return isinstance(error, CorruptionError | FormatError) or type(error) is UsageError


@contextmanager
def damage_at(offset: int) -> Iterator[None]:
    """Add the byte offset in the export to an error about invalid bytes, unless the error already has an offset."""
    try:
        yield
    except StatelogError as error:
        if not is_of_content(error) or ("offset" in error.facts and "damaged at byte" in error.message):
            raise
        message = f"the export is damaged at byte {offset}: {error.message}"
        kind = type(error) if isinstance(error, FormatError) else CorruptionError
        raise kind(message, **{**error.facts, "offset": offset}) from error


class Checked:
    """A bounded cache of check results. It is valid while no other process writes."""

    def __init__(self) -> None:
        self.seams = Seams()
        self.identities: dict[tuple[int, int], bytes] = {}
        self.checkpoints: dict[int, CheckpointEvent] = {}

    def trim(self) -> None:
        """Clear each cache that has grown beyond its limit."""
        if len(self.identities) > _IDENTITIES_MAX:
            self.identities.clear()
        if len(self.checkpoints) > _CHECKPOINTS_MAX:
            self.checkpoints.clear()


class RecordChecker:
    """Checks records in order. `get_log` returns the earlier records, which have been checked.

    Attributes:
        unsound: numbers of the nodes of the current record that failed a check.
    """

    def __init__(self, get_log: GetLog, checked: Checked) -> None:
        self.unsound: set[int] = set()
        self._get_log = get_log
        self._checked = checked
        self._lsn = 0
        self._data: bytes = b""
        self._here: dict[int, bytes] = {}
        """Identities of the current record's nodes.

        They are cached because an identity costs a hash and many refs may name one node.
        """

    def begin(self, lsn: int, data: bytes) -> None:
        """Start to check the next record."""
        self._lsn, self._data = lsn, data
        self.unsound = set()
        self._here = {}
        self._checked.trim()

    def check(self, number: int, row: NodeHeader) -> None:
        """Check one node of the current record: its digest, its content and its refs (T3, T4, T5).

        Raises:
            CorruptionError: a check failed. Later refs to this node then also fail. Facts: lsn, node.
        """
        node = self._data[row.at : row.at + row.total_size]
        try:
            check_content(row.type, row.digest, node, row.content_size)
            check_refs(
                row.type,
                node,
                row.content_size,
                self._lsn,
                identity=self.identity,
                seams=self._checked.seams,
                read=self.read,
            )
            if row.type in (CHUNK, PIECE):
                self._checked.seams.learn(row.type, row.digest, node, row.content_size)
        except StatelogError as error:
            if not is_of_content(error):
                raise
            self.unsound.add(number)
            message = f"record {self._lsn}, node {number}: {error.message}"
            raise CorruptionError(message, **{**error.facts, "lsn": self._lsn, "node": number}) from error

    def check_roots(self, event: Event) -> None:
        """Check the roots that an event of the current record refers to. Raises CorruptionError."""
        check_roots(event, self._lsn, identity=self.identity, read=self.read)

    def identity(self, lsn: int, number: int) -> bytes:
        """Return the type and digest of a node, joined, or empty bytes if the node is missing or failed its check."""
        if lsn == self._lsn:
            if number in self.unsound:
                return b""
            here = self._here.get(number)
            if here is None:
                here = self._here[number] = self._identity(lsn, number)
            return here
        found = self._checked.identities.get((lsn, number))
        if found is None:
            found = self._checked.identities[(lsn, number)] = self._identity(lsn, number)
        return found

    def _identity(self, lsn: int, number: int) -> bytes:
        row = self._row(lsn, number)
        return b"" if row is None or not row[0] else bytes((row[0],)) + row[1]

    def read(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node. The caller must have compared its type and digest with `identity`."""
        row = self._row(lsn, number)
        assert row is not None
        assert row[:2] == (type_, digest)
        _type, _digest, at, content_size, total_size = row
        data = self._record(lsn)
        assert data is not None
        return Node(bytes(data[at : at + total_size]), content_size, lsn)

    def _record(self, lsn: int) -> memoryview | bytes | None:
        if lsn == self._lsn:
            return self._data
        return self._get_log(lsn) if 0 < lsn < self._lsn else None

    def _row(self, lsn: int, number: int) -> tuple[int, bytes, int, int, int] | None:
        data = self._record(lsn)
        if data is None:
            return None
        try:
            return kernels.record_node(data, number)
        except CorruptionError:
            return None
