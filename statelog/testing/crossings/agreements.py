"""Checks that hold for a store at any moment: its log and index are consistent, and each copy equals the store."""

from __future__ import annotations

import io
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import statelog
from statelog.errors import ExpiredError, StatelogError
from statelog.portable.salvage import salvage
from statelog.store.session import session_of
from statelog.testing.crossings.clock import SimulatedClock
from statelog.testing.observation import differences, observe, without_lsns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from statelog import Store
    from statelog.fleet import Fleet
    from statelog.testing.crossings.clock import ClockReading

    Spoil = Callable[[Store], object]
    _Tables = tuple[dict[int, bytes], dict[bytes, bytes]]

_THREADS_TURN = 3
"""One check in this many compares an export of all threads."""

_EARLIER_MAX = 6
"""The number of earlier moments that a run remembers, to restore the store as of these moments."""


class Disagreement(NamedTuple):
    """A check that failed.

    Attributes:
        road: the name of the check, which is the way in which the copy was made: "imported", "restored", ...
        lines: the differences, or the error.
        error: the class name of the error that was raised; empty if the copy differs.
    """

    road: str
    lines: tuple[str, ...]
    error: str = ""

    @property
    def kind(self) -> str:
        """The kind of the failure, which is equal for similar failures."""
        return f"{self.road}: {self.error or 'differs'}"

    def __str__(self) -> str:
        return "\n".join((f"{self.road}:", *(f"  {line}" for line in self.lines)))


