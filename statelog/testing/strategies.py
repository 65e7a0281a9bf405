"""Hypothesis strategies for values, states, writes and whole histories."""

from __future__ import annotations

import math
import operator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from hypothesis import strategies as st

from statelog import reducers
from statelog.limits import BLOB_SIZE_BYTES_MIN, INLINE_SIZE_BYTES_MAX, LEAF_SIZE_BYTES_MAX
from statelog.testing.history import Commit, Copy, Fork, History, Operation, Rollback, Tag, Together, Untag, perform
from statelog.testing.model import StoreModel
from statelog.testing.sample import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

THRESHOLDS_BYTES = (INLINE_SIZE_BYTES_MAX, LEAF_SIZE_BYTES_MAX, 8192, BLOB_SIZE_BYTES_MIN)
"""Encoded sizes from which values are stored in a different way."""

_EDGE_BITS = (3, 5, 8, 16, 24, 32, 53, 63, 64, 65, 512)
_EDGE_INTEGERS = tuple(sign * (2**bits + near) for bits in _EDGE_BITS for near in (-1, 0, 1) for sign in (1, -1))
_EDGE_FLOATS = (0.0, -0.0, 0.5, 65504.0, 65505.0, 2.0**-24, 2.0**-25, 3.4028234663852886e38, 3.5e38, 1.1, 5e-324, 1e308)
_EDGE_DECIMALS = tuple(map(Decimal, ("0", "-0", "1E+5", "1.10", "-1.1", "Infinity", "NaN", "123456789.123456789e-30")))


# --- values -------------------------------------------------------------------


def integers() -> SearchStrategy[int]:
    """Generate ints of any size, often at a boundary of an encoding."""
    return st.one_of(st.integers(-100, 1100), st.sampled_from(_EDGE_INTEGERS), st.integers())


def floats(*, allow_nan: bool = True) -> SearchStrategy[float]:
    """Generate floats, often at the limits of half or single precision."""
    edges = st.sampled_from((*_EDGE_FLOATS, math.nan) if allow_nan else _EDGE_FLOATS)
    halves = st.floats(width=16, allow_nan=allow_nan)
    return st.one_of(edges, halves, st.floats(allow_nan=allow_nan))


def texts() -> SearchStrategy[str]:
    """Generate strings that can be stored: strings without surrogates."""
    return st.text(max_size=80)


def strings_near_thresholds() -> SearchStrategy[str | bytes]:
    """Generate strings and bytes whose encodings are within a few bytes of one of `THRESHOLDS_BYTES`."""
    return st.builds(
        _string_of, st.sampled_from(THRESHOLDS_BYTES), st.integers(-6, 3), st.sampled_from(("x", "é", b"\x00"))
    )


def _string_of(size_bytes: int, more: int, unit: str | bytes) -> str | bytes:
    if isinstance(unit, bytes):
        return unit * (size_bytes + more)
    return unit * ((size_bytes + more) // len(unit.encode()))


def scalars() -> SearchStrategy[Any]:
    """Generate storable values that do not contain other values."""
    return _SCALARS


def _scalars() -> SearchStrategy[Any]:
    offsets = st.integers(-86_399, 86_399).map(lambda seconds: timedelta(seconds=seconds))
    return st.one_of(
        st.none(),
        st.booleans(),
        integers(),
        floats(),
        texts(),
        st.binary(max_size=80),
        st.datetimes().map(lambda moment: moment.replace(fold=0)),
        st.datetimes(timezones=st.builds(timezone, offsets)).map(lambda moment: moment.replace(fold=0)),
        st.uuids(),
        st.sampled_from(_EDGE_DECIMALS) | st.decimals(allow_nan=False),
    )


_SCALARS = st.deferred(_scalars)


def elements() -> SearchStrategy[Hashable]:
    """Generate possible elements of a set: hashable values that equal themselves."""
    return _ELEMENTS


def _elements() -> SearchStrategy[Hashable]:
    return st.recursive(
        scalars().filter(lambda value: operator.eq(value, value)),
        lambda inside: st.one_of(st.tuples(inside, inside), st.frozensets(inside, max_size=3)),
        max_leaves=4,
    )


_ELEMENTS = st.deferred(_elements)


def values(*, max_leaves: int = 20) -> SearchStrategy[Any]:
    """Generate any storable values, often nested."""
    return st.recursive(
        scalars(),
        lambda inside: st.one_of(
            st.lists(inside),
            st.lists(inside).map(tuple),
            st.dictionaries(texts(), inside),
            st.sets(elements(), max_size=5),
            st.frozensets(elements(), max_size=5),
        ),
        max_leaves=max_leaves,
    )


def large_values() -> SearchStrategy[Any]:
    """Generate values that are stored in several nodes. Each takes only a few choices of Hypothesis."""
    return _LARGE


def _items() -> SearchStrategy[Any]:
    return st.one_of(values(max_leaves=3), strings_near_thresholds())


def _large_lists() -> SearchStrategy[list[Any]]:
    counts = st.sampled_from((1, 7, 8, 9, 127, 128, 129, 300))
    return st.builds(lambda item, count: [item] * count, _items(), counts)


def _large_dicts() -> SearchStrategy[dict[str, Any]]:
    counts = st.sampled_from((5, 130, 300))
    return st.builds(lambda item, count: {f"key {n}": item for n in range(count)}, _items(), counts)


def _large() -> SearchStrategy[Any]:
    return st.one_of(
        strings_near_thresholds(),
        _large_lists(),
        _large_dicts(),
        st.builds(lambda start, count: set(range(start, start + count)), st.integers(0, 2000), st.integers(30, 400)),
        st.builds(lambda text, count: text * count, st.text(min_size=1, max_size=5), st.integers(1000, 20_000)),
    )


_LARGE = st.deferred(_large)


# --- states and writes --------------------------------------------------------


_POOL: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**64, -(2**70), 0.5, -0.0, 1.1, math.inf, math.nan, "", "é", "x" * 63, "y" * 70),
    *(b"", b"\x00" * 70, Decimal("1.10"), UUID(int=7), datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
    *([], [1, [2, []]], ["z" * 70] * 3, (), (1, ("a",)), {}, {"k": {"n": [1]}}, {"long": "v" * 100}),
    *(set(), {1, "a"}, frozenset({(1, 2)}), list(range(40)), {f"key {number}": number for number in range(12)}),
)
_SMALL: SearchStrategy[Any] = st.one_of(st.sampled_from(_POOL), st.integers(-10, 300), st.text(max_size=8))


