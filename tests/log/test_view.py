"""Versions by number and by time, through branches: compared with a scan of all versions."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from statelog import kernels
from statelog.errors import CheckpointNotFoundError, CorruptionError
from statelog.format import keys

MOMENT = timedelta(microseconds=1)


@pytest.fixture(scope="module")
def tangle(shared_store):
    """A thread with branches of branches, rollbacks and pages not yet full; its checkpoints by branch."""
    rng = random.Random(7)
    thread = shared_store.thread("tangle")
    lines = {"main": [thread.commit({"n": 0})]}
    for number in range(1, 400):
        name = rng.choice(list(lines))
        branch = thread.checkout(name)
        action = rng.random()
        if action < 0.03:
            at = rng.randrange(len(lines[name]))
            branch.fork(f"branch {number}", at=at)
            lines[f"branch {number}"] = lines[name][: at + 1]
        elif action < 0.1:
            lines[name].append(branch.rollback(rng.randrange(len(lines[name]))))
        else:
            lines[name].append(branch.commit({"n": number}))
    return thread, lines


@pytest.mark.slow
def test_every_version_of_every_branch_is_found(tangle):
    thread, lines = tangle
    assert len(lines) > 5
    for name, line in lines.items():
        branch = thread.checkout(name)
        assert branch.version == len(line) - 1
        assert [branch.at(version) for version in range(len(line))] == line
        with pytest.raises(CheckpointNotFoundError):
            branch.at(len(line))


@pytest.mark.slow
def test_every_time_names_the_last_version_at_or_before_it(tangle):
    thread, lines = tangle
    moments = sorted(checkpoint.time for line in lines.values() for checkpoint in line)
    for name, line in lines.items():
        branch = thread.checkout(name)
        for moment in moments[::11]:
            for near in (moment - MOMENT, moment, moment + MOMENT):
                before = [checkpoint for checkpoint in line if checkpoint.time <= near]
                if before:
                    assert branch.at(near) == before[-1]
                else:
                    with pytest.raises(CheckpointNotFoundError):
                        branch.at(near)


@pytest.mark.slow
def test_ancestors_equal_those_reached_by_parents(tangle):
    _thread, lines = tangle
    for line in lines.values():
        checkpoint, chain = line[-1], []
        while checkpoint is not None:
            chain.append(checkpoint)
            checkpoint = checkpoint.parent
        for generations in {0, 1, 2, 5, len(chain) // 2, len(chain) - 1} & set(range(len(chain))):
            assert line[-1].ancestor(generations) == chain[generations]


@pytest.mark.slow
def test_common_ancestors_equal_those_reached_by_parents(tangle):
    _thread, lines = tangle

    def chain_of(checkpoint):
        while checkpoint is not None:
            yield checkpoint
            checkpoint = checkpoint.parent

    heads = [line[-1] for line in lines.values()]
    chains = [list(chain_of(head)) for head in heads]
    for left, chain in zip(heads, chains, strict=True):
        theirs = {checkpoint.lsn for checkpoint in chain}
        for right, other in zip(heads, chains, strict=True):
            expected = next(checkpoint for checkpoint in other if checkpoint.lsn in theirs)
            assert left.common_ancestor(right) == expected


def test_a_wrong_index_is_damage_and_returns_no_other_version(store):
    thread = store.thread("t")
    for number in range(3):
        thread.commit({"n": number})
    with store._engine.read() as view:
        key = keys.encode_page_key(1, 0, 0)
        page = view.transaction.get_index(key)
    swapped = page[:8] + page[24:40] + page[8:24] + page[40:]
    store._engine.care(lambda transaction: transaction.put_index(key, swapped))
    with pytest.raises(CorruptionError):
        thread.at(0)
    store._engine.care(lambda transaction: transaction.put_index(key, page))
    assert thread.at(0).state == {"n": 0}


@pytest.mark.slow
def test_every_version_jumps_as_far_as_its_depth_requires(tangle, shared_store):
    _thread, lines = tangle
    with shared_store._engine.read() as view:
        for line in lines.values():
            for checkpoint in line:
                event = view.checkpoint(checkpoint.lsn)
                if event.depth:
                    far, _digest = view.checkpoint_of(event.thread, event.jump_branch, event.jump_version)
                    assert far.depth == event.jump_depth == kernels.jump_depth(event.depth)
                    assert checkpoint.ancestor(event.depth - far.depth).lsn == far.lsn


def jumps_are_right(checkpoint, view):
    """Return whether the jump of a checkpoint leads to the ancestor that its depth requires."""
    event = view.checkpoint(checkpoint.lsn)
    far = checkpoint
    for _ in range(event.depth - kernels.jump_depth(event.depth)):
        far = far.parent
    return event.jump_depth == kernels.jump_depth(event.depth) and (
        not event.depth or view.entry(event.thread, event.jump_branch, event.jump_version).lsn == far.lsn
    )


def test_jumps_of_one_branch_are_right_whatever_was_rolled_back(store):
    rng = random.Random(11)
    thread = store.thread("t")
    for number in range(200):
        if rng.random() < 0.2 and number > 50:
            thread.rollback(rng.randrange(number))
        else:
            thread.commit({"n": number})
    with store._engine.read() as view:
        assert all(jumps_are_right(checkpoint, view) for checkpoint in thread.history())


def test_versions_with_equal_depths_are_not_mistaken_for_ancestors(store):
    """As on a branch that was rolled back to a checkpoint of another branch, which has more ancestors."""
    thread = store.thread("t")
    for number in range(4):
        thread.commit({"n": number})
    side = thread.fork("side", at=2)
    for number in range(48):
        side.commit({"n": number})
    deep = thread.rollback(side.head)
    thread.rollback(0)
    while thread.version < side.version + 1:
        thread.commit({"n": thread.version})
    thread.rollback(deep)
    for number in range(80):
        thread.commit({"n": number})
    with store._engine.read() as view:
        event = view.checkpoint(thread.head.lsn)
        assert event.version == event.depth
        assert all(jumps_are_right(checkpoint, view) for checkpoint in thread.history(80))
