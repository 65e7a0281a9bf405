"""The store file: the only room that knows LMDB.

`Environment.open` gives the file, `Environment.read` a snapshot, `Committer.submit`
the one way to write; `faults` and `Wake` serve tests and those who wait.
"""

from statelog.storage.commit import Committer
from statelog.storage.environment import Environment
from statelog.storage.options import Durability
from statelog.storage.statistics import EnvironmentStatistics, TableStatistics
from statelog.storage.transactions import ReadTransaction
from statelog.storage.wake import Wake
from statelog.storage.writing import WriteTransaction

__all__ = [
    "Committer",
    "Durability",
    "Environment",
    "EnvironmentStatistics",
    "ReadTransaction",
    "TableStatistics",
    "Wake",
    "WriteTransaction",
]
