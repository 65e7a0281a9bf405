"""Judges whether the state after a power cut keeps the guarantees."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import statelog
from statelog.testing.powerloss.contents import (
    Contents,
    describe_difference,
    is_between,
    raw_digest,
    read_contents,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from statelog.store.store import Store
    from statelog.testing.powerloss.workloads import Durability

AFTER = "after the cut"
"""The id of the thread that gets a commit after the recovery."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The expected contents of some threads of a store.

    Attributes:
        threads: the ids of the threads, or None for all threads.
        steps: the contents when the store was opened, and after each step.
        gradual: the numbers of steps that may be found half done.
        refused: the numbers of steps whose commit is finally refused, but may be on the disk until then.
    """

    threads: frozenset[str] | None
    steps: tuple[Contents, ...]
    gradual: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()

    def find(self, found: Contents) -> tuple[frozenset[int], frozenset[int]]:
        """Return the steps after which, and the steps during which, the threads had the contents `found`."""
        after = frozenset(number for number, contents in enumerate(self.steps) if contents == found)
        amid = frozenset(
            number for number in self.gradual if is_between(found, self.steps[number - 1], self.steps[number])
        )
        return after, amid


@dataclass(frozen=True, slots=True)
class Expectation:
    """The contents that images of one recording may have.

    Attributes:
        lanes: the lanes of the recording.
        chain: the chain digests, keyed by LSN, from the end of the recording; None if unknown.
        ignored: ids of threads that may or may not exist.
    """

    lanes: tuple[Lane, ...]
    chain: Mapping[int, str] | None
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ImageFinding:
    """The result of examining one image. It does not depend on what was acknowledged.

    Attributes:
        problem: a fault, whatever was acknowledged; empty if there is none.
        exists: whether the store exists.
        after: for each lane, the steps after which it had the contents of the image.
        amid: for each lane, the steps during which it had the contents of the image.
        difference: for the first lane that matches no step, its difference from the last step.
    """

    problem: str
    exists: bool = True
    after: tuple[frozenset[int], ...] = ()
    amid: tuple[frozenset[int], ...] = ()
    difference: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of each lane when the power was cut. -1 means that the store was not open yet.

    Attributes:
        done: the last step that was done.
        begun: the last step that was begun.
        durable: the last durable step. If a step does not flush, it becomes durable with a later step that does.
    """

    done: tuple[int, ...]
    begun: tuple[int, ...]
    durable: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImageFault:
    """A fault of an image. If `lost`, something acknowledged is missing; otherwise, the contents are wrong."""

    lost: bool
    message: str


def judge(finding: ImageFinding, progress: Progress, expectation: Expectation) -> ImageFault | None:
    """Return the fault of an image at one cut, or None."""
    if not finding.exists and max(progress.durable) >= 0:
        return ImageFault(lost=True, message=f"{max(progress.durable)} steps were acknowledged, but there is no store")
    if finding.problem:
        return ImageFault(lost=False, message=finding.problem)
    if not finding.exists:
        return None
    for number, lane in enumerate(expectation.lanes):
        done, begun, first = progress.done[number], progress.begun[number], progress.durable[number]
        after, amid = finding.after[number], finding.amid[number]
        if any(max(first, 0) <= step <= max(begun, 0) for step in after) or any(first < step <= begun for step in amid):
            continue
        if begun > done and begun in lane.refused and not after:
            continue
        where = f"lane {number}: {first} steps durable, {done} done, {begun} begun"
        if after and max(after) < first:
            return ImageFault(lost=True, message=f"{where}, but the contents are those after step {max(after)}")
        how = f"are those after step {min(after)}" if after else f"match no step: {finding.difference}"
        return ImageFault(lost=False, message=f"{where}, but the contents {how}")
    return None


def look(
    path: Path,
    durability: Durability,
    expectation: Expectation,
    *,
    key: str | None = None,
    on_step: Callable[[int, Contents], None] | None = None,
    finish: Callable[[int], None] | None = None,
) -> ImageFinding:
    """Open the store after a power cut, read it, and commit to it. Faults are returned, never raised.

    Args:
        path: the path of the store.
        durability: the durability of the store.
        expectation: the expected contents.
        key: the key of the store, or None if it has no key.
        on_step: called with 0 and the contents when the store is open, and with 1 and the contents after the commit.
        finish: if given, also check everything after the commit, and again after a reopening. If the power was cut
            during a step, call this function to repeat the step.
    """
    exists = path.exists()
    try:
        with statelog.open(path, durability=durability, key=key) as store:
            finding, contents = _look_inside(store, expectation, on_step, exists=exists)
            if finish is None or finding.problem:
                return finding
            problem = _look_again(store, contents, key)
        problem = problem or _finish(path, finding, expectation, finish, key)
        return replace(finding, problem=problem) if problem else finding
    except Exception as error:  # noqa: BLE001 - the image is the cause of any error
        return ImageFinding(f"{type(error).__name__}: {error}", exists)


