"""Durable runs of agents. Model requests and tool calls are steps of `statelog.durable`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_ai import exceptions
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
)
from pydantic_ai.tools import AgentDepsT, RunContext

from statelog import aio
from statelog.adapters.kit.ordered import Json
from statelog.aio import durable
from statelog.aio.bridge import Runner
from statelog.durable.execution import in_step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from statelog import Store

_run: ContextVar[durable.EnteredRun | None] = ContextVar("statelog run of pydantic-ai", default=None)

_NO_CONFIG: RoleBasedOperationConfig[None] = RoleBasedOperationConfig(
    model=None, event=None, capability=None, tool=None
)


@dataclass(init=False)
class StatelogDurability(BaseDurabilityCapability[AgentDepsT]):
    """An agent's capability: inside `run`, the results of models and tools are recorded, and not requested again.

    Outside of `run`, the capability has no effect.

    Args:
        store: an open store. The caller closes it.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="statelog",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )
    _store: Store = field(repr=False)

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._awaited = aio.Store(Runner(str(store.path)), store)

    @asynccontextmanager
    async def run(self, id: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
        """Enter a run of `statelog.durable` for a block; see `statelog.aio.durable.entered`.

        Args:
            id: the id of the run. The same id always means the same run.
            wait_s: how long to wait while another process is in the run.

        Raises:
            ConflictError, NondeterminismError, RunEndedError, RunCancelledError, UsageError: as for `entered`.
        """
        async with durable.entered(
            self._awaited, id, name="pydantic-ai", raises=_exceptions(), wait_s=wait_s
        ) as entered:
            token = _run.set(entered)
            try:
                yield
            finally:
                _run.reset(token)

    @property
    def in_durable_context(self) -> bool:
        """Return True inside a run and outside of its steps."""
        return _run.get() is not None and not in_step.get()

    def get_durable_operation_backend(self) -> JournalCallableOperationBackend[None]:
        """Return the backend that records an agent's operations."""
        return _StepBackend(agent_name=self.name or "", default_model_id=self.default_model_id, config=_NO_CONFIG)


class _StepBackend(JournalCallableOperationBackend[None]):
    async def execute(
        self,
        *,
        operation_id: Any,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        """Call an operation once, as a step. Its result is stored as JSON with the order of keys.

        A tool call is recorded with its unique id.
        """
        entered = _run.get()
        if entered is None or in_step.get():
            return await body()
        context = next((each for each in cache_key if isinstance(each, RunContext)), None)
        call_id = None if context is None else context.tool_call_id

        async def call(call_id: str | None) -> Json:  # noqa: ARG001 - replay compares the arguments
            return Json.of(await body())

        kept: Json = await entered.step_with(durable.StepOptions(name=name), call, call_id)
        return kept.value


@cache
def _exceptions() -> tuple[type[Exception], ...]:
    """Return pydantic-ai's exception classes, so that replay raises a recorded exception as its original class."""
    found = [each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)]
    return tuple(found)