def small_values() -> SearchStrategy[Any]:
    """Generate small values of every kind. Each takes only a few choices of Hypothesis."""
    return _SMALL


_NUMBERS = integers() | floats(allow_nan=False)
_KEYS = st.sampled_from("abcdefgh")
_IDENTITIES = st.one_of(_KEYS, st.integers(0, 5))


def _nested_dicts() -> SearchStrategy[dict[str, Any]]:
    inside = st.recursive(_SMALL, lambda below: st.dictionaries(_KEYS, below, max_size=3), max_leaves=5)
    return st.dictionaries(_KEYS, inside, max_size=4)


def _message(identity: object, rest: dict[str, Any]) -> dict[str, Any]:
    return {**rest, "id": identity}


def messages() -> SearchStrategy[dict[str, Any]]:
    """Generate items of an `upsert` channel. They have few identities, so that items replace each other."""
    return st.builds(_message, _IDENTITIES, st.dictionaries(_KEYS, _SMALL, max_size=2))


def _message_writes() -> SearchStrategy[Any]:
    operation = st.one_of(messages(), messages(), messages(), st.builds(reducers.Remove, _IDENTITIES))
    return st.one_of(messages(), st.lists(operation, max_size=6), st.just([reducers.REMOVE_ALL]))


_WRITES: dict[str, SearchStrategy[Any]] = {
    "query": st.one_of(values(), large_values()),
    "total": _NUMBERS,
    "findings": st.one_of(st.lists(_SMALL, max_size=8), _large_lists()),
    "text": st.one_of(
        texts(), strings_near_thresholds().map(lambda value: value if isinstance(value, str) else value.hex())
    ),
    "steps": _SMALL,
    "more": st.one_of(st.lists(_SMALL, max_size=8), st.tuples(_SMALL)),
    "seen": st.sets(texts() | st.integers(0, 300), max_size=8),
    "notes": st.dictionaries(_KEYS, st.one_of(_SMALL, strings_near_thresholds()), max_size=4),
    "deep": _nested_dicts(),
    "best": _NUMBERS,
    "least": texts(),
    "messages": _message_writes(),
    "longest": texts(),
}

_OVERWRITES = {"messages": st.lists(messages(), max_size=6, unique_by=lambda item: repr(item["id"]))}

_REFUSED = st.sampled_from((None, 1, 1.5, "x", b"x", [1], (1,), {"id": 1}, {1}))
"""A strategy for one value of each kind. Most reducers refuse to merge such a value with most other values."""


def _now_and_then(channel: str) -> SearchStrategy[Any]:
    good = _WRITES[channel]
    rare = st.one_of(st.builds(reducers.Overwrite, _OVERWRITES.get(channel, good)), _REFUSED)
    return st.integers(0, 15).flatmap(lambda roll: good if roll else rare)


