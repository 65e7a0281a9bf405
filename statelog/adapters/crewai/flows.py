"""States of CrewAI's flows. Each flow is stored as a thread, and each saved state as a version."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel, Field, PrivateAttr

from statelog import Store, reducers
from statelog.adapters.crewai.stores import store_at
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json, read_value
from statelog.adapters.kit.parts import cut, join, put
from statelog.adapters.kit.thread_ids import thread_id
from statelog.errors import NotFoundError
from statelog.schema import Schema

if TYPE_CHECKING:
    import os

    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

PREFIX, PENDING_PREFIX = "crewai", "crewai-pending"
CONTEXT, STATE = "context", "state"
_TAG = "waiting"
_PENDING = Schema.of({CONTEXT: reducers.replace, STATE: reducers.replace})


class StatelogFlowPersistence(FlowPersistence):
    """CrewAI's `FlowPersistence` on a store. Every saved state is a version that stores only its changes.

    Args:
        store: an open store, or a path. A path is opened once in a process and stays open.
    """

    persistence_type: str = Field(default="StatelogFlowPersistence")
    path: str = Field(description="The store's path.")
    _store: Store | None = PrivateAttr(default=None)

    def __init__(self, store: Store | str | os.PathLike[str] | None = None, /, **fields: Any) -> None:
        path = fields.pop("path", None) if store is None else store.path if isinstance(store, Store) else Path(store)
        super().__init__(**fields if path is None else {**fields, "path": str(path)})
        self._store = store if isinstance(store, Store) else None

    def init_db(self) -> None:
        """Open the store."""
        _ = self.store

    @property
    def store(self) -> Store:
        """The store."""
        if self._store is None:
            self._store = store_at(self.path)
        return self._store

    # --- methods of CrewAI's interface ------------------------------------------------

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """Save a flow's state after a method. The version's metadata has the method's name.

        Raises:
            ValueError: the state is neither a dict nor a model.
            ValueTypeError: the state contains itself. Nothing was written.
        """
        self._save(flow_uuid, method_name, state_data, None)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return a flow's last state, or None."""
        head = self.store.thread(thread_id(PREFIX, flow_uuid)).head
        return None if head is None else join(head.state)

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Save a flow's state, and the question that the flow waits on, in one commit.

        The version is tagged, so that retention keeps it while the flow waits.
        """
        self._save(flow_uuid, context.method_name, state_data, context)
        keep_waiting(self.store, flow_uuid)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state and the question that a flow waits on, or None."""
        with self.store.snapshot() as snapshot:
            return read_pending(snapshot, flow_uuid)

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Delete the question that a flow waited on."""
        lives.gone(self.store, thread_id(PENDING_PREFIX, flow_uuid))
        with suppress(NotFoundError):
            self.store.thread(thread_id(PREFIX, flow_uuid)).untag(_TAG)

    # ----------------------------------------------------------------------------------

    def _save(self, flow_uuid: str, method_name: str, state_data: Any, context: PendingFeedbackContext | None) -> None:
        channels = cut(_dict_of(state_data), encode=encode)
        beside = None if context is None else partial(wait, flow_uuid=flow_uuid, question=encode_question(context))
        put(self.store, thread_id(PREFIX, flow_uuid), channels, beside, metadata={"method": method_name})


def encode(value: Any) -> Json:
    """Return a state, or a part of one, as the JSON that CrewAI's own persistence writes."""
    return Json.of(value, default=_default, allow_nan=True)


def encode_question(context: PendingFeedbackContext) -> Json:
    """Return a question as the JSON that `wait` stores."""
    return encode(context.to_dict())


def wait(tx: Transaction, flow_uuid: str, question: Json) -> str:
    """Store the question that a flow waits on. Return the id of the waiting version."""
    version_id = f"waiting-{uuid.uuid4().hex}"
    change = {CONTEXT: question, STATE: version_id}
    lives.write(tx, thread_id(PENDING_PREFIX, flow_uuid), _PENDING, lambda thread: thread.commit(change))
    return version_id


def keep_waiting(store: Store, flow_uuid: str) -> None:
    """Tag the waiting version of a flow, so that retention keeps it."""
    version_id = store.thread(thread_id(PENDING_PREFIX, flow_uuid), schema=_PENDING).state.get(STATE)
    if version_id is not None:  # It is None if another process has cleared the question.
        with suppress(NotFoundError):
            store.thread(thread_id(PREFIX, flow_uuid)).tag(_TAG, version_id)


def read_pending(within: Threads, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
    """Return the state and the question that a flow waits on, or None."""
    kept = within.thread(thread_id(PENDING_PREFIX, flow_uuid), schema=_PENDING).state
    context = read_value(kept, CONTEXT)
    if context is None:
        return None
    thread = within.thread(thread_id(PREFIX, flow_uuid))
    head = thread.head
    try:
        state = join(thread.at(kept[STATE]).state)
    except NotFoundError:  # The version was removed.
        state = None if head is None else join(head.state)
    return None if state is None else (state, PendingFeedbackContext.from_dict(context))


def _dict_of(state: Any) -> dict[str, Any]:
    if isinstance(state, BaseModel):
        state = state.model_dump(mode="json", fallback=_default)
    if not isinstance(state, dict):
        message = f"state_data must be either a Pydantic BaseModel or dict, got {type(state)}"
        raise ValueError(message)  # noqa: TRY004 - CrewAI's own class raises ValueError
    return {str(key): value for key, value in state.items()}


def _default(value: Any) -> Any:
    """Convert a value that JSON cannot represent to the form that CrewAI's own persistence writes."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", fallback=_default)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return value.isoformat() if isinstance(value, date) else str(value)
