"""Having commits wait for LMDB's transaction."""

import pytest


def waits(store):
    return store._engine.environment.deferred.waiting.last is not None


def commit_until_waiting(thread, store, count=1000):
    """Commit at least 25 times, until something waits; return the number that was committed last."""
    for number in range(count):
        thread.commit({"x": number})
        if waits(store) and number >= 24:
            return number
    pytest.fail("nothing waits")
