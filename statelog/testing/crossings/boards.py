"""Acts on the board: entries, claims, leases, retention of their history."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import statelog
from statelog import reducers
from statelog.store.session import session_of
from statelog.testing.crossings.acts import Actor, Family, is_likely
from statelog.testing.crossings.values import (
    AGENTS,
    KEYS,
    LEASES,
    PATTERNS,
    PREFIXES,
    VERSIONED_KEYS,
    VERSIONS,
    draw_value,
)

if TYPE_CHECKING:
    from random import Random

    from statelog import Board

FAMILY = Family("board")

_TTLS_S = (None, None, None, 0.01, 5.0, 3600.0)
_LEASES_S = (0.01, 5.0, 60.0, 3600.0)


def _board(actor: Actor, rng: Random) -> Board:
    return actor.store.board(agent=rng.choice(AGENTS))


def _how(rng: Random) -> dict[str, Any]:
    return {
        "ttl_s": rng.choice(_TTLS_S),
        "priority": rng.choice((0, 0, 0, 5, -127)),
        "delay_s": rng.choice((None, None, None, 30.0)),
    }


def _fence(actor: Actor, rng: Random) -> Any:
    kind = rng.choice((None, None, None, "claims", "leases"))
    return None if kind is None else actor.pick(kind, rng)


def _lsn(actor: Actor, rng: Random) -> int:
    last = actor.store.last_lsn
    return last - rng.randrange(min(last, 60) + 1)


@FAMILY.act(14)
def set_entry(actor: Actor, rng: Random) -> None:
    """Set an entry."""
    _board(actor, rng).set(rng.choice(KEYS), draw_value(rng), **_how(rng), fence=_fence(actor, rng))


@FAMILY.act(4)
def create(actor: Actor, rng: Random) -> None:
    """Create an entry. This fails if the entry exists."""
    _board(actor, rng).create(rng.choice(KEYS), draw_value(rng), **_how(rng))


@FAMILY.act(4)
def cas(actor: Actor, rng: Random) -> None:
    """Set an entry if it has the expected version."""
    board, key = _board(actor, rng), rng.choice(KEYS)
    entry = board.get(key)
    version = 0 if entry is None else entry.version
    board.cas(key, draw_value(rng), expected_version=version - is_likely(rng, 0.2), **_how(rng))


@FAMILY.act(6)
def update(actor: Actor, rng: Random) -> None:
    """Merge a value into an entry."""
    reducer, value = rng.choice(
        (
            (reducers.append, [draw_value(rng, 1)]),
            (reducers.merge, {f"k{rng.randrange(20)}": draw_value(rng, 1)}),
            (reducers.add, 1),
        )
    )
    _board(actor, rng).update(rng.choice(KEYS), reducer, value, fence=_fence(actor, rng))


@FAMILY.act(4)
def use_versions(actor: Actor, rng: Random) -> None:
    """Use entries with a random version of their schema. This fails if the entry has a newer version."""
    schema, board, key = rng.choice(VERSIONS), _board(actor, rng), rng.choice(VERSIONED_KEYS)
    act = rng.choice(("set", "set", "update", "claim", "migrate"))
    field, texts = next(iter(schema.schema.channels)), [draw_value(rng, 1)]
    board.schema("*/versioned-*", schema)
    try:
        if act == "set":
            board.set(key, {field: texts, "n": 1}, **_how(rng))
        elif act == "update":
            board.update(key, reducers.merge, {field: texts})
        elif act == "migrate":
            board.migrate("tasks/**")
        elif (held := board.claim("tasks/versioned-*", lease_s=rng.choice(_LEASES_S))) is not None:
            actor.hold("claims", held)
    finally:
        session_of(actor.store).owner.entry_schemas = None  # Show entries as stored in observations.


@FAMILY.act(8)
def delete(actor: Actor, rng: Random) -> None:
    """Delete an entry."""
    _board(actor, rng).delete(rng.choice(KEYS), fence=_fence(actor, rng))


@FAMILY.act(3)
def rollback(actor: Actor, rng: Random) -> None:
    """Roll back the entries below a prefix to an earlier LSN."""
    _board(actor, rng).rollback(rng.choice(PREFIXES), to=_lsn(actor, rng))


@FAMILY.act(2)
def sweep(actor: Actor, rng: Random) -> None:
    """Record the expiry of entries that have expired."""
    _board(actor, rng).sweep()


@FAMILY.act(4)
def prune(actor: Actor, rng: Random) -> None:
    """Remove old history of entries."""
    keep_last, max_age = rng.choice(((1, None), (3, None), (None, 0.5), (None, 300), (2, 60)))
    actor.store.board().prune(rng.choice(PATTERNS), keep_last=keep_last, max_age=max_age)


@FAMILY.act(2)
def set_policy(actor: Actor, rng: Random) -> None:
    """Set, change or end a policy of the board."""
    keep_last, max_age = rng.choice(((1, None), (2, None), (None, 1), (None, None)))
    actor.store.board().set_retention(rng.choice(PATTERNS), keep_last=keep_last, max_age=max_age)


@FAMILY.act(10)
def claim(actor: Actor, rng: Random) -> None:
    """Claim an entry."""
    attempts, dead = rng.choice(((None, None), (None, None), (2, None), (1, "dead/"), (2, "dead/")))
    pattern = rng.choice((*PATTERNS, ["tasks/*", "notes/*"]))
    lease_s = rng.choice(_LEASES_S)
    unless = rng.choice(((), ("tasks/x/",)))
    held = _board(actor, rng).claim(pattern, lease_s=lease_s, max_attempts=attempts, dead=dead, unless=unless)
    if held is not None:
        actor.hold("claims", held)


@FAMILY.act(2)
def take_claim_over(actor: Actor, rng: Random) -> None:
    """Take over a claim, of any process, by its token."""
    held = _board(actor, rng).claims()
    if held:
        entry = rng.choice(held)
        assert entry.claim is not None
        actor.hold("claims", _board(actor, rng).claim_of(entry.key, entry.claim.token))


def _end(actor: Actor, rng: Random, kind: str, held: Any) -> None:
    """Usually forget a claim or lease that is about to end. Sometimes keep it, so that a later act uses it again."""
    if is_likely(rng, 0.8):
        actor.drop(kind, held)


@FAMILY.act(4)
def renew_claim(actor: Actor, rng: Random) -> None:
    """Renew a claim."""
    if (held := actor.pick("claims", rng)) is not None:
        held.renew(rng.choice((None, *_LEASES_S)))


@FAMILY.act(4)
def release_claim(actor: Actor, rng: Random) -> None:
    """Release a claim."""
    if (held := actor.pick("claims", rng)) is not None:
        _end(actor, rng, "claims", held)
        held.release(counts=is_likely(rng, 0.5))


@FAMILY.act(5)
def complete_claim(actor: Actor, rng: Random) -> None:
    """Complete a claim, with a result or without, and sometimes move the result to another key."""
    if (held := actor.pick("claims", rng)) is not None:
        _end(actor, rng, "claims", held)
        to = rng.choice((None, None, "done/"))
        held.complete(draw_value(rng), to=to) if is_likely(rng, 0.6) else held.complete(to=to)


@FAMILY.act(4)
def fail_claim(actor: Actor, rng: Random) -> None:
    """Fail a claim with an error."""
    if (held := actor.pick("claims", rng)) is not None:
        _end(actor, rng, "claims", held)
        held.fail(rng.choice(("no answer", ValueError("ä" * 200))), retry_in_s=rng.choice((0.0, 0.0, 60.0)))


@FAMILY.act(8)
def take_lease(actor: Actor, rng: Random) -> None:
    """Take a lease."""
    ttl_s = rng.choice(_LEASES_S)
    actor.hold("leases", _board(actor, rng).lease(rng.choice(LEASES), ttl_s=ttl_s, auto_renew=False))


@FAMILY.act(4)
def renew_lease(actor: Actor, rng: Random) -> None:
    """Renew a lease."""
    if (held := actor.pick("leases", rng)) is not None:
        held.renew()


@FAMILY.act(7)
def release_lease(actor: Actor, rng: Random) -> None:
    """Release a lease."""
    if (held := actor.pick("leases", rng)) is not None:
        _end(actor, rng, "leases", held)
        held.release()


@FAMILY.act(2)
def watch(actor: Actor, rng: Random) -> None:
    """Read past events, from the beginning of the kept history or from an LSN."""
    after = rng.choice((None, _lsn(actor, rng)))
    with _board(actor, rng).watch(rng.choice(PATTERNS), after=after, follow=False, renew=True) as events:
        for _event in itertools.islice(events, 100):
            pass


@FAMILY.act(2)
def read(actor: Actor, rng: Random) -> None:
    """Read current and earlier entries."""
    board, key = _board(actor, rng), rng.choice(KEYS)
    board.get(key)
    board.history(key)
    board.children(rng.choice(("", "tasks/")))
    board.list(rng.choice(PATTERNS), limit=3)
    board.get(key, at=_lsn(actor, rng))


@FAMILY.act(1)
def delete_board(actor: Actor, rng: Random) -> None:
    """Sometimes delete the board with all its entries."""
    if is_likely(rng, 0.2):
        actor.store.delete_thread("statelog:board")


@FAMILY.act(1)
def act_by_rules(actor: Actor, rng: Random) -> None:
    """Write as an agent whose rules do not allow everything."""
    rules = statelog.Rules({"ann": {"write": ["tasks/**"], "read": ["**"], "claim": ["tasks/*"]}})
    board = actor.store.board(agent="ann", rules=rules)
    board.set(rng.choice(KEYS), draw_value(rng))
