"""Shipped files in a folder have the permissions of the store's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statelog.errors import FencedError
from statelog.fleet import bases, connect


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def bucket(tmp_path):
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


def modes(folder):
    """Return the modes of all files in a folder, by name."""
    return {each.relative_to(folder): each.stat().st_mode & 0o777 for each in folder.rglob("*") if each.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("umask")
def test_a_store_readable_only_by_its_owner_ships_no_object_that_others_can_read(bucket, tmp_path):
    cache = tmp_path / "a"
    with connect(bucket.as_uri(), cache=cache) as fleet, fleet.open("s") as store:
        store.thread("t").commit({"n": 1}, durable="remote")
        store.remote.base()
        store.thread("t").commit({"n": 2}, durable="remote")
        seen = modes(bucket) | modes(cache)
    with connect(bucket.as_uri(), cache=tmp_path / "b") as fleet:
        fleet.restore("s", tmp_path / "restored.state")
        fleet.gc("s", keep_s=0, grace_s=0)
        with fleet.open("s") as store, fleet.follow("s") as copy:
            store.thread("t").commit({"n": 3}, durable="remote")
            assert modes(copy.path.parent)[Path(copy.path.name)] == 0o600
            assert copy.path.parent.stat().st_mode & 0o777 == 0o700
    seen |= modes(bucket) | modes(cache) | modes(tmp_path / "b")
    assert {path: oct(mode) for path, mode in seen.items() if mode != 0o600} == {}
    assert len(seen) > 8
    assert (tmp_path / "restored.state").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o640, 0o660, 0o644])
def test_shipped_objects_have_the_mode_of_the_store(bucket, tmp_path, mode):
    with connect(bucket.as_uri(), cache=tmp_path / "a") as fleet:
        fleet.open("s").close()
        fleet.path("s").chmod(mode)
        former = set(modes(bucket))
        with fleet.open("s") as store:
            store.thread("t").commit({"n": 1}, durable="remote")
            store.remote.base()
        found = {path: each for path, each in modes(bucket).items() if path not in former or path.name == "head"}
        assert {each for path, each in found.items() if path.parts[0] == "s"} == {mode}
        with fleet.open("other") as store:  # Another store of this folder belongs to another user.
            store.thread("t").commit({"n": 1}, durable="remote")
        assert {each for path, each in modes(bucket).items() if path.parts[0] == "other"} == {0o600}


@pytest.mark.usefixtures("umask")
def test_the_temporary_image_of_a_base_is_readable_only_by_the_owner(bucket, tmp_path, monkeypatch):
    seen = []
    put_image = bases.put_image

    def noting(path, *rest):
        seen.append(path.stat().st_mode & 0o777)
        return put_image(path, *rest)

    monkeypatch.setattr(bases, "put_image", noting)
    with connect(bucket.as_uri(), cache=tmp_path / "a") as fleet, fleet.open("s") as store:
        store.thread("t").commit({"n": 1}, durable="remote")
        store.remote.base()
    assert seen == [0o600]


@pytest.mark.slow
@pytest.mark.usefixtures("umask")
def test_a_replacement_file_has_the_mode_of_the_replaced_file(bucket, tmp_path):
    with connect(bucket.as_uri(), cache=tmp_path / "a") as one, connect(bucket.as_uri(), cache=tmp_path / "b") as two:
        store = one.open("s")
        store.thread("t").commit({"n": 1}, durable="remote")
        store.path.chmod(0o640)
        with two.open("s", takeover="now") as other:
            other.thread("t").commit({"n": 2}, durable="remote")
        store.thread("t").commit({"n": "was never shipped"})
        with pytest.raises(FencedError):
            store.close()
        with one.open(
            "s"
        ) as store:  # Its file is an image of the former state, followed by the shipped records of the other owner.
            assert store.thread("t").state["n"] == 2
            assert store.path.stat().st_mode & 0o777 == 0o640
        assert [each.path.stat().st_mode & 0o777 for each in one.stranded()] == [0o640]
