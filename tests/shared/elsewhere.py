"""What somebody else does meanwhile."""

from concurrent.futures import ThreadPoolExecutor


def elsewhere(act, *args, **kwargs):
    """Return what a call returns in an OS thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act, *args, **kwargs).result()
