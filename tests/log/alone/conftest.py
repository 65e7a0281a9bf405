"""A thread whose commits one of the two kernels makes, which is watched."""

import pytest
from kernel_ways import Way, commit_until_made

import statelog
from statelog.log import engine as engine_module
from statelog.storage.commit import keeper


@pytest.fixture
def never_settled_by_time(monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)


@pytest.fixture(params=["commit_alone", "commit_flushed"])
def kernel(request):
    return request.param


@pytest.fixture
def durability(kernel):
    return "interval" if kernel == "commit_alone" else "commit"


@pytest.fixture
def store(path, durability):
    with statelog.open(path, durability=durability, interval_ms=60_000) as opened:
        yield opened
        assert opened.verify().ok


@pytest.fixture
def way(kernel, monkeypatch):
    watched = Way(kernel)
    monkeypatch.setattr(engine_module, kernel, watched)
    return watched


@pytest.fixture
def thread(store, way):
    """A thread whose next commit is made by the kernel."""
    found = store.thread("t")
    commit_until_made(found, way)
    return found
