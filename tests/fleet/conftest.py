"""The storages of a fleet, each served once for all tests of a worker."""

from __future__ import annotations

import secrets

import pytest
from memory import MemoryArchive
from storages import has_azurite, has_postgres, serving_azure, serving_buckets, serving_postgres

from statelog.fleet.fleet import Fleet
from statelog.fleet.storage_urls import open_archive


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Shorten all waits before another try."""
    monkeypatch.setattr("statelog.fleet.requests._PAUSE_S", 0.005)
    monkeypatch.setattr("statelog.fleet.owner._BACKOFF_S_MAX", 0.1)


@pytest.fixture
def few_tries(monkeypatch):
    """Make obstore give up soon."""
    buckets = pytest.importorskip("statelog.fleet.buckets")
    soon = {"init_backoff": buckets.timedelta(milliseconds=5), "max_backoff": buckets.timedelta(milliseconds=20)}
    few = {"max_retries": 1, "retry_timeout": buckets.timedelta(seconds=5), "backoff": {**soon, "base": 2}}
    monkeypatch.setattr(buckets, "_RETRIES", few)


@pytest.fixture(scope="session")
def buckets():
    """Options of `open_archive` for the buckets of `bucket_server.py`."""
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    with serving_buckets() as options:
        yield options


@pytest.fixture(scope="session")
def azure():
    """Options of `open_archive` for the container `tests` of Azure's emulator."""
    pytest.importorskip("obstore")
    if not has_azurite():
        pytest.skip("there is no Azure emulator: npm install azurite")
    with serving_azure() as options:
        yield options


@pytest.fixture(scope="session")
def postgres_url():
    """The URL of a database that has a fleet's tables."""
    pytest.importorskip("psycopg")
    if not has_postgres():
        pytest.skip("there is no Postgres")
    from statelog.fleet.postgres import setup

    with serving_postgres() as url:
        setup(url)
        yield url


@pytest.fixture(params=["folder", "bucket", "azure", "postgres"])
def storage(request, tmp_path):
    """The URL and options of a storage without objects."""
    if request.param == "folder":
        folder = tmp_path / "archive"
        folder.mkdir()
        return f"file://{folder}", {}
    if request.param == "bucket":
        return f"s3://tests/{secrets.token_hex(8)}", request.getfixturevalue("buckets")
    if request.param == "azure":
        return f"az://tests/{secrets.token_hex(8)}", request.getfixturevalue("azure")
    import psycopg

    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE statelog_fleet_heads, statelog_fleet_objects")
    return url, {}


@pytest.fixture
def archive(storage):
    """An opened storage without objects."""
    url, options = storage
    opened = open_archive(url, **options)
    yield opened
    opened.close()


@pytest.fixture
def memory():
    """A storage in memory."""
    return MemoryArchive()


@pytest.fixture
def machine(tmp_path, memory):
    """Make machines of one fleet, each with its own disk."""

    def make(name, archive=memory):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Fleet(archive, folder)

    return make


@pytest.fixture
def name():
    return f"board-{secrets.token_hex(4)}"


@pytest.fixture
def host(postgres_url, name, tmp_path):
    """Open the store on a named host. All stores are closed at the end."""
    opened = []

    def make(of, **options):
        from statelog.fleet import share

        store = share(postgres_url, name, cache=tmp_path / of, **options)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()
