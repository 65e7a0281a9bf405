"""The garbage that a commit leaves in memory."""

import gc
import operator

import pytest

from benchmarks.stores import opened
from statelog import reducers


@pytest.mark.slow
@pytest.mark.parametrize("write", [{"step": 1}, {"log": ["an entry"]}, {"notes": {"a": {"b": "c" * 100}}}])
def test_a_commit_leaves_no_garbage(tmp_path, write):
    """Cycles stay until the collector has visited all objects of the process."""
    with opened(tmp_path / "a.state", flush=False) as store:
        thread = store.thread("t", schema={"step": reducers.replace, "log": operator.add, "notes": reducers.merge})
        for _ in range(3):
            thread.commit({"step": 0, "log": []})
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                thread.commit(write)
            assert gc.collect() < 100  # allows for other work of this process
        finally:
            gc.enable()
