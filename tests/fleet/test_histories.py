"""Each LSN and each time restored from the storage equals the model, across bases, takeovers and kills."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta

import pytest

import statelog
from statelog.errors import RemoteError
from statelog.testing import (
    Commit,
    Copy,
    Fork,
    Rollback,
    StoreModel,
    Tag,
    Together,
    Untag,
    assert_matches,
    perform,
)

THREADS = "abc"


def operation(chosen):
    """Return a random operation. Some are refused, by the store and by its model."""
    thread = chosen.choice(THREADS)
    kind = chosen.random()
    if kind < 0.6:
        return Commit(thread, ({chosen.choice("xyz"): chosen.randrange(1000)},), branch=chosen.choice(["main", "side"]))
    if kind < 0.7:
        return Together(tuple(Commit(each, ({"x": chosen.random()},)) for each in chosen.sample(THREADS, 2)))
    version = chosen.randrange(6)
    return chosen.choice(
        [
            Rollback(thread, version),
            Fork(thread, "side", at=version),
            Tag(thread, chosen.choice("pq"), version),
            Untag(thread, chosen.choice("pq")),
            Copy(thread, chosen.choice(THREADS)),
        ]
    )


def end(store, *, is_killed):
    if is_killed:
        store.remote._error = RemoteError("killed")
        store.remote._thread.join()
    with suppress(RemoteError):
        store.close()


def work(machine, chosen, count):
    """Run operations on a store of two machines and on its model. Return the models by their LSNs."""
    model = StoreModel()
    models = {0: model.copy()}
    machines = [machine("a"), machine("b")]
    done = 0
    while done < count:
        store = chosen.choice(machines).open("t", takeover="now", ship_ms=1)
        assert_matches(store, model)
        for _operation in range(chosen.randrange(1, 12)):
            asked = operation(chosen)
            assert perform(asked, store) is perform(asked, model)
            models[model.last_lsn] = model.copy()
            assert store.last_lsn == model.last_lsn
            done += 1
            if chosen.random() < 0.3:
                store.remote.wait()
        if chosen.random() < 0.5:
            store.remote.base()
        store.remote.wait()
        end(store, is_killed=chosen.random() < 0.5)
    return models


def check_moments(machine, folder, *, seed, count):
    """Restore all LSNs and times of a history. Return their number."""
    models = work(machine, random.Random(seed), count)
    last = max(models)
    fleet = machine("c")
    whole = folder / "whole.state"
    fleet.restore("t", whole)
    with statelog.open(whole, read_only=True) as store:
        times = [record.time for record in store.log()]
    whole.unlink()
    for lsn in range(1, last + 1):
        held = max(each for each in models if each <= lsn)
        check_restored(fleet, folder / f"{lsn}.state", lsn, models[held])
    for lsn in range(1, last + 1, 3):
        at = times[lsn - 1]
        until = next((number for number, time in enumerate(times) if time > at), last)
        held = max(each for each in models if each <= until)
        check_restored(fleet, folder / f"{lsn}-time.state", at, models[held])
    check_restored(fleet, folder / "first.state", times[0] - timedelta(days=1), models[0])
    check_restored(fleet, folder / "last.state", times[-1] + timedelta(seconds=1), models[last])
    return last


def check_restored(fleet, path, at, model):
    fleet.restore("t", path, at=at)
    with statelog.open(path, read_only=True) as store:
        assert_matches(store, model)
    path.unlink()


@pytest.mark.slow
def test_each_moment_can_be_restored(machine, tmp_path):
    assert check_moments(machine, tmp_path, seed=1, count=50) > 25


@pytest.mark.soak
def test_each_moment_of_many_histories_can_be_restored(machine, memory, tmp_path, soak_scale):
    for seed in range(int(20 * soak_scale) or 1):
        memory.objects.clear()
        for host in "ab":
            for path in (tmp_path / host).glob("*"):
                path.unlink()
        assert check_moments(machine, tmp_path, seed=seed, count=150) > 100, seed


@pytest.mark.slow
def test_a_model_of_another_moment_is_detected(machine, tmp_path):
    models = work(machine, random.Random(2), 12)
    *_earlier, before, last = sorted(models)
    fleet = machine("c")
    check_restored(fleet, tmp_path / "right.state", last, models[last])
    with pytest.raises(AssertionError):
        check_restored(fleet, tmp_path / "wrong.state", last, models[before])
