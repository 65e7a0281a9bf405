"""Removes everything that belongs to a scope from the whole store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from statelog.durable.erasure import erase_run, runs_on_board
from statelog.errors import BranchNotFoundError, StatelogError, ThreadDeletedError, ThreadNotFoundError
from statelog.memory.scopes import FACTS, ROOT, SESSIONS, is_within
from statelog.store.copies import copies_of
from statelog.store.retain import erase_leftovers
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.store.branches import BranchInfo
    from statelog.store.store import Store
    from statelog.store.thread import Thread

_ITEMS_THREAD = "langgraph:store"
_ITEMS_MODULE = "statelog.adapters.langgraph.memory.scopes"
"""The id of the thread that stores LangGraph's items, and the module that handles this thread.

The module is imported by name, because adapters are in a layer above.
"""


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """The report of a call of `Memory.forget_scope`: the names of all removed objects."""

    scope: str
    facts: list[str] = field(default_factory=list)
    """The keys of facts on the board."""
    sessions: list[str] = field(default_factory=list)
    """The ids of the threads of sessions."""
    threads: list[str] = field(default_factory=list)
    """The ids of the scope's other threads."""
    entries: list[str] = field(default_factory=list)
    """The keys of the scope's other board entries."""
    runs: list[str] = field(default_factory=list)
    """The ids of durable runs."""
    items: list[str] = field(default_factory=list)
    """The items of LangGraph's store: namespace and key."""

    def __bool__(self) -> bool:
        """Return True if anything was removed."""
        return any((self.facts, self.sessions, self.threads, self.entries, self.runs, self.items))

    def __len__(self) -> int:
        return sum(map(len, (self.facts, self.sessions, self.threads, self.entries, self.runs, self.items)))


class _ItemErasure(Protocol):
    def forget_items(self, store: Store, scope: str) -> list[str]:
        """Remove the items of a scope from LangGraph's store. Return their names."""


def forget_scope(store: Store, scope: str) -> ForgetReport:
    """See `Memory.forget_scope`.

    Each part is found by its own name, and its removal is committed before the next part. So if the process is killed,
    a second call finds the remaining parts. Threads come last, because runs are found by their threads.
    """
    engine = session_of(store).owner
    engine.store_file.lmdb_file.check_writable()
    erase_leftovers(engine)
    threads = _threads_of(store, scope)
    runs = _erase_runs(store, scope, threads)
    entries = _erase_entries(store, scope)
    items = _forget_items(store, scope)
    threads = [each for each in threads if _delete(store, each)]
    own = [each for each in entries if each.startswith(ROOT)]
    sessions = {each for each in (*own, *threads) if each.startswith(ROOT) and f"/{SESSIONS}" in each}
    return ForgetReport(
        scope,
        facts=[each for each in own if f"/{FACTS}" in each],
        sessions=sorted(sessions),
        threads=[each for each in threads if each not in sessions],
        entries=[each for each in entries if each not in own],
        runs=runs,
        items=items,
    )


def sweep_sessions(store: Store, scope: str) -> list[str]:
    """See `Memory.sweep`."""
    board = store.board()
    expired = []
    for thread in store.thread_ids(containing=f"{ROOT}{scope}/"):
        is_session = thread.startswith(f"{ROOT}{scope}/") and f"/{SESSIONS}" in thread
        if is_session and board.get(thread) is None and _delete(store, thread):
            board.erase(thread)
            expired.append(thread)
    return expired


def _threads_of(store: Store, scope: str) -> list[str]:
    """Return the ids of the threads that belong to a scope, and of their copies, which come first.

    A thread belongs to a scope by its id, or by `scope` in the metadata of any of its checkpoints.
    """

    def is_of_scope(thread: str) -> bool:
        if is_within(thread, scope) or is_within(thread, f"{ROOT}{scope}"):
            return True
        with suppress(ThreadNotFoundError, ThreadDeletedError, BranchNotFoundError):  # Another process has deleted it.
            branches = store.thread(thread).branches()
            return any(_is_named(store.thread(thread, branch=each.name), each, scope) for each in branches)
        return False

    own = [each for each in store.thread_ids() if is_of_scope(each)]
    return [*copies_of(session_of(store), own), *own]


def _is_named(branch: Thread, info: BranchInfo, scope: str) -> bool:
    """Return True if the metadata of one of the branch's own checkpoints names the scope."""
    for checkpoint in branch.history():
        if info.parent is not None and checkpoint.version <= info.base_version:
            return False
        with suppress(StatelogError):  # A check of the guard may refuse to show the metadata.
            if is_within(checkpoint.metadata.get("scope"), scope):
                return True
    return False


def _erase_runs(store: Store, scope: str, threads: Iterable[str]) -> list[str]:
    """Remove the runs that belong to a scope by their id, by their thread, or by the run that started them."""
    held = set(threads)
    found: dict[str, None] = {}
    for run in runs_on_board(store):  # The oldest run is first, so a run comes before the runs that it has started.
        is_of_scope = is_within(run.id, scope) or is_within(run.thread, scope)
        if is_of_scope or run.thread in held or run.parent in found:
            found[run.id] = None
    for run_id in reversed(found):
        erase_run(store, run_id)
    return list(found)


def _erase_entries(store: Store, scope: str) -> list[str]:
    board = store.board()
    patterns = (f"{ROOT}{scope}/**", scope, f"{scope}/**")
    return sorted(key for pattern in patterns for key in board.erase(pattern))


def _forget_items(store: Store, scope: str) -> list[str]:
    if _ITEMS_THREAD not in store.thread_ids(containing=_ITEMS_THREAD):
        return []
    return cast("_ItemErasure", import_module(_ITEMS_MODULE)).forget_items(store, scope)


def _delete(store: Store, thread: str) -> bool:
    try:
        store.delete_thread(thread)
    except ThreadNotFoundError:  # Another process has deleted the thread.
        return False
    return True
