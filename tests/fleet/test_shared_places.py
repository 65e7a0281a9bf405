"""Shared stores on an event loop, in a process with many open files, and in a user's cache."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil

import pytest
from test_sharing import SCHEMA, add, total

from statelog.aio import fleet as aio_fleet
from statelog.fleet import share


@pytest.mark.slow
def test_a_process_with_many_open_files_is_notified_of_other_hosts(host):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        a, b = host("a"), host("b", poll_s=60)
        add(a)
        assert b.remote.wait(a.last_lsn, timeout_s=10)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_asyncio_can_use_a_shared_store(host, postgres_url, name, tmp_path):
    async def run():
        async with aio_fleet.share(postgres_url, name, tmp_path / "b") as store:
            await store.thread("t", schema=SCHEMA).commit({"n": 2})
            await store.remote.wait()
            return await store.thread("t", schema=SCHEMA).state["n"]

    add(host("a"))
    assert asyncio.run(run()) == 3


@pytest.mark.slow
def test_a_copy_is_in_the_cache_folder_of_the_user(postgres_url, name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with share(postgres_url, name) as store:
        add(store)
        assert store.path.is_relative_to(tmp_path / "cache" / "statelog")
    shutil.rmtree(tmp_path / "cache")
    with share(postgres_url, name) as store:
        assert total(store) == 1
