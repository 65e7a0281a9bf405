"""Copies flows of CrewAI's SQLiteFlowPersistence to a store. Each saved state becomes a version."""

from __future__ import annotations

import json
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

from statelog.adapters.crewai.flows import PREFIX, encode, encode_question, read_pending, wait
from statelog.adapters.kit.databases import copied
from statelog.adapters.kit.migration import copy_once, reading
from statelog.adapters.kit.parts import add, cut, join
from statelog.adapters.kit.thread_ids import thread_id
from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from statelog import Store
    from statelog.adapters.kit.databases import DatabaseCopy
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

_Pending = tuple[dict[str, Any], PendingFeedbackContext]

_FLOWS = "SELECT flow_uuid FROM flow_states UNION SELECT flow_uuid FROM pending_feedback ORDER BY flow_uuid"
_STATES = "SELECT method_name, state_json FROM flow_states WHERE flow_uuid = ? ORDER BY id"
"""A query for all states of a flow, because CrewAI's class returns only the last one."""


@contextmanager
def opened(path: Path) -> Iterator[_FlowDatabase]:
    """Yield the flows of a database, from a consistent copy. The file is not written to.

    Raises:
        FormatError: the file is not a database of CrewAI's flows.
    """
    with copied(path, "CrewAI's flows", "flow_states", "pending_feedback") as database:
        yield _FlowDatabase(database, [id for (id,) in database.rows(_FLOWS)])


class _Flow(NamedTuple):
    """The parts of a flow that are compared: texts and digests, because a NaN in a state is not equal to itself."""

    saved: list[tuple[str | None, bytes]]
    """For each state, the method that saved it and a digest. The states themselves may not fit in memory."""
    last: bytes
    pending: tuple[bytes, str] | None
    """The digest of the state with which the flow waits, and the question; or None if it does not wait."""

    @classmethod
    def of(cls, saved: list[tuple[str | None, bytes]], last: dict[str, Any] | None, pending: _Pending | None) -> _Flow:
        asked = None if pending is None else (_digest(pending[0]), encode_question(pending[1]).text)
        return cls(saved, _digest(last), asked)


class _FlowDatabase:
    unit = "flow"
    remarks = ()

    def __init__(self, database: DatabaseCopy, names: Sequence[str]) -> None:
        self._database = database
        self._names = names
        self._persistence = SQLiteFlowPersistence(str(database.path))

    def names(self) -> Sequence[str]:
        """Return the ids of the flows."""
        return self._names

    def copy(self, name: str, store: Store) -> bool:
        """Copy a flow in one transaction, and compare the copy.

        See `statelog.adapters.kit.migration.MigrationSource`.
        """
        what = f"flow {name!r}"
        with reading(what):
            saved: list[tuple[str | None, bytes]] = [(method, _digest(state)) for method, state in self._states(name)]
            pending = self._persistence.load_pending_feedback(name)
            wanted = _Flow.of(saved, self._persistence.load_state(name), pending)
        at = _waiting_at(what, wanted)
        id = thread_id(PREFIX, name)

        def write(tx: Transaction) -> None:
            for number, (method, state) in enumerate(self._states(name)):
                version_id = None
                if pending is not None and number == at:
                    version_id = wait(tx, name, encode_question(pending[1]))
                add(tx, id, cut(state, encode=encode), version_id=version_id, metadata={"method": method})

        return copy_once(store, what, wanted, held=lambda within: _held(within, name), write=write)

    def _states(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for method, text in self._database.rows(_STATES, name):
            state = json.loads(text)
            if not isinstance(state, dict):
                message = f"a state of flow {name!r} is not a dict"
                raise FormatError(message, flow=name)
            yield method, state


def _waiting_at(what: str, flow: _Flow) -> int | None:
    """Return the index of the state in which a flow waits, or None if it does not wait."""
    if flow.pending is None:
        return None
    waiting, _question = flow.pending
    found = [number for number, (_method, digest) in enumerate(flow.saved) if digest == waiting]
    if not found:
        message = f"{what} is waiting in a state that was never saved"
        raise FormatError(message, source=what)
    return found[-1]


def _held(within: Threads, name: str) -> _Flow | None:
    thread = within.thread(thread_id(PREFIX, name))
    head = thread.head
    if head is None:
        return None
    saved = [(made.metadata.get("method"), _digest(join(made.state))) for made in thread.history()]
    return _Flow.of(saved[::-1], join(head.state), read_pending(within, name))


def _digest(state: dict[str, Any] | None) -> bytes:
    return blake2b(json.dumps(state).encode()).digest()
