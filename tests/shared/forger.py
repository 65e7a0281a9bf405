"""An attacker who can write the files of a store and knows the format. He has no key, but corrects all checksums."""

from __future__ import annotations

from contextlib import contextmanager

import lmdb
from xxhash import xxh3_64_digest

from statelog.format import cbor
from statelog.format.header import HEADER_KEY, encode_header
from statelog.format.record import FLAG_VACUUMED, FLAGS_AT
from statelog.format.seal import seal, unseal

MAC_SIZE_BYTES = 16
SEAL_SIZE_BYTES = 8


class Forger:
    """The tables of a file, for one attack."""

    def __init__(self, environment, transaction):
        self._transaction = transaction
        self._tables = {name: environment.open_db(name, txn=transaction) for name in (b"meta", b"log", b"index")}

    def get(self, table, key):
        return self._transaction.get(key, db=self._tables[table])

    def put(self, table, key, value):
        self._transaction.put(key, value, db=self._tables[table])

    def delete(self, table, key):
        self._transaction.delete(key, db=self._tables[table])

    def rows(self, table):
        return [(bytes(key), bytes(value)) for key, value in self._transaction.cursor(self._tables[table])]

    def record(self, lsn):
        """Return a stored record."""
        return self.get(b"log", lsn.to_bytes(8))

    def put_record(self, lsn, stored):
        self.put(b"log", lsn.to_bytes(8), stored)


@contextmanager
def forging(path):
    """Lend a `Forger` of a closed store."""
    with (
        lmdb.open(str(path), subdir=False, max_dbs=4, map_size=1 << 28) as environment,
        environment.begin(write=True) as transaction,
    ):
        yield Forger(environment, transaction)


def with_checksum(record):
    """Return a record, with a checksum that fits it; of a short record, with one that fits its LSN still."""
    assert not record[FLAGS_AT] & FLAG_VACUUMED
    return xxh3_64_digest(record[8:]) + record[8:]


def with_fields(header, **fields):
    """Return a header with other fields and a new checksum."""
    return seal(HEADER_KEY, cbor.encode({**cbor.decode(unseal(HEADER_KEY, header)), **fields}))


def make_unkeyed(path):
    """Turn a store with a key into one without, with the same contents."""
    with forging(path) as forger:
        fields = cbor.decode(unseal(HEADER_KEY, forger.get(b"meta", HEADER_KEY)))
        header = encode_header(store_id=fields["store_id"], created_us=fields["created_us"])
        forger.put(b"meta", HEADER_KEY, header)
        for key, value in forger.rows(b"log"):
            forger.put(b"log", key, value[:-MAC_SIZE_BYTES])
        for key, value in forger.rows(b"index"):
            forger.put(b"index", key, seal(key, value[:-SEAL_SIZE_BYTES]))
