"""`statelog bench` compares the operations that users meet first with those of other libraries, on the user's disk.

Every workload prints its measurements, the durability, and whether they meet the target. Compared sides take turns on
one disk, so read the ratios, not the times. Workloads for developers of statelog are in `benchmarks/regression/`.
"""

from benchmarks.runner import REPEATS_DEFAULT, SCALE_DEFAULT, run
from benchmarks.workload import KEYS_DEFAULT
from benchmarks.workloads import WORKLOADS

__all__ = ["KEYS_DEFAULT", "REPEATS_DEFAULT", "SCALE_DEFAULT", "WORKLOADS", "run"]
