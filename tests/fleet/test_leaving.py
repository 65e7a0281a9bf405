"""An error at the end of a block does not hide the error that ended it.

A former owner learns who took over.
"""

from __future__ import annotations

import asyncio
import socket
import traceback
from contextlib import suppress

import pytest

import statelog
from statelog import aio
from statelog.aio import fleet as aio_fleet
from statelog.errors import FencedError, LeaseLostError, StoreLockedError, not_hiding
from statelog.fleet import connect


class Own(Exception):  # noqa: N818 - of a user
    pass


@pytest.fixture
def url(tmp_path):
    (tmp_path / "bucket").mkdir()
    return (tmp_path / "bucket").as_uri()


def take_over(url, cache):
    with connect(url, cache=cache) as fleet, fleet.open("s", takeover="now") as store:
        store.thread("t").commit({"by": "another"}, durable="remote")


def lose(store):
    """Commit to a store that another owner has taken over, until this process notices it."""
    with suppress(FencedError):
        store.thread("t").commit({"by": "me"}, durable="remote")


def be_taken_over(url, folder, error):
    """Own a store until another owner takes it over, and end the block with an error."""
    with connect(url, cache=folder / "a") as fleet, fleet.open("s") as store:
        store.thread("t").commit({"n": 1}, durable="remote")
        take_over(url, folder / "b")
        lose(store)
        if error is not None:
            raise error


def test_the_traceback_has_the_line_of_the_fenced_call(url, tmp_path):
    def work():
        with connect(url, cache=tmp_path / "a") as fleet, fleet.open("s") as store:
            store.thread("t").commit({"n": 1}, durable="remote")
            take_over(url, tmp_path / "b")
            store.thread("t").commit({"n": "the line of the caller"}, durable="remote")

    with pytest.raises(FencedError) as caught:
        work()
    assert any("the line of the caller" in frame.line for frame in traceback.extract_tb(caught.value.__traceback__))
    assert any("FencedError" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("error", [Own("mine"), KeyError("k"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_the_error_that_ends_the_block_of_a_fenced_store_propagates(url, tmp_path, error):
    with pytest.raises(type(error)) as caught:
        be_taken_over(url, tmp_path, error)
    assert caught.value is error
    assert "taken this store over" in error.__notes__[0]


def test_without_an_error_in_the_block_the_error_of_closing_is_raised(url, tmp_path):
    with pytest.raises(FencedError):
        be_taken_over(url, tmp_path, None)


def test_the_error_of_an_async_block_is_not_hidden_either(url, tmp_path):
    async def main():
        async with (
            await aio_fleet.connect(url, cache=tmp_path / "a") as fleet,
            fleet.open("s") as store,
        ):
            await store.thread("t").commit({"n": 1}, durable="remote")
            await asyncio.to_thread(take_over, url, tmp_path / "b")
            await asyncio.to_thread(lose, store.sync)
            raise Own

    with pytest.raises(Own) as caught:
        asyncio.run(main())
    assert "taken this store over" in caught.value.__notes__[0]


def test_a_lost_lease_does_not_hide_the_error_of_its_block(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        lost = store.board(agent="a").lease("x", ttl_s=0.01, auto_renew=False)
        store.board(agent="b").lease("x", wait_s=5).release()
        with pytest.raises(Own) as caught, lost:
            raise Own
        assert "LeaseLostError" in caught.value.__notes__[0]
        lost = store.board(agent="a").lease("x", ttl_s=0.01, auto_renew=False)
        store.board(agent="b").lease("x", wait_s=5).release()
        with pytest.raises(LeaseLostError), lost:
            pass


def test_an_asyncio_lease_does_not_hide_the_error_of_its_block(tmp_path):
    async def main():
        async with await aio.open(tmp_path / "a.state") as store, store.board().lease("x"):
            await store.close()
            raise Own

    with pytest.raises(Own):
        asyncio.run(main())


def test_a_store_that_cannot_be_closed_does_not_hide_the_error_of_its_block(tmp_path, monkeypatch):
    def refuse(_store):
        raise StoreLockedError("another process is stopped", path="x")

    monkeypatch.setattr(statelog.Store, "close", refuse)
    store = statelog.open(tmp_path / "a.state")
    with pytest.raises(Own) as caught, store:
        raise Own
    assert "StoreLockedError" in caught.value.__notes__[0]
    with pytest.raises(StoreLockedError), store:
        pass
    monkeypatch.undo()
    store.close()


def test_an_interrupt_at_the_end_of_a_block_is_not_hidden():
    with pytest.raises(KeyboardInterrupt), not_hiding(Own()):
        raise KeyboardInterrupt


def test_a_fenced_error_names_the_new_owner(url, tmp_path):
    with connect(url, cache=tmp_path / "a") as fleet:
        store = fleet.open("s")
        store.thread("t").commit({"n": 1}, durable="remote")
        take_over(url, tmp_path / "b")
        for act in (
            lambda: store.thread("t").commit({"n": 2}, durable="remote"),
            lambda: store.thread("t").commit({"n": 3}),
            store.remote.wait,
            store.close,
        ):
            with pytest.raises(FencedError) as caught:
                act()
            assert caught.value.owner == f"{socket.gethostname()}:{tmp_path / 'b' / 's.state'}"
            assert caught.value.owner in str(caught.value)
            assert (caught.value.epoch, caught.value.path) == (2, str(store.path))


def test_a_fenced_error_is_raised_even_if_the_storage_does_not_name_the_owner(url, tmp_path, monkeypatch):
    from statelog.errors import RemoteError
    from statelog.fleet.requests import Performer

    def away(_performer, _name):
        raise RemoteError("away")

    with connect(url, cache=tmp_path / "a") as fleet:
        store = fleet.open("s")
        store.thread("t").commit({"n": 1}, durable="remote")
        take_over(url, tmp_path / "b")
        monkeypatch.setattr(Performer, "read", away)
        with pytest.raises(FencedError, match="another owner has taken this store over") as caught:
            store.thread("t").commit({"n": 2}, durable="remote")
        assert caught.value.path == str(store.path)
        with pytest.raises(FencedError):
            store.close()
