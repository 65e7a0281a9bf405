"""Passwords, keys and signatures of addresses: no error, fact, cause or output shows one."""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path

import forks
import pytest
from hypothesis import given
from hypothesis import strategies as some

from statelog import aio
from statelog.errors import StatelogError, ThreadNotFoundError, UsageError
from statelog.fleet import connect, share
from statelog.redaction import redact_error, redacted, redacted_url

SECRET = "hunter2"


def test_a_redaction_of_a_guard_is_not_redacted_in_part():
    text = "password=[REDACTED field 12345678] at postgresql://app:[REDACTED url-password 12345678]@db/x"
    assert redacted(text) == "password=[REDACTED field 12345678] at postgresql://app:***@db/x"
    assert SECRET not in redacted(f"[REDACTED password={SECRET}] [REDACTED x] password={SECRET}")


ADDRESSES = [
    "postgresql+psycopg://agents:hunter2@db/agents",
    "postgresql+asyncpg://agents:hunter2@db/agents?ssl=require",
    "POSTGRESQL://agents:hunter2@db/agents",
    " postgresql://agents:hunter2@db/agents",
    "postgresql://u:hunter%32hunter2@127.0.0.1:1/db",
    "postgresql://u:hunter2%zz@127.0.0.1:1/db",
    "postgresql://u:p@hunter2@127.0.0.1:1/db",
    "postgresql://u:hunter2/x@127.0.0.1:1/db",
    "postgresql://u:hunter2?x@127.0.0.1:1/db",
    "postgresql://u:x#hunter2@127.0.0.1:1/db",
    "postgresql://u:x hunter2@127.0.0.1:1/db",
    "postgresql://u:x'hunter2\"@127.0.0.1:1/db",
    "postgresql://u:hunter2[@127.0.0.1:1/db",
    "postgresql://u:hunter2]@127.0.0.1:1/db",
    "postgresql://u:hunter2@127.0.0.1:1,127.0.0.1:2/db",
    "postgresql://u:hunter2@127.0.0.1:99999/db",
    "postgresql://127.0.0.1:1/db?user=u&password=hunter2",
    "postgresql://127.0.0.1:1/db?user=u&pass%77ord=hunter2",
    "postgresql://127.0.0.1:1/db?sslmode=require&sslpassword=hunter2",
    "postgresql://127.0.0.1:1/db?passwort=hunter2",
    "postgresql:///u:hunter2@127.0.0.1:1/db",
    "postgresql:/u:hunter2@127.0.0.1:1/db",
    "host=127.0.0.1 port=1 user=u password=hunter2",
    "host=127.0.0.1 port=1 user=u password='x hunter2'",
    "postgresql://u:hunter2@[::1/db",
    "postgresql://u:hunter2",
    "postgresql:u:hunter2@127.0.0.1/db",
    "u:hunter2@127.0.0.1/db",
    "u:hunter2@127.0.0.1/db?sslpassword=hunter2",
    "u:hunter2/x@127.0.0.1:1",
    b"postgresql://u:hunter2@db/agents",
    "mysql://u:hunter2@db/agents",
    "https://hunter2@db/agents",
    "s3://AKIA:x/hunter2@bucket/agents",
    "s3:///AKIA:hunter2@bucket/agents",
    "s3://AKIA:hunter2[@bucket/agents",
    "az://u:hunter2@container/agents",
    "https://account.blob.core.windows.net/container?sv=1&sig=hunter2%3D",
    "file://u:hunter2@/srv/bucket",
    "file:///srv/bucket?password=hunter2",
]


def told(error: BaseException) -> str:
    """Return all that anybody sees of an error, also of those behind it: text, facts, attributes, and a traceback.

    The traceback is without the lines of this file.
    """
    behind = error.__cause__ or error.__context__
    return told_alone(error) if behind is None else told_alone(error) + told(behind)


def told_alone(error: BaseException) -> str:
    lines = [line for each in traceback.format_exception(error) for line in each.splitlines()]
    facts = getattr(error, "facts", {})
    return "\n".join(
        [f"{error} {error!r} {facts!r} {vars(error)!r}", *(line for line in lines if not line.startswith("    "))]
    )


