"""Cut the power at every point of what a store writes, and look at everything the disk may then hold.

    report = check_power_loss(images=5000)
    assert report.ok, report.bad[0]

A workload is done in a child process whose writes, flushes and names are recorded (`shim.c`, `recorder.py`); `disk.py`
tells what a disk may hold at any point of that; `examine.py` builds those images and opens each (`oracle.py`).
`controls.py` has disks that break their promise, each of which must be found out. It needs a 64-bit Linux, and a C
compiler.
"""

from statelog.testing.powerloss.campaign import PowerLossReport, check_power_loss, examine_recordings
from statelog.testing.powerloss.controls import run_controls
from statelog.testing.powerloss.recorder import Recording, record
from statelog.testing.powerloss.shim import is_supported
from statelog.testing.powerloss.workloads import Workload, standard_workloads

__all__ = [
    "PowerLossReport",
    "Recording",
    "Workload",
    "check_power_loss",
    "examine_recordings",
    "is_supported",
    "record",
    "run_controls",
    "standard_workloads",
]
