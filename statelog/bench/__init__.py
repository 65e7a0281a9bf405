"""What statelog must reach, measured beside its peers: `statelog bench` and `pytest benchmarks`.

Every workload prints what it measured, in which durability mode, and whether that meets its
target, met or not. Compared sides run in turn, in one process, on one disk: read the ratios,
not the times.
"""

from statelog.bench.runner import REPEATS_DEFAULT, SCALE_DEFAULT, run
from statelog.bench.workloads import WORKLOADS

__all__ = ["REPEATS_DEFAULT", "SCALE_DEFAULT", "WORKLOADS", "run"]
