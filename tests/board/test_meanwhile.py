"""Another process overwrites or deletes entries, and retention removes their values, between two reads of a call."""

import pytest
from meanwhile import interrupted_before_each_read, preparing_copies

import statelog
from statelog.errors import CursorExpiredError

LONG = ["x" * 3000] * 3
"""A value that is stored in several nodes. A call reads them one by one."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "agent.state"
    with statelog.open(path, durability="interval") as store:
        board = store.board()
        for key in ("k", "tasks/1", "tasks/2"):
            board.set(key, {"v": LONG})
            board.set(key, {"v": LONG, "n": 1})
    return path


@pytest.fixture
def prepared(filled, tmp_path):
    return preparing_copies(tmp_path, filled)


def overwritten(store):
    board = store.board()
    for key in ("k", "tasks/1", "tasks/2"):
        board.set(key, {"v": ["new"]})
    board.prune(keep_last=1)


def deleted(store):
    board = store.board()
    for key in ("k", "tasks/1", "tasks/2"):
        board.delete(key)
    board.prune(keep_last=1)


def get(store):
    entry = store.board().get("k")
    assert entry is None or entry.value["v"] in (LONG, ["new"])


def get_in_a_transaction(store):
    with store.transaction() as tx:
        entry = tx.board().get("k")
        assert entry is None or entry.value["v"] in (LONG, ["new"])


def list_all(store):
    found = store.board().list()
    assert len(found) in (0, 3)
    assert len({str(entry.value["v"]) for entry in found}) <= 1


def history(store):
    assert len(store.board().history("k")) in (1, 2)


def update(store):
    assert store.board().update("k", statelog.reducers.merge, {"m": 2}).value["m"] == 2


def claim(store):
    claim = store.board().claim("tasks/*", lease_s=60)
    if claim is not None:
        assert claim.value["v"] in (LONG, ["new"])
        assert [each.key for each in store.board().claims()] in ([claim.key], [])


CALLS = {each.__name__: each for each in (get, get_in_a_transaction, list_all, history, update, claim)}


@pytest.mark.parametrize("meanwhile", [overwritten, deleted])
@pytest.mark.parametrize("act", CALLS.values(), ids=CALLS)
def test_a_call_finds_the_entries_as_they_were_at_a_moment(prepared, act, meanwhile):
    assert set(interrupted_before_each_read(prepared, act, meanwhile)) == {None}


def test_a_watch_says_that_its_events_were_removed(prepared):
    def act(store):
        with store.board().watch("k", after=0, follow=False) as watch:
            assert [event.kind for event in watch] in (["set"] * 2, ["set"] * 3)

    errors = {type(error) for error in interrupted_before_each_read(prepared, act, overwritten)}
    assert errors == {type(None), CursorExpiredError}
