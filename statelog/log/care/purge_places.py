"""Finds the places of the secrets that a purge removes. This is the first of its two passes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError, ExpiredError, SecretError
from statelog.format.record import FLAG_REDACTED, decode_record
from statelog.guard.vectors import has_vectors
from statelog.log.care.secret_scan import SETS, Scanned, Scanner, parts_of, pieces_of
from statelog.log.index import redacted_records
from statelog.log.kinds.table import decode_event, owner_of, records_of
from statelog.log.nodes import NodeCache, read_node
from statelog.log.view import View
from statelog.tree.node import PIECE, ROOT, Node, Workspace, node_digest
from statelog.tree.tree import STRINGS, Tree
from statelog.tree.value import string_body, tree_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.guard.search import Purger
    from statelog.log.care.secret_scan import Home, SecretPlace
    from statelog.storage.mapped_pages import MappedPages
    from statelog.storage.read_transaction import ReadTransaction

    Path = tuple[str, ...]

_BATCH_SIZE_BYTES = 512 * 1024


def checked_records(old: ReadTransaction, pages: MappedPages) -> Iterator[tuple[int, bytes]]:
    """Yield the LSN and the bytes of each record.

    Raise ForgeryError for a wrong MAC, because the purge would replace it with a valid one.
    """
    for batch in old.log_batches(_BATCH_SIZE_BYTES):
        pages.read(sum(len(data) for _lsn, data in batch))
        for lsn, data in batch:
            old.check_log(lsn)
            yield lsn, bytes(data)


class SecretPlaces:
    """The places of the secrets in a log.

    Attributes:
        hit: the LSNs of records with nodes that have to change, whatever their owner.
        edits: the places of the secrets in a node, keyed by the LSN and the digest of the node.
        paths: the paths of the secrets in a node, keyed by the digest alone.
        blanks: the digests of nodes that are replaced by a leaf `null`, because nothing refers to them.
    """

    def __init__(self, old: ReadTransaction, purger: Purger, pages: MappedPages) -> None:
        self._old = old
        self._purger = purger
        self._pages = pages
        self._view = View(old)
        self.hit: set[int] = set()
        self.edits: dict[Home, set[SecretPlace]] = {}
        self.paths: dict[bytes, set[Path]] = {}
        self.blanks: set[bytes] = set()
        self._is_spreading = False
        """Whether a long string or a set has to be rebuilt."""

    def find(self, report_progress: Callable[[int], None]) -> None:
        """Find all places. Call `report_progress` with the LSN of each record.

        Raises:
            SecretError: a secret is in a place where it cannot be replaced. Facts: lsn, path, thread, rule,
                fingerprint.
        """
        owners = {row.lsn for row in self._view.threads() if has_vectors(row.id)}
        changed: dict[int, set[Path]] = {}
        scanner = Scanner(self._old, self._purger, is_thorough=True)
        lsn = 0
        try:
            for lsn, _data, scanned in scanner.all(self._old, self._pages):
                report_progress(lsn)
                if scanned is None:
                    continue
                self._note(lsn, scanned)
                if scanned.owner in owners:
                    changed.setdefault(scanned.owner, set()).update(self._purger.changed)
                self._purger.changed.clear()
        except SecretError as error:
            raise self._refusal(lsn + 1, error) from None
        for owner, paths in changed.items():
            self._find_vectors(owner, paths)
        if self._is_spreading:
            self._spread()

    def _find_vectors(self, owner: int, paths: set[Path]) -> None:
        """Find the embedding vectors that were computed from a thread's texts with secrets."""
        vectors = self._purger.vectors
        vectors.add(paths)
        if vectors.is_empty:
            return
        scanner = Scanner(self._old, vectors, is_thorough=True)
        for lsn in sorted({*records_of(self._view, owner), *redacted_records(self._view, owner)}):
            scanned = scanner.scan(lsn, bytes(self._old.get_log(lsn) or b""))
            assert scanned is not None, "vectors may be in any record"
            self._note(lsn, scanned)

    def _note(self, lsn: int, scanned: Scanned) -> None:
        """Record the results of the scan of a record."""
        self.hit.add(lsn)
        for edit in scanned.edits:
            self.edits.setdefault(edit.home, set()).add(edit)
            self.paths.setdefault(edit.home[1], set()).add(edit.path)
        self.blanks.update(scanned.blanks)
        for tree, path in scanned.strings:
            self._take_apart(tree, path)
        self._is_spreading = self._is_spreading or scanned.rebuilds

    def _take_apart(self, tree: Tree, path: Path) -> None:
        """Add to `blanks` the pieces of a long string that change when its secrets are removed."""
        data = bytes(string_body(self._purger.redacted(tree_item(tree), path)))
        kept = set()
        at = 0
        for end in kernels.blob_cuts(data):
            kept.add(node_digest(PIECE, data[at:end]))
            at = end
        self.blanks.update(piece.digest for piece in pieces_of(tree) if piece.digest not in kept)

    def _spread(self) -> None:
        """Find all strings and sets that have to be rebuilt, and add their chunks and pieces to `blanks`.

        A string or set that shares a blanked chunk or piece has to be rebuilt as well. So this repeats until no further
        string or set is found.
        """
        workspace = Workspace(partial(read_node, self._old, NodeCache()))
        roots: dict[bytes, tuple[set[int], list[tuple[bytes, int, int, int]]]] = {}
        for lsn, data in checked_records(self._old, self._pages):
            for type_, digest, at, content_size, total_size in kernels.record_rows(data).values():
                if type_ != ROOT or data[at] not in (*STRINGS, *SETS):
                    continue
                if digest in roots:
                    roots[digest][0].add(lsn)
                    continue
                tree = Tree(workspace, Node(data[at : at + total_size], content_size, lsn))
                with suppress(ExpiredError, CorruptionError):  # Retention may have removed nodes of an unused tree.
                    roots[digest] = {lsn}, [*parts_of(tree)]
        is_found = True
        while is_found:
            is_found = False
            for digest, (lsns, parts) in list(roots.items()):
                if digest in self.paths or not self.blanks.isdisjoint(part for part, _lsn, _number, _level in parts):
                    is_found = True
                    del roots[digest]
                    self.hit |= lsns
                    self.blanks.update(part for part, _lsn, _number, level in parts if level)
                    self.hit.update(lsn for part, lsn, _number, _level in parts if part in self.blanks)

    def _refusal(self, lsn: int, error: SecretError) -> SecretError:
        """Return the error for a secret that cannot be replaced."""
        record = decode_record(bytes(self._old.get_log(lsn) or b""), lsn)
        owner = record.redacted().thread if record.flags & FLAG_REDACTED else owner_of(decode_event(record), lsn)
        row = self._view.find_thread(owner) if owner else None
        thread = None if row is None else self._purger.shown(row.id)
        place, rule, fingerprint = (error.facts.get(fact) for fact in ("path", "rule", "fingerprint"))
        what = "a secret" if rule is None else f"a secret ({rule} {fingerprint})"
        message = (
            f"record {lsn} has {what} in {place}, where it cannot be cut out. Delete the thread (or delete the entry,"
            " and prune the board with max_age=0), compact, and purge the rest. Nothing was changed"
        )
        return SecretError(message, lsn=lsn, path=place, thread=thread, rule=rule, fingerprint=fingerprint)
