"""The store file: the only room that knows LMDB.

`Environment.open` opens the file, and `Environment.read` reads a snapshot. `log.commit` writes. `Wake` is for those who
wait, and `faults` for tests.
"""

from lmdb import version as lmdb_version

from statelog.storage.commit.transaction import WriteTransaction
from statelog.storage.environment import Environment
from statelog.storage.file.reading import ReadTransaction
from statelog.storage.notify.wake import Wake
from statelog.storage.options import Durability

__all__ = [
    "Durability",
    "Environment",
    "ReadTransaction",
    "Wake",
    "WriteTransaction",
    "lmdb_version",
]
