"""The store file: the only package that uses LMDB.

`StoreFile.open` opens a store, and `StoreFile.read` begins a snapshot. `log.commit` writes to the store. Threads that
wait for commits use `Wake`. Tests use `faults`.
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
