"""The clocks by which deadlines are set and compared.

A deadline is a time of CLOCK_BOOTTIME, which nobody can set and which also runs while the machine sleeps. It is valid
within one boot and one time namespace, and its tag is a digest of both. A process in a different boot or namespace
compares the wall-clock time of the deadline instead. It waits at most one whole lease after it first saw the claim.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.format.board_keys import TAG_SIZE_BYTES
from statelog.format.digests import blake2b
from statelog.log.times import now_us

if TYPE_CHECKING:
    from statelog.log.kinds.entries import Claimed

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")
_SEEN_MAX = 4096


class ProcessClocks:
    """The clocks of this process. Tests replace this object."""

    def __init__(self) -> None:
        self._first_seen: dict[int, int] = {}

    @property
    def tag(self) -> bytes:
        """A digest of the boot id and the time namespace.

        Values of `boot_us` are comparable only if their tags are equal.
        """
        return _tag()

    def boot_us(self) -> int:
        """Return the time since this machine was started, in microseconds."""
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000

    def wall_us(self) -> int:
        """Return the wall-clock time, in microseconds."""
        return now_us()

    def left_us(self, claim: Claimed) -> int:
        """Return the microseconds until the deadline of a claim. The result is not positive after the deadline."""
        if claim.tag == self.tag:
            return claim.deadline_us - self.boot_us()
        first_us = self._first_seen.get(claim.token)
        if first_us is None:
            if len(self._first_seen) >= _SEEN_MAX:
                self._first_seen.clear()
            first_us = self._first_seen[claim.token] = self.boot_us()
        return min(claim.until_us - self.wall_us(), first_us + claim.lease_us - self.boot_us())


@cache
def _tag() -> bytes:
    try:
        boot = _BOOT_ID.read_bytes()
        namespace = str(_TIME_NAMESPACE.readlink()) if _TIME_NAMESPACE.is_symlink() else ""
    except OSError:  # Without Linux's /proc files, the tag is valid only in this process.
        boot, namespace = os.urandom(16), ""
    digest = blake2b(boot + namespace.encode(), digest_size=TAG_SIZE_BYTES).digest()
    return digest if any(digest) else b"\1" * TAG_SIZE_BYTES


CLOCK = ProcessClocks()