class Agreements:
    """Copies a store in every possible way, and compares each copy with the store. Use it as a context manager.

    Attributes:
        observed: the observation of the store at the last check.

    Args:
        folder: a folder for the copies.
        fleet: the fleet that ships the store, or None if no fleet ships it.
        name: the name of the store in the fleet.
        deleted: ids of threads that may have been deleted; see `observe`.
        spoil: a function that damages each copy before it is compared. The checks must then report a disagreement.
        clock: the clock of the processes. A copy as of an earlier moment is compared at the time of that moment.
    """

    def __init__(
        self,
        folder: Path,
        fleet: Fleet | None = None,
        name: str = "s",
        *,
        deleted: Iterable[str] = (),
        spoil: Spoil | None = None,
        clock: SimulatedClock | None = None,
    ) -> None:
        self._folder, self._fleet, self._name = folder, fleet, name
        self._deleted, self._spoil = tuple(deleted), spoil
        self._number = 0
        self._turn = 0
        """The number of checks so far."""
        self._closing, self._following = ExitStack(), ExitStack()
        self._increments: Store | None = None
        self._copy_of_copy: Store | None = None
        self._followed: Store | None = None
        self._clock = clock or SimulatedClock()
        self.observed: dict[str, Any] = {}
        self._tables: _Tables = {}, {}
        self._earlier: dict[int, tuple[ClockReading, dict[str, Any]]] = {}

    def close(self) -> None:
        """Close the copies that stay open between checks."""
        self._increments = self._copy_of_copy = self._followed = None
        self._closing.close()
        self._following.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def check(self, store: Store, roads: Iterable[str] | None = None) -> list[Disagreement]:
        """Run the checks on a store. Return those that failed.

        Args:
            store: the store. No process may write to it during the checks.
            roads: names of checks, from `ROADS`. If it is left out, all checks run.
        """
        store.flush()
        observed = self.observed = self._observe(store)
        self._tables = _tables(store)
        self._turn += 1
        found = []
        for road in ROADS if roads is None else roads:
            try:
                lines = _CHECKS[road](self, store, observed)
            except StatelogError as error:
                name = type(error).__name__
                found.append(Disagreement(road, (f"{name}: {error}",), name))
            else:
                found += [Disagreement(road, tuple(lines))] if lines else []
        if self._fleet is not None:
            self._remember(store.last_lsn, observed)
        return found

    def _observe(self, store: Store) -> dict[str, Any]:
        return observe(store, deleted=self._deleted)

    def _remember(self, lsn: int, observed: dict[str, Any]) -> None:
        self._earlier[lsn] = self._clock.moment, observed
        while len(self._earlier) > _EARLIER_MAX:
            del self._earlier[sorted(self._earlier)[len(self._earlier) // 2]]

    def _compared(self, copy: Store, observed: dict[str, Any]) -> list[str]:
        """Return the differences between a copy and the store: none if the bytes of log and index are equal."""
        self._spoil_copy(copy)
        if _tables(copy) == self._tables:
            return []
        return [*_problems(copy), *differences(observed, self._observe(copy), ("the store", "the copy"))]

    def _spoil_copy(self, copy: Store) -> None:
        if self._spoil is not None:
            self._spoil(copy)

    @contextmanager
    def _new_file(self) -> Iterator[Path]:
        """Yield a path for a new file. The file and its sidecar files are removed at the end."""
        self._number += 1
        path = self._folder / f"copy-{self._number}.state"
        try:
            yield path
        finally:
            for each in self._folder.glob(f"*copy-{self._number}.state*"):
                each.unlink()

    # --- the store itself -------------------------------------------------------------------

    def _verified(self, store: Store, _observed: dict[str, Any]) -> list[str]:
        if self._spoil is not None:
            _drop_row(store)
        return _problems(store)

    def _rebuilt(self, store: Store, _observed: dict[str, Any]) -> list[str]:
        before = _rows(store)
        store.rebuild_index()
        after = _rows(store)
        if self._spoil is not None:
            _drop_row(store)
            after = _rows(store)
        lines = [f"row {key.hex()} is there once only" for key in sorted(before.keys() ^ after.keys())]
        lines += [
            f"row {key.hex()} differs" for key in sorted(before.keys() & after.keys()) if before[key] != after[key]
        ]
        return lines[:12]

    # --- copies -------------------------------------------------------------------------------

    def _imported(self, store: Store, observed: dict[str, Any]) -> list[str]:
        with self._new_file() as path, _opened(path) as copy:
            _take_in(store, copy)
            return self._compared(copy, observed)

    def _exported_as_threads(self, store: Store, observed: dict[str, Any]) -> list[str]:
        """Compare a copy by an export of threads. Such an export keeps everything except LSNs and times."""
        ids = [each["id"] for each in observed["threads"]]
        if not ids or self._turn % _THREADS_TURN != 1:
            return []
        with self._new_file() as path, _opened(path) as copy:
            _take_in(store, copy, threads=ids)
            self._spoil_copy(copy)
            here, there = (without_lsns(each)["threads"] for each in (observed, observe(copy)))
            return [*_problems(copy), *differences(here, there, ("the store", "the copy"))]

    def _increments_in_a_row(self, store: Store, observed: dict[str, Any]) -> list[str]:
        """Compare a copy that imports successive, possibly overlapping exports. Sometimes, rebuild its index first."""
        if self._increments is None:
            self._increments = self._closing.enter_context(_opened(self._folder / "increments.state"))
        copy = self._increments
        _take_in(store, copy, since=max(copy.last_lsn - self._turn % 5, 0))
        if self._turn % 4 == 1:
            copy.rebuild_index()
        return self._compared(copy, observed)

    def _copied_on(self, _store: Store, observed: dict[str, Any]) -> list[str]:
        """Compare a copy of the copy in `_increments_in_a_row`. It skips one check in three, and catches up later."""
        if self._increments is None or self._turn % 3 == 1:
            return []
        if self._copy_of_copy is None:
            self._copy_of_copy = self._closing.enter_context(_opened(self._folder / "copied-on.state"))
        _take_in(self._increments, self._copy_of_copy, since=self._copy_of_copy.last_lsn)
        return self._compared(self._copy_of_copy, observed)

    def _compacted(self, store: Store, observed: dict[str, Any]) -> list[str]:
        with self._new_file() as path:
            store.image(path)
            with _opened(path) as copy:
                copy.compact()  # This may append a removal record for leases that have ended.
                self._spoil_copy(copy)
                shown = {**self._observe(copy), "log": observed["log"]}
                return [*_problems(copy), *differences(observed, shown, ("the store", "the copy"))]

    def _salvaged(self, store: Store, observed: dict[str, Any]) -> list[str]:
        with self._new_file() as damaged, self._new_file() as path:
            store.image(damaged)
            report = salvage(damaged, path)
            lost = [f"lost: {each}" for each in (*report.lost, *report.versions_lost)[:3]]
            with _opened(path) as copy:
                return [*lost, *self._compared(copy, observed)]

    # --- the fleet ------------------------------------------------------------------------------

    def _restored(self, store: Store, observed: dict[str, Any]) -> list[str]:
        if self._fleet is None:
            return []
        store.remote.wait()
        with self._new_file() as path:
            self._fleet.restore(self._name, path)
            with _opened(path) as copy:
                return self._compared(copy, observed)

    def _followed_on(self, store: Store, observed: dict[str, Any]) -> list[str]:
        if self._fleet is None:
            return []
        store.remote.wait()
        try:
            followed = self._follow()
            followed.remote.wait()
        except ExpiredError:  # The fleet has collected segments that this copy still needs.
            self._followed = None
            self._following.close()
            followed = self._follow()
        if self._spoil is None:
            return self._compared(followed, observed)
        with self._new_file() as path:  # A follower is read-only, so `spoil` damages an image of it.
            followed.image(path)
            with _opened(path) as copy:
                return self._compared(copy, observed)

    def _follow(self) -> Store:
        assert self._fleet is not None
        if self._followed is None:
            self._followed = self._following.enter_context(self._fleet.follow(self._name, poll_s=3600))
        return self._followed

    def _restored_at(self, store: Store, _observed: dict[str, Any]) -> list[str]:
        if self._fleet is None or not self._earlier:
            return []
        store.remote.wait()
        lsns = sorted(self._earlier)
        lsn = lsns[self._turn % len(lsns)]
        moment, observed = self._earlier[lsn]
        with self._new_file() as path:
            try:
                self._fleet.restore(self._name, path, at=lsn)
            except ExpiredError:  # The fleet no longer has that moment.
                del self._earlier[lsn]
                return []
            with self._clock.at(moment), _opened(path) as copy:
                return [f"at {lsn}: {line}" for line in self._compared(copy, observed)]


_CHECKS: dict[str, Callable[[Agreements, Store, dict[str, Any]], list[str]]] = {
    "verified": Agreements._verified,  # noqa: SLF001 - the name belongs to this file
    "rebuilt": Agreements._rebuilt,  # noqa: SLF001
    "imported": Agreements._imported,  # noqa: SLF001
    "threads": Agreements._exported_as_threads,  # noqa: SLF001
    "increments": Agreements._increments_in_a_row,  # noqa: SLF001
    "copied on": Agreements._copied_on,  # noqa: SLF001
    "compacted": Agreements._compacted,  # noqa: SLF001
    "salvaged": Agreements._salvaged,  # noqa: SLF001
    "restored": Agreements._restored,  # noqa: SLF001
    "followed": Agreements._followed_on,  # noqa: SLF001
    "restored at": Agreements._restored_at,  # noqa: SLF001
}

ROADS = tuple(_CHECKS)
"""Names of the checks. `Crossing` itself checks a store that it opens again."""


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    with statelog.open(path, durability="interval", interval_ms=60_000) as store:
        yield store


def _problems(store: Store) -> list[str]:
    return [f"{each.invariant}, record {each.lsn}: {each.message}" for each in store.verify().problems[:3]]


def _take_in(store: Store, copy: Store, **what: Any) -> None:
    target = io.BytesIO()
    store.export(target, **what)
    copy.import_(io.BytesIO(target.getvalue()))


def _rows(store: Store) -> dict[bytes, bytes]:
    return _tables(store)[1]


def _tables(store: Store) -> _Tables:
    """Return the log and the index of a store."""
    with session_of(store).read() as view:
        transaction = view.transaction
        lsns = range(1, transaction.last_lsn() + 1)
        log = {lsn: bytes(transaction.get_log(lsn) or b"") for lsn in lsns}
        return log, {bytes(key): bytes(payload) for key, payload in transaction.scan_index(b"")}


def _drop_row(store: Store) -> None:
    """Delete one row of the index, so that the store is damaged."""
    engine = session_of(store).owner
    last = max(_rows(store))
    engine.care(lambda transaction: transaction.delete_index(last))
