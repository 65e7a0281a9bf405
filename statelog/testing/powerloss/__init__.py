"""Simulates power cuts at every point of a store's writes, and examines everything that the disk may then have.

    report = check_power_loss(images=5000)
    assert report.ok, report.bad[0]

A child process runs a workload, and its writes, flushes and file names are recorded (`shim.c`, `recorder.py`).
`disk.py` computes what a disk may have at any point of the recording. `examine.py` builds these images, and `oracle.py`
opens and judges each one. `controls.py` has faulty disks, each of which must be detected. This needs a 64-bit Linux
and a C compiler.
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
