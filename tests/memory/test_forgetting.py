"""What is forgotten is found by no read, and after a compaction by no look at the files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime
from random import Random

import pytest

import statelog
from benchmarks.guard_texts import SECRETS as GUARD_SECRETS
from statelog import Memory, durable, guard
from statelog.errors import CursorExpiredError, UsageError

SECRETS = [f"zyx{number}wvu" for number in range(8)]


def raw_bytes(store):
    """Return all bytes of the files beside a store, those of its WAL and its indexes included."""
    return b"".join(path.read_bytes() for path in sorted(store.path.parent.glob(f"{store.path.name}*")))


def found_in_files(store):
    data = raw_bytes(store)
    return [secret for secret in SECRETS if secret.encode() in data]


def embed(texts):
    return [[float(len(text)), 1.0] for text in texts]


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state") as opened:
        yield opened


@durable.workflow
def trip(run, city):
    run.step(str.upper, city)
    return city


@durable.workflow
def waits(run, city):
    run.gate("approve", payload=city)


def test_a_forgotten_fact_is_found_by_no_read(store):
    pytest.importorskip("numpy")
    memory = Memory(store, "user/42", embed=embed, dims=2)
    for secret in SECRETS[:3]:
        memory.remember(secret, key="diet", source=secret, pinned=True)
    memory.remember("likes jazz", key="music")
    lsn, board, place = store.last_lsn, store.board(), "memory/user/42/:facts/diet"
    assert len(store.search(SECRETS[2])) == 1
    assert memory.forget("diet")
    assert [store.search(secret, history=history) for secret in SECRETS for history in (False, True)] == [[]] * 16
    assert not memory.forget("diet")
    assert memory.get("diet") is None
    assert memory.history("diet") == memory.pinned() == []
    assert [fact.key for fact in memory.recall(SECRETS[2], limit=10)] == ["music"]
    assert board.get(place) is None
    assert board.history(place) == []
    assert place not in [entry.key for entry in board.list()]
    assert board.rollback("memory/", to=lsn) == []
    assert memory.get("diet") is None
    assert found_in_files(store) != []  # The bytes are still there, so the search below can fail.
    store.compact()
    assert found_in_files(store) == []
    assert memory.get("music").text == "likes jazz"
    assert store.verify().problems == []


def test_the_vectors_of_a_forgotten_fact_are_in_no_file(store):
    np = pytest.importorskip("numpy")
    vectors = {name: np.random.default_rng(number).standard_normal(8, dtype="f4") for number, name in enumerate("ab")}
    memory = Memory(store, "user/42", embed=lambda texts: [vectors[text] for text in texts], dims=8)
    memory.remember("a", key="k")
    memory.remember("b", key="other")
    memory.recall("a")
    assert all(vector.tobytes() in raw_bytes(store) for vector in vectors.values())
    memory.forget("k")
    assert [fact.key for fact in memory.recall("a")] == ["other"]
    store.compact()
    assert [vector.tobytes() in raw_bytes(store) for vector in vectors.values()] == [False, True]


def test_a_key_that_was_forgotten_begins_anew(store):
    memory = Memory(store, "user/42")
    memory.remember("old", key="diet")
    memory.forget("diet")
    memory.remember("new", key="diet")
    assert [fact.text for fact in memory.history("diet")] == ["new"]


def test_forgetting_a_key_leaves_longer_keys(store):
    memory = Memory(store, "user/42")
    for key in ("diet", "diet/lunch", "diets"):
        memory.remember(key, key=key)
    memory.forget("diet")
    assert [fact.key for fact in memory.facts()] == ["diet/lunch", "diets"]


def fill(store, scope, secret):
    """Put a secret wherever something of a scope can be."""
    memory = Memory(store, scope)
    memory.remember(secret, key="diet")
    memory.remember(f"{secret} again", key="diet", source=secret)
    with memory.session("s-1", ttl_s=3600).turn("evt-1") as turn:
        turn.working["plan"] = secret
        turn.add({"role": "user", "content": secret})
    store.thread(f"{scope}/chat").commit({"n": secret})
    store.thread(f"{scope}/chat").commit({"n": 2})
    store.thread(f"chat-{scope.replace('/', '-')}").commit({"n": secret}, metadata={"scope": scope})
    store.board().set(f"{scope}/note", secret)
    store.board().set(f"{scope}/note", "later")
    store.board().set(f"{scope}/gone", secret)
    store.board().delete(f"{scope}/gone")
    durable.run(store, trip, secret, id=f"{scope}/trip", thread=f"{scope}/trip")
    durable.run(store, waits, secret, id=f"waits-{scope.replace('/', '-')}", thread=f"{scope}/waits")


def test_a_scope_takes_threads_that_were_its_own_once_and_copies_with_it(store):
    chat = store.thread("chat")
    chat.commit({"n": 1}, metadata={"scope": "user/42"})
    chat.commit({"n": 2})
    store.thread("branched").commit({"n": 1})
    store.thread("branched").fork("side").commit({"n": 2}, metadata={"scope": "user/42/agent"})
    store.thread("user/42/chat").commit({"n": 3})
    store.copy_thread("user/42/chat", "copy")
    store.copy_thread("copy", "copy of the copy")
    store.thread("other").commit({"n": 3}, metadata={"scope": "user/421"})
    store.copy_thread("other", "copy of the other")
    assert Memory.forget_scope(store, "user/42").threads == [
        "copy of the copy",
        "copy",
        "chat",
        "branched",
        "user/42/chat",
    ]
    assert sorted(store.thread_ids()) == ["copy of the other", "other"]


@pytest.mark.slow
def test_a_scope_is_forgotten_wherever_it_is(store):
    fill(store, "user/42", SECRETS[0])
    fill(store, "user/42/agent/7", SECRETS[1])
    fill(store, "user/4", "stays1")
    fill(store, "user/421", "stays2")
    assert len(store.search(SECRETS[0], history=True, limit=100)) > 6
    report = Memory.forget_scope(store, "user/42")
    assert [store.search(secret, history=history) for secret in SECRETS for history in (False, True)] == [[]] * 16
    prefixes = ("memory/user/42/", "memory/user/42/agent/7/")
    assert report.facts == sorted(f"{prefix}:facts/diet" for prefix in prefixes)
    assert report.sessions == sorted(f"{prefix}:sessions/s-1" for prefix in prefixes)
    assert {*report.threads} >= {"user/42/chat", "chat-user-42", "user/42/agent/7/chat", "chat-user-42-agent-7"}
    assert {*report.entries} == {f"user/42{more}/{name}" for more in ("", "/agent/7") for name in ("note", "gone")}
    assert {*report.runs} == {
        *(f"user/42{more}/trip" for more in ("", "/agent/7")),
        *(f"waits-user-42{more}" for more in ("", "-agent-7")),
    }
    assert len(report) == sum(len(getattr(report, each.name)) for each in fields(report) if each.name != "scope")
    assert not Memory.forget_scope(store, "user/42")
    store.compact()
    assert found_in_files(store) == []
    data = raw_bytes(store)
    assert b"stays1" in data
    assert b"stays2" in data
    assert {each.id for each in durable.runs(store)} == {f"{scope}/trip" for scope in ("user/4", "user/421")} | {
        "waits-user-4",
        "waits-user-421",
    }
    assert Memory(store, "user/4").get("diet").text == "stays1 again"
    assert store.verify().problems == []


_KILLED = """
import itertools, os, sys
import statelog
from statelog import Memory
from statelog.log.engine import Engine
left = itertools.count(int(sys.argv[2]), -1)
commit = Engine.commit
def killing(*args, **more):
    if next(left) == 0:
        os.kill(os.getpid(), 9)
    return commit(*args, **more)
