"""A checkpointer for LangGraph: every method, sync and async, over one store."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph.saver import arguments as asking
from statelog.adapters.langgraph.saver import pending_writes as tasks
from statelog.adapters.langgraph.saver.awaited import AsyncCalls, Begun
from statelog.adapters.langgraph.saver.checkpoint_order import Ordered
from statelog.adapters.langgraph.saver.checkpoint_reader import (
    CheckpointRow,
    decode_row,
    encode_kept,
    is_in_namespace,
    list_row,
    read_latest,
    read_row,
    read_writes,
    row_metadata,
    written,
)
from statelog.adapters.langgraph.saver.delta_replay import delta_history, keepset
from statelog.adapters.langgraph.saver.head_check import is_at_head, without_used_answer
from statelog.adapters.langgraph.saver.metadata import DELTAS, metadata_of
from statelog.adapters.langgraph.saver.metadata_filter import fits
from statelog.adapters.langgraph.saver.paused_nodes import LEADS, check_entrypoint, check_paused, may_be_functional
from statelog.adapters.langgraph.saver.puts import Bases, PutBase, value_writes
from statelog.adapters.langgraph.saver.removal import keep_latest, remove_all, remove_runs
from statelog.adapters.langgraph.saver.write_groups import Gatherer
from statelog.adapters.langgraph.saver.write_sweep import sweep_after_retention
from statelog.adapters.langgraph.values.codec import ValueCodec
from statelog.adapters.langgraph.values.conn_string import ConnString
from statelog.adapters.langgraph.values.copies import CACHE_SIZE_BYTES, Decoded
from statelog.adapters.langgraph.values.frozen import Frozen
from statelog.adapters.langgraph.values.migration import Migration
from statelog.adapters.langgraph.values.names import (
    AT_HEAD,
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    CheckpointName,
    checkpoint_name,
    config_of,
    fork_name,
    line_name,
    place_of,
    served_by,
    thread_id_of,
)
from statelog.adapters.langgraph.values.own import Own, writes_state
from statelog.adapters.langgraph.values.renamed_nodes import Renaming
from statelog.adapters.langgraph.values.types import Types
from statelog.aio.bridge import Runner
from statelog.errors import CheckpointNotFoundError, ExpiredError, ThreadNotFoundError, UsageError
from statelog.store.session import session_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, CheckpointMetadata
    from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from statelog import Store
    from statelog.adapters.langgraph.values.copies import DecodedBy
    from statelog.adapters.langgraph.values.types import Upgrade
    from statelog.schema.versions import Versioned

_PAGE = 16
"""The number of checkpoints that `list` reads at a time."""

_new = tuple.__new__  # Creates a named tuple without calling its `__new__` in Python.

_LINEAGES_MAX = 1024
"""The maximum number of threads whose data a saver caches."""


_DURABILITY = "__pregel_durability"
"""The key of LangGraph's `durability` in a config, if the caller has given it."""


def _wait_for_remote(store: Store, config: RunnableConfig) -> None:
    """Wait until the writes would survive the loss of this machine, if a fleet is used with `durability="sync"`."""
    remote = session_of(store).owner.remote
    if remote is not None and config["configurable"].get(_DURABILITY) == "sync":
        remote.wait(store.last_lsn)


