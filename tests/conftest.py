"""Profiles of Hypothesis, and stores that are verified when a test is done with them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck

import statelog
from statelog.testing import identical

_MEMORY = Path("/dev/shm")
sys.path.append(str(Path(__file__).parents[1]))  # For `benchmarks`. Last, so that an installed statelog comes first.


def pytest_configure(config):
    """See to it that temporary stores cost little, and the processes that tests start."""
    _put_stores_into_memory()
    _keep_bytecode(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Take half as many workers again as there are processors: tests wait, for processes and for flushes."""
    return max(len(os.sched_getaffinity(0)) * 3 // 2, 1)


def _put_stores_into_memory():
    """Put temporary stores into a file system in memory, if it has enough space.

    That is enough for the tests, because a killed process loses no written data there either. Power cuts are tested on
    images. STATELOG_TEST_DISK=1 keeps the stores on disk.
    """
    is_usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and not os.environ.get("STATELOG_TEST_DISK")
    if is_usable and shutil.disk_usage(_MEMORY).free > 2 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _keep_bytecode(config):
    """Compile the library once, instead of in each of a thousand processes, for half a second.

    If Python must not write bytecode (PYTHONDONTWRITEBYTECODE, as in containers), it goes to a directory that is
    removed at the end. Workers of xdist use that directory.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        kept = tempfile.mkdtemp(prefix="statelog-bytecode-")
        os.environ["PYTHONPYCACHEPREFIX"] = kept
        config.add_cleanup(lambda: shutil.rmtree(kept, ignore_errors=True))


_COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
hypothesis.settings.register_profile("dev", max_examples=12, **_COMMON)
hypothesis.settings.register_profile("ci", max_examples=12, derandomize=True, **_COMMON)
hypothesis.settings.register_profile("brief", max_examples=10, derandomize=True, **_COMMON)
hypothesis.settings.register_profile("nightly", max_examples=20_000, **_COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def soak_scale():
    """The factor for the work of soak tests, from STATELOG_SOAK_SCALE. The default is 1."""
    return float(os.environ.get("STATELOG_SOAK_SCALE", "1"))


@pytest.fixture
def path(tmp_path):
    """Where a test may make a store."""
    return tmp_path / "agent.state"


@pytest.fixture
def store(path):
    """An empty store. After the test, `verify` must find no problem in it."""
    with statelog.open(path) as opened:
        yield opened
        if not opened.closed:
            assert opened.verify().problems == []


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory):
    """One store for all examples of the properties of a module, each with other threads. It is verified at the end."""
    with statelog.open(tmp_path_factory.mktemp("shared") / "agent.state", durability="interval") as opened:
        yield opened
        assert opened.verify().problems == []


@contextmanager
def _refused(store, kind, **facts):
    """Expect an error of exactly this kind with these facts; the store as before, and usable after."""
    lsn = store.last_lsn
    states = {info.id: store.thread(info.id).state.to_python() for info in store.threads()}
    with pytest.raises(kind) as caught:
        yield caught
    assert type(caught.value) is kind
    for name, value in facts.items():
        assert identical(getattr(caught.value, name), value), name
    assert store.last_lsn == lsn
    assert {info.id: info.versions for info in store.threads()}.keys() == states.keys()
    for thread_id, state in states.items():
        assert identical(store.thread(thread_id).state, state)
    store.thread("another").commit({"still": "usable"})
    assert store.thread("another").state["still"] == "usable"


@pytest.fixture
def refused():
    """How a refusal is expected: `with refused(store, LimitError, limit=5): ...`."""
    return _refused


@pytest.fixture
def kinds():
    """The kinds of events of `notes`, registered while the test runs."""
    from notes import registered

    with registered():
        yield


@pytest.fixture(params=["nobody's", "a thread's"])
def owner(request, store):
    """The owner of the notes: nobody, or a thread."""
    from notes import thread_lsn

    from statelog.log.care.vacuum import NOBODY

    store.thread("owner").commit({"n": 0})
    return NOBODY if request.param == "nobody's" else thread_lsn(store, "owner")
