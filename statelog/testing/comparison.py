"""Compares a whole store with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.testing.identity import exact_form, identical

if TYPE_CHECKING:
    from collections.abc import Hashable

    from statelog.store.checkpoint import Checkpoint
    from statelog.store.store import Store
    from statelog.store.thread import Thread
    from statelog.testing.model import CheckpointModel, StoreModel, ThreadModel


def assert_matches(store: Store, model: StoreModel) -> None:
    """Check that a store has exactly the contents of its model: every version of every branch.

    Equal states of one thread must have equal digests, and different states must have different digests.

    Raises:
        AssertionError: the contents differ. The message has the first difference.
    """
    _same("records in the log", store.last_lsn, model.last_lsn)
    threads = list(store.threads())
    _same("threads", [info.id for info in threads], model.thread_ids())
    for info in threads:
        mine = model.thread(info.id)
        where = f"thread {info.id!r}"
        _same(f"{where}: reducers", info.channels, mine.specs())
        _same(f"{where}: policy", info.policy, mine.policy())
        _same(f"{where}: number of branches", info.branches, len(mine.branches()))
        _same(f"{where}: number of versions", info.versions, sum(end - base for _n, _p, base, end in mine.branches()))
        _compare_thread(where, store.thread(info.id), mine)


def _compare_thread(where: str, thread: Thread, model: ThreadModel) -> None:
    branches = [(each.name, each.parent, each.base_version, each.head_version) for each in thread.branches()]
    _same(f"{where}: branches", branches, model.branches())
    digests: dict[Hashable, str] = {}
    for name, _parent, _base, _head in branches:
        checkpoints = list(thread.checkout(name).history())
        models = model.checkout(name).history()
        _same(f"{where}, branch {name!r}: number of checkpoints", len(checkpoints), len(models))
        for checkpoint, expected in zip(checkpoints, models, strict=True):
            here = f"{where}, branch {name!r}, version {expected.version}"
            compare_checkpoint(here, checkpoint, expected)
            known = digests.setdefault(exact_form(expected.state), checkpoint.state_digest)
            _same(f"{here}: digest of an equal state", checkpoint.state_digest, known)
    _same(f"{where}: different states, digests", len(set(digests.values())), len(digests))
    tags = {name: (each.branch, each.version) for name, each in thread.tags().items()}
    _same(f"{where}: tags", tags, {name: (each.branch, each.version) for name, each in model.tags().items()})


def compare_checkpoint(where: str, checkpoint: Checkpoint, model: CheckpointModel) -> None:
    """Check one checkpoint with its whole state. Raises AssertionError."""
    _same(f"{where}: version", checkpoint.version, model.version)
    _same(f"{where}: branch", checkpoint.branch, model.branch)
    _same(f"{where}: kind", checkpoint.kind, model.kind)
    _same(f"{where}: metadata", checkpoint.metadata, model.metadata)
    _same(f"{where}: channels written", checkpoint.channels_written, model.channels_written)
    if model.id is not None:
        _same(f"{where}: id", checkpoint.id, model.id)
    parent = checkpoint.parent
    _same(
        f"{where}: parent",
        None if parent is None else (parent.branch, parent.version),
        None if model.parent is None else (model.parent.branch, model.parent.version),
    )
    _same(f"{where}: state", checkpoint.state, model.state)


def _same(what: str, found: object, expected: object) -> None:
    if not identical(found, expected):
        message = f"{what}: found {found!r}, expected {expected!r}"
        raise AssertionError(message)
