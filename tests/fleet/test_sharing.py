"""A store that many hosts write: one log in Postgres, a copy on each host."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time

import forks
import psycopg
import pytest

import statelog
from statelog.errors import (
    ClosedError,
    CommitOutcomeUnknownError,
    ConflictError,
    FencedError,
    ForkedError,
    NotFoundError,
    RemoteError,
    StoreLockedError,
    UsageError,
)
from statelog.fleet import connect, names, share, turns
from statelog.storage.write_transaction import WriteTransaction

SCHEMA = {"n": statelog.reducers.add, "who": statelog.reducers.append}


def add(store, who="", by=1, *, recreate=False, **how):
    return store.thread("t", schema=SCHEMA, recreate=recreate).commit({"n": by, "who": who}, **how)


def total(store):
    store.remote.wait()
    return store.thread("t", schema=SCHEMA).state.get("n", 0)


def turns_taken(hosts):
    return sum(store._engine.committer.groups for store in hosts)


def log_of(store):
    return list(store.log())


@pytest.mark.slow
def test_hosts_write_one_log(host):
    a, b = host("a"), host("b")
    for n in range(10):
        add(a if n % 2 else b)
    assert total(a) == total(b) == 10
    assert log_of(a) == log_of(b)
    assert a.verify().problems == b.verify().problems == []
    a.close()
    add(b)
    assert total(host("a")) == total(host("c")) == 11


@pytest.mark.slow
def test_expected_versions_and_claims_work_as_on_one_host(host):
    a, b = host("a"), host("b")
    add(a)
    b.remote.wait()
    head = b.thread("t", schema=SCHEMA).head
    add(a)
    with pytest.raises(ConflictError):
        add(b, expected_version=head.version)
    a.board().set("job", {"n": 1})
    claim = a.board().claim("job")
    assert claim is not None
    assert b.board().claim("job") is None
    claim.release()
    assert b.board().claim("job", wait_s=60) is not None


@pytest.mark.slow
def test_many_threads_of_several_hosts_lose_no_commit_and_groups_share_a_turn(host):
    hosts = [host(of) for of in "abc"]
    acknowledged = []

    def run(store, who):
        for n in range(10):
            add(store, f"{who}-{n}")
            acknowledged.append(f"{who}-{n}")

    threads = [threading.Thread(target=run, args=(store, f"{i}{j}")) for i, store in enumerate(hosts) for j in range(4)]
    before = turns_taken(hosts)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turns_taken(hosts) - before < 100
    assert total(hosts[0]) == 120
    said = hosts[0].thread("t", schema=SCHEMA).state["who"]
    assert sorted(said) == sorted(acknowledged)
    for who in {each.rpartition("-")[0] for each in said}:
        assert [each for each in said if each.startswith(f"{who}-")] == [f"{who}-{n}" for n in range(10)]


@pytest.mark.slow
def test_watchers_of_other_hosts_are_notified_at_once(host):
    a, b = host("a", poll_s=60), host("b", poll_s=60)
    begun = b.last_lsn
    late = threading.Timer(0.3, lambda: a.board().set("news/one", 1))
    late.start()
    event = next(b.board().watch("news/**", after=begun, timeout_s=30))
    assert event.key == "news/one"
    late.join()


@pytest.mark.slow
def test_processes_of_one_machine_share_a_copy(host, postgres_url, name, tmp_path):
    a = host("a")
    add(a)
    code = (
        "import sys, statelog; from statelog.fleet import share\n"
        "with share(*sys.argv[1:4]) as store:\n"
        "    thread = store.thread('t', schema={'n': statelog.reducers.add, 'who': statelog.reducers.append})\n"
        "    for _ in range(20): thread.commit({'n': 1})\n"
    )
    command = [sys.executable, "-c", code, postgres_url, name, str(tmp_path / "a")]
    others = [forks.Popen(command) for _ in range(2)]
    for _ in range(20):
        add(a)
        time.sleep(0.02)
    assert [other.wait(300) for other in others] == [0, 0]
    assert total(a) == total(host("b")) == 61


# --- the outcome of a commit -----------------------------------------------------------------


def failing(monkeypatch, how, error):
    """Let the next append fail, before or after Postgres has executed it."""
    real = turns.HostTurns._commit

    def commit(self, statements, values):
        monkeypatch.setattr(turns.HostTurns, "_commit", real)
        if how == "after":
            real(self, statements, values)
        self._drop()
        raise error

    monkeypatch.setattr(turns.HostTurns, "_commit", commit)


@pytest.mark.slow
def test_the_outcome_of_a_commit_is_looked_up_if_its_answer_was_lost(host, monkeypatch):
    a, b = host("a"), host("b")
    add(a)
    failing(monkeypatch, "after", RemoteError("the answer was lost"))
    add(a, "kept")
    failing(monkeypatch, "before", RemoteError("the request was lost"))
    with pytest.raises(RemoteError):
        add(a, "lost")
    add(a)
    assert total(b) == 3
    assert b.thread("t", schema=SCHEMA).state["who"] == ["", "kept", ""]


@pytest.mark.slow
def test_a_commit_that_is_still_in_progress_is_waited_for(host, monkeypatch):
    a = host("a")
    add(a)
    real = turns.HostTurns._commit

    def late(self, statements, values):
        monkeypatch.setattr(turns.HostTurns, "_commit", real)
        connection, self._turn = self._turn, None  # It has the turn, and its commit is made later.
        late.thread = threading.Timer(0.3, lambda: (connection.execute(statements, values), connection.close()))
        late.thread.start()
        raise RemoteError("no answer as yet")

    monkeypatch.setattr(turns.HostTurns, "_commit", late)
    add(a, "late")
    late.thread.join()
    assert total(host("b")) == 2


@pytest.mark.slow
def test_an_interrupt_during_the_lookup_is_raised_after_the_outcome_is_known(host, monkeypatch):
    a, b = host("a"), host("b")
    add(a)
    failing(monkeypatch, "after", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        add(a, "kept")
    failing(monkeypatch, "before", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        add(a, "lost")
    assert total(a) == total(b) == 2


@pytest.mark.slow
def test_an_interrupt_right_after_the_append_repeats_no_commit(host, monkeypatch):
    a, b = host("a"), host("b")
    real = turns.HostTurns._commit

    def interrupted(_frame, event, _called):
        if event in {"call", "c_call"}:
            sys.setprofile(None)
            raise KeyboardInterrupt

    def commit(self, statements, values):
        real(self, statements, values)
        monkeypatch.setattr(turns.HostTurns, "_commit", real)
        sys.setprofile(interrupted)

    def lead():
        with pytest.raises(KeyboardInterrupt):
            add(a, "leader")

    b.remote._turns.lock(names.segment(1, 0))
    first = threading.Thread(target=add, args=(a, "first"))
    first.start()  # It waits for its turn, and the others wait for it.
    time.sleep(0.1)
    threads = [threading.Thread(target=lead), *(threading.Thread(target=add, args=(a, f"{n}")) for n in range(3))]
    for thread in threads:
        thread.start()
        time.sleep(0.05)

    def skip_one(self, *sent):
        monkeypatch.setattr(turns.HostTurns, "_commit", commit)
        real(self, *sent)

    monkeypatch.setattr(turns.HostTurns, "_commit", skip_one)
    b.remote._turns.release()
    for thread in (first, *threads):
        thread.join()
    assert total(b) == 5
    assert sorted(b.thread("t", schema=SCHEMA).state["who"]) == ["0", "1", "2", "first", "leader"]


@pytest.mark.slow
def test_commits_with_unknown_outcomes_are_reported_and_never_repeated(host, monkeypatch):
    a, b = host("a"), host("b")
    add(a)
    monkeypatch.setattr(turns, "_LOOKS_S", 0.1)
    failing(monkeypatch, "after", RemoteError("the answer was lost"))
    with monkeypatch.context() as away:
        away.setattr(turns.HostTurns, "_connect", lambda _self: (_ for _ in ()).throw(psycopg.OperationalError("away")))
        with pytest.raises(CommitOutcomeUnknownError):
            add(a, "who knows")
    assert total(a) == total(b) == 2


@pytest.mark.slow
def test_a_copy_that_fails_after_the_append_gets_the_records_later(host, monkeypatch):
    a, b = host("a"), host("b")
    add(a)
    real = WriteTransaction.commit

    def full(_self):
        monkeypatch.setattr(WriteTransaction, "commit", real)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WriteTransaction, "commit", full)
    with pytest.raises(CommitOutcomeUnknownError, match="is in the shared log"):
        add(a, "kept")
    assert total(b) == 2
    add(a)
    assert total(a) == total(b) == 3
    assert log_of(a) == log_of(b)


@pytest.mark.slow
def test_without_postgres_commits_are_refused_and_reads_continue(host, monkeypatch):
    a = host("a")
    add(a)
    with monkeypatch.context() as away:
        away.setattr(turns.HostTurns, "_connect", lambda _self: (_ for _ in ()).throw(psycopg.OperationalError("away")))
        a.remote._turns._drop()
        with pytest.raises(RemoteError, match="away"):
            add(a)
        assert a.thread("t", schema=SCHEMA).state["n"] == 1
    add(a)
    assert total(a) == 2


@pytest.mark.slow
def test_a_connection_that_was_ended_while_idle_has_no_effect(host, postgres_url):
    a, b = host("a", poll_s=0.1), host("b", poll_s=0.1)
    add(a)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    add(a)
    assert b.remote.wait(a.last_lsn, timeout_s=10)
    assert total(b) == 2


@pytest.mark.slow
@pytest.mark.parametrize("level", ["repeatable%5C%20read", "serializable"])
def test_each_turn_sees_all_earlier_appends_whatever_the_isolation_level_of_the_database(
    postgres_url, name, tmp_path, level
):
    url = f"{postgres_url}?options=-c%20default_transaction_isolation%3D{level}"
    with share(url, name, tmp_path / "a") as a, share(url, name, tmp_path / "b") as b:
        for store in (a, b):
            with store.remote._turns._connect() as connection:
                [shown] = connection.execute("SHOW transaction_isolation").fetchone()
                assert shown == "read committed"
        add(a)
        add(b)
        assert total(a) == total(b) == 2


@pytest.mark.slow
def test_closing_a_store_during_commits_loses_none(host):
    a, acknowledged = host("a"), []

    def commit_on(who):
        while True:
            said = f"{who}-{len(acknowledged)}"
            add(a, said)
            acknowledged.append(said)

    def run(who):
        with pytest.raises(ClosedError):
            commit_on(who)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 30:
        time.sleep(0.01)
    a.close()
    for thread in threads:
        thread.join()
    b = host("b")
    assert total(b) == len(b.thread("t", schema=SCHEMA).state["who"])
    assert set(acknowledged) <= set(b.thread("t", schema=SCHEMA).state["who"])


@pytest.mark.slow
def test_a_wait_for_a_turn_times_out_and_a_sleeping_host_loses_its_turn(host, monkeypatch):
    monkeypatch.setattr(turns, "_IDLE_MS", 1000)
    a, b = host("a"), host("b", lock_timeout_s=0.2)
    add(a)
    sleeper = a.remote._turns
    sleeper.lock(names.segment(1, 0))
    with pytest.raises(StoreLockedError):
        add(b)
    deadline = time.monotonic() + 60
    while True:
        try:
            add(b)
            break
        except StoreLockedError:
            assert time.monotonic() < deadline
    with pytest.raises(RemoteError):
        sleeper._commit(turns._APPEND, ("x", b"", "00000000-0000-0000-0000-000000000000", "y"))
    assert total(a) == 2


# --- copies and logs that differ ----------------------------------------------------------------


@pytest.mark.slow
def test_a_copy_ahead_of_the_log_is_discarded(host, postgres_url, name, tmp_path):
    a = host("a")
    for n in range(3):
        add(a, f"{n}")
    with psycopg.connect(postgres_url) as connection:  # As if a replica without the record had taken over.
        last = "(SELECT max(name) FROM statelog_fleet_objects WHERE starts_with(name, %s))"
        connection.execute(f"DELETE FROM statelog_fleet_objects WHERE name = {last}", (names.folder(name),))
    with pytest.raises(FencedError, match="open it again"):
        add(a)
    a.close()
    a = host("a")
    assert total(a) == 2
    add(a)
    assert total(host("b")) == 3
    with connect(postgres_url, tmp_path / "a") as fleet:
        [stranded] = fleet.stranded()
        with statelog.open(stranded.path, read_only=True) as kept:
            assert kept.thread("t", schema=SCHEMA).state["n"] == 3


@pytest.mark.slow
def test_a_process_that_does_not_share_cannot_write_the_copy(host, tmp_path, name):
    a = host("a")
    add(a)
    a.close()
    with statelog.open(tmp_path / "a" / names.copy(name)) as store, pytest.raises(FencedError):
        store.thread("t").commit({"n": 9})
    assert total(host("a")) == 1


@pytest.mark.slow
def test_a_host_gets_the_records_written_while_another_owned_the_store_exclusively(host, postgres_url, name, tmp_path):
    a = host("a")
    add(a)
    with connect(postgres_url, tmp_path / "x") as fleet, fleet.open(name, takeover="now") as store:
        add(store)
    assert total(a) == 2
    with pytest.raises(FencedError, match="taken"):
        add(a)


@pytest.mark.slow
def test_a_shared_store_can_be_owned_exclusively_again(host, postgres_url, name, tmp_path):
    a = host("a")
    for _n in range(5):
        add(a)
    with connect(postgres_url, tmp_path / "x") as fleet:
        with pytest.raises(UsageError, match="share"):
            fleet.open(name)
        with fleet.open(name, takeover="now") as store:
            assert store.thread("t", schema=SCHEMA).state["n"] == 5
            store.prune(keep_last=1)
            add(store)
        with pytest.raises(FencedError, match="taken"):
            add(a)
        a.close()
        assert total(host("a")) == 6
        with fleet.follow(name) as replica:
            assert replica.thread("t", schema=SCHEMA).state["n"] == 6


# --- refusals ---------------------------------------------------------------------------


@pytest.mark.slow
def test_records_of_a_shared_store_are_not_rewritten(host, tmp_path, postgres_url, name):
    a = host("a")
    add(a)
    add(a)
    with statelog.open(tmp_path / "other") as other, (tmp_path / "export").open("wb") as target:
        other.thread("u").commit({"n": 1})
        other.export(target, threads=["u"])
    export = io.BytesIO((tmp_path / "export").read_bytes())
    for care in (lambda: a.prune(keep_last=1), a.rebuild_index, lambda: a.import_(export), a.compact):
        with pytest.raises(UsageError, match="shared by many hosts"):
            care()
    longer = io.BytesIO()
    with connect(postgres_url, tmp_path / "x") as fleet:
        fleet.restore(name, tmp_path / "longer")
    with statelog.open(tmp_path / "longer") as store:
        add(store)
        store.export(longer)
    longer.seek(0)

    def later():
        with pytest.raises(UsageError, match="shared by many hosts"):
            a.import_(longer)

    with a._engine.taking_in():  # The listening thread does the same. Other threads have no more rights than before.
        late = threading.Thread(target=later)
        late.start()
        late.join()
    for _life in range(2):
        assert a.delete_thread("t").expired_versions == 2
        add(a, recreate=True)
        add(a)
    assert total(host("b")) == 2


@pytest.mark.slow
def test_invalid_input_is_refused(host, postgres_url, name, tmp_path):
    for url in ("s3://bucket/x", f"file://{tmp_path}", None):
        with pytest.raises(UsageError, match="Postgres"):
            share(url, name)
    with pytest.raises(UsageError, match="name"):
        share(postgres_url, "", cache=tmp_path)
    bad = [
        ("poll_s", 0),
        ("poll_s", "x"),
        ("timeout_s", -1),
        ("timeout_s", "x"),
        ("read_only", True),
        ("create", False),
    ]
    for option, value in bad:
        with pytest.raises(UsageError, match=option) as caught:
            share(postgres_url, name, cache=tmp_path / "bad", **{option: value})
        assert caught.value.facts["value"] == value
    assert not (tmp_path / "bad").exists()
    with pytest.raises(NotFoundError, match="database"):
        share(postgres_url.replace("/postgres", "/nothing"), name, cache=tmp_path)
    a = host("a")
    with pytest.raises(UsageError, match="already"):
        host("a")
    a.close()
    (tmp_path / "b").mkdir()
    with statelog.open(tmp_path / "b" / names.copy(name)) as other:
        add(other)
    with pytest.raises(ConflictError, match="not the store"):
        host("b")
    with connect(postgres_url, tmp_path / "x") as fleet, fleet.open("alone"), pytest.raises(StoreLockedError):
        share(postgres_url, "alone", cache=tmp_path / "c", timeout_s=0.1)


@pytest.mark.slow
def test_a_forked_child_gets_an_error_that_says_to_open_the_store_again(host):
    a = host("a")
    add(a)
    a.remote.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # A query on the parent's connection would wait for ever.
        try:
            for work in (lambda: add(a), a.remote.wait, a.remote.status):
                with pytest.raises(ForkedError):
                    work()
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    add(a)
    assert total(a) == 2
