"""Each old name works for one more release, and warns."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import statelog
from statelog import aio
from statelog.errors import ConflictError, FencedError, UsageError

warns = partial(pytest.warns, DeprecationWarning, match=" is now ")


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        for number in range(5):
            opened.thread("t").commit({"n": number})
            opened.board().set("k", number)
        yield opened


def versions(store):
    return [checkpoint.version for checkpoint in store.thread("t").history()]


def test_retain_prunes_and_sets_a_policy(store):
    with pytest.warns(DeprecationWarning, match="retain is now prune"):
        assert store.retain(keep_last=3, threads="t", pinned=[store.thread("t").at(0)]).expired_versions == 1
    assert versions(store) == [4, 3, 2, 0]
    with pytest.warns(DeprecationWarning, match="set_retention"):
        assert store.retain(keep_last=2, as_policy=True).expired_versions == 2
    assert [info.policy["keep_last"] for info in store.threads()] == [2]


def test_retain_on_a_board_prunes_and_sets_a_policy(store):
    board = store.board()
    with pytest.warns(DeprecationWarning, match="retain is now prune"):
        assert board.retain("k", keep_last=3).expired_versions == 2
    with pytest.warns(DeprecationWarning, match="set_retention"):
        assert board.retain("k", keep_last=2, as_policy=True).expired_versions == 1


@pytest.mark.parametrize(("argument", "value"), [("as_policy", "no"), ("pinned", ["first"])])
def test_retain_refuses_the_same_arguments_as_before(store, argument, value):
    with warns(), pytest.raises(UsageError) as caught:
        store.retain(**{"keep_last": 1, "as_policy": True, argument: value})
    assert caught.value.facts == {"argument": argument, "value": value}


def test_fence_shuts_off(store):
    with pytest.warns(DeprecationWarning, match="fence is now shut_off"):
        store.fence(FencedError("taken over"))
    with pytest.raises(FencedError, match="taken over"):
        store.thread("t").commit({"n": 5})


def test_reborn_recreates(store):
    store.delete_thread("t")
    with pytest.warns(DeprecationWarning, match="reborn= is now recreate="):
        assert store.thread("t", reborn=True).commit({"n": 0}).version == 0
    store.delete_thread("t")
    store.thread("u").commit({"n": 1})
    with warns():
        assert store.copy_thread("u", "t", reborn=True).state["n"] == 1
    store.delete_thread("t")
    with store.transaction() as tx, warns():
        assert tx.copy_thread("u", "t", reborn=True).state["n"] == 1


def test_old_names_on_the_loop(store):
    async def use():
        async with aio.open(store.path) as opened:
            with warns():
                assert (await opened.retain(keep_last=2)).expired_versions == 3
            with warns():
                assert (await opened.board().retain("k", keep_last=2, as_policy=True)).expired_versions == 3
            await opened.delete_thread("t")
            with warns():
                await opened.thread("t", reborn=True).commit({"n": 0})
            await opened.delete_thread("t")
            await opened.thread("u").commit({"n": 0})
            with warns():
                await opened.copy_thread("u", "t", reborn=True)
            with warns():
                await opened.fence(FencedError("taken over"))
            assert opened.fenced

    asyncio.run(use())


def test_set_with_an_expected_version_does_as_cas(store):
    board = store.board()
    made = board.set("new", 1, expected_version=0)
    assert board.set("new", 2, expected_version=made.version).value == 2
    with pytest.raises(ConflictError) as caught:
        board.set("new", 3, expected_version=made.version)
    assert caught.value.facts["expected_version"] == made.version
