"""Arguments that cannot be: named, with the value they had, in the facts of the error."""

from __future__ import annotations

import io

import pytest

from statelog import reducers
from statelog.errors import LimitError, UsageError


@pytest.fixture
def thread(store):
    """A thread with a checkpoint."""
    thread = store.thread("t")
    thread.commit({"any": 1}, id="first")
    return thread


@pytest.mark.parametrize(
    ("act", "argument", "value"),
    [
        (lambda store, _thread: store.thread(""), "thread id", ""),
        (lambda store, _thread: store.thread("\ud800"), "thread id", "\ud800"),
        (lambda store, _thread: store.log(after=-1), "after", -1),
        (lambda store, _thread: store.retain(keep_last=0), "keep_last", 0),
        (lambda store, _thread: store.retain(keep_last=2**64, as_policy=True), "keep_last", 2**64),
        (lambda store, _thread: store.retain(max_age=1e300, as_policy=True), "max_age", 1e300),
        (lambda store, _thread: store.retain(max_age="1h"), "max_age", "1h"),
        (lambda store, _thread: store.retain(keep_last=1, threads=""), "pattern of thread ids", ""),
        (lambda store, _thread: store.export(io.BytesIO(), since=-1), "since", -1),
        (lambda store, _thread: store.export(io.BytesIO(), threads="t"), "threads", "t"),
        (lambda _store, thread: thread.at(1.5), "target", 1.5),
        (lambda _store, thread: thread.history(limit=-1), "limit", -1),
        (lambda _store, thread: thread.history(before="1"), "before", "1"),
        (lambda _store, thread: thread.head.ancestor(-1), "generations", -1),
        (lambda _store, thread: thread.commit({}, metadata=[1]), "metadata", [1]),
        (lambda _store, thread: thread.commit({}, id=""), "checkpoint id", ""),
        (lambda _store, thread: thread.commit({}, id="2~0123456789abcdef"), "id", "2~0123456789abcdef"),
        (lambda _store, thread: thread.commit({}, expected_version="1"), "expected_version", "1"),
        (lambda _store, thread: thread.fork(""), "branch", ""),
        (lambda _store, thread: thread.tag(""), "tag", ""),
        (lambda _store, thread: thread.tag("2~0123456789abcdef"), "tag", "2~0123456789abcdef"),
        (lambda _store, _thread: reducers.upsert(""), "key", ""),
    ],
)
def test_an_argument_that_is_refused_is_named_with_its_value(refused, store, thread, act, argument, value):
    with refused(store, UsageError, argument=argument, value=value):
        act(store, thread)


def test_a_name_too_long_is_named(refused, store, thread):
    with refused(store, LimitError, argument="tag", value="x" * 256, actual=256, limit=255):
        thread.tag("x" * 256)
