"""Calls functions in another OS thread."""

from concurrent.futures import ThreadPoolExecutor


def elsewhere(act, *args, **kwargs):
    """Return the result of a call in another OS thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act, *args, **kwargs).result()
