"""Arguments that cannot be: named, with the value they had, in the facts of the error."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

import statelog
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
        (lambda store, _thread: store.prune(keep_last=0), "keep_last", 0),
        (lambda store, _thread: store.set_retention(keep_last=2**64), "keep_last", 2**64),
        (lambda store, _thread: store.set_retention(max_age=1e300), "max_age", 1e300),
        (lambda store, _thread: store.prune(max_age="1h"), "max_age", "1h"),
        (lambda store, _thread: store.prune(keep_last=1, threads=""), "pattern of thread ids", ""),
        (lambda store, _thread: store.export(io.BytesIO(), since=-1), "since", -1),
        (lambda store, _thread: store.export(io.BytesIO(), threads="t"), "threads", "t"),
        (lambda store, _thread: store.export(io.BytesIO(), threads=3), "threads", 3),
        (lambda store, _thread: store.export(io.BytesIO(), threads=b"t"), "threads", b"t"),
        (lambda store, _thread: store.export(io.BytesIO(), threads=["t", 3]), "thread id", 3),
        (lambda store, _thread: store.export(io.BytesIO(), threads=["\ud800"]), "thread id", "\ud800"),
        (lambda store, _thread: store.prune(keep_last="x"), "keep_last", "x"),
        (lambda store, _thread: store.prune(keep_last=1, threads=3), "pattern of thread ids", 3),
        (lambda store, _thread: store.set_retention(keep_last=1, keep_tags="x"), "keep_tags", "x"),
        (lambda store, _thread: store.thread("t", recreate="no"), "recreate", "no"),
        (lambda store, _thread: store.prune(keep_last=1, pinned=3), "pinned", 3),
        (lambda store, _thread: store.prune(keep_last=1, pinned=["first"]), "pinned", "first"),
        (lambda store, _thread: store.expire(3), "checkpoints", 3),
        (lambda store, _thread: store.expire([None]), "checkpoints", None),
        (lambda store, _thread: store.delete_thread(3), "thread id", 3),
        (lambda store, _thread: store.log(follow=True, timeout_s="x"), "timeout_s", "x"),
        (lambda store, _thread: store.wait("x", 0.1), "after", "x"),
        (lambda store, _thread: store.wait(0, "x"), "timeout_s", "x"),
        (lambda store, _thread: store.verify(progress=3), "progress", 3),
        (lambda store, _thread: store.statistics(progress=3), "progress", 3),
        (lambda store, _thread: store.rebuild_index(3), "progress", 3),
        (lambda store, _thread: store.compact(progress=3), "progress", 3),
        (lambda store, _thread: store.export(io.BytesIO(), progress=3), "progress", 3),
        (lambda store, _thread: store.import_(io.BytesIO(), progress=3), "progress", 3),
        (lambda _store, _thread: statelog.open(3), "path", 3),
        (lambda _store, _thread: statelog.open(b"s"), "path", b"s"),
        (lambda _store, _thread: statelog.open(""), "path", ""),
        (lambda _store, _thread: statelog.open("a\0b"), "path", "a\0b"),
        (lambda _store, _thread: statelog.open("a\ud800b"), "path", "a\ud800b"),
        (lambda _store, thread: thread.edit(3), "change", 3),
        (lambda _store, thread: thread.at(1.5), "target", 1.5),
        (lambda _store, thread: thread.history(limit=-1), "limit", -1),
        (lambda _store, thread: thread.history(before="1"), "before", "1"),
        (lambda _store, thread: thread.head.ancestor(-1), "generations", -1),
        (lambda _store, thread: thread.commit({}, metadata=[1]), "metadata", [1]),
        (lambda _store, thread: thread.commit({}, id=""), "checkpoint id", ""),
        (lambda _store, thread: thread.commit({}, id="2~0123456789abcdef"), "id", "2~0123456789abcdef"),
        (lambda _store, thread: thread.commit({}, expected_version="1"), "expected_version", "1"),
        (lambda _store, thread: thread.fork(""), "branch", ""),
        (lambda _store, thread: thread.checkout(None), "branch", None),
        (lambda _store, thread: thread.checkout(1), "branch", 1),
        (lambda _store, thread: thread.checkout("\ud800"), "branch", "\ud800"),
        (lambda store, _thread: store.board().list(["a"]), "pattern", ["a"]),
        (lambda store, _thread: store.board().claims({}), "pattern", {}),
        (lambda store, _thread: list(store.board().watch(["a"], after=0, follow=False)), "pattern", ["a"]),
        (lambda store, _thread: store.board().prune(["a"], keep_last=9), "pattern", ["a"]),
        (lambda store, _thread: store.board().claim({}), "pattern", {}),
        (lambda store, _thread: store.board().claim("a", unless=None), "unless", None),
        (lambda store, _thread: store.board().claim("a", unless=3), "unless", 3),
        (lambda *_: statelog.register_codec("x", name="n", encode=int, decode=int), "kind", "x"),
        (lambda *_: statelog.register_codec(Neither, name=None, encode=int, decode=int), "name", None),
        (lambda *_: statelog.register_codec(Neither, name="n", encode=3, decode=int), "encode", 3),
        (lambda _store, thread: thread.tag(""), "tag", ""),
        (lambda _store, thread: thread.tag("2~0123456789abcdef"), "tag", "2~0123456789abcdef"),
        (lambda _store, _thread: reducers.upsert(""), "key", ""),
    ],
)
def test_an_argument_that_is_refused_is_named_with_its_value(refused, store, thread, act, argument, value):
    with refused(store, UsageError, argument=argument, value=value):
        act(store, thread)


NULL = Path(os.devnull)


def closed():
    stream = io.BytesIO()
    stream.close()
    return stream


class Neither(io.RawIOBase):
    """A raw stream that can neither be read nor written."""


@pytest.mark.parametrize("threads", [None, ["t"]])
@pytest.mark.parametrize("stream", [NULL.open("rb"), closed(), Neither(), io.StringIO(), None])
def test_a_target_that_takes_no_bytes_is_refused_by_an_export(refused, store, thread, stream, threads):
    assert thread.id == "t"
    with refused(store, UsageError, argument="target") as caught:
        store.export(stream, threads=threads)
    assert caught.value.value is stream


@pytest.mark.parametrize("stream", [NULL.open("wb"), closed(), Neither(), io.StringIO("text"), None])
def test_a_source_without_bytes_is_refused_by_an_import(refused, store, thread, stream):
    assert thread.id == "t"
    with refused(store, UsageError, argument="source") as caught:
        store.import_(stream)
    assert caught.value.value is stream


def test_a_name_too_long_is_named(refused, store, thread):
    with refused(store, LimitError, argument="tag", value="x" * 256, actual=256, limit=255):
        thread.tag("x" * 256)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("durability", []),
        ("durability", "never"),
        ("interval_ms", "x"),
        ("interval_ms", 0),
        ("interval_ms", 0.5),
        ("durability", "batched"),
        ("max_size_bytes", "x"),
        ("max_size_bytes", 1e9),
        ("max_size_bytes", 1),
        ("lock_timeout_s", "x"),
        ("lock_timeout_s", float("nan")),
        ("lock_timeout_s", -1),
    ],
)
def test_an_option_that_cannot_be_makes_no_file(path, option, value):
    with pytest.raises(UsageError, match=option) as raised:
        statelog.open(path, **{option: value})
    assert repr(raised.value.facts[option]) == repr(value)
    assert list(path.parent.iterdir()) == []
