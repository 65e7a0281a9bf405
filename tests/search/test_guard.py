"""A search shows nothing that a guard hides, and a purge leaves nothing in the index."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("re2")

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, guard, reducers

SCHEMA = {"messages": reducers.append}


def hides(word, verdict=guard.quarantine):
    def check(value, _where):
        return verdict("a word") if word in repr(value) else guard.allow()

    return check


def say(store, *texts):
    for text in texts:
        store.thread("t", schema=SCHEMA).commit({"messages": {"role": "user", "content": text}})


def found(store, query="refund", **conditions):
    return sorted(hit.text for hit in store.search(query, **conditions))


def test_a_quarantined_text_is_found_once_it_is_released(tmp_path):
    with statelog.open(tmp_path / "s", guard=Guard(on_write=[hides("evil")])) as store:
        say(store, "a refund", "an evil refund")
        store.board().set("k", {"a": "evil refund", "b": "good refund"})
        assert found(store) == ["a refund", "good refund"]
        assert found(store, "evil") == found(store, "evil", history=True) == []
        assert b"evil" not in b"".join(each.read_bytes() for each in tmp_path.glob("s-search*"))
        for place in store.quarantined():
            store.release(place)
        assert found(store, "evil") == ["an evil refund", "evil refund"]


@pytest.mark.parametrize("verdict", [guard.quarantine, guard.redact, guard.refuse])
def test_values_hidden_by_a_check_of_reads_are_not_found(tmp_path, verdict):
    with statelog.open(tmp_path / "s") as store:
        say(store, "a refund", "an evil refund")
        store.board().set("k", "evil refund")
        store.board().set("l", "good refund")
        assert len(found(store)) == 4
    with statelog.open(tmp_path / "s", guard=Guard(on_read=[hides("evil", verdict)])) as store:
        assert found(store) == ["a refund", "good refund"]
        assert found(store, "evil", history=True) == []


def test_a_purged_secret_is_in_no_file_and_the_rest_is_found(tmp_path):
    secret = SECRETS["github-token"](Random(50))
    with statelog.open(tmp_path / "s") as store:
        say(store, f"refund with {secret} in it", "another refund")
        assert len(found(store)) == 2
        words = secret.lower().split("_")[1].encode()
        assert words in b"".join(each.read_bytes() for each in tmp_path.glob("s-search*"))
        store.purge(store.find_secrets())
        assert list(tmp_path.glob("s-search*")) == []
        texts = found(store)
        assert len(texts) == 2
        assert secret not in repr(texts)
        assert words not in b"".join(each.read_bytes() for each in tmp_path.glob("s-search*"))
