"""Postgres as a storage: tables, connections that die, and an append with its fence."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from waiting import until

from statelog.errors import AccessError, ClosedError, NotFoundError, RemoteError, UsageError
from statelog.fleet.archive import Outcome
from statelog.fleet.storage_urls import open_archive

psycopg = pytest.importorskip("psycopg")

HEADS, OBJECTS = "statelog_fleet_heads", "statelog_fleet_objects"


@pytest.fixture
def opened(postgres_url):
    """A storage with a new head, and the name and token of the head."""
    archive = open_archive(postgres_url)
    head = f"{secrets.token_hex(8)}/head"
    yield archive, head, archive.create(head, b"first")
    archive.close()


@pytest.fixture
def by_hand(postgres_url):
    """A connection that acts as another process."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def empty_database(postgres_url, by_hand):
    """A database without tables."""
    name = f"empty_{secrets.token_hex(4)}"
    by_hand.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    return postgres_url.replace("/postgres", f"/{name}")


def end_others(connection):
    """Let the server end all other connections."""
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
    until(lambda: connection.execute(f"SELECT count(*) {others}").fetchone()[0] == 0)


def is_waiting(connection):
    """Return True if some connection waits for a lock."""
    return connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()[0] > 0


# --- an append and its fence ----------------------------------------------------------


def test_an_append_under_an_unchanged_head_is_done_once(opened):
    archive, head, token = opened
    name = head.replace("head", "log/1/1")
    put = archive.append_fenced(head, token, name, b"segment")
    assert archive.look(name) == put
    assert archive.append_fenced(head, token, name, b"another") is Outcome.REFUSED
    assert archive.read(name).data == b"segment"


def test_an_append_under_a_changed_head_is_not_done(opened):
    archive, head, token = opened
    archive.swap(head, b"second", token)
    assert archive.append_fenced(head, token, head.replace("head", "log/1/1"), b"segment") is Outcome.REFUSED
    assert archive.append_fenced("no/head", token, head.replace("head", "log/1/1"), b"segment") is Outcome.REFUSED
    assert archive.names(head.replace("head", "log/")) == []


def test_an_append_waits_for_a_concurrent_change_of_the_head_and_is_not_done(opened, postgres_url, by_hand):
    archive, head, token = opened
    name = head.replace("head", "log/1/1")
    with ThreadPoolExecutor(1) as other, psycopg.connect(postgres_url) as taker:
        taker.execute(f"UPDATE {HEADS} SET version = gen_random_uuid() WHERE name = %s", (head,))
        appending = other.submit(archive.append_fenced, head, token, name, b"segment")
        until(lambda: is_waiting(by_hand))
        taker.commit()
        assert appending.result() is Outcome.REFUSED
    assert archive.read(name) is None


def test_a_change_of_the_head_waits_for_a_concurrent_append(opened, postgres_url, by_hand):
    archive, head, token = opened
    name = head.replace("head", "log/1/1")
    with ThreadPoolExecutor(1) as other, psycopg.connect(postgres_url) as owner:
        fence = f"(SELECT 1 FROM {HEADS} WHERE name = %s AND version::text = %s FOR SHARE) AS fence"
        owner.execute(f"INSERT INTO {OBJECTS} (name, data) SELECT %s, '' FROM {fence}", (name, head, token))
        swapping = other.submit(archive.swap, head, b"second", token)
        until(lambda: is_waiting(by_hand))
        assert archive.names(head.replace("head", "log/")) == []
        owner.commit()
        assert isinstance(swapping.result(), str)
    assert archive.names(head.replace("head", "log/")) == [name]


# --- connections that die -------------------------------------------------------------


def test_a_connection_that_died_while_idle_makes_no_outcome_unknown(opened, by_hand):
    archive, head, token = opened
    for number in range(5):
        end_others(by_hand)
        token = archive.swap(head, b"%d" % number, token)
        assert isinstance(token, str)
    end_others(by_hand)
    assert archive.read(head).token == token


def test_a_connection_that_dies_during_a_write_makes_its_outcome_unknown(opened, postgres_url, by_hand):
    archive, head, token = opened
    with ThreadPoolExecutor(1) as other, psycopg.connect(postgres_url) as taker:
        taker.execute(f"SELECT 1 FROM {HEADS} WHERE name = %s FOR UPDATE", (head,))
        swapping = other.submit(archive.swap, head, b"second", token)
        until(lambda: is_waiting(by_hand))
        by_hand.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        assert swapping.result() is Outcome.UNKNOWN
    assert archive.look(head) == token