with statelog.open(sys.argv[1]) as store:
    Engine.commit = killing
    Memory.forget_scope(store, "user/42")
"""


@pytest.mark.slow
@pytest.mark.parametrize("commits", [1, 4, 9])
def test_a_killed_call_is_finished_by_the_next_one(tmp_path, commits):
    path = tmp_path / "killed.state"
    with statelog.open(path) as store:
        fill(store, "user/42", SECRETS[0])
        fill(store, "user/4", "stays")
    arguments = [sys.executable, "-c", _KILLED, str(path), str(commits)]
    assert subprocess.run(arguments, check=False).returncode == -9
    with statelog.open(path) as store:
        Memory.forget_scope(store, "user/42")
        assert not Memory.forget_scope(store, "user/42")
        store.compact()
        assert found_in_files(store) == []
        assert Memory(store, "user/4").get("diet").text == "stays again"


def test_items_of_langgraphs_store_belong_to_the_scope_of_their_namespace(store):
    pytest.importorskip("langgraph")
    from statelog.adapters.langgraph import StatelogStore

    items = StatelogStore(store)
    items.put(("user", "42"), "diet", {"text": SECRETS[0]})
    items.put(("user", "42", "notes"), "diet", {"text": SECRETS[1]})
    items.put(("user", "421"), "diet", {"text": "stays"})
    assert Memory.forget_scope(store, "user/42").items == ["user/42/diet", "user/42/notes/diet"]
    assert not Memory.forget_scope(store, "user/42")
    assert Memory.forget_scope(store, "user/42.notes").items == []
    assert [item.namespace for item in items.search(())] == [("user", "421")]
    store.compact()
    assert found_in_files(store) == []


# --- Board.erase ------------------------------------------------------------------------


def test_erased_entries_have_no_history(store):
    board = store.board()
    for value in (*SECRETS[:2], "last"):
        board.set("notes/a", value)
    board.set("notes/b", SECRETS[2])
    board.delete("notes/b")
    board.set("notes/c", SECRETS[3], ttl_s=0.001)
    board.set("other", "stays")
    assert board.erase("notes/**") == ["notes/a", "notes/b", "notes/c"]
    assert board.erase("notes/**") == []
    assert [board.history(f"notes/{name}") for name in "abc"] == [[], [], []]
    assert board.get("other").value == "stays"
    store.compact()
    assert found_in_files(store) == []
    assert store.verify().problems == []


def test_a_watch_that_has_not_seen_erased_entries_has_to_list_again(store):
    board = store.board()
    board.set("a", 1)
    cursor = store.last_lsn
    board.set("a", 2)
    board.erase("a")
    with pytest.raises(CursorExpiredError):
        next(board.watch("**", after=cursor, follow=False))


def test_a_watch_that_keeps_up_sees_the_deletion(store):
    board = store.board()
    board.set("a", 1)
    with board.watch("**", timeout_s=5) as watch:
        board.set("b", 1)
        assert next(watch).key == "b"
        board.erase("b")
        event = next(watch)
    assert (event.key, event.kind) == ("b", "delete")


@pytest.mark.parametrize("pattern", ["", "a//b", "durable/**", None])
def test_a_bad_pattern_erases_nothing(store, pattern):
    store.board().set("a", 1)
    with pytest.raises(UsageError):
        store.board().erase(pattern)
    assert store.board().get("a").value == 1


def test_entries_are_not_erased_in_a_transaction_or_by_an_agent_with_rules(store):
    store.board().set("a", 1)
    with store.transaction() as tx, pytest.raises(UsageError, match="transaction"):
        tx.board().erase("a")
    bound = store.board(agent="x", rules=statelog.Rules({"x": {"read": ["**"], "write": ["**"]}}))
    with pytest.raises(statelog.AccessError):
        bound.erase("a")
    assert store.board().get("a").value == 1


@pytest.mark.slow
def test_a_purge_erases_the_vectors_of_a_secret_text(tmp_path):
    np = pytest.importorskip("numpy")
    pytest.importorskip("re2")
    secret = GUARD_SECRETS["github-token"](Random(1))
    secret_guard = statelog.Guard(secrets=guard.Secrets())
    vectors = {}

    def embed_by_chance(texts):
        for text in texts:
            vectors.setdefault(text, np.random.default_rng(len(vectors)).standard_normal(64, dtype="f4"))
        return [vectors[text] for text in texts]

    with statelog.open(tmp_path / "a.state") as store:
        memory = Memory(store, "user/42", embed=embed_by_chance, dims=64)
        memory.remember(f"the key is {secret}", key="k", metadata={"at": datetime(2026, 1, 1, tzinfo=UTC)})
        memory.remember("another", key="other")
        for _ in range(40):  # A list of several nodes.
            memory.remember(f"many {secret}", key="long")
        memory.recall("another")
        assert all(vector.tobytes() in raw_bytes(store) for vector in vectors.values())
        store.purge(store.find_secrets(guard=secret_guard), guard=secret_guard)
        kept = {text for text, vector in vectors.items() if vector.tobytes() in raw_bytes(store)}
        assert kept == {"another"}
        assert memory.recall("another")[0].key == "other"
        assert memory.get("k").metadata == {"at": datetime(2026, 1, 1, tzinfo=UTC)}
        assert secret not in repr(memory.recall("key many", limit=10))
        assert store.verify().problems == []