def _look_inside(
    store: Store,
    expectation: Expectation,
    on_step: Callable[[int, Contents], None] | None,
    *,
    exists: bool,
) -> tuple[ImageFinding, Contents]:
    """Read the store, and commit to it. Return the finding, and the contents before the commit."""
    problem, contents = _inspect(store)
    if problem:
        return ImageFinding(problem, exists), contents
    if on_step is not None:
        on_step(0, contents)
    problem = "" if expectation.chain is None else _check_chain(store, expectation.chain)
    last = store.last_lsn
    made = store.thread(AFTER).commit({"works": True})
    if store.thread(AFTER).state != {"works": True} or not last < made.lsn == store.last_lsn:
        problem = problem or "a commit after the cut did nothing"
    if on_step is not None:
        more = read_contents(store)
        on_step(1, more)
        problem = problem or _check_commit(contents, more)
    after, amid, difference = _place(without_threads(contents, expectation.ignored), expectation.lanes)
    return ImageFinding(problem, exists, after, amid, difference), contents


_MEMORY_MAX = 4096
_memory: dict[bytes, tuple[str, Contents]] = {}
"""The results of `_inspect`, keyed by `raw_digest`.

Many images contain the same records and index entries, stored on different pages.
"""


def _inspect(store: Store) -> tuple[str, Contents]:
    """Return the first problem that `verify` finds, and the contents."""
    digest = raw_digest(store)
    known = _memory.get(digest)
    if known is None:
        problems = store.verify().problems
        first = f"{problems[0].invariant}, record {problems[0].lsn}: {problems[0].message}" if problems else ""
        known = (first, {} if first else read_contents(store))
        if len(_memory) >= _MEMORY_MAX:
            _memory.clear()
        _memory[digest] = known
    return known


def _look_again(store: Store, before: Contents, key: str | None) -> str:
    """Check the whole store after a commit to `before`, and again after reopening it."""
    contents = read_contents(store)
    problem = _check_commit(before, contents)
    store.close()
    with statelog.open(store.path, key=key) as again:
        if again.verify().problems or read_contents(again) != contents:
            problem = problem or "a commit after the cut did not last"
    return problem


def _finish(
    path: Path, finding: ImageFinding, expectation: Expectation, finish: Callable[[int], None], key: str | None
) -> str:
    """If a step was cut short, repeat it. Check that the contents are then those after the whole step."""
    steps = [step for after, amid in zip(finding.after, finding.amid, strict=True) if not after for step in amid]
    for step in steps[:1]:
        finish(step)
        with statelog.open(path, key=key) as store:
            found = without_threads(read_contents(store), expectation.ignored | {AFTER})
        lane = next(lane for lane in expectation.lanes if step in lane.gradual)
        if found != lane.steps[step]:
            return f"step {step}, repeated: {describe_difference(found, lane.steps[step])}"
    return ""


def _check_chain(store: Store, chain: Mapping[int, str]) -> str:
    last = store.last_lsn
    for record in store.log(after=max(last - 1, 0)):
        if chain.get(last) != record.digest:
            return f"record {last} differs from the record that was written"
    return ""


def _check_commit(before: Contents, after: Contents) -> str:
    mine = frozenset({AFTER})
    if _of_threads(before, mine) == _of_threads(after, mine):
        return "a commit after the cut did nothing"
    others_before, others_after = (without_threads(each, mine) for each in (before, after))
    if others_before != others_after:
        return f"a commit after the cut changed other things: {describe_difference(others_after, others_before)}"
    return ""


def _place(
    contents: Contents, lanes: Sequence[Lane]
) -> tuple[tuple[frozenset[int], ...], tuple[frozenset[int], ...], str]:
    after, amid, difference = [], [], ""
    for lane in lanes:
        mine = contents if lane.threads is None else _of_threads(contents, lane.threads)
        found = lane.find(mine)
        after.append(found[0])
        amid.append(found[1])
        if not found[0] and not found[1]:
            difference = difference or describe_difference(mine, lane.steps[-1])
    known = [lane.threads for lane in lanes if lane.threads is not None]
    if known and len(known) == len(lanes):
        rest = without_threads(contents, frozenset().union(*known))
        if rest:
            after = [frozenset() for _ in lanes]
            difference = f"{min(rest)} should not be there"
    return tuple(after), tuple(amid), difference


def _of_threads(contents: Contents, threads: frozenset[str]) -> Contents:
    names = tuple(f"thread {thread!r}" for thread in threads)
    beginnings = tuple(f"{name} " for name in names)
    return {name: fact for name, fact in contents.items() if name in names or name.startswith(beginnings)}


def without_threads(contents: Contents, threads: frozenset[str]) -> Contents:
    """Return the facts that are not about the given threads."""
    theirs = _of_threads(contents, threads)
    return {name: fact for name, fact in contents.items() if name not in theirs}


def remove_all(directory: Path) -> None:
    """Remove the files in a directory."""
    for entry in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            entry.unlink()