def test_reads_are_repeated_after_a_lost_connection(opened, postgres_url, by_hand):
    archive, head, token = opened
    with ThreadPoolExecutor(1) as other, psycopg.connect(postgres_url) as locker:
        locker.execute(f"LOCK TABLE {HEADS}")
        reading = other.submit(archive.look, head)
        until(lambda: is_waiting(by_hand))
        by_hand.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        until(lambda: is_waiting(by_hand))
        locker.commit()
        assert reading.result() == token


def test_each_thread_has_its_own_connection_and_few_are_kept(opened):
    archive, head, _token = opened
    start = Event()

    def read(_number):
        start.wait()
        return archive.read(head).data

    with ThreadPoolExecutor(24) as readers:
        reading = [readers.submit(read, number) for number in range(24)]
        start.set()
        assert {each.result() for each in reading} == {b"first"}
    assert len(archive._idle) <= 16
    archive.close()
    assert archive._idle == []


# --- refusals ------------------------------------------------------------------


def test_a_database_without_tables_is_refused_with_the_command_that_creates_them(empty_database):
    archive = open_archive(empty_database)
    for request in (
        lambda: archive.read("s/head"),
        lambda: archive.create("s/log/1/1", b""),
        lambda: archive.names(""),
    ):
        with pytest.raises(NotFoundError, match="statelog fleet setup") as caught:
            request()
        assert "sesame" not in str(caught.value) + str(caught.value.facts)
    archive.close()


@pytest.mark.slow
def test_concurrent_setups_create_the_tables_once(empty_database):
    from statelog.fleet.postgres import setup

    with ThreadPoolExecutor(6) as several:
        assert [*several.map(setup, [empty_database] * 6)] == [None] * 6
    archive = open_archive(empty_database)
    assert isinstance(archive.create("s/head", b""), str)
    setup(empty_database)
    assert archive.names("") == ["s/head"]
    archive.close()


def test_a_wrong_password_is_an_access_error(postgres_url):
    from statelog.fleet.postgres import setup

    wrong = postgres_url.replace("open%20sesame", "wrong")
    archive = open_archive(wrong)
    for request in (lambda: archive.read("s/head"), lambda: archive.create("s/head", b""), lambda: setup(wrong)):
        with pytest.raises(AccessError, match="password authentication failed") as caught:
            request()
        assert "//agent:***@" in caught.value.url
        assert "wrong" not in f"{caught.value} {caught.value.facts}"


def test_a_user_without_permission_is_an_access_error(postgres_url, by_hand):
    user = f"guest_{secrets.token_hex(4)}"
    by_hand.execute(psycopg.sql.SQL("CREATE USER {} PASSWORD 'guest'").format(psycopg.sql.Identifier(user)))
    archive = open_archive(postgres_url.replace("agent:open%20sesame", f"{user}:guest"))
    with pytest.raises(AccessError, match="permission denied"):
        archive.create("s/head", b"")
    archive.close()


def test_a_missing_database_is_reported(postgres_url):
    with pytest.raises(NotFoundError, match="the database does not exist"):
        open_archive(postgres_url.replace("/postgres", "/absent")).read("s/head")


@pytest.mark.slow
def test_the_outcome_of_a_write_to_an_unreachable_server_is_unknown():
    archive = open_archive("postgresql://agent:secret@127.0.0.1:9/postgres")
    assert archive.create("s/head", b"") is Outcome.UNKNOWN
    with pytest.raises(RemoteError) as caught:
        archive.read("s/head")
    assert "secret" not in str(caught.value) + str(caught.value.facts)


def test_an_invalid_url_is_refused():
    with pytest.raises(UsageError) as caught:
        open_archive("postgresql://agent:secret@host:port/postgres?nonsense=1")
    assert caught.value.argument == "url"
    assert "secret" not in str(caught.value) + str(caught.value.facts)


def test_a_closed_storage_reports_that_it_is_closed(postgres_url):
    archive = open_archive(postgres_url)
    archive.read("s/head")
    archive.close()
    archive.close()
    with pytest.raises(ClosedError):
        archive.read("s/head")