class StatelogSaver(AsyncCalls, ConnString, BaseCheckpointSaver[str]):
    """Stores LangGraph's checkpoints in a statelog store.

    OS threads, tasks and processes may share it. A thread of LangGraph is stored as a thread with the same id. Its
    checkpoints keep LangGraph's ids and metadata, and its channels become channels of the store. So `statelog history`,
    `show`, `diff`, `retain` and `verify` work on them. A commit writes only what is new: a list that has grown by one
    message costs one message.

    Attributes:
        store: the store.
    """

    def __init__(
        self,
        store: Store,
        serde: SerializerProtocol | None = None,
        *,
        conflict: Literal["fork", "raise"] = "fork",
        cache_size_bytes: int = CACHE_SIZE_BYTES,
        include_quarantined: bool = False,
        migrations: Versioned[Any, Any] | None = None,
        types: Mapping[str, Upgrade] | None = None,
        nodes: Mapping[str, str] | None = None,
    ) -> None:
        """Save to an open store.

        Args:
            store: the store. The caller closes it.
            serde: the serialiser. The default is LangGraph's. Values from an `EncryptedSerializer` are stored as they
                are: checkpoints share nothing, so each one costs the whole state.
            conflict: what to do with a checkpoint whose parent already has a successor, because two runs continue one
                checkpoint. "fork" begins a branch, as LangGraph expects. "raise" raises ConflictError, so that no run
                overwrites the work of another. Then `update_state` of an earlier checkpoint also raises ConflictError.
            cache_size_bytes: roughly the memory for decoded lists, which are not decoded again. A chat takes twice its
                size and 1 KB for each message. A chat that does not fit is decoded each time.
            include_quarantined: whether reads return texts that a check of the store's guard hides. If False, they
                return `[QUARANTINED by ...]` instead.
            types: classes that were moved, renamed or changed since their instances were stored. The key is the former
                `module:Class`. The value is the class, or a function that takes the stored fields as keywords and
                returns the object. A missing class that is not named here is read as a dict, with a LostTypeWarning.
            migrations: the schema of the graph's state with its steps, as `statelog.versioned` returns it. Checkpoints
                of older versions are read and continued as checkpoints of this version. Graphs that nodes call are not
                migrated. A checkpoint of a newer version raises SchemaVersionError.
            nodes: the former names of renamed nodes, with their present names. A thread that is paused at one of them
                continues at the present node. A run that would continue at a node which its graph does not have raises
                NodeNotFoundError.
        """
        asking.check_options(serde, conflict, cache_size_bytes)
        self._types = Types(types)
        self._renaming = None if nodes is None else Renaming(nodes)
        self._migration = None if migrations is None else Migration(migrations)
        super().__init__(serde=serde)
        asking.check_store(store)
        self.store = store
        self._engine = session_of(store).engine
        if types:
            self._types.loader(self.serde)  # This raises an error if the serialiser cannot use upgrades.
        self._conflict = conflict
        self._include_quarantined = include_quarantined
        self._codec_made = self._make_codec()
        self._frozen = Frozen()
        self._decoded = Decoded(cache_size_bytes)
        self._bases = Bases()
        self._gatherer: Gatherer[tasks.Pending] = Gatherer()
        self._lineages: dict[str, Lineage] = {}
        self._runner = Runner(str(store.path))
        self._begun = Begun()
        sweep_after_retention(store)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        conflict: Literal["fork", "raise"] = "fork",
        cache_size_bytes: int = CACHE_SIZE_BYTES,
        include_quarantined: bool = False,
        migrations: Versioned[Any, Any] | None = None,
        types: Mapping[str, Upgrade] | None = None,
        nodes: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Open a store, and return a saver for it. The end of its `with` block, or `close`, closes the store.

        Args:
            path: the path of the file, which is created if it does not exist.
            serde: see the class.
            conflict: see the class.
            cache_size_bytes: see the class.
            include_quarantined: see the class.
            migrations: see the class.
            types: see the class.
            nodes: see the class.
            options: as for `statelog.open`.
        """
        asking.check_options(serde, conflict, cache_size_bytes)
        make = partial(
            cls,
            serde=serde,
            conflict=conflict,
            cache_size_bytes=cache_size_bytes,
            include_quarantined=include_quarantined,
            migrations=migrations,
            types=types,
            nodes=nodes,
        )
        return cls._open(path, options, make)

    @property
    def _codec(self) -> ValueCodec:
        codec = self._codec_made
        if codec.serde is not self.serde or codec.proves is not codec.is_plain():
            codec = self._codec_made = self._make_codec()
        return codec

    def _make_codec(self) -> ValueCodec:
        guard = session_of(self.store).owner.guard
        return ValueCodec(
            self.serde,
            guard,
            include_quarantined=self._include_quarantined,
            types=self._types,
            renaming=self._renaming,
            migration=self._migration,
        )

    def _lineage(self, thread_id: str) -> Lineage:
        lineage = self._lineages.get(thread_id)
        if lineage is None:
            lineage = Lineage(self.store, thread_id)
            if len(self._lineages) >= _LINEAGES_MAX:
                self._lineages.clear()
            self._lineages[thread_id] = lineage
        return lineage

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """Return a version above `current`. It ends with a random number, so versions of two branches differ."""
        return f"{asking.number_of(current) + 1:032}.{random.getrandbits(40):010x}"

    # --- reading ----------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the latest one, with its pending writes, or None.

        Raises:
            UsageError: the config names no thread. ClosedError: the store was closed.
        """
        if self._begun.futures:
            self._begun.wait(config)
        found = self._get_tuple(config)
        if found is not None and any(map(LEADS, found.checkpoint["channel_values"])):
            check_paused(found, self._migration)
        if found is not None and may_be_functional(found):
            check_entrypoint(found, partial(self._task_paths, found.config))
        return found

    def _task_paths(self, config: RunnableConfig) -> set[str]:
        """Return the paths of the tasks that have written to a checkpoint."""
        place = place_of(config)
        with self.store.snapshot() as snapshot:
            rows = read_writes(writes_state(Lineage(snapshot, place.thread_id)), place)
        return {each.path for each in written(rows)}

    def _get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        asked = place_of(config)
        codec = self._codec
        decoded = self._decoded.by(codec)
        row = read_latest(self._engine, decoded, asked)
        if row is ...:
            row = self._read_latest_of_several(decoded, asked)
        if row is None:
            return None
        found = decode_row(codec, row, config if asked.id else None, decoded)
        return without_used_answer(config, found) if AT_HEAD in config["configurable"] else found

    def _read_latest_of_several(self, decoded: DecodedBy, asked: CheckpointName) -> CheckpointRow | None:
        with self.store.snapshot() as snapshot:
            lineage = Lineage(snapshot, asked.thread_id)
            latest = next(Ordered(lineage, asked.namespace).draw(lineage, 1), None)
            return None if latest is None else read_row(decoded, latest.checkpoint, latest.place, latest.pending)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, greatest id first within a thread.

        Args:
            config: names one thread, and may name a namespace or checkpoint. If it is None, all threads are listed.
            filter: keys of metadata with the values they must have, of any type. A bool does not equal a number. A key
                may be a path: `user.name` is `name` in the dict `user`.
            before: a config. Only checkpoints with ids below its id are listed.
            limit: the maximum number of checkpoints.

        Values and pending writes are decoded on first use. No transaction and no lock is held between checkpoints, so
        later checkpoints may show commits made during the listing.
        """
        self._begun.wait(config)
        yield from self._list(config, filter, before, limit)

    def _list(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        codec, below = self._codec, asking.id_before(before)
        asking.check_listing(filter, limit)
        if config is not None:
            places = iter([(place_of(config), config["configurable"].get("checkpoint_ns"))])
        else:
            places = ((CheckpointName(info.id, "", ""), None) for info in self.store.threads())
        decoded = self._decoded.by(codec)
        left = limit
        for place, namespace in places:
            for page in self._pages(codec, decoded, place, namespace, below, filter, left):
                left = None if left is None else left - len(page)
                decoded.expect(read for row in page for read in row.channels.values())
                for row in page:
                    yield list_row(codec, row, decoded)
            if left is not None and left <= 0:
                return

    def _pages(
        self,
        codec: ValueCodec,
        decoded: DecodedBy,
        place: CheckpointName,
        namespace: str | None,
        below: str,
        wanted: dict[str, Any] | None,
        limit: int | None,
    ) -> Iterator[Sequence[CheckpointRow]]:
        """Yield pages of at most `limit` stored checkpoints of one thread."""
        ordered: Ordered | None = None
        while limit is None or limit > 0:
            count = _PAGE if wanted or limit is None else min(limit, _PAGE)
            page: Sequence[CheckpointRow] = ()
            drawn = 0
            with self.store.snapshot() as snapshot:
                lineage = Lineage(snapshot, place.thread_id)
                if ordered is None:
                    ordered = Ordered(lineage, namespace, below)
                for found in ordered.draw(lineage, count):
                    drawn += 1
                    if not place.id or found.place.id == place.id:
                        row = read_row(decoded, found.checkpoint, found.place, found.pending)
                        if row is not None:
                            page = [*page, row]
            if wanted:
                page = [row for row in page if fits(row_metadata(codec, row), wanted)]
            page = page[:limit]
            limit = None if limit is None else limit - len(page)
            yield page
            if drawn < count:
                return

    # --- writing ----------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: LangGraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the durability of the store, and return the config that names it.

        With LangGraph's `durability="sync"` and a store opened by a fleet, it also survives the loss of this machine.
        Channels that are not in `new_versions` have the parent's values, by version.

        Raises:
            ValueTypeError: the serialiser refuses a value; the message names the channel.
            ConflictError: the parent has a successor, with conflict="raise" or in `resume_or_start`.
            ThreadDeletedError: the parent belonged to a thread that was deleted.
            UsageError, LimitError: an argument, name or size is invalid; the message names it.
        """
        asked = place_of(config)
        asking.check_put(checkpoint, metadata, new_versions)
        place = _new(CheckpointName, (asked.thread_id, asked.namespace, checkpoint["id"]))
        base = self._bases.get(asked)
        if base is not None:
            try:
                self._put(base, asked, place, config, checkpoint, metadata, new_versions, is_known=True)
            except (CheckpointNotFoundError, ExpiredError):  # The base has been removed.
                self._bases.forget(asked)
                base = None
        if base is None:
            base = PutBase.find(self._codec, self._lineage(asked.thread_id), asked)
            self._put(base, asked, place, config, checkpoint, metadata, new_versions, is_known=False)
        if self._engine.remote is not None:
            _wait_for_remote(self.store, config)
        return config_of(place, config["configurable"]["thread_id"])

    def _put(
        self,
        base: PutBase,
        asked: CheckpointName,
        place: CheckpointName,
        config: RunnableConfig,
        checkpoint: LangGraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        *,
        is_known: bool,
    ) -> None:
        """Put a checkpoint on a base. `is_known` is True if this saver has put the base and all its pending writes."""
        codec, lineage, bases = self._codec.of(place.thread_id), self._lineage(place.thread_id), self._bases
        changes = value_writes(codec, self._frozen, lineage, base, checkpoint, new_versions, place)
        latest = place.id if base.own is None else max(base.own.latest, place.id)
        own = _new(Own, (place.namespace, place.id, asked.id or None, latest))
        told = metadata_of(config, metadata)
        parents = metadata.get("parents")
        serves = served_by(place.namespace, parents) if place.namespace else None
        needs = changes.needs(base, told) if DELTAS in told else ()
        small, whole = codec.encode_metadata(told, place.thread_id, needs, serves)
        writes = changes.writes
        if whole is not None:
            writes.append(items.put(METADATA_CHANNEL, whole))
        elif METADATA_CHANNEL in base.channels:
            writes.append(items.remove(METADATA_CHANNEL))
        name = checkpoint_name(place.namespace, place.id)
        commit = partial(
            lineage.commit,
            [*writes, items.put_made(CHECKPOINT_CHANNEL, encode_kept(codec, own, checkpoint))],
            id=name,
            parent=base.checkpoint,
            line=line_name(place.namespace),
            fork=partial(fork_name, place.namespace, place.id),
            metadata=small,
            at_head=self._conflict == "raise"
            or (AT_HEAD in config["configurable"] and is_at_head(config, asked, metadata)),
            counts=partial(is_in_namespace, place.namespace),
            declared=None if codec.migration is None else codec.migration.version_of(place),
            similar=changes.similar(place) if changes.whole else None,
            follows=tasks.follows(asked, place, parents),
        )
        parts: Sequence[tasks.Pending] = ()
        try:
            with self._gatherer.taken(place.thread_id) as parts:
                before = tasks.with_checkpoint(lineage, bases, parts, name) if parts else None
                is_known = is_known and (len(parts) > 0 or not self._gatherer.is_busy(place.thread_id))
                twins = changes.twins(base, asked, place, bases, is_known=is_known, is_together=len(parts) > 0)
                made = commit(before=before, twins=twins)
        except tasks.REFUSED:  # The error may come from a pending write, so try the checkpoint alone.
            if not parts:
                raise
            made = commit(twins=changes.twins(base, asked, place, bases, is_known=False, is_together=False))
        next_base = base.after(changes, writes, made, checkpoint["channel_versions"], own, has_deltas=DELTAS in told)
        bases.keep(place, next_base)
        if changes.frozen:
            changes.remember(self._frozen, next_base)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's writes before the checkpoint that follows them. The checkpoint before them may be put later.

        If a task writes the same number twice, the first write is kept. An error, interrupt or resume is replaced. When
        this returns, the writes survive the end of the process. A power cut may lose the writes of the last
        `interval_ms` of the store, but none before the last checkpoint, error, interrupt or resume of any thread. So a
        superstep costs one flush.

        Raises:
            ValueTypeError: the serialiser refuses a value; the message names the channel.
            ThreadDeletedError: the checkpoint belonged to a thread that was deleted.
            UsageError: the config names no thread, or no checkpoint.
        """
        place = place_of(config)
        if not place.id:
            message = "a config for pending writes must have configurable.checkpoint_id"
            raise UsageError(message, argument="checkpoint_id", value=None)
        called = self._bases.called_by(place.thread_id, task_id)
        part = tasks.pending(self._codec.of(place.thread_id), place, writes, task_id, task_path, called)
        if part.together or part.others:
            make = partial(tasks.commit_pending, self._lineage(place.thread_id), self._bases)
            self._gatherer.commit(place.thread_id, part, make, is_followed=not part.others)
            if part.others and self._engine.remote is not None:  # Wait now, because there may be no later checkpoint.
                _wait_for_remote(self.store, config)
        else:
            asking.check_open(self.store)

    # --- removing and copying -----------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread if it exists. The next `put` without a parent creates a new thread with its id."""
        with suppress(ThreadNotFoundError):
            self.store.delete_thread(thread_id_of(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs in all threads, with their pending writes. Metadata has the run ids.

        Checkpoints that the DeltaChannels of other checkpoints need are hidden, but stay in the file.
        """
        wanted = frozenset(map(str, asking.several("run_ids", run_ids)))
        asking.check_open(self.store)
        for info in self.store.threads() if wanted else ():
            remove_runs(self.store, self._codec, info.id, wanted)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints and pending writes, in one commit whatever its length.

        Raises:
            ThreadNotFoundError: the source does not exist. AlreadyExistsError: the target exists.
        """
        self.store.copy_thread(thread_id_of(source_thread_id), thread_id_of(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints, and free their space.

        Checkpoints that the DeltaChannels of other checkpoints need are hidden, but stay in the file.

        Args:
            thread_ids: the ids of the threads. Missing ones are skipped.
            strategy: "keep_latest" keeps the latest checkpoint of each namespace; in the namespace of a called graph,
                only if the calling checkpoint is kept. "delete" keeps none. The thread itself stays and can be
                continued. A kept checkpoint has no parent, unless its DeltaChannels need its ancestors.
        """
        if strategy not in ("keep_latest", "delete"):
            message = f'strategy must be "keep_latest" or "delete", not {strategy!r}'
            raise UsageError(message, argument="strategy", value=strategy)
        asking.check_open(self.store)
        remove = remove_all if strategy == "delete" else keep_latest
        for thread_id in [thread_id_of(each) for each in asking.several("thread_ids", thread_ids)]:
            remove(self.store, self._codec, thread_id)

    # --- DeltaChannel ---------------------------------------------------------------------

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels before a checkpoint, since each channel was stored last. See the base class."""
        self._begun.wait(config)
        return self._delta_history(config, channels)

    def _delta_history(self, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        wanted, decoded = asking.several("channels", channels), self._decoded.by(self._codec)
        asking.check_open(self.store)
        return delta_history(self.store, decoded, place_of(config), wanted) if wanted else {}

    def get_delta_channel_keepset(self, *, config: RunnableConfig, channels: Sequence[str]) -> set[str]:
        """Return the ids of the checkpoints that are needed to read a checkpoint's DeltaChannels.

        These are the checkpoint itself, and its ancestors back to the last value of each channel. The set is empty if
        the checkpoint does not exist.
        """
        self._begun.wait(config)
        return self._delta_keepset(config, channels)

    def _delta_keepset(self, config: RunnableConfig, channels: Sequence[str]) -> set[str]:
        wanted = asking.several("channels", channels)
        asking.check_open(self.store)
        return keepset(self.store, place_of(config), wanted)
