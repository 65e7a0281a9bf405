"""Acts on threads: commits, branches, tags, transactions, copies, deletion, retention."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import statelog
from statelog.testing.crossings.acts import Actor, Family, is_likely
from statelog.testing.crossings.values import (
    BRANCHES,
    COPIES,
    KEYS,
    SCHEMAS,
    TAGS,
    THREADS,
    VERSIONED,
    VERSIONS,
    draw_update,
    draw_value,
)
from statelog.testing.observation import is_deleted

if TYPE_CHECKING:
    from random import Random

    from statelog import Checkpoint, Thread

FAMILY = Family("threads")


def _thread(held: Any, rng: Random, id: str | None = None) -> Thread[Any, Any]:
    """Return a thread of a store or a transaction, on any of its branches. Sometimes re-create a deleted thread."""
    name = id or rng.choice(COPIES if is_likely(rng, 0.1) else THREADS)
    schema = SCHEMAS.get(name)
    begins_anew = is_likely(rng, 0.5) and is_deleted(held, name)
    thread: Thread[Any, Any] = held.thread(name, schema=schema, recreate=begins_anew)
    branches = [each.name for each in thread.branches()]
    if len(branches) > 1 and is_likely(rng, 0.4):
        thread = thread.checkout(rng.choice(branches))
    return thread


def _version(thread: Thread[Any, Any], rng: Random) -> int:
    return rng.randrange(max(thread.version, 0) + 1)


def _metadata(rng: Random) -> dict[str, Any] | None:
    return {"step": rng.randrange(9), "note": draw_value(rng, 1)} if is_likely(rng, 0.2) else None


@FAMILY.act(20)
def commit(actor: Actor, rng: Random) -> None:
    """Commit one or more updates."""
    thread = _thread(actor.store, rng)
    updates = [draw_update(rng, thread.id) for _update in range(rng.choice((1, 1, 1, 2, 3)))]
    expected = rng.choice((None, None, None, thread.version, thread.version - 1))
    id = f"id-{rng.randrange(40)}" if is_likely(rng, 0.15) else None
    durable = rng.choice((None, None, False, True))
    fence = actor.pick(rng.choice(("claims", "leases")), rng) if is_likely(rng, 0.1) else None
    thread.commit(*updates, metadata=_metadata(rng), expected_version=expected, id=id, durable=durable, fence=fence)


@FAMILY.act(6)
def edit(actor: Actor, rng: Random) -> None:
    """Change the state in place."""
    thread = _thread(actor.store, rng)
    change = rng.choice((_set_some, _drop_some, _grow_some))
    thread.edit(lambda state: change(state, rng), metadata=_metadata(rng), lazy=is_likely(rng, 0.3))


def _own_channels(state: Any) -> list[str]:
    """Return the channels of the thread, without channels of the library, such as the channels of durable runs."""
    return [name for name in state if ":" not in name]


def _set_some(state: Any, rng: Random) -> None:
    name = rng.choice(_own_channels(state) or ["x"])
    if isinstance(state.get(name), dict):
        state[name][f"k{rng.randrange(30)}"] = draw_value(rng, 1)
    elif name in ("x", "y", "z"):
        value = draw_value(rng)
        state[name] = statelog.Encoded(value) if is_likely(rng, 0.2) else value


def _drop_some(state: Any, rng: Random) -> None:
    for name in _own_channels(state):
        value = state[name]
        if isinstance(value, list) and value and name != "by_id":
            del value[rng.randrange(len(value))]
            return


def _grow_some(state: Any, rng: Random) -> None:
    for name in _own_channels(state):
        if isinstance(state[name], list) and name != "by_id":
            state[name].insert(rng.randrange(len(state[name]) + 1), draw_value(rng, 1))
            return


@FAMILY.act(3)
def mount(actor: Actor, rng: Random) -> None:
    """Change a mounted state."""
    thread = _thread(actor.store, rng)
    with thread.mount(metadata=_metadata(rng), lazy=is_likely(rng, 0.3)) as state:
        _set_some(state, rng)


@FAMILY.act(4)
def rollback(actor: Actor, rng: Random) -> None:
    """Roll back a branch to a version, a tag, or an id."""
    thread = _thread(actor.store, rng)
    target = rng.choice((_version(thread, rng), rng.choice(TAGS), f"id-{rng.randrange(40)}", -2))
    thread.rollback(target, metadata=_metadata(rng))


@FAMILY.act(4)
def fork(actor: Actor, rng: Random) -> None:
    """Begin a branch."""
    thread = _thread(actor.store, rng)
    name = rng.choice(BRANCHES) if is_likely(rng, 0.7) else f"b{rng.randrange(20)}"
    at = rng.choice((None, _version(thread, rng)))
    update = draw_update(rng, thread.id) if is_likely(rng, 0.5) else None
    thread.fork(name, at=at, update=update, metadata=_metadata(rng) if update else None)


@FAMILY.act(3)
def tag(actor: Actor, rng: Random) -> None:
    """Tag a version."""
    thread = _thread(actor.store, rng)
    thread.tag(rng.choice(TAGS), rng.choice((None, _version(thread, rng))))


@FAMILY.act(2)
def untag(actor: Actor, rng: Random) -> None:
    """Remove a tag."""
    _thread(actor.store, rng).untag(rng.choice(TAGS))


class _AbandonedActsError(Exception):
    pass


@FAMILY.act(5)
def transaction(actor: Actor, rng: Random) -> None:
    """Write to threads and to the board in one transaction. Sometimes abandon the transaction."""
    try:
        with actor.store.transaction() as tx:
            for _step in range(rng.randrange(1, 6)):
                _do_in(tx, rng)
            _abandon_at_times(rng)
    except _AbandonedActsError:
        pass


def _abandon_at_times(rng: Random) -> None:
    if is_likely(rng, 0.15):
        raise _AbandonedActsError


def _do_in(tx: Any, rng: Random) -> None:
    kind = rng.randrange(12)
    board = tx.board(agent="tx")
    if kind < 5:
        thread = _thread(tx, rng)
        thread.commit(draw_update(rng, thread.id), metadata=_metadata(rng))
    elif kind == 5:
        _thread(tx, rng).rollback(-2)
    elif kind == 6:
        _thread(tx, rng).fork(rng.choice(BRANCHES))
    elif kind == 7:
        _thread(tx, rng).tag(rng.choice(TAGS))
    elif kind == 8 and is_likely(rng, 0.3):
        tx.delete_thread(rng.choice(THREADS))
    elif kind == 9 and is_likely(rng, 0.5):
        tx.copy_thread(rng.choice(THREADS), rng.choice(THREADS), recreate=is_likely(rng, 0.5))
    elif kind == 10:
        board.delete(rng.choice(KEYS))
    else:
        board.set(rng.choice(KEYS), draw_value(rng), ttl_s=rng.choice((None, None, 30)))


@FAMILY.act(2)
def copy(actor: Actor, rng: Random) -> None:
    """Copy a thread."""
    target = rng.choice((*THREADS, *COPIES, *COPIES))
    actor.store.copy_thread(rng.choice((*THREADS, *COPIES)), target, recreate=is_deleted(actor.store, target))


@FAMILY.act(2)
def delete(actor: Actor, rng: Random) -> None:
    """Delete a thread."""
    actor.store.delete_thread(rng.choice((*THREADS, *COPIES)))


@FAMILY.act(2)
def begin_again(actor: Actor, rng: Random) -> None:
    """Re-create a deleted thread by a commit."""
    id = rng.choice(THREADS)
    actor.store.thread(id, schema=SCHEMAS.get(id), recreate=True).commit(draw_update(rng, id))


@FAMILY.act(2)
def extend_schema(actor: Actor, rng: Random) -> None:
    """Add a channel to the schema of a thread."""
    id = rng.choice([*SCHEMAS])
    schema = {**SCHEMAS[id], f"more-{rng.randrange(3)}": statelog.reducers.append}
    actor.store.thread(id, schema=schema).commit({[*schema][-1]: [draw_value(rng, 1)]})


@FAMILY.act(4)
def use_versions(actor: Actor, rng: Random) -> None:
    """Use a thread with a random version of its schema. This fails if the state has a newer version."""
    schema = rng.choice(VERSIONS)
    thread = actor.store.thread(rng.choice(VERSIONED), schema=schema)
    act = rng.choice(("commit", "commit", "edit", "rollback", "fork", "migrate"))
    texts = [draw_value(rng, 1)]
    update: dict[str, Any] = {"n": 1, next(iter(schema.schema.channels)): texts[0] if schema.version < 3 else texts}
    if act == "commit":
        thread.commit(update)
    elif act == "edit":
        thread.edit(lambda state: state.update(n=rng.randrange(9)))
    elif act == "rollback":
        thread.rollback(_version(thread, rng))
    elif act == "fork":
        thread.fork(rng.choice(BRANCHES), at=_version(thread, rng), update=update)
    else:
        actor.store.migrate(schema, threads="versioned*")


@FAMILY.act(3)
def prune(actor: Actor, rng: Random) -> None:
    """Remove old versions, by number or by age."""
    pattern = rng.choice(("*", "*", "chat*", "job", rng.choice(THREADS)))
    keep_last = rng.choice((None, 1, 2, 5))
    max_age = rng.choice((None, 1.0, timedelta(minutes=5), timedelta(days=1)))
    pinned = _some_checkpoints(actor, rng) if is_likely(rng, 0.2) else ()
    keep_tags = is_likely(rng, 0.7)
    actor.store.prune(keep_last=keep_last, max_age=max_age, threads=pattern, pinned=pinned, keep_tags=keep_tags)


@FAMILY.act(2)
def set_policy(actor: Actor, rng: Random) -> None:
    """Set, change or end a retention policy for threads."""
    pattern = rng.choice(("*", "chat*", "job/*", rng.choice(THREADS)))
    actor.store.set_retention(keep_last=rng.choice((None, 1, 3, 20)), threads=pattern)


@FAMILY.act(1)
def apply_policies(actor: Actor, rng: Random) -> None:
    """Apply the existing policies."""
    del rng
    actor.store.prune()


@FAMILY.act(2)
def expire(actor: Actor, rng: Random) -> None:
    """Remove some versions."""
    actor.store.expire(_some_checkpoints(actor, rng))


def _some_checkpoints(actor: Actor, rng: Random) -> list[Checkpoint]:
    history = list(_thread(actor.store, rng).history(40))
    return rng.sample(history, min(len(history), rng.randrange(1, 8)))


@FAMILY.act(2)
def import_threads(actor: Actor, rng: Random) -> None:
    """Import some threads of another store, which gets new commits between imports."""
    with statelog.open(actor.folder / "other.state", durability="interval") as other:
        ids = ["chat"] if is_likely(rng, 0.1) else rng.sample(("from-afar", "from/afar"), rng.randrange(1, 3))
        for id in ids:
            for _commit in range(rng.randrange(1, 4)):
                _thread(other, rng, id).commit(draw_update(rng, id), metadata=_metadata(rng))
        if is_likely(rng, 0.2):
            other.prune(keep_last=2)
        target = io.BytesIO()
        other.export(target, threads=ids)
    actor.store.import_(io.BytesIO(target.getvalue()))


@FAMILY.act(1)
def read_many(actor: Actor, rng: Random) -> None:
    """Read the states of earlier versions, to fill caches."""
    for checkpoint in _thread(actor.store, rng).history(5):
        checkpoint.state.to_python()
