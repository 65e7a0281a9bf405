"""The store file: the only room that knows LMDB.

`StoreFile.open` opens it, `StoreFile.read` begins a snapshot, and `Committer.submit` is the only way to write. `faults`
serves tests, and `Wake` serves waiters.
"""

from lmdb import version as lmdb_version

from statelog.storage.commit.commit import Committer
from statelog.storage.notify.wake import Wake
from statelog.storage.options import Durability
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.store_file import StoreFile
from statelog.storage.write_transaction import WriteTransaction

__all__ = [
    "Committer",
    "Durability",
    "ReadTransaction",
    "StoreFile",
    "Wake",
    "WriteTransaction",
    "lmdb_version",
]
