"""Restores of a fleet's store after random work with policies, leases and compaction. They equal the owner's store."""

from __future__ import annotations

import random
import shutil
import string

import pytest
from authors import Author, check_whole, ignore_removals_in_imports, index_of

import statelog
from statelog import reducers
from statelog.fleet import connect

RESTORES = 2000


def restore_after_random_work(folder, seed, turns=60):
    """Write a history with bases into a fleet's store, and restore it five times. Return the number of restores."""
    chance = random.Random(seed)
    (folder / "bucket").mkdir(parents=True)
    url = (folder / "bucket").as_uri()
    made = 0
    with (
        connect(url, cache=folder / "here") as fleet,
        connect(url, cache=folder / "there") as elsewhere,
        fleet.open("s", ship_ms=chance.choice([0, 60_000]), durability="interval") as store,
    ):
        author = Author(store, seed)
        author.commit()
        for turn in range(turns):
            author.act()
            if chance.random() < 0.1:
                store.remote.base()
            if (turn + 1) % (turns // 5) == 0:
                store.remote.wait()
                expected, last = index_of(store), store.last_lsn
                path = folder / f"restored-{turn}.state"
                elsewhere.restore("s", path)
                with statelog.open(path) as restored:
                    assert restored.last_lsn == last
                    assert index_of(restored) == expected
                    check_whole(restored)
                made += 1
    with connect(url, cache=folder / "later") as later, later.open("s") as taken_over:
        assert index_of(taken_over) == expected
        check_whole(taken_over)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_restores_after_random_work_equal_the_store(tmp_path, seed):
    assert restore_after_random_work(tmp_path, seed) == 5


@pytest.mark.soak
def test_many_restores_after_random_work_equal_the_store(tmp_path, soak_scale):
    made, seed = 0, 1000
    while made < RESTORES * soak_scale:
        made += restore_after_random_work(tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))
        seed += 1


@pytest.mark.slow
def test_a_restore_that_ignores_removals_is_detected(tmp_path, monkeypatch):
    ignore_removals_in_imports(monkeypatch)
    with pytest.raises(AssertionError):
        restore_after_random_work(tmp_path, 1)


@pytest.mark.parametrize("act", ["prune", "deletion"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_store_restored_to_before_the_loan_of_a_sweep_keeps_a_shared_text(machine, tmp_path, is_deleted, act):
    """The segment has a record from after the sweep, which took its owner. The beginning of its text is in another."""
    begin = "".join(random.Random(6).choices(string.ascii_letters, k=60_000))
    with machine("a").open("s", ship_ms=60_000) as store:
        owner, other = (store.thread(name, schema={"text": reducers.add}) for name in "ab")
        owner.commit({"text": begin})
        store.remote.wait()
        owner.commit({"text": "end"})
        first = other.commit({"text": begin + "end"}).lsn
        owner.commit({"text": reducers.Overwrite("another")})
        store.prune(keep_last=1)
        if is_deleted:
            store.delete_thread("a")
        last = store.last_lsn
        store.compact()
        assert store.last_lsn == last + 1
        store.remote.wait()
    for at in range(first, last + 2):
        path = tmp_path / f"{at}.state"
        machine("b").restore("s", path, at=at)
        with statelog.open(path) as restored:
            if act == "prune":
                restored.prune(keep_last=1)
            elif "a" in [thread.id for thread in restored.threads()]:
                restored.delete_thread("a")
            check_whole(restored)
            assert restored.thread("b").state["text"] == begin + "end"