@pytest.mark.parametrize("url", ADDRESSES)
def test_no_error_of_a_fleet_shows_a_password(url, tmp_path, monkeypatch):
    monkeypatch.setattr("statelog.fleet.postgres._PAUSE_S", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for call in (
        lambda: connect(url, tmp_path / "cache"),
        lambda: share(url, "s", tmp_path / "cache", timeout_s=0.1),
        lambda: share(url, "s", timeout_s=0.1),
    ):
        with pytest.raises(StatelogError) as caught:
            call()
        assert SECRET not in told(caught.value)
        assert SECRET not in told(pickle.loads(pickle.dumps(caught.value)))


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": "http://u:hunter2@127.0.0.1:1/?x=hunter2", "region": "x", "secret_access_key": SECRET},
        {"endpoint": "hunter2://u:hunter2@127.0.0.1:1", "secret_access_key": SECRET, "access_key_id": SECRET},
        {"access_key_id": "x", "secret_access_key": SECRET, "no_such_option": SECRET},
        {"endpoint": "http://127.0.0.1:1", "session_token": SECRET, "proxy_url": "http://u:hunter2@127.0.0.1:1"},
    ],
)
def test_no_error_of_a_bucket_shows_its_secret_options(options, tmp_path, monkeypatch):
    monkeypatch.setattr("statelog.fleet.buckets._RETRIES", {"max_retries": 0})
    with pytest.raises(StatelogError) as caught:
        connect("s3://bucket/agents", tmp_path, **{"access_key_id": "x", **options})
    assert SECRET not in told(caught.value).replace("hunter2:/", "")  # the scheme of one of them


COMMANDS = [
    ["fleet", "ls", "{}"],
    ["fleet", "ls", "{}", "--json"],
    ["fleet", "ls", "{}", "{}"],
    ["fleet", "status", "{}", "s"],
    ["fleet", "setup", "{}"],
    ["threads", "{}"],
    ["import", "x.state", "{}"],
    ["import-langgraph", "{}"],
    ["export-langgraph", "x.state", "{}"],
    ["{}"],
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_a_password(command, tmp_path):
    cli = str(Path(sys.executable).with_name("statelog"))
    for url in (
        "postgresql+psycopg://agents:hunter2@db/agents",
        "mysql://db/agents?password=hunter2",
        "postgresql://agents:hunter2@[::1/agents",
    ):
        arguments = [cli, *(each.format(url) for each in command)]
        done = forks.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode not in (0, 70)
        assert SECRET not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS[:2], *COMMANDS[3:5], *COMMANDS[7:9]], ids=" ".join)
def test_no_command_that_takes_an_address_prints_the_password_of_a_mistyped_one(command, tmp_path):
    cli = str(Path(sys.executable).with_name("statelog"))
    for url in ("postgresql:agents:hunter2@db/agents", "agents:hunter2@db/agents"):
        arguments = [cli, *(each.format(url) for each in command)]
        done = forks.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode not in (0, 70)
        assert SECRET not in done.stdout + done.stderr


def test_a_store_about_to_be_open_does_not_show_where_it_is():
    assert SECRET not in repr(aio.open("postgresql://u:hunter2@db/agents"))


def test_names_in_facts_stay_as_they_are_for_programs_to_go_on_with():
    error = ThreadNotFoundError("no thread 'sip://u:hunter2@host'", thread="sip://u:hunter2@host")
    assert error.thread == "sip://u:hunter2@host"
    assert SECRET not in error.message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://agents@db:5432/agents", "postgresql://agents@db:5432/agents"),
        ("postgresql://agents:x@db:5432/agents", "postgresql://agents:***@db:5432/agents"),
        ("postgresql://db:5432/agents?sslmode=require", "postgresql://db:5432/agents?sslmode=***"),
        ("postgresql:///agents", "postgresql:///agents"),
        ("s3://bucket/team@corp/x:y", "s3://bucket/team@corp/x:y"),
        ("file:///srv/a:b@c/bucket", "file:///srv/a:b@c/bucket"),
        ("/srv/a:b@c/agent.state", "/srv/a:b@c/agent.state"),
        ("agent.state", "agent.state"),
        ("postgresql://[::1]:5432,db/agents", "postgresql://[::1]:5432,db/agents"),
    ],
)
def test_values_without_secrets_are_shown(url, shown):
    assert redacted_url(url) == shown
    assert redacted(f"no store at {url}: make it") == f"no store at {shown}: make it"


@given(
    scheme=some.sampled_from(["postgresql", "postgresql+psycopg", "mysql", "s3", "redis", "https"]),
    user=some.text("abcXYZ019_.-", max_size=5),
    password=some.text(some.characters(exclude_categories=["Cs"]), max_size=12),
)
def test_no_password_of_any_signs_is_shown_of_a_whole_address(scheme, user, password):
    shown = redacted_url(f"{scheme}://{user}:{password}<secret>@host:5432/db")
    assert "<secret>" not in shown
    assert shown == f"{scheme}://{user}:***@host:5432/db"
    assert redacted_url(shown) == shown


def test_the_text_of_an_outside_error_is_redacted():
    error = ValueError("GET https://u:hunter2@host/?sig=hunter2: 403", 7)
    redact_error(error)
    assert str(error.args) == "('GET https://u:***@host/?sig=***: 403', 7)"


def test_no_error_shows_a_password():
    with pytest.raises(UsageError) as caught:
        raise UsageError("not 'redis://:hunter2@host'", argument="url", value="redis://:hunter2@host")
    assert SECRET not in told(caught.value)
