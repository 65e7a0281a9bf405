"""The store file: the only room that knows LMDB.

`StoreFile.open` opens it, and `StoreFile.read` begins a snapshot. `log.commit` writes. `faults` serves tests,
and `Wake` serves waiters.
"""

from lmdb import version as lmdb_version

from statelog.storage.notify.wake import Wake
from statelog.storage.options import Durability
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.store_file import StoreFile
from statelog.storage.write_transaction import WriteTransaction

__all__ = [
    "Durability",
    "ReadTransaction",
    "StoreFile",
    "Wake",
    "WriteTransaction",
    "lmdb_version",
]
