"""A clock that only the test advances."""

from __future__ import annotations


class Clock:
    """Returns seconds since 1970 UTC."""

    def __init__(self):
        self.now_s = 1_700_000_000.0

    def __call__(self):
        return self.now_s
