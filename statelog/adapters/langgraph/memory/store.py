"""LangGraph's `BaseStore` on statelog: long-term memory of agents in one file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event, Lock
from threading import Thread as OsThread
from typing import TYPE_CHECKING, Any, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
)

import statelog
from statelog import Encoded
from statelog.adapters.langgraph.memory.items.arguments import (
    check_config,
    check_op,
    check_ops,
    check_stored,
    sweep_interval_s,
    ttl_us,
)
from statelog.adapters.langgraph.memory.items.changes import Put, change_items, refresh, replace_older, sweep
from statelog.adapters.langgraph.memory.items.filters import compile_filter
from statelog.adapters.langgraph.memory.items.lookup import FoundItem, Reader, take, to_time
from statelog.adapters.langgraph.memory.items.namespaces import from_text, to_text
from statelog.adapters.langgraph.memory.items.texts import find_by_text, rank_by_text
from statelog.adapters.langgraph.memory.items.vectors import VectorIndex
from statelog.adapters.langgraph.memory.items.versions import ItemSchemas
from statelog.adapters.langgraph.memory.state_thread import ThreadHolder
from statelog.adapters.langgraph.saver.arguments import check_open
from statelog.adapters.langgraph.values.names import STORE_THREAD_ID
from statelog.redaction import redacting_logger
from statelog.schema.value_versions import declared_value
from statelog.store.session import session_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from langgraph.store.base import IndexConfig, Op, Result, TTLConfig

    from statelog import Versioned
    from statelog.adapters.langgraph.memory.items.changes import State
    from statelog.adapters.langgraph.memory.items.vectors import Vectors

_log = redacting_logger(__name__)

_SWEEP_MINUTES = 5
MIGRATED_AT_ONCE_MAX = 64
"""The number of items that one commit of a migration stores."""

SWEPT_AT_ONCE_MAX = 256
"""The number of expired items that one commit of a sweep deletes. Other writers wait for that commit."""


class StatelogStore(ThreadHolder, BaseStore):
    """A LangGraph store in a statelog store. OS threads, tasks and processes may share it.

    A batch is one commit: its reads see the state before it, and its puts are stored together or not at all.
    `created_at` is the time of an item's first put. `search` without a query returns the latest put first. With a
    query it sorts by score, then by the last put, and items without a vector come last. A store without an index ranks
    items by their text, as `Store.search` does, and items without a word of the query come last. `list_namespaces`
    returns the namespaces that have items, sorted.

    An expired item is never returned. `sweep_ttl` and the sweeper delete expired items, and each put deletes a few. A
    read extends the life of an item if that adds at least a hundredth of its time to live.

    The items are in one thread of the store. A retention policy, set with the first item, keeps few versions of it.
    Deleted items leave the file as described for `Store.prune`.
    """

    supports_ttl = True
    _THREAD_ID = STORE_THREAD_ID

    def __init__(
        self,
        store: statelog.Store,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        *,
        migrations: Mapping[tuple[str, ...], Versioned[Any, Any]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep items in an open store, which the caller closes.

        Args:
            store: the statelog store. Other objects, for example a saver, may share it.
            index: LangGraph's options for semantic search: `dims`, `embed`, `fields`. It needs numpy.
            ttl: LangGraph's options `default_ttl`, `refresh_on_read`, `sweep_interval_minutes`.
            migrations: the versioned schemas of items, keyed by namespace. A schema applies in its namespace and below.
                `*` matches any label. If several namespaces match, the longest applies. The value of an item with a
                schema is a dict of the schema's fields. Older versions are returned as the declared version, and a put
                stores the declared version.
            clock: returns seconds since 1970 UTC.

        Raises:
            ModuleNotFoundError: `index` is given, and numpy is not installed.
            ValueError: `index` or `ttl` is invalid.
            statelog.UsageError: `migrations` is not a dict of versioned schemas.
        """
        super().__init__()
        self._hold(store, clock)
        check_config("ttl", "default_ttl, refresh_on_read and sweep_interval_minutes", ttl)
        self.index_config = index
        self.ttl_config = ttl
        self._schemas = None if migrations is None else ItemSchemas(migrations)
        if ttl is not None:
            ttl_us(ttl.get("default_ttl"), "minutes")
        self._index = None if index is None else VectorIndex(index)
        if self._index is not None and (guard := session_of(store).owner.guard) is not None:
            self._index.redact = guard.field_text
        self._sweeping = Lock()
        self._sweeper: OsThread | None = None
        self._sweeper_ends = Event()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        migrations: Mapping[tuple[str, ...], Versioned[Any, Any]] | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> Self:
        """Open a store file, which is closed with this object. Options and errors are as for `statelog.open`."""
        return cls._open(path, options, lambda store: cls(store, index, ttl, migrations=migrations, clock=clock))

    # --- batches --------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations together. The class describes which operations see the results of others.

        Raises:
            InvalidNamespaceError: LangGraph does not allow a label.
            ValueError: an operation, operator or time to live is invalid.
            statelog.UsageError: an argument has the wrong type.
            statelog.ValueTypeError, LimitError: a value at the named path cannot be stored. Nothing was done.
            SchemaVersionError, MissingMigrationError, MigrationError: an item cannot be read in the declared version,
                or an item to replace has a newer version. Facts: key, namespace, stored, declared. Nothing was done.
            ChannelError, ValidationError: a value to put does not fit the declared schema. Nothing was done.
        """
        work = _Work(ops)
        if self._index is None:
            return self._run(work, {}, [])
        queries = self._index.embed_queries(work.queries())
        return self._run(work, queries, self._index.embed_puts(work.puts()))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations together, as `batch` does, without blocking the event loop."""
        work = _Work(ops)
        if self._index is None:
            return await self._pool.run(self._run, work, {}, [])
        queries = await self._index.aembed_queries(work.queries())
        vectors = await self._index.aembed_puts(work.puts())
        return await self._pool.run(self._run, work, queries, vectors)

    def _run(self, work: _Work, queries: Mapping[Any, Any], vectors: Sequence[Vectors]) -> list[Result]:
        changes = _prepare(work.puts(), vectors, self._schemas)
        results: list[Result] = [None] * len(work.ops)
        if self._index is None:  # Search before the snapshot, which must be short.
            queries = {at: find_by_text(self._store, op) for at, op in work.questions()}
        read = self._read(work, queries, results) if work.reads else []

        def change(state: State) -> None:
            now_us = self._now_us()
            refresh(state, read, now_us)
            change_items(state, changes, now_us)

        if changes or (read and not self._store.read_only):
            self._edit(change)
        return results

    # --- reading --------------------------------------------------------------------

    def _read(self, work: _Work, queries: Mapping[Any, Any], results: list[Result]) -> list[tuple[str, str, int]]:
        """Fill in the results of reads. Return the items whose lives the reads extend, as (namespace, key, number)."""
        to_refresh: list[tuple[str, str, int]] = []
        with self._store.snapshot() as snapshot:
            reader = Reader(snapshot.thread(STORE_THREAD_ID), self._now_us(), self._schemas)
            for at, op in work.reads:
                if isinstance(op, ListNamespacesOp):
                    results[at] = reader.list_namespaces(op)
                    continue
                if isinstance(op, GetOp):
                    one = reader.find(to_text(op.namespace), op.key)
                    found = [] if one is None else [one]
                    results[at] = None if one is None else Item(**_fields(one))
                else:
                    found = self._search(reader, at, op, work.matches.get(at), queries)
                    results[at] = [SearchItem(**_fields(each), score=each.score) for each in found]
                if op.refresh_ttl:
                    to_refresh += [
                        (each.namespace, each.key, each.about.number)
                        for each in found
                        if each.about.is_worth_refreshing(reader.now_us)
                    ]
        return to_refresh

    def _search(
        self, reader: Reader, at: int, op: SearchOp, matches: Callable[[Any], bool] | None, queries: Mapping[Any, Any]
    ) -> list[FoundItem]:
        prefix = tuple(op.namespace_prefix)
        if op.query:
            ranked = (
                rank_by_text(reader, prefix, queries[at], matches)
                if self._index is None
                else self._index.rank(reader, prefix, queries[op.query], matches)
            )
            return take(ranked, op.offset, op.limit)
        return take(reader.recent(prefix, matches), op.offset, op.limit)

    # --- schema versions ------------------------------------------------------------

    def migrate(self, namespace_prefix: tuple[str, ...] = ()) -> int:
        """Store the declared version of the older items in and below a namespace. Return their number.

        Reads and puts migrate by themselves and do not need this call. It makes later reads cheaper, and `search` then
        finds the texts made by migration steps. The times, order, time to live and vectors of the items stay. Items
        are migrated some at a time. If a call ends early, the next call skips the migrated items.

        Raises:
            SchemaVersionError, MissingMigrationError, MigrationError: an item cannot be brought to the declared
                version. Facts: key, namespace, stored, declared. Items that were migrated before it stay migrated.
        """
        check_op(SearchOp(namespace_prefix))
        if self._schemas is None:
            return 0
        with self._store.snapshot() as snapshot:
            places = Reader(snapshot.thread(STORE_THREAD_ID), self._now_us(), self._schemas).older(namespace_prefix)
        groups = (places[at : at + MIGRATED_AT_ONCE_MAX] for at in range(0, len(places), MIGRATED_AT_ONCE_MAX))
        return sum(self._migrate_some(group, self._schemas) for group in groups)

    def _migrate_some(self, places: list[tuple[str, str]], schemas: ItemSchemas) -> int:
        with self._store.snapshot() as snapshot:
            reader = Reader(snapshot.thread(STORE_THREAD_ID), self._now_us(), schemas)
            found = [one for each in places if (one := reader.find(*each)) is not None]
        made = [(each, _encode_value(each.value, path=f"{each.namespace}.{each.key}")) for each in found]
        counts = [0]

        def change(state: State) -> None:
            counts[0] = sum(
                replace_older(state, each.namespace, each.key, each.about, value, schema)
                for each, value in made
                if (schema := schemas.of(each.namespace)) is not None
            )

        self._edit(change)
        return counts[0]

    # --- expiry ---------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Delete the expired items, and return their number.

        Their bytes leave the file when the versions that have them expire: at the latest with
        `store.prune(keep_last=1)` and then `store.compact()`.
        """
        swept = 0
        while True:
            count = self._sweep_some()
            swept += count
            if count < SWEPT_AT_ONCE_MAX:
                return swept

    def _sweep_some(self) -> int:
        counts = [0]

        def change(state: State) -> None:
            counts[0] = sweep(state, self._now_us(), SWEPT_AT_ONCE_MAX)

        self._edit(change)
        return counts[0]

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Start an OS thread that sweeps until `stop_ttl_sweeper` or `close`. A running sweeper continues.

        Args:
            sweep_interval_minutes: the interval. The default is the interval of `ttl`, or 5.

        Raises:
            ValueError: the interval is invalid. statelog.ClosedError: the store was closed.
        """
        check_open(self._store)
        configured = None if self.ttl_config is None else self.ttl_config.get("sweep_interval_minutes")
        interval_s = sweep_interval_s(sweep_interval_minutes, configured, _SWEEP_MINUTES)
        with self._sweeping:
            if self._sweeper is None or not self._sweeper.is_alive():
                self._sweeper_ends = Event()
                self._sweeper = OsThread(
                    target=self._keep_sweeping,
                    args=(interval_s, self._sweeper_ends),
                    name="statelog-ttl",
                    daemon=True,
                )
                self._sweeper.start()

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper. Return whether it has ended within `timeout` seconds; None waits without a limit."""
        with self._sweeping:
            sweeper = self._sweeper
            self._sweeper_ends.set()
        if sweeper is None:
            return True
        sweeper.join(timeout)
        return not sweeper.is_alive()

    def _end(self) -> None:
        self.stop_ttl_sweeper()

    def _keep_sweeping(self, interval_s: float, ends: Event) -> None:
        while not ends.wait(interval_s):
            try:
                self.sweep_ttl()
            except statelog.errors.ClosedError:
                return
            except Exception:  # noqa: BLE001 - the next sweep may succeed
                _log.exception("expired items of %s could not be deleted", self._store.path)


class _Work:
    """The operations of a batch, checked before anything is done."""

    def __init__(self, ops: Iterable[Op]) -> None:
        check_ops(ops)
        self.ops = [*ops]
        self.reads: list[tuple[int, GetOp | SearchOp | ListNamespacesOp]] = []
        self.matches: dict[int, Callable[[Any], bool]] = {}
        self._puts: dict[tuple[str, str], PutOp] = {}
        for at, op in enumerate(self.ops):
            check_op(op)
            if isinstance(op, PutOp):
                place = to_text(op.namespace), op.key
                self._puts.pop(place, None)  # Apply only the last operation on an item, in its position.
                self._puts[place] = op
            else:
                self.reads.append((at, op))
                if isinstance(op, SearchOp) and op.filter:
                    self.matches[at] = compile_filter(op.filter)

    def puts(self) -> list[PutOp]:
        """Return the last put or deletion of each item."""
        return list(self._puts.values())

    def questions(self) -> list[tuple[int, SearchOp]]:
        """Return each search with a query, and its position in the batch."""
        return [(at, op) for at, op in self.reads if isinstance(op, SearchOp) and op.query]

    def queries(self) -> list[str]:
        """Return the queries, each once."""
        return list(dict.fromkeys(op.query for _at, op in self.questions() if op.query))


def _prepare(
    ops: Sequence[PutOp], vectors: Sequence[Vectors], schemas: ItemSchemas | None
) -> dict[tuple[str, str], Put | None]:
    """Encode the values to put before the commit, so that errors occur early and other writers wait less."""
    changes: dict[tuple[str, str], Put | None] = {}
    for at, op in enumerate(ops):
        namespace = to_text(op.namespace)
        if op.value is None:
            changes[namespace, op.key] = None
            continue
        check_stored(namespace, op.key, "item")
        schema = None if schemas is None else schemas.of(namespace)
        declared = op.value if schema is None else declared_value(schema, op.value)
        value = _encode_value(declared, path=f"{namespace}.{op.key}")
        changes[namespace, op.key] = Put(value, ttl_us(op.ttl, "minutes"), vectors[at] if vectors else {}, schema)
    return changes


def _encode_value(value: Mapping[str, Any], path: str) -> Encoded:
    if not isinstance(value, Mapping):
        message = f"{path}: an item must be a dict, not {type(value).__name__}"
        raise statelog.UsageError(message, path=path)
    for key in value:
        if not isinstance(key, str):
            message = f"{path}: cannot store {type(key).__name__} as a key: {key!r:.80} (keys are str)"
            raise statelog.errors.ValueTypeError(message, path=path, type=type(key).__name__)
    try:
        return Encoded(value if type(value) is dict else dict(value), path=path)
    except statelog.errors.ValueTypeError:
        return Encoded(_as_in_json(value), path=path)


def _as_in_json(value: Any) -> Any:
    """Convert instances of JSON types' subclasses in a value, such as str enums and ordered dicts, to plain values."""
    if isinstance(value, Mapping):
        return {str.__str__(key) if isinstance(key, str) else key: _as_in_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_in_json(each) for each in value]
    if type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _fields(found: FoundItem) -> dict[str, Any]:
    value = found.value
    return {
        "namespace": from_text(found.namespace),
        "key": found.key,
        "value": value if type(value) is dict else value.to_python(),
        "created_at": to_time(found.about.created_us),
        "updated_at": to_time(found.about.updated_us),
    }
