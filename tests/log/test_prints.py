"""Fingerprints in memory: the last ones, up to a limit."""

import statelog
from statelog import reducers
from statelog.log.prints import _LISTS_MAX, SIZE_BYTES_MAX, Prints


def test_kept_fingerprints_are_used_once():
    prints = Prints()
    prints.keep(b"a", bytearray(b"1234"))
    prints.keep(b"a", bytearray(b"12"))
    assert prints.take(b"a") == b"12"
    assert prints.take(b"a") is None


def test_the_number_of_fingerprints_is_limited():
    prints = Prints()
    for number in range(3 * _LISTS_MAX):
        prints.keep(b"%d" % number, bytearray(2))
        assert len(prints._known) <= _LISTS_MAX
    for number in range(40):
        prints.keep(b"large %d" % number, bytearray(SIZE_BYTES_MAX // 8))
        assert sum(map(len, prints._known.values())) == prints._size_bytes <= SIZE_BYTES_MAX
        assert prints.take(b"large %d" % (number - 1)) is not None or not number


def test_fingerprints_of_dropped_lists_are_removed(store, monkeypatch):
    """Lists of many threads that are written once, and lists that are replaced, need no digests any more."""
    monkeypatch.setattr("statelog.log.prints._LISTS_MAX", 20)
    for number in range(60):
        thread = store.thread(f"t{number}", schema={"k": reducers.upsert("id")})
        thread.commit({"k": [{"id": "a", "text": "x" * 80}]})
        thread.commit({"k": [{"id": "b", "text": "x" * 80}]})
        thread.commit({"k": statelog.reducers.Overwrite([])})
        assert len(store._engine.committer.last.memory.prints._known) <= 20
    assert store.thread("t3").state == {"k": []}
