"""The kernels that make commits alone, watched."""

from contextlib import contextmanager

import pytest

from statelog import kernels


class Way:
    """A wrapper of the kernel, which counts its results and runs code around its next call."""

    def __init__(self, kernel):
        self.kernel = getattr(kernels, kernel)
        self.made = self.refused = 0
        self.last = None
        self.around = None

    def __call__(self, *arguments):
        around, self.around = self.around, None
        self.last = arguments
        if around is None:
            found = self.kernel(*arguments)
        else:
            with around():
                found = self.kernel(*arguments)
        self.made += found is not None
        self.refused += found is None
        return found


def commit_until_made(thread, way):
    """Commit until the kernel has made one, with nothing due at the next."""
    for number in range(2000):
        made = way.made
        thread.commit({"x": number})
        groups = thread._session.engine.store_file.committer.groups
        if way.made > made and number > 30 and groups % 256 < 200:
            put_off_looks(thread)
            return
    pytest.fail("the kernel makes none")


def put_off_looks(thread):
    store_file = thread._session.engine.store_file
    store_file.lmdb_file.locks.look_at_s = store_file.wake.slot_file.look_at_s = float("inf")


@contextmanager
def changed(owner, **values):
    """Attributes have other values for a while."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
