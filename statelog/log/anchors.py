"""Takes anchors of a store, and compares its log with an anchor that was kept elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import ForgeryError, OtherStoreError, RollbackError
from statelog.format.anchor import Anchor, decode_anchor, encode_anchor
from statelog.format.purge_key import read_purged_lsn
from statelog.format.record import NO_DIGEST
from statelog.log.chain import read_chained
from statelog.log.view import missing

if TYPE_CHECKING:
    from statelog.log.engine import Engine
    from statelog.log.transaction import IndexedLog


def take_anchor(engine: Engine) -> bytes:
    """Return the anchor of the durable records; see `Store.anchor`."""
    store_file = engine.store_file
    if store_file.read_only:
        lsn = store_file.flushed_lsn()
    else:
        with engine.read() as view:
            lsn = view.transaction.last_lsn()
        engine.flush()
        # A commit may be in LMDB before it is in the WAL, so the last record may not be durable yet.
        lsn = min(lsn, store_file.flushed_lsn())
    with engine.read() as view:
        return encode_anchor(Anchor(store_file.lmdb_file.store_id, lsn, _chain_at(view.transaction, lsn)))


class ExpectedHistory:
    """The history that a store's log must have to match an anchor."""

    def __init__(self, anchor: object) -> None:
        """Decode an anchor. Raises AnchorError, NewerFormatError."""
        self._anchor = decode_anchor(anchor)

    @property
    def lsn(self) -> int:
        """The LSN of the anchor."""
        return self._anchor.lsn

    def check(self, engine: Engine, transaction: IndexedLog) -> None:
        """Compare the chain digest at the anchor's LSN with the anchor. This reads one record, or up to 64 short ones.

        Raises:
            RollbackError, ForgeryError, OtherStoreError: the log does not have this history.
            CorruptionError: one of these records is damaged.
        """
        store_id, lsn, expected = self._anchor
        path, own_id = engine.store_file.path, engine.store_file.lmdb_file.store_id
        last_lsn = transaction.last_lsn()
        found = _chain_at(transaction, lsn) if lsn <= last_lsn else None
        is_same_store = store_id == own_id
        if found == expected and (lsn or is_same_store):
            return
        facts = {"path": str(path), "lsn": lsn, "expected": expected.hex(), "found": found and found.hex()}
        if not is_same_store:
            message = (
                f"{path} does not have the history of the expected anchor up to LSN {lsn}:"
                f" the anchor was taken from a different store ({store_id.hex()}, not {own_id.hex()})"
            )
            raise OtherStoreError(message, **facts, expected_store_id=store_id.hex(), found_store_id=own_id.hex())
        if found is None:
            message = (
                f"{path} ends at LSN {last_lsn}, but had reached LSN {lsn} when the expected anchor was taken:"
                " the file is an earlier copy, or its end was cut off"
            )
            raise RollbackError(message, **facts, last_lsn=last_lsn)
        message = (
            f"{path} has a different history than the expected anchor:"
            f" the chain digest at LSN {lsn} is {found.hex()}, not {expected.hex()}"
        )
        with engine.store_file.read() as snapshot:
            purged_lsn = read_purged_lsn(snapshot)
        if lsn <= purged_lsn:
            message += f". A purge has rewritten the records up to LSN {purged_lsn}: take a new anchor"
        raise ForgeryError(message, **facts)


def check_opened(engine: Engine, expected: ExpectedHistory) -> None:
    """Check the history of a store that was just opened. Close the store if the history differs."""
    try:
        with engine.read() as view:
            expected.check(engine, view.transaction)
    except BaseException:
        engine.close()
        raise


def _chain_at(transaction: IndexedLog, lsn: int) -> bytes:
    """Return the chain digest of the log up to an LSN. The log has this record, or the LSN is 0."""
    if not lsn:
        return NO_DIGEST
    found = read_chained(transaction.get_log, lsn)
    if found is None:
        raise missing("record", lsn)
    return found[1]
