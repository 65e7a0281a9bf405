"""The store file: the only room that knows LMDB.

`Environment.open` gives the file, `Environment.read` a snapshot, `Committer.submit`
the one way to write; `faults` and `Wake` serve tests and those who wait.
"""

from lmdb import version as lmdb_version

from statelog.storage.commit.commit import Committer
from statelog.storage.commit.transaction import WriteTransaction
from statelog.storage.environment import Environment
from statelog.storage.file.reading import ReadTransaction
from statelog.storage.notify.wake import Wake
from statelog.storage.options import Durability

__all__ = [
    "Committer",
    "Durability",
    "Environment",
    "ReadTransaction",
    "Wake",
    "WriteTransaction",
    "lmdb_version",
]
