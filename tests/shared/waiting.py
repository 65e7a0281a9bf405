"""Waiting for what becomes so in another thread or process."""

import time


def until(is_so, within_s=10):
    """Return once it is so. Raises AssertionError: the time is up."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
