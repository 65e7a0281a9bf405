"""What users meet first, measured beside its peers on their own disk: `statelog bench`.

Every workload prints what it measured, in which durability mode, and whether that meets its
target, met or not. Compared sides run in turn, on one disk: read the ratios, not the times.
Workloads that only a developer of statelog needs are in `benchmarks/`.
"""

from statelog.bench.runner import REPEATS_DEFAULT, SCALE_DEFAULT, run
from statelog.bench.workload import KEYS_DEFAULT
from statelog.bench.workloads import WORKLOADS

__all__ = ["KEYS_DEFAULT", "REPEATS_DEFAULT", "SCALE_DEFAULT", "WORKLOADS", "run"]
