"""Values, keys and names that acts draw.

There are few names, so that acts often use the same objects. Sizes of values are on both sides of each size limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import statelog
from statelog import reducers

if TYPE_CHECKING:
    from random import Random

THREADS = ("chat", "chat-2", "job", "job/7", "notes", "über")
COPIES = tuple(f"copy-{number}" for number in range(6))
"""Ids of threads that are usually created by copying other threads."""

AGENTS = ("ann", "bob", None)
KEYS = ("a", "b", "tasks/1", "tasks/2", "tasks/3", "tasks/x/4", "done/1", "notes/n", "notes/long", "über/ä")
PREFIXES = ("", "tasks/", "notes/", "a", "done/")
PATTERNS = ("**", "*", "tasks/*", "tasks/**", "notes/*", "a", "?", "dead/*")
LEASES = ("l", "thread/chat", "tasks/1")
TAGS = ("good", "bad", "v1")
BRANCHES = ("try", "what-if", "third")
SCHEMAS: dict[str, Any] = {
    "chat": {"messages": reducers.append, "n": reducers.add, "title": reducers.replace, "by_id": reducers.upsert("id")},
    "chat-2": {
        "messages": reducers.append,
        "n": reducers.add,
        "title": reducers.replace,
        "by_id": reducers.upsert("id"),
    },
    "job": {"log": reducers.append, "facts": reducers.merge, "deep": reducers.deep_merge, "tags": reducers.union},
}
"""Maps thread ids to schemas.

A thread that is not listed has no schema, or the schema of the thread that it was copied from.
"""

VERSIONED = ("versioned", "versioned-2")
"""Ids of threads whose schema is versioned. A thread may have any version of the schema."""
VERSIONED_KEYS = ("tasks/versioned-1", "tasks/versioned-2", "notes/versioned-1")
"""Keys of entries whose schema is versioned. An entry may have any version of the schema."""


def _versions() -> tuple[statelog.Versioned[Any, Any], ...]:
    declared: tuple[dict[str, Any], ...] = (
        {"notes": reducers.append, "n": reducers.add},
        {"memories": reducers.append, "n": reducers.add},
        {"memories": reducers.extend, "n": reducers.add, "size": int},
    )
    made = tuple(statelog.versioned(each, name="kept", version=number) for number, each in enumerate(declared, 1))
    for schema in made[1:]:
        schema.rename(1, "notes", "memories")
    made[2].step(2)(lambda state: {**state, "size": len(state.get("memories", ()))})
    return made


VERSIONS = _versions()

_TEXTS = ("", "soup", "ä€😀", "x" * 40, "a longer text of some words " * 4)
_SIZES = (900, 1500, 2100, 4200, 9000)
_RECURRING = ("the same prompt " * 300, b"the same picture" * 400, "a book " * 3000, "A book " + "a book " * 2999)
"""Large values that threads, entries and runs share, to test that each is stored only once."""


@dataclass(frozen=True)
class Money:
    """A type with a codec."""

    cents: int


statelog.register_codec(Money, name="crossings/money", encode=lambda money: money.cents, decode=Money)


def draw_text(rng: Random, size: int = 0) -> str:
    """Return a string. If `size` is given, return a random string of about `size` characters."""
    if size:
        return "".join(rng.choices("abcdefgh ", k=32)) * (size // 32 + 1)
    return rng.choice(_TEXTS)


def draw_scalar(rng: Random) -> Any:
    """Return a value that does not contain other values."""
    kind = rng.randrange(10)
    if kind == 9:
        return rng.choice((Money(rng.randrange(1000)), Decimal("1.10"), UUID(int=rng.getrandbits(128))))
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((1.5, 1.0, -0.0, float("inf"), float("nan"), 1e-9))
    if kind == 2:
        return rng.randbytes(rng.choice((0, 3, 40)))
    if kind == 3:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(10**8))
    if kind < 6:
        return rng.choice((0, 1, -1, 23, 24, 255, 2**32, -(2**63), 2**70, rng.randrange(1000)))
    return draw_text(rng)


def draw_value(rng: Random, depth: int = 2) -> Any:
    """Return a value that can be stored. It is usually small, and sometimes large."""
    kind = rng.randrange(10)
    if depth == 0 or kind < 4:
        return draw_scalar(rng)
    if kind == 4 and rng.randrange(2):
        return rng.choice(_RECURRING)
    if kind == 4:
        return draw_text(rng, rng.choice(_SIZES)) if rng.randrange(2) else rng.randbytes(rng.choice(_SIZES))
    if kind < 7:
        return [draw_value(rng, depth - 1) for _item in range(rng.choice((0, 1, 3, 3, 60)))]
    if kind == 9:
        return tuple(draw_scalar(rng) for _item in range(rng.randrange(3)))
    return {f"k{rng.randrange(12)}": draw_value(rng, depth - 1) for _item in range(rng.choice((0, 1, 3, 12)))}


def draw_update(rng: Random, thread: str) -> dict[str, Any]:
    """Return an update for a thread that fits the schema of the thread."""
    update: dict[str, Any] = {}
    for _channel in range(rng.choice((1, 1, 2, 3))):
        update |= _draw_channel(rng, SCHEMAS.get(thread))
    return update


def _draw_channel(rng: Random, schema: dict[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {rng.choice(("x", "y", "z", "big")): draw_value(rng)}
    name = rng.choice([*schema])
    reducer = schema[name]
    value: Any = draw_value(rng)
    if reducer is reducers.append:
        value = [draw_value(rng, 1) for _item in range(rng.choice((1, 1, 2, 40)))]
    elif reducer is reducers.add:
        value = rng.randrange(100)
    elif reducer.name == "upsert":
        value = [{"id": f"m{rng.randrange(30)}", "text": draw_text(rng)} for _item in range(rng.randrange(1, 4))]
    elif reducer is reducers.union:
        value = {rng.randrange(20) for _item in range(3)}
    elif reducer in (reducers.merge, reducers.deep_merge):
        value = {f"k{rng.randrange(30)}": draw_value(rng, 1) for _item in range(3)}
    return {name: value}