_MIXED = {name: _WRITES[name] if name == "longest" else _now_and_then(name) for name in _WRITES}


def writes_to(channel: str) -> SearchStrategy[Any]:
    """Generate writes that the reducer of one channel of `SCHEMA` accepts."""
    return _WRITES[channel]


def writes(*, channels: Sequence[str] = tuple(SCHEMA), max_size: int = 4) -> SearchStrategy[dict[str, Any]]:
    """Generate writes to some channels of `SCHEMA`. Sometimes a reducer refuses one of them."""
    pairs = st.deferred(lambda: st.one_of(*(st.tuples(st.just(name), _MIXED[name]) for name in channels)))
    return st.lists(pairs, max_size=max_size, unique_by=lambda pair: pair[0]).map(dict)


def states() -> SearchStrategy[dict[str, Any]]:
    """Generate states of a thread without a schema."""
    names = st.text(min_size=1, max_size=20)
    return st.dictionaries(names, st.one_of(values(), large_values()), max_size=5)


# --- histories ----------------------------------------------------------------


_WRITES_TO_ALL = writes()


def histories(
    *,
    schema: object = SCHEMA,
    writes: SearchStrategy[Mapping[str, Any]] | None = None,
    threads: Sequence[str] = ("a", "b"),
    min_size: int = 1,
    max_size: int = 12,
) -> SearchStrategy[History]:
    """Generate histories: operations that refer to each other's threads, branches, versions and tags.

    Args:
        schema: the schema of every thread.
        writes: a strategy for updates. By default, updates for `SCHEMA`.
        threads: the ids of the threads.
        min_size: the minimum number of operations.
        max_size: the maximum number of operations.
    """
    chosen = _WRITES_TO_ALL if writes is None else writes
    supersteps = st.lists(chosen, min_size=1, max_size=3).map(tuple)
    return _histories(schema, supersteps, threads, st.integers(min_size, max_size))


@st.composite
def _histories(
    draw: DrawFn,
    schema: object,
    supersteps: SearchStrategy[tuple[Mapping[str, Any], ...]],
    threads: Sequence[str],
    sizes: SearchStrategy[int],
) -> History:
    model = StoreModel()
    history: list[Operation] = []
    for _ in range(draw(sizes)):
        operation = draw_operation(draw, model, schema, supersteps, threads)
        perform(operation, model, schema=schema)
        history.append(operation)
    return tuple(history)


_KINDS = st.sampled_from((Commit, Commit, Commit, Commit, Rollback, Fork, Tag, Untag, Copy))
_COPY = "copy"
"""The id of a thread that is only created as a copy, unless a test uses it otherwise."""
_NAMES = st.sampled_from("pqr")
_METADATA = st.dictionaries(texts(), scalars(), max_size=2)
_DICE = st.integers(0, 4)


def draw_operation(
    draw: DrawFn,
    model: StoreModel,
    schema: object,
    supersteps: SearchStrategy[tuple[Mapping[str, Any], ...]],
    threads: Sequence[str],
) -> Operation:
    """Draw the next operation for a store that equals `model`."""

    def single() -> Any:
        known = [*threads, *(each for each in model.thread_ids() if each not in threads)]
        return _draw_single(draw, model, schema, supersteps, draw(st.sampled_from(known)), (*threads, _COPY))

    if draw(_DICE):
        return cast("Operation", single())
    return Together(tuple(single() for _ in range(draw(_DICE) + 1)), draw(st.booleans()))


def _draw_single(
    draw: DrawFn,
    model: StoreModel,
    schema: object,
    supersteps: SearchStrategy[tuple[Mapping[str, Any], ...]],
    thread_id: str,
    targets: Sequence[str],
) -> Any:
    branches = model.thread(thread_id, schema=schema).branches()
    kind = draw(_KINDS)
    if kind is Copy:
        return Copy(thread_id, draw(st.sampled_from(targets)))
    if not branches or kind is Commit:
        branch = draw(st.sampled_from([name for name, _p, _b, _h in branches])) if branches else "main"
        return Commit(thread_id, draw(supersteps), branch, draw(_METADATA))
    name, _parent, _base, head = draw(st.sampled_from(branches))
    version = draw(st.integers(0, head))
    if kind is Rollback:
        return Rollback(thread_id, version, name)
    if kind is Untag:
        return Untag(thread_id, draw(_NAMES))
    is_head = draw(st.booleans())
    if kind is Tag:
        return Tag(thread_id, draw(_NAMES), None if is_head else version, name)
    update = draw(supersteps)[0] if draw(st.booleans()) else None
    return Fork(thread_id, draw(_NAMES), None if is_head else version, update, name)
