"""Workloads: steps on a store whose writes are recorded."""

from __future__ import annotations

import errno
import io
import random
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import statelog
from statelog import reducers
from statelog.errors import StatelogError, StorageError
from statelog.storage import faults
from statelog.testing.history import (
    Commit,
    Copy,
    Fork,
    Operation,
    Rollback,
    Tag,
    Together,
    Untag,
    perform,
)
from statelog.testing.powerloss import openings
from statelog.testing.powerloss.steps import (
    Compact,
    DeleteThread,
    Flush,
    Import,
    KilledCommits,
    RebuildIndex,
    Refused,
    Reopen,
    Rest,
    Retain,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from statelog.store.store import Store

STORE_NAME = "agent.state"

Durability = Literal["commit", "interval"]

MIB = 1 << 20

_SMALL = f"{openings.__name__}:{openings.be_small.__name__}"
_RESTING = f"{openings.__name__}:{openings.rest_soon.__name__}"
_LEAVING = f"{openings.__name__}:{openings.leave_checkpoints.__name__}"
_SLOW = f"{openings.__name__}:{openings.be_slow.__name__}"


_KEY = "the key of a store that loses power"

SCHEMA: Mapping[str, reducers.Reducer] = {
    "findings": reducers.add,
    "total": reducers.add,
    "notes": reducers.merge,
    "messages": reducers.upsert("id"),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Steps on a store, with a name.

    Attributes:
        name: the name for reports.
        lanes: the steps of each lane. Each lane has its own OS thread or process, and its own threads of the store.
        before: steps that are done first and not recorded. With None, the recording begins without a store.
        processes: whether lanes are processes.
        durability: the durability of the store.
        max_size_bytes: the quota of the store.
        schema: the schema of every thread.
        files: the files in the directory at the beginning, by name, for stores that no step can create.
        opener: the "module:function" that opens the store, and may create it from these files.
        setup: the "module:function" that each process calls before it opens the store; empty for none.
        key: the key of the store, or None for a store without a key.
    """

    name: str
    lanes: tuple[tuple[Step, ...], ...]
    before: tuple[Step, ...] | None = None
    processes: bool = False
    durability: Durability = "commit"
    max_size_bytes: int | None = None
    schema: object = field(default_factory=lambda: SCHEMA)
    files: Mapping[str, bytes] = field(default_factory=dict)
    opener: str = "statelog:open"
    setup: str = ""
    key: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options of `statelog.open` for the store."""
        return {"durability": self.durability, "max_size_bytes": self.max_size_bytes, "key": self.key}


class WorkloadSession:
    """An open store on which steps are done.

    Args:
        path: the path of the store. If the store does not exist, it is created.
        options: options of `statelog.open`.
        schema: the schema of every thread.
        opener: opens the store. It is `statelog.open`, except for negative controls.
    """

    def __init__(
        self,
        path: Path,
        options: Mapping[str, Any],
        schema: object,
        opener: Callable[..., Store] = statelog.open,
    ) -> None:
        self._path = path
        self._options = dict(options)
        self._schema = schema
        self._opener = opener
        self.store = opener(path, **self._options)

    def do(self, step: Step) -> type[StatelogError] | None:
        """Do one step. Return the class of the exception that refused it, or None."""
        if isinstance(step, Operation):
            return perform(step, self.store, schema=self._schema)
        try:
            self._maintain(step)
        except StatelogError as error:
            return type(error)
        return None

    def _maintain(self, step: Step) -> None:
        match step:
            case Reopen():
                self.store.close()
                if step.max_size_bytes is not None:
                    self._options["max_size_bytes"] = step.max_size_bytes
                self.store = self._opener(self._path, **self._options)
            case Retain():
                remove = self.store.set_retention if step.as_policy else self.store.prune
                remove(keep_last=step.keep_last, threads=step.threads)
            case DeleteThread():
                self.store.delete_thread(step.thread)
            case RebuildIndex():
                self.store.rebuild_index()
            case Compact():
                self.store.compact()
            case Import():
                self.store.import_(io.BytesIO(step.stream))
            case _:
                self._use_journal(step)

    def _use_journal(self, step: Step) -> None:
        match step:
            case Flush():
                self.store.flush()
            case Rest():
                openings.rest()
            case KilledCommits():
                openings.run_killed(self._path, step.fault, self._options.get("durability", "commit"))
            case Refused():
                faults.arm("journal.after_append", action=_fail)
                refused = perform(step.commit, self.store, schema=self._schema)
                assert refused is StorageError, refused

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _fail() -> None:
    raise OSError(errno.EIO, "as if the journal could not be flushed")


def thread_ids(steps: tuple[Step, ...]) -> set[str]:
    """Return the ids of the threads that steps use."""
    ids: set[str] = set()
    for step in steps:
        if isinstance(step, Together):
            ids |= thread_ids(step.operations)
        elif isinstance(step, Refused):
            ids.add(step.commit.thread)
        elif isinstance(step, Operation | DeleteThread):
            ids |= {step.thread, step.target} if isinstance(step, Copy) else {step.thread}
        elif isinstance(step, Import):
            ids |= step.threads
    return ids


# --- the workloads ----------------------------------------------------------------


def _text(size: int, seed: int) -> str:
    generator = random.Random(seed)  # noqa: S311 - text that does not compress, the same every time
    return "".join(generator.choices("abcdefghijklmnop ", k=size))


def _commit(thread: str, number: int, *, size: int = 80, branch: str = "main") -> Commit:
    message = {"id": number % 5, "text": _text(size, number)}
    write = {"findings": [_text(size // 2, number)], "total": number, "messages": [message]}
    return Commit(thread, (write, {"notes": {f"n{number % 7}": number}}), branch, metadata={"step": number})


def _commits(thread: str, count: int, *, start: int = 0, size: int = 80) -> tuple[Commit, ...]:
    return tuple(_commit(thread, number, size=size) for number in range(start, start + count))


def _copies() -> tuple[Step, ...]:
    """Return steps with copies of threads: some sources are deleted, and some copies."""
    return (
        Copy("a", "c"),
        _commit("c", 40),
        Together((_commit("b", 41), Copy("b", "d"), _commit("d", 42))),
        Copy("c", "e"),
        DeleteThread("a"),
        Retain(2, threads="c"),
        DeleteThread("e"),
        Compact(),
        _commit("c", 43),
        DeleteThread("d"),
    )


@cache
def standard_workloads() -> tuple[Workload, ...]:
    """Return workloads that cover every way in which a store writes."""
    old = (*_commits("a", 12), *_commits("b", 8, size=900))
    forks = (
        Fork("a", "try", at=3, update={"total": 7}),
        _commit("a", 50, branch="try"),
        Tag("a", "good", 2),
        Rollback("a", "good", branch="try"),
        Untag("a", "good"),
        Fork("b", "other", at=1),
    )
    together = tuple(
        Together((_commit("a", n), _commit(f"new {n}", n), Rollback("b", n % 8)), abandoned=n == 2) for n in range(4)
    )
    return (
        Workload("creation", (_commits("a", 3),)),
        Workload("commit", (_commits("a", 8, start=100),), old),
        Workload("group commit", tuple(_commits(f"t{n}", 5, start=10 * n) for n in range(6)), old),
        Workload("two processes", tuple(_commits(f"p{n}", 4, start=10 * n) for n in range(2)), old, processes=True),
        Workload("growth", (_growth(),), _commits("a", 2), max_size_bytes=8 * MIB),
        Workload("rollback", ((Rollback("a", 0), Rollback("a", 11), _commit("a", 60), Rollback("a", 5)),), old),
        Workload("fork", (forks,), old),
        Workload("copy", (_copies(),), (*old, Tag("a", "kept", 4), Fork("a", "side", at=6))),
        Workload("transaction", (together,), old),
        *_interval(old, forks),
        *_journal(old),
        Workload("retention", (_retention(),), (*old, Tag("a", "kept", 4), Fork("a", "side", at=6))),
        Workload("deletion", ((DeleteThread("b"), _commit("a", 70), DeleteThread("a")),), old),
        Workload("index", ((RebuildIndex(), _commit("a", 80)),), old),
        Workload("compaction", ((Compact(), _commit("a", 81), Retain(2), Compact(), Reopen(), _commit("a", 82)),), old),
        Workload("compaction among commits", (_commits("a", 4, start=400), (Compact(), Compact())), old),
        Workload("key", ((*_commits("a", 4, start=500), Retain(2), Compact(), _commit("a", 85)),), old, key=_KEY),
        Workload("import of a log", ((export_of(old), _commit("a", 83)),)),
        Workload("import of threads", ((_imported_threads(), _commit("a", 84)),), old),
        _salvage(old),
        _upgrade(old),
    )


def _interval(old: tuple[Step, ...], forks: tuple[Step, ...]) -> Iterator[Workload]:
    """Yield workloads with unflushed commits, and some flushes."""
    steps: tuple[Step, ...] = (
        *_commits("a", 4, start=200),
        Flush(),
        *_commits("a", 2, start=210),
        Rollback("b", 2),
        Flush(),
        *forks,
    )
    yield Workload("interval", (steps,), old, durability="interval")
    reopened: tuple[Step, ...] = (
        _commit("a", 220),
        Reopen(),
        *_commits("a", 2, start=221),
        Compact(),
        _commit("a", 224),
        Rest(),
    )
    yield Workload("interval reopened", (reopened,), old, durability="interval", setup=_SMALL)
    lanes: tuple[tuple[Step, ...], ...] = tuple(
        (*_commits(f"t{n}", 3, start=10 * n), Flush(), _commit(f"t{n}", 10 * n + 5)) for n in range(3)
    )
    yield Workload("interval group", lanes, old, durability="interval")
    left: tuple[tuple[Step, ...], ...] = tuple(
        tuple(replace(_commit(f"t{n}", 10 * n + k), durable=k % 3 == 2) for k in range(7)) for n in range(2)
    )
    yield Workload("flushes left to later commits", left, old, setup=_SMALL)
    yield Workload("flushes left in two processes", left, old, processes=True)
    yield Workload("interval processes", lanes[:2], old, durability="interval", processes=True, setup=_SMALL)


def _journal(before: tuple[Step, ...]) -> Iterator[Workload]:
    """Yield workloads for the WAL: epochs, growth, idle stores, large commits, kills, refused commits."""
    yield Workload("epochs", ((*_commits("a", 14, start=500, size=900), Rollback("b", 3)),), before, setup=_SMALL)
    lanes = tuple(_commits(f"p{n}", 12, start=20 * n, size=900) for n in range(2))
    yield Workload("epochs of two processes", lanes, before, processes=True, setup=_SMALL)
    yield Workload("journal growth", (_commits("a", 6, start=520, size=40_000),), before)
    rested: tuple[Step, ...] = (
        _commit("a", 530),
        Rest(),
        *_commits("a", 2, start=531),
        Rest(),
        _commit("b", 533),
        Reopen(),
        _commit("b", 534),
    )
    yield Workload("rest", (rested,), before, setup=_SMALL)
    large = Commit("a", ({"notes": {"large": _text(1_300_000, 1)}},))
    yield Workload("large commit", ((_commit("a", 540), large, _commit("a", 541)),), before)
    refused: tuple[Step, ...] = tuple(
        step for n in range(3) for step in (Refused(_commit("a", 560 + n)), _commit("a", 570 + n))
    )
    yield Workload("refused commits", (refused,), before)
    flushed: tuple[Step, ...] = (*_commits("a", 12, start=640), Flush(), *_commits("a", 9, start=660), Flush())
    yield Workload("flushes, interval", (flushed,), before, durability="interval", setup=_SMALL)
    yield from _processes(before)


def _processes(before: tuple[Step, ...]) -> Iterator[Workload]:
    """Yield workloads with slow checkpoints, in one process or several. Some kill a process with a pin or the lock."""
    lane = _commits("a", 40, start=720, size=900)
    yield Workload("checkpoints under way", ((*lane, Rollback("b", 3)),), before, setup=_SLOW)
    lanes = tuple(_commits(f"p{n}", 14, start=20 * n, size=900) for n in range(2))
    yield Workload("checkpoints under way in two processes", lanes, before, processes=True, setup=_SLOW)
    lanes = tuple(_commits(f"p{n}", 5, start=20 * n) for n in range(3))
    yield Workload("three processes", lanes, before, processes=True)
    killed: list[Step] = [KilledCommits("checkpoint.before_flag_flush:1")]
    # A process dies with the lock, so that the next process makes a checkpoint, and dies during this checkpoint.
    for n, point in enumerate(("after_sync", "before_slot_flush", "after_slot", "after_pin")):
        killed += (_commit("a", 550 + n), KilledCommits("commit.after_begin:1"), KilledCommits(f"checkpoint.{point}:1"))
    others = ("journal.after_append:2", "journal.after_flush:3", "commit.after_lmdb_commit:2")
    for n, death in enumerate((*others, "commit.after_delivery:4")):
        killed += (_commit("a", 560 + n), KilledCommits(death))
    yield Workload("killed processes", (tuple(killed),), before, setup=_LEAVING)
    # An idle store has no pin. The next process to commit takes a pin and dies. Later commits use what it left.
    pins: list[Step] = []
    for n, death in enumerate(("journal.before_append:2", "journal.after_flush:2", "commit.after_delivery:3")):
        pins += (_commit("a", 740 + 20 * n), Rest(), KilledCommits(death), *_commits("a", 14, start=741 + 20 * n))
    yield Workload("pin holder killed", (tuple(pins),), before, setup=_RESTING)


def export_of(steps: Sequence[Step], *, threads: Sequence[str] | None = None) -> Import:
    """Return a step that imports a store as it is after `steps`: all its threads, or only `threads`."""
    with tempfile.TemporaryDirectory() as temporary:
        session = WorkloadSession(Path(temporary) / "exported.state", {}, SCHEMA)
        for step in steps:
            session.do(step)
        stream = io.BytesIO()
        session.store.export(stream, threads=threads)
        session.close()
    return Import(stream.getvalue(), frozenset(thread_ids(tuple(steps)) if threads is None else threads))


def _imported_threads() -> Import:
    return export_of((*_commits("x", 9), *_commits("y", 5, size=900), Fork("x", "side", at=3)), threads=("x", "y"))


def _salvage(steps: Sequence[Step]) -> Workload:
    """Return a workload that salvages a store. The new store must be whole, or not exist."""
    files = {openings.DAMAGED_NAME: openings.damaged(openings.made_by(lambda path: _fill(path, steps)))}
    return Workload(
        "salvage", ((_commit("a", 85),),), files=files, opener=f"{openings.__name__}:{openings.open_salvaged.__name__}"
    )


def _upgrade(steps: Sequence[Step]) -> Workload:
    """Return a workload that opens a store of an older format, which upgrades it in place."""

    def make(path: Path) -> None:
        _fill(path, steps)
        openings.make_older(path)

    setup = f"{openings.__name__}:{openings.know_older.__name__}"
    return Workload("upgrade", ((_commit("a", 86),),), files={STORE_NAME: openings.made_by(make)}, setup=setup)


def _fill(path: Path, steps: Sequence[Step]) -> None:
    session = WorkloadSession(path, {}, SCHEMA)
    for step in steps:
        session.do(step)
    session.close()


def _growth() -> tuple[Step, ...]:
    """Return steps with values of many pages, and a larger quota."""
    large = [Commit("a", ({"notes": {f"file {n}": _text(60_000 + 20_000 * n, n)}},)) for n in range(4)]
    return (*large[:2], Reopen(16 * MIB), *large[2:], _commit("a", 9), Reopen(), _commit("a", 10))


def _retention() -> tuple[Step, ...]:
    return (
        Retain(4),
        _commit("a", 90),
        Retain(2, threads="b"),
        *_commits("b", 3, start=300),
        Retain(1),
        _commit("a", 91),
    )
