"""What Python's `os` does not offer of the disk."""

from __future__ import annotations

from statelog._kernels import lib
from statelog.kernels.calling import OK


def start_writing(descriptor: int) -> bool:
    """Have a file's dirty pages written, without waiting: a flush soon after takes less time.

    It promises nothing, and takes no error from that flush. False where the system cannot be asked, which is no error.
    """
    status: int = lib.sl_start_writing(descriptor)
    return status == OK
