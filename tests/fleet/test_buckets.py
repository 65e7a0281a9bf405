"""Buckets: refusals, unknown outcomes, and messages."""

from __future__ import annotations

import pytest

from statelog.errors import AccessError, ClosedError, NotFoundError, RemoteError, UnsafeStorageError, UsageError
from statelog.fleet.archive import Outcome, StoredObject
from statelog.fleet.storage_urls import open_archive, probe

pytest.importorskip("obstore")


def requests_of(archive):
    """Return every request of a storage, by name."""
    return {
        "read": lambda: archive.read("s/head"),
        "look": lambda: archive.look("s/head"),
        "create": lambda: archive.create("s/head", b""),
        "swap": lambda: archive.swap("s/head", b"", '"token"'),
        "names": lambda: archive.names(""),
        "remove": lambda: archive.remove(["s/head"]),
        "ages": lambda: archive.ages(""),
        "read_all": lambda: archive.read_all(["s/head", "t/head"]),
    }


EVERY = [*requests_of(None)]


@pytest.mark.slow
@pytest.mark.parametrize("request_name", EVERY)
def test_a_missing_bucket_is_not_treated_as_empty(buckets, request_name):
    archive = open_archive("s3://no-bucket/agents", **buckets)
    with pytest.raises(NotFoundError, match="the bucket does not exist") as caught:
        requests_of(archive)[request_name]()
    assert caught.value.url == "s3://no-bucket/agents"


@pytest.mark.parametrize("request_name", EVERY)
def test_refused_credentials_raise_access_error(buckets, request_name):
    archive = open_archive("s3://refused/agents", **buckets)
    with pytest.raises(AccessError, match="credentials were rejected") as caught:
        requests_of(archive)[request_name]()
    assert caught.value.url == "s3://refused/agents"
    assert "403" in str(caught.value)
    assert "Debug source" not in str(caught.value)


@pytest.mark.usefixtures("few_tries")
def test_the_outcome_of_a_write_to_a_busy_bucket_is_unknown(buckets):
    archive = open_archive("s3://busy", **buckets)
    assert archive.create("s/head", b"") is Outcome.UNKNOWN
    assert archive.swap("s/head", b"", '"token"') is Outcome.UNKNOWN


@pytest.mark.usefixtures("few_tries")
def test_a_read_of_a_busy_bucket_raises_remote_error(buckets):
    archive = open_archive("s3://busy", **buckets)
    with pytest.raises(RemoteError, match="503"):
        archive.read("s/head")
    with pytest.raises(RemoteError, match="503"):
        archive.names("")


@pytest.mark.usefixtures("few_tries")
def test_the_outcome_of_a_write_to_an_unreachable_server_is_unknown(buckets):
    archive = open_archive("s3://tests", **{**buckets, "endpoint": "http://127.0.0.1:9"})
    assert archive.create("s/head", b"") is Outcome.UNKNOWN
    with pytest.raises(RemoteError):
        archive.look("s/head")


@pytest.mark.slow
def test_a_repeated_request_is_refused_if_the_first_one_had_arrived(buckets):
    archive = open_archive("s3://lost-answer", **buckets)
    assert archive.create("s/head", b"mine") is Outcome.REFUSED
    found = archive.read("s/head")
    assert found.data == b"mine"
    assert isinstance(archive.swap("s/head", b"next", found.token), str)


@pytest.mark.slow
def test_a_storage_without_conditions_is_unsafe(buckets):
    archive = open_archive("s3://no-conditions", **buckets)
    with pytest.raises(UnsafeStorageError) as caught:
        probe(archive)
    assert caught.value.probe == "conditions"


def test_a_storage_that_ignores_conditions_is_unsafe(buckets):
    archive = open_archive("s3://ignores-conditions", **buckets)
    with pytest.raises(UnsafeStorageError) as caught:
        probe(archive)
    assert caught.value.probe == "create twice"
    assert archive.names("") == []


def test_an_option_that_obstore_does_not_know_is_refused(buckets):
    with pytest.raises(UsageError, match="frobnicate") as caught:
        open_archive("s3://tests", **buckets, frobnicate=1)
    assert caught.value.argument == "options"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "gs://", "az://"])
def test_an_url_without_a_bucket_is_refused(url):
    with pytest.raises(UsageError):
        open_archive(url)


def test_options_in_the_environment_of_obstore_apply(buckets, monkeypatch):
    for name, value in buckets.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for options in ({}, {"timeout": "5s"}):
        archive = open_archive("s3://tests/by-environment", **options)
        archive.remove(["s/head"])
        assert archive.read("s/head") is None
        assert isinstance(archive.create("s/head", b""), str)


def test_stores_below_a_prefix_are_separate_from_the_others(buckets):
    one, other, around = (open_archive(f"s3://prefixes{place}", **buckets) for place in ("/a/b", "/a/c", ""))
    token = one.create("s/head", b"one")
    assert other.read("s/head") is None
    assert one.names("") == ["s/head"]
    assert around.read("a/b/s/head") == StoredObject(b"one", token)


def test_a_closed_bucket_reports_that_it_is_closed(buckets):
    archive = open_archive("s3://tests", **buckets)
    archive.close()
    archive.close()
    with pytest.raises(ClosedError) as caught:
        archive.read("s/head")
    assert caught.value.url == "s3://tests"
