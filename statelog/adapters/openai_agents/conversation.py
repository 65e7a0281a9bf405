"""The items of a conversation: one thread with the conversation's branches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agents.memory.session import SessionABC
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

import statelog
from statelog import reducers
from statelog.adapters.kit import items as stored_items
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json, KnownList, of_all, read_list
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.errors import BranchNotFoundError, ConflictError, NotFoundError, ThreadDeletedError
from statelog.log.operations import deleted_error
from statelog.schema import Schema
from statelog.store.views import EMPTY_STATE

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Self

    from agents.items import TResponseInputItem

    from statelog import Checkpoint, Store, Thread

ITEMS, TURNS, RUN, USAGE, DELETED = "items", "turns", "run", "usage", "deleted"
SCHEMA = Schema.of(
    {
        ITEMS: reducers.extend,
        TURNS: reducers.extend,
        RUN: reducers.replace,
        USAGE: reducers.merge,
        DELETED: reducers.replace,
    }
)
MAIN = "main"


def is_user_item(item: Any) -> bool:
    """Return True if an item is a user message, which begins a turn."""
    return isinstance(item, dict) and item.get("role") == "user"


def encode_items(items: list[Any]) -> tuple[list[Json], list[int]]:
    """Return the items encoded as JSON, and the positions of the items that begin a turn."""
    return of_all(items), [at for at, item in enumerate(items) if is_user_item(item)]


def append_items(state: Any, encoded: list[Json], begins: list[int]) -> None:
    """Append items to a mutable state and record where turns begin."""
    held = state[ITEMS]
    if begins:
        count = len(held)
        state[TURNS].extend([count + at for at in begins])
    held.extend(encoded)


def cut_items(state: Any, count: int) -> None:
    """Keep only the first `count` items in a mutable state. A turn that is cut loses its usage."""
    del state[ITEMS][count:]
    turns = state[TURNS]
    while len(turns) and turns[-1] >= count:
        turns.pop()
    forget_usage(state, len(turns) + 1)


def forget_usage(state: Any, turn_number: int) -> None:
    """Remove the usage of a turn, and of all later turns, from a mutable state."""
    for turn in [turn for turn in state.get(USAGE, ()) if int(turn) >= turn_number]:
        del state[USAGE][turn]


def _check_not_deleted(branch: str, head: Checkpoint[Any] | None) -> None:
    if branch != MAIN and head is not None and head.state.get(DELETED):
        message = f"Branch {branch!r} does not exist"
        raise ValueError(message)


class Conversation(SessionABC):
    """One session of the SDK: `get_items`, `add_items`, `pop_item`, `clear_session`.

    Args:
        session_id: any string. The thread id is derived from it.
        store: an open store. The caller closes it.
        session_settings: settings of the SDK. `limit` is the default number of items that `get_items` returns.
    """

    session_settings: SessionSettings | None

    def __init__(
        self, session_id: str, store: Store, *, session_settings: SessionSettings | dict[str, Any] | None = None
    ) -> None:
        self.session_id = session_id
        self.store = store
        self.thread_id = thread_id("openai", session_id)
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self._branch = MAIN
        self._owns_store = False
        self._is_closed = False
        self._known = KnownList(ITEMS)
        self._threads: dict[str, Thread[Any, Any]] = {}
        """By branch, the thread object through which this session reads and writes."""
        self._head: tuple[Thread[Any, Any], int, int] | None = None
        """The thread object of the last commit, the version that it made, and the number of items then."""

    @classmethod
    def open(
        cls,
        session_id: str,
        path: str | os.PathLike[str],
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Open a store for this session only. `close` closes the store.

        Args:
            session_id: as for the class.
            path: the store, which is created if it does not exist.
            session_settings: as for the class.
            options: options of `statelog.open`.
        """
        made = cls(session_id, statelog.open(path, **options), session_settings=session_settings)
        made._owns_store = True
        return made

    def close(self) -> None:
        """Close this session. Later calls raise RuntimeError, as in the SDK. A second call does nothing."""
        self._is_closed = True
        if self._owns_store:
            self.store.close()

    # --- methods of the SDK's interface ---------------------------------------------

    async def get_items(
        self, limit: int | None = None, branch_id: str | None = None, *, wrapper: object = None
    ) -> list[TResponseInputItem]:
        """Return the items of the conversation, oldest first.

        Args:
            limit: return only this many of the last items. By default, `session_settings.limit`, or all items.
            branch_id: a branch other than the current one.
            wrapper: the SDK's context, which is not used.

        Raises:
            ValueError: the branch does not exist.
        """
        limit = resolve_session_limit(limit, self.session_settings)
        branch = self._branch if branch_id is None else branch_id
        if limit is None and (found := self._remembered(branch)) is not None:
            return found
        return await self._run(self._read, branch, limit)

    async def add_items(self, items: list[TResponseInputItem], *, wrapper: object = None) -> None:
        """Append items in one commit.

        Raises:
            ValueTypeError: an item is not JSON. Nothing was added.
        """
        encoded, begins = encode_items(items)
        if encoded:
            await self._write(lambda thread: self._append(thread, encoded, begins))
        else:
            self._check_open()

    def _append(self, thread: Thread[Any, Any], encoded: list[Json], begins: list[int]) -> None:
        """Append items and the positions at which turns begin, which depend on the current number of items."""
        while True:
            _thread, version, count = self._head_of(thread)
            write = {ITEMS: encoded, TURNS: [count + at for at in begins]} if begins else {ITEMS: encoded}
            try:
                is_expected = bool(begins) or thread.branch != MAIN  # Another process may delete the branch.
                made = thread.commit(write, expected_version=version if is_expected else None)
            except ConflictError:  # Another writer was first.
                self._head = None
                continue
            is_next = made.version == version + 1
            self._head = (thread, made.version, count + len(encoded)) if is_next else None
            return

    def _head_of(self, thread: Thread[Any, Any]) -> tuple[Thread[Any, Any], int, int]:
        head = self._head
        if head is None or head[0] is not thread:
            found = thread.head
            _check_not_deleted(thread.branch, found)
            stored = None if found is None else stored_items.get(found.state, ITEMS)
            count = 0 if stored is None else stored_items.count(stored)
            head = self._head = thread, -1 if found is None else found.version, count
        return head

    async def pop_item(self, *, wrapper: object = None) -> TResponseInputItem | None:
        """Remove and return the last item, or return None."""
        return await self._pop_item_with_validation()

    async def _pop_item_with_validation(self, validate: Callable[[Any], object] | None = None) -> Any:
        """Remove and return the last item unless `validate` raises. The SDK's encrypted session calls this."""
        return await self._write(lambda thread: self._pop(thread, validate))

    def _pop(self, thread: Thread[Any, Any], validate: Callable[[Any], object] | None) -> Any:
        while True:
            head = thread.head
            found = [] if head is None else read_list(head.state, ITEMS, -1)
            if head is None and self.store.thread(self.thread_id).version >= 0:
                raise deleted_error(self.thread_id)  # It was re-created: `_write_to` tries again.
            if head is None or not found:
                return None
            if validate is not None:
                validate(found[0])
            last = len(head.state[ITEMS]) - 1
            turns = head.state.get(TURNS, ())
            is_turn = len(turns) > 0 and turns[-1] == last
            try:
                if is_turn and head.state.get(USAGE):
                    thread.edit(partial(cut_items, count=last), lazy=True, expected_version=head.version)
                    self._head = None
                else:
                    writes = [stored_items.edit(ITEMS, last, last + 1, [])]
                    if is_turn:
                        writes.append(stored_items.edit(TURNS, len(turns) - 1, len(turns), []))
                    made = stored_items.commit(thread, *writes, expected_version=head.version)
                    self._head = thread, made.version, last
            except ConflictError:  # Another writer was first.
                continue
            return found[0]

    async def clear_session(self, *, wrapper: object = None) -> None:
        """Delete the conversation with all branches and versions. The session can be used again."""
        self._branch = MAIN
        await self._run(lives.gone, self.store, self.thread_id)

    # --- methods that subclasses use ------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            message = f"the session {self.session_id!r} is closed"
            raise RuntimeError(message)

    async def _run(self, function: Callable[..., Any], /, *args: Any) -> Any:
        self._check_open()
        try:
            return await run(function, *args)
        except BranchNotFoundError as error:
            message = f"Branch {error.facts.get('branch')!r} does not exist"
            raise ValueError(message) from error

    async def _write(self, work: Callable[[Any], Any], *, branch: str | None = None) -> Any:
        return await self._run(self._write_to, self._branch if branch is None else branch, work)

    def _write_to(self, branch: str, work: Callable[[Any], Any]) -> Any:
        kept = self._threads.get(branch)
        if kept is not None:
            try:
                return work(kept)
            except ThreadDeletedError:
                self._threads.pop(branch, None)

        def remembered(thread: Thread[Any, Any]) -> Any:
            result = work(thread)
            self._threads[branch] = thread
            return result

        return lives.write(self.store, self.thread_id, SCHEMA, remembered, branch=branch)

    def _head_on(self, branch: str) -> Checkpoint[Any] | None:
        """Return the head of a branch, or None for an empty conversation."""
        thread = self.store.thread(self.thread_id, schema=SCHEMA, branch=branch)
        head = thread.head
        _check_not_deleted(branch, head)
        if head is not None:
            self._threads.setdefault(branch, thread)
        return head

    def _state(self, branch: str) -> Any:
        head = self._head_on(branch)
        return EMPTY_STATE if head is None else head.state

    def _read(self, branch: str, limit: int | None) -> list[Any]:
        return self._items_of(self._state(branch), limit)

    def _remembered(self, branch: str) -> list[Any] | None:
        """Return all items of a branch if they are cached and unchanged, else None."""
        thread = self._threads.get(branch)
        if thread is None or self._is_closed:
            return None
        try:
            state = thread.state
        except NotFoundError:  # The thread was re-created, and `_state` finds it.
            return None
        return None if state.get(DELETED) else self._known.remembered(state)

    def _items_of(self, state: Any, limit: int | None = None) -> list[Any]:
        """Return the items of a state, or its last `limit` items. Cached items are not read again."""
        stored = None if limit is None else stored_items.get(state, ITEMS)
        count = 0 if stored is None else stored_items.count(stored)
        if limit is None or not 0 <= limit < count:
            return self._known.read(state)
        return read_list(state, ITEMS, count - limit)
