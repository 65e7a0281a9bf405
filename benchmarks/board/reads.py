"""Compares reads of a board with SQLite: one entry, a list of 100, and the newest page. Also measures rollbacks."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks import sqlite_peer
from benchmarks.board import table
from benchmarks.board.large_boards import entries, fill, folder_of, key_of, value_of
from benchmarks.corpus import Corpus
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most
from benchmarks.stores import opened

if TYPE_CHECKING:
    from benchmarks.measure import Operation
    from benchmarks.workload import Bench
    from statelog.store.store import Store

_THEIRS = sqlite_peer.NAME
_GETS_PER_REPEAT, _GET_MAX = 400, 3.0
_LISTS_PER_REPEAT, _LISTED, _LIST_MAX = 40, 100, 8.0
_ALL_LISTED, _NEWEST_MAX = 2000, 2.0
_FEW_KEYS, _CHANGED = 1000, 100
_ROLLBACKS_PER_REPEAT, _ROLLBACK_MAX = 4, 1.5


def measure_large(bench: Bench) -> Result:
    """Measure reads of a large board, and compare a rollback on it with one on a small board."""
    keys = max(bench.size(bench.keys), 2 * _CHANGED)
    few = min(_FEW_KEYS, keys // 2)
    with ExitStack() as stack:
        large = stack.enter_context(opened(bench.directory / "large.state", durability="interval"))
        small = stack.enter_context(opened(bench.directory / "small.state", durability="interval"))
        path = bench.directory / "large.sqlite"
        peer = stack.enter_context(table.connected(path, synchronous=sqlite_peer.NORMAL))
        fill(large, entries(keys))
        fill(small, entries(few))
        peer.fill(entries(keys))
        parts = [
            _measure_get(bench, large, peer, keys),
            _measure_list(bench, large, peer, keys),
            _measure_rollback(bench, {keys: large, few: small}),
        ]
    return Result.joined(parts)


def _measure_get(bench: Bench, store: Store, peer: table.SqliteBoard, keys: int) -> Result:
    board, any_key = store.board(), Corpus()
    for_peer = Corpus()
    samples = interleave(
        {
            "statelog, get": lambda: board.get(key_of(any_key.below(keys))),
            f"{_THEIRS}, SELECT of one": lambda: peer.get(key_of(for_peer.below(keys))),
        },
        count=bench.repeats * bench.size(_GETS_PER_REPEAT, at_least=10),
    )
    ours, theirs = samples.values()
    return Result(
        checks=(
            at_most(
                f"get among {keys:,}: median, relative to {_THEIRS}'s SELECT", ours.p50_us / theirs.p50_us, _GET_MAX
            ),
        ),
        sides=tuple(taken.side(f"{name} among {keys:,}") for name, taken in samples.items()),
    )


def _measure_list(bench: Bench, store: Store, peer: table.SqliteBoard, keys: int) -> Result:
    board, any_key, for_peer = store.board(), Corpus(), Corpus()
    return _compare_lists(
        bench,
        lambda: board.list(f"{folder_of(any_key.below(keys))}*", limit=_LISTED),
        lambda: peer.list(folder_of(for_peer.below(keys)), _LISTED),
        what=f"list of {_LISTED} among {keys:,}",
        limit=_LIST_MAX,
    )


def _compare_lists(bench: Bench, ours: Operation, theirs: Operation, *, what: str, limit: float) -> Result:
    """Measure a list of the board, alternating with a SELECT."""
    samples = interleave(
        {"statelog, list": ours, f"{_THEIRS}, SELECT": theirs},
        count=bench.repeats * bench.size(_LISTS_PER_REPEAT, at_least=4),
    )
    ratio = samples["statelog, list"].p50_us / samples[f"{_THEIRS}, SELECT"].p50_us
    return Result(
        checks=(at_most(f"{what}: median, relative to {_THEIRS}'s SELECT", ratio, limit),),
        sides=tuple(taken.side(f"{name}: {what}") for name, taken in samples.items()),
    )


def measure_newest(bench: Bench) -> Result:
    """Measure a list of the newest entries, with values, in descending order. The keys ascend with time."""
    all_listed = bench.size(_ALL_LISTED, at_least=2 * _LISTED)
    with ExitStack() as stack:
        store = stack.enter_context(opened(bench.directory / "newest.state", durability="interval"))
        path = bench.directory / "newest.sqlite"
        peer = stack.enter_context(table.connected(path, synchronous=sqlite_peer.NORMAL))
        fill(store, entries(all_listed))
        peer.fill(entries(all_listed))
        board = store.board()
        return _compare_lists(
            bench,
            lambda: board.list("research/**", limit=_LISTED, reverse=True),
            lambda: peer.list("research/", _LISTED, reverse=True),
            what=f"newest page of {_LISTED} of {all_listed:,} entries",
            limit=_NEWEST_MAX,
        )


def _measure_rollback(bench: Bench, stores: dict[int, Store]) -> Result:
    taken = {count: Samples() for count in stores}
    for _ in range(bench.repeats * bench.size(_ROLLBACKS_PER_REPEAT)):
        for count, store in stores.items():
            taken[count].take(_changed(store, count), 1)
    large, small = (samples.side(f"statelog, rollback of {_CHANGED} of {count:,}") for count, samples in taken.items())
    what = (
        f"rollback of a prefix, {_CHANGED} keys changed: {max(stores):,} keys in the board, relative to {min(stores):,}"
    )
    return Result(
        checks=(at_most(what, large.p50_us / small.p50_us, _ROLLBACK_MAX),),
        sides=(large, small),
    )


def _changed(store: Store, count: int) -> Operation:
    """Change entries all over a board, and return a function that rolls them back."""
    before = store.last_lsn
    step = max(count // _CHANGED, 1)
    changed = itertools.islice(range(0, count, step), _CHANGED)
    fill(store, ((key_of(number), value_of(-number)) for number in changed))
    return lambda: store.board().rollback("research/", to=before)
