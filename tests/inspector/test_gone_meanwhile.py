"""Screens of threads while another process deletes a thread, or removes versions."""

from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")

from meanwhile import deletions, interrupted_before_each_read, preparing, removals
from starlette.datastructures import QueryParams

from statelog.errors import NotFoundError
from statelog.inspector import thread, threads
from statelog.store.session import session_of

WAYS = deletions("a") | removals("a")
LONG = "x" * 600


def fill(store):
    for name in ("a", "b"):
        opened = store.thread(name)
        for number in range(3):
            opened.commit({"m": [f"{LONG}{name}{number}{each}" for each in range(3)]})
    session_of(store).engine.cache.clear()
    return (store,)


@pytest.fixture
def prepared(tmp_path):
    return preparing(tmp_path, fill)


def asked(**query):
    return SimpleNamespace(query_params=QueryParams(query))


@pytest.mark.parametrize("meanwhile", WAYS.values(), ids=WAYS)
def test_the_list_of_threads_and_their_sizes_skip_what_is_gone(prepared, meanwhile):
    def act(store):
        page = threads.list_threads(store, containing="", after="", limit=10)
        assert [each["id"] for each in page["threads"]] in (["b", "a"], ["a", "b"], ["b"])
        assert all(each["branches"] for each in page["threads"])
        sizes = threads._sizes(store, SimpleNamespace(query_params=QueryParams([("id", "a"), ("id", "b")])))
        assert sizes["sizes"]["b"] > 0

    assert set(interrupted_before_each_read(prepared, act, meanwhile)) == {None}


@pytest.mark.parametrize("meanwhile", WAYS.values(), ids=WAYS)
def test_the_list_of_versions_leaves_out_removed_versions(prepared, meanwhile):
    def act(store):
        rows = thread._versions(store, asked(id="a"))["versions"]
        assert [row["version"] for row in rows[:1]] in ([], [0], [2])

    for error in interrupted_before_each_read(prepared, act, meanwhile):
        assert error is None or (isinstance(error, NotFoundError) and meanwhile is not WAYS["prune"]), error
