"""Conversations of pydantic-ai. Each is stored as a thread with a record and a growing list of entries."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_core import PydanticSerializationError

from statelog import reducers
from statelog.adapters.kit import lives
from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.errors import ConflictError, ThreadDeletedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from statelog import Store, Thread
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

T = TypeVar("T")

_PREFIX = "pydantic-ai"
_RECORD, _ENTRIES = "record", "entries"
_SCHEMA = {_RECORD: reducers.replace, _ENTRIES: reducers.extend}
_HINTS_MAX = 10_000

_AS_MESSAGES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""The configuration of `pydantic_ai.messages.ModelMessagesTypeAdapter`, so that messages load in the same way."""

_records: TypeAdapter[list[ConversationRecord]] = TypeAdapter(list[ConversationRecord], config=_AS_MESSAGES)
_entries: TypeAdapter[list[ConversationEntry]] = TypeAdapter(list[ConversationEntry], config=_AS_MESSAGES)


class StatelogConversationStore(ConversationStore):
    """pydantic-ai's ConversationStore on a statelog store.

    A save is one commit of the entries, the record and the data for `list_conversations`. Deleting a conversation also
    deletes its entries. A fork has its own copies of the entries.

    Args:
        store: an open store. The caller closes it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._directory = Directory(f"{_PREFIX}-conversations")
        self._homes: dict[str, str] = {}
        """Conversation ids, keyed by head, for records that were read or written: `read_history` gets only a head."""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        return await run(self._record_here, conversation_id)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, the most recently saved first. Only one thread is read."""
        return await run(self._records_here, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one commit.

        Raises:
            ConversationConflict: the stored revision differs, or the record's head does not exist. Nothing is written.
            UserError: the conversation's id is empty, or a value cannot be stored, because it contains itself or
                pydantic does not know its type.
        """
        try:
            kept = _json_of(_records, record)
            added = [(entry.id, _json_of(_entries, entry)) for entry in new_entries]
        except PydanticSerializationError as error:
            message = f"The conversation {record.conversation_id!r} cannot be stored: {error}"
            raise UserError(message) from error
        await run(self._write_here, record, kept, added, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its entries and history. Its forks stay complete.

        Raises:
            ConversationConflict: the stored revision differs, or there is none.
        """
        await run(self._delete_here, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. All conversations are searched. Raises KeyError."""
        return await run(self._entry_here, entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, or the last `limit` of them. Raises KeyError if `head_id` is unknown."""
        return [] if head_id is None else await run(self._history_here, head_id, limit)

    # --- methods that run in the thread pool ------------------------------------------------------

    def _record_here(self, conversation_id: str) -> ConversationRecord | None:
        kept = self._store.thread(_id_of(conversation_id), schema=_SCHEMA).state.get(_RECORD)
        if kept is None:
            return None
        [record] = _parsed(_records, [kept])
        self._note_home(record.head_id, *record.branches, home=conversation_id)
        return record

    def _note_home(self, *heads: str | None, home: str) -> None:
        if len(self._homes) > _HINTS_MAX:
            self._homes = {}
        self._homes |= dict.fromkeys(filter(None, heads), home)

    def _records_here(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        shown = self._directory.all(self._store).values()
        records = _records.validate_python([each for each in shown if scope is None or each["scope"] == scope])
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    def _write_here(
        self, record: ConversationRecord, new: Json, added: list[tuple[str, Json]], expected_revision: str | None
    ) -> None:
        name = record.conversation_id
        id = _id_of(name)

        def write(tx: Transaction) -> None:
            thread = tx.thread(id, schema=_SCHEMA)
            head = thread.head
            kept = thread.state.get(_RECORD)
            before = None if kept is None else kept.value
            if (None if before is None else before["revision"]) != expected_revision:
                raise ConversationConflict(name)
            entries = [text for _entry_id, text in added]
            if record.head_id not in (None if before is None else before["head_id"], *(each for each, _ in added)):
                entries = [*_shared(tx, record, thread), *entries]
            change: dict[str, Any] = {_RECORD: new}
            if entries:
                change[_ENTRIES] = entries
            expected = -1 if head is None else head
            lives.write(tx, id, _SCHEMA, lambda thread: thread.commit(change, expected_version=expected))
            self._directory.put(tx, {name: new.value})

        try:
            lives.transact(self._store, write)
        except ConflictError as error:
            raise ConversationConflict(name) from error
        self._note_home(record.head_id, *record.branches, home=name)

    def _delete_here(self, name: str, expected_revision: str) -> None:
        id = _id_of(name)
        try:
            with self._store.transaction() as tx:
                thread = tx.thread(id, schema=_SCHEMA)
                head, kept = thread.head, thread.state.get(_RECORD)
                if head is None or kept is None or kept.value["revision"] != expected_revision:
                    raise ConversationConflict(name)
                # With the expected version, a concurrent write is not lost.
                thread.commit({_RECORD: reducers.DROP}, expected_version=head)
                tx.delete_thread(id)
                self._directory.remove(tx, name)
        except (ConflictError, ThreadDeletedError) as error:
            raise ConversationConflict(name) from error

    def _entry_here(self, entry_id: str) -> ConversationEntry:
        for _name, kept in self._all_entries(self._homes.get(entry_id)):
            for each in kept:
                if each.value["id"] == entry_id:
                    return _parsed(_entries, [each])[0]
        raise KeyError(entry_id)

    def _history_here(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        if limit == 0:
            return []
        for name, kept in self._all_entries(self._homes.get(head_id)):
            if limit is not None:  # Read only the last entries first, because most callers want these.
                last = kept[-limit:]
                if len(last) == limit and _is_chain(found := _parsed(_entries, last), head_id):
                    return found
            by_id = {entry.id: entry for entry in _parsed(_entries, kept[:])}
            if head_id in by_id:
                self._note_home(head_id, home=name)
                found, at = [], head_id
                while at is not None and (limit is None or len(found) < limit):
                    found.append(by_id[at])
                    at = found[-1].parent_id
                return found[::-1]
        raise KeyError(head_id)

    def _all_entries(self, home: str | None) -> Iterable[tuple[str, Any]]:
        """Yield the entries of every conversation. Begin with `home`, which probably has the entry."""
        for name in sorted(self._directory.all(self._store), key=lambda each: each != home):
            kept = self._store.thread(_id_of(name), schema=_SCHEMA).state.get(_ENTRIES)
            if kept is not None:
                yield name, kept


def _shared(tx: Threads, record: ConversationRecord, thread: Thread[Any, Any]) -> list[Json]:
    """Return the entries that a fork shares with its source, or [] if the fork already has them."""
    head_id = record.head_id
    if head_id is None or any(each.value["id"] == head_id for each in thread.state.get(_ENTRIES, ())):
        return []
    if record.forked_from is not None:
        source = tx.thread(_id_of(record.forked_from), schema=_SCHEMA).state.get(_ENTRIES, ())
        try:
            return _chain({each.value["id"]: each for each in source}, head_id)
        except KeyError:
            pass  # The source, or a part of it, has been deleted.
    raise ConversationConflict(record.conversation_id)


def _id_of(conversation_id: str) -> str:
    try:
        return thread_id(_PREFIX, conversation_id)
    except UsageError as error:
        raise UserError(str(error)) from error


def _json_of(adapter: TypeAdapter[list[T]], value: T) -> Json:
    return Json(adapter.dump_json([value])[1:-1].decode())


def _parsed(adapter: TypeAdapter[list[T]], kept: Iterable[Json]) -> list[T]:
    return adapter.validate_json(f"[{','.join(each.text for each in kept)}]")


def _is_chain(entries: list[ConversationEntry], head_id: str) -> bool:
    """Return True if each entry follows the previous entry, and the last entry is the head."""
    is_linked = all(after.parent_id == before.id for before, after in pairwise(entries))
    return is_linked and entries[-1].id == head_id


def _chain(by_id: dict[str, Json], head_id: str | None) -> list[Json]:
    found = []
    while head_id is not None:
        found.append(by_id[head_id])
        head_id = found[-1].value["parent_id"]
    return found[::-1]
