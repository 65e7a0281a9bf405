"""Conversations of pydantic-ai: each is a thread, with its record, and its entries as a list that grows."""

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
from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.lives import gone
from statelog.adapters.kit.naming import thread_id
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.running import run
from statelog.errors import ConflictError, ThreadDeletedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from statelog import Store, Thread
    from statelog.store.threads import Threads

T = TypeVar("T")

_PREFIX = "pydantic-ai"
_RECORD, _ENTRIES = "record", "entries"
_SCHEMA = {_RECORD: reducers.replace, _ENTRIES: reducers.extend}
_HINTS_MAX = 10_000

_AS_MESSAGES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""Of `pydantic_ai.messages.ModelMessagesTypeAdapter`: what is loaded is what it would have loaded."""

_records: TypeAdapter[list[ConversationRecord]] = TypeAdapter(list[ConversationRecord], config=_AS_MESSAGES)
_entries: TypeAdapter[list[ConversationEntry]] = TypeAdapter(list[ConversationEntry], config=_AS_MESSAGES)


class StatelogConversationStore(ConversationStore):
    """A ConversationStore in a store of statelog.

    A save is one commit: its entries, the record, and what `list_conversations` shows. A conversation that is deleted
    is gone, with its entries; a fork has entries of its own.

    Args:
        store: an open store. It is the caller's to close.

    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._directory = Directory(f"{_PREFIX}-conversations")
        self._homes: dict[str, str] = {}
        """Conversations by the heads of records that were read: the contract asks for a history by its head alone."""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation; None if there is none."""
        return await run(self._record_here, conversation_id)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, the last saved first. One thread is read, however many there are."""
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
            ConversationConflict: the stored revision is another, or the record's head is nowhere. Nothing is written.
            UserError: the conversation's id is empty, or something cannot be stored: a value that holds itself, or is
                of no type that pydantic knows.

        """
        try:
            kept = _json_of(_records, record)
            added = [(entry.id, _json_of(_entries, entry)) for entry in new_entries]
        except PydanticSerializationError as error:
            message = f"The conversation {record.conversation_id!r} cannot be stored: {error}"
            raise UserError(message) from error
        await run(self._write_here, record, kept, added, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation, with its entries and all that it was. Forks of it stay whole.

        Raises:
            ConversationConflict: the stored revision is another, or there is none.

        """
        await run(self._delete_here, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Every conversation is looked through. Raises KeyError."""
        return await run(self._entry_here, entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to one, or the last of them. Raises KeyError: there is no such entry."""
        return [] if head_id is None else await run(self._history_here, head_id, limit)

    # --- in a thread of the pool ------------------------------------------------------------------

    def _thread(self, within: Threads, conversation_id: str, shown: Any) -> Thread[Any, Any]:
        return within.thread(_id_of(conversation_id, 1 if shown is None else shown["life"]), schema=_SCHEMA)

    def _record_here(self, conversation_id: str) -> ConversationRecord | None:
        _id_of(conversation_id, 1)
        shown = self._directory.get(self._store, conversation_id)
        if shown is None or shown["record"] is None:
            return None
        kept = self._thread(self._store, conversation_id, shown).state.get(_RECORD)
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
        shown = (each["record"] for each in self._directory.all(self._store).values())
        found = [each for each in shown if each is not None and (scope is None or each["scope"] == scope)]
        records = _records.validate_python(found)
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    def _write_here(
        self, record: ConversationRecord, new: Json, added: list[tuple[str, Json]], expected_revision: str | None
    ) -> None:
        name = record.conversation_id
        _id_of(name, 1)
        try:
            with self._store.transaction() as tx:
                held = self._directory.get(tx, name)
                life = 1 if held is None else held["life"] + (held["record"] is None)
                thread = tx.thread(_id_of(name, life), schema=_SCHEMA)
                version, kept = thread.version, thread.state.get(_RECORD)
                before = None if kept is None else kept.value
                if (None if before is None else before["revision"]) != expected_revision:
                    raise ConversationConflict(name)
                entries = [text for _entry_id, text in added]
                if record.head_id not in (None if before is None else before["head_id"], *(each for each, _ in added)):
                    entries = [*self._shared(tx, record, thread), *entries]
                change: dict[str, Any] = {_RECORD: new}
                if entries:
                    change[_ENTRIES] = entries
                thread.commit(change, expected_version=version)
                self._directory.put(tx, {name: {"life": life, "record": new.value}})
        except (ConflictError, ThreadDeletedError) as error:
            raise ConversationConflict(name) from error
        self._note_home(record.head_id, *record.branches, home=name)

    def _shared(self, tx: Threads, record: ConversationRecord, thread: Thread[Any, Any]) -> list[Json]:
        """Return the entries up to a head that a record shares with what it was forked from. None if it has them."""
        head_id = record.head_id
        if head_id is None or any(each.value["id"] == head_id for each in thread.state.get(_ENTRIES, ())):
            return []
        if record.forked_from is not None:
            held = self._directory.get(tx, record.forked_from)
            source = self._thread(tx, record.forked_from, held).state.get(_ENTRIES, ())
            try:
                return _chain({each.value["id"]: each for each in source}, head_id)
            except KeyError:
                pass  # it was deleted meanwhile
        raise ConversationConflict(record.conversation_id)

    def _delete_here(self, name: str, expected_revision: str) -> None:
        _id_of(name, 1)
        try:
            with self._store.transaction() as tx:
                held = self._directory.get(tx, name)
                if held is None or held["record"] is None:
                    raise ConversationConflict(name)
                thread = self._thread(tx, name, held)
                version, kept = thread.version, thread.state.get(_RECORD)
                if kept is None or kept.value["revision"] != expected_revision:
                    raise ConversationConflict(name)
                thread.commit({_RECORD: reducers.DROP, _ENTRIES: reducers.DROP}, expected_version=version)
                self._directory.put(tx, {name: {"life": held["life"], "record": None, "is_left": True}})
        except (ConflictError, ThreadDeletedError) as error:
            raise ConversationConflict(name) from error
        self._sweep()

    def _sweep(self) -> None:
        """Delete the threads of deleted conversations; also those that a killed process has left."""
        for name, shown in self._directory.all(self._store).items():
            if shown.get("is_left"):
                gone(self._store, _id_of(name, shown["life"]))
                with self._store.transaction() as tx:
                    if self._directory.get(tx, name) == shown:
                        self._directory.put(tx, {name: {"life": shown["life"], "record": None}})

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
            if limit is not None:  # most often the last ones are what is asked for
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
        """Yield the entries of every conversation, first those of one that may have what is looked for."""
        every = self._directory.all(self._store)
        for name in sorted(every, key=lambda each: each != home):
            if every[name]["record"] is not None:
                kept = self._thread(self._store, name, every[name]).state.get(_ENTRIES)
                if kept is not None:
                    yield name, kept


def _id_of(conversation_id: str, life: int) -> str:
    try:
        return thread_id(_PREFIX, conversation_id) if life == 1 else thread_id(_PREFIX, conversation_id, str(life))
    except UsageError as error:
        raise UserError(str(error)) from error


def _json_of(adapter: TypeAdapter[list[T]], value: T) -> Json:
    return Json(adapter.dump_json([value])[1:-1].decode())


def _parsed(adapter: TypeAdapter[list[T]], kept: Iterable[Json]) -> list[T]:
    return adapter.validate_json(f"[{','.join(each.text for each in kept)}]")


def _is_chain(entries: list[ConversationEntry], head_id: str) -> bool:
    """Whether each entry follows the one before it, and the last one is the head."""
    is_linked = all(after.parent_id == before.id for before, after in pairwise(entries))
    return is_linked and entries[-1].id == head_id


def _chain(by_id: dict[str, Json], head_id: str | None) -> list[Json]:
    found = []
    while head_id is not None:
        found.append(by_id[head_id])
        head_id = found[-1].value["parent_id"]
    return found[::-1]
