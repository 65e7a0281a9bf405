"""The saver's async methods, which run on its own OS threads. A read sees the writes begun before it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.adapters.langgraph.saver.paused_nodes import LEADS, check_entrypoint, check_paused, may_be_functional
from statelog.aio.bridge import Runner, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, CheckpointMetadata, CheckpointTuple, DeltaChannelHistory
    from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint

    from statelog.adapters.langgraph.values.migration import Migration

T = TypeVar("T")


class Begun:
    """Remembers the writes that are running on the pool. A cancelled task does not wait for its writes, so reads do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.futures: dict[Future[Any], str | None] = {}
        self._local = threading.local()

    def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a write. On this OS thread, `wait` does not wait until it ends.

        The `put` of a subclass may read. Two such writes would otherwise wait for each other, or one for itself.
        """
        self._local.is_writing = True
        try:
            return function(*args, **kwargs)
        finally:
            self._local.is_writing = False

    def note(self, future: Future[Any], thread_id: str | None) -> None:
        """Remember a write that has begun. `thread_id` is None if the write may change any thread."""
        with self._lock:
            self.futures[future] = thread_id
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self.futures.pop(future, None)

    def before(self, config: RunnableConfig | None) -> list[Future[Any]]:
        """Return the writes that a read with a config must see. If the config is None, all threads are read."""
        if not self.futures:
            return []
        wanted = _thread_id(config)
        with self._lock:
            return [
                each for each, thread_id in self.futures.items() if None in (wanted, thread_id) or thread_id == wanted
            ]

    def wait(self, config: RunnableConfig | None) -> None:
        """Wait for the writes that a read with a config must see, unless a write makes this read."""
        if not getattr(self._local, "is_writing", False):
            wait(self.before(config))


def _thread_id(config: Any) -> str | None:
    """Return the thread id in a config, or None. The called method reports a missing id."""
    try:
        return str(config["configurable"]["thread_id"])
    except (KeyError, TypeError):
        return None


class AsyncCalls:
    """The async methods of a saver."""

    _runner: Runner
    _begun: Begun
    _migration: Migration | None

    if TYPE_CHECKING:  # The saver has these attributes.
        put: Callable[..., RunnableConfig]
        put_writes: Callable[..., None]
        delete_thread: Callable[..., None]
        delete_for_runs: Callable[..., None]
        copy_thread: Callable[..., None]
        prune: Callable[..., None]
        _get_tuple: Callable[..., CheckpointTuple | None]
        _task_paths: Callable[..., set[str]]
        _list: Callable[..., Iterator[CheckpointTuple]]
        _delta_history: Callable[..., Mapping[str, DeltaChannelHistory]]
        _delta_keepset: Callable[..., set[str]]

    async def _read(self, config: RunnableConfig, function: Callable[..., T], *args: Any) -> T:
        await _ended(self._begun.before(config))
        return await self._runner.run(function, *args)

    async def _write(self, thread_id: str | None, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        future = self._runner.submit(self._begun.run, function, *args, **kwargs)
        self._begun.note(future, thread_id)
        return await asyncio.wrap_future(future)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        found = await self._read(config, self._get_tuple, config)
        if found is not None and any(map(LEADS, found.checkpoint["channel_values"])):
            check_paused(found, self._migration)
        if found is not None and may_be_functional(found):
            check_entrypoint(found, partial(self._task_paths, found.config))
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`."""
        await _ended(self._begun.before(config))
        async for found in stream(self._runner, lambda: self._list(config, filter, before, limit)):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: LangGraphCheckpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `put`."""
        return await self._write(_thread_id(config), self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """See `put_writes`."""
        await self._write(_thread_id(config), self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await self._write(None, self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await self._write(None, self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await self._write(None, self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await self._write(None, self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `get_delta_channel_history`."""
        return await self._read(config, self._delta_history, config, channels)

    async def aget_delta_channel_keepset(self, *, config: RunnableConfig, channels: Sequence[str]) -> set[str]:
        """See `get_delta_channel_keepset`."""
        return await self._read(config, self._delta_keepset, config, channels)


async def _ended(futures: Iterable[Future[Any]]) -> None:
    """Wait until the calls of `futures` are done. Ignore their errors, which each caller gets."""
    waiting = [asyncio.wrap_future(each) for each in futures]
    if waiting:
        await asyncio.gather(*map(asyncio.shield, waiting), return_exceptions=True)
