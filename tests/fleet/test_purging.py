"""After a purge or a deletion, the storage has no byte of the deleted data, neither raw nor compressed."""

from __future__ import annotations

import random

import pytest
import zstandard

from statelog.errors import StoreNotFoundError

SECRET = "the secret that nobody may keep"
_MAGIC = b"\x28\xb5\x2f\xfd"


def is_in(archive, text):
    """Return whether a text is in an object, raw or compressed."""
    return any(text.encode() in found.data + expanded(found.data) for found in archive.read_all(archive.names("")))


def expanded(data):
    at = data.find(_MAGIC)
    return zstandard.decompress(data[at:], max_output_size=1 << 28) if at >= 0 else b""


@pytest.fixture
def kept(archive, machine):
    """A store whose secret is in a segment, in a base and after it. Then it is deleted."""
    filler = random.Random(1).randbytes(1_500_000)  # An image then has several pieces.
    with machine("a", archive).open("t") as store:
        store.thread("filler").commit({"data": filler})
        store.thread("secret").commit({"said": SECRET}, durable="remote")
        store.remote.base()
        store.thread("secret").commit({"said": f"again: {SECRET}"}, durable="remote")
        store.thread("chat").commit({"n": 1})
        store.delete_thread("secret")
    return machine("a", archive)


@pytest.mark.slow
def test_after_a_purge_no_removed_text_is_in_the_storage(archive, machine, kept):
    assert is_in(archive, SECRET), "it was shipped"
    kept.purge("t")
    assert not is_in(archive, SECRET)
    with machine("b", archive).open("t") as store:
        assert store.thread("chat").state["n"] == 1
        assert store.verify().problems == []
    assert kept.check() == []


def test_after_a_deletion_only_a_head_is_left(archive, kept):
    kept.delete("t")
    assert archive.names("") == ["t/head"]
    assert not is_in(archive, SECRET)
    with pytest.raises(StoreNotFoundError):
        kept.status("t")
