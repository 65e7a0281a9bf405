"""Compares built-in reducers, which merge encoded values, with decoding, merging and encoding in Python."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cbor2

from benchmarks.corpus import Corpus
from benchmarks.measure import interleave
from benchmarks.regression.compared import Compared
from benchmarks.result import Result, at_least
from benchmarks.stores import opened
from statelog import reducers
from statelog.log.names import channel_key
from statelog.store.session import session_of
from statelog.tree.node import ROOT
from statelog.tree.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Operation
    from benchmarks.stores import BenchStore
    from benchmarks.workload import Bench
    from statelog.reducers import Reducer
    from statelog.tree.node import ValueSlot

_ITEMS = 10_000
_ITEM_BYTES = 100
_PER_REPEAT = 4
_CHANNEL = "channel"
_RATIO_MIN = 20.0
IN_PYTHON = ", in Python"


@dataclass(frozen=True, slots=True)
class _ReducerCase:
    """One reducer, the value of a channel, and a write to merge into it."""

    name: str
    reducer: Reducer
    value: Any
    write: Any
    plain: Callable[[Any, Any], Any]
    """The same merge in plain Python, as fast as we can write it."""


def _upsert(current: list[dict[str, Any]], written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged = {item["id"]: item for item in current}
    merged.update((item["id"], item) for item in written)
    return list(merged.values())


def _merge(current: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    return {**current, **written}


def _cases(count: int) -> Iterator[_ReducerCase]:
    corpus = Corpus()
    middle = count // 2
    messages = corpus.messages(count, _ITEM_BYTES)
    fresh = corpus.message(count, _ITEM_BYTES)
    changed = corpus.message(middle, _ITEM_BYTES)
    texts = [corpus.text(_ITEM_BYTES) for _ in range(count)]
    table = {f"key {number}": text for number, text in enumerate(texts)}
    nested = {key: {"text": text, "seen": False} for key, text in table.items()}
    key = f"key {middle}"
    yield _ReducerCase("add", reducers.add, messages, [fresh], operator.add)
    yield _ReducerCase("append", reducers.append, messages, fresh, lambda current, write: [*current, write])
    yield _ReducerCase("extend", reducers.extend, messages, [fresh, changed], lambda current, write: [*current, *write])
    yield _ReducerCase("union", reducers.union, set(texts), {"new"}, operator.or_)
    yield _ReducerCase("merge", reducers.merge, table, {key: "new"}, _merge)
    yield _ReducerCase("deep_merge", reducers.deep_merge, nested, {key: {"seen": True}}, reducers.deep_merge)
    yield _ReducerCase("upsert, new", reducers.upsert("id"), messages, [fresh], _upsert)
    yield _ReducerCase("upsert, held", reducers.upsert("id"), messages, [changed], _upsert)


def _stored(store: BenchStore, case: _ReducerCase) -> ValueSlot:
    """Commit the value of a case, and return the slot in which it is stored."""
    store.thread(case.name, schema={_CHANNEL: case.reducer}).commit({_CHANNEL: case.value})
    with session_of(store).read() as view:
        thread = view.thread_lsn(case.name)
        assert thread is not None
        found = view.checkpoint_of(thread, 0, 0)
        assert found is not None
    event, _digest = found
    workspace = session_of(store).workspace()
    root = workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node)
    slot = Tree(workspace, root).find(channel_key(_CHANNEL))[1]
    assert slot is not None
    return slot


def _in_engine(store: BenchStore, case: _ReducerCase) -> Operation:
    slot = _stored(store, case)
    identities: dict[bytes, bytes] = {}

    def operation() -> object:
        write = case.reducer.prepare(_CHANNEL, case.write, path=_CHANNEL)
        return write.merge(session_of(store).workspace(), slot, identities)

    return operation


def _in_python(case: _ReducerCase) -> Operation:
    snapshot = cbor2.dumps(case.value)
    return lambda: cbor2.dumps(case.plain(cbor2.loads(snapshot), case.write))


@contextmanager
def _sides(bench: Bench) -> Iterator[dict[str, Operation]]:
    sides: dict[str, Operation] = {}
    with opened(bench.directory / "reducing.state") as store:
        for case in _cases(bench.size(_ITEMS, at_least=500)):
            sides[case.name] = _in_engine(store, case)
            sides[case.name + IN_PYTHON] = _in_python(case)
        yield sides


def _measure(bench: Bench) -> Result:
    with _sides(bench) as operations:
        samples = interleave(operations, count=bench.repeats * _PER_REPEAT)
    checks = [
        at_least(
            f"{name}: Python's time, relative to the engine's",
            samples[name + IN_PYTHON].p50_us / taken.p50_us,
            _RATIO_MIN,
        )
        for name, taken in samples.items()
        if not name.endswith(IN_PYTHON)
    ]
    return Result(
        checks=tuple(checks),
        sides=tuple(taken.side(side) for side, taken in samples.items()),
        notes=(
            (
                "from the write as a Python value to the new root in memory, with its digests;"
                " in Python: cbor2 decodes the channel, plain Python merges, cbor2 encodes (no digests)"
            ),
        ),
    )


REDUCERS = Compared(
    "reducers",
    "Built-in reducers on 10,000 items, compared with Python",
    "none: merged in memory, not committed",
    _measure,
    sides=tuple(side for case in _cases(1) for side in (case.name, case.name + IN_PYTHON)),
    operations=_sides,
)
