"""Copies checkpoints of Agent Framework's FileCheckpointStorage to a store. Each checkpoint becomes a version.

FileCheckpointStorage writes a checkpoint as JSON and pickles values that JSON cannot represent. Pickles are copied
unchanged: nothing is unpickled, and no module of the application is imported. Loading a checkpoint later checks its
types, as in FileCheckpointStorage.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent_framework import WorkflowCheckpoint

from statelog.adapters.agent_framework.checkpoints import channels_of, point, read_encoded, thread_of
from statelog.adapters.kit.migration import copy_once, reading
from statelog.adapters.kit.parts import add
from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from statelog import Store
    from statelog.store.transaction import Transaction

_SUFFIX = ".json"
_TEXTS = ("checkpoint_id", "workflow_name", "timestamp")


@contextmanager
def opened(path: Path) -> Iterator[_CheckpointFolder]:
    """Yield the checkpoints of a folder.

    Raises:
        FormatError: the folder has no readable checkpoint.
    """
    folder = _CheckpointFolder(path)
    if not folder.names():
        message = f"{path} is not a folder of Agent Framework checkpoints"
        raise FormatError(message, path=str(path))
    yield folder


class _CheckpointFolder:
    unit = "checkpoint"
    remarks = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        order: dict[str, tuple[str, str]] = {}
        unreadable = []
        for file in sorted(path.glob(f"*{_SUFFIX}")):
            id = file.name.removesuffix(_SUFFIX)
            try:
                encoded = self._read(id)
            except FormatError:  # `copy` raises this error again, and so reports it.
                unreadable.append(id)
            else:
                order[id] = encoded["workflow_name"], encoded["timestamp"]
        self._names = [*sorted(order, key=order.__getitem__), *unreadable] if order else []

    def names(self) -> Sequence[str]:
        """Return the checkpoint ids, sorted by workflow and time. The ids of unreadable files come last."""
        return self._names

    def copy(self, name: str, store: Store) -> bool:
        """Copy a checkpoint in one transaction, and compare the copy.

        See `statelog.adapters.kit.migration.MigrationSource`.
        """
        wanted = self._read(name)
        workflow_name, timestamp = wanted["workflow_name"], wanted["timestamp"]

        def write(tx: Transaction) -> None:
            version_id = point(name, workflow_name, timestamp, tx)
            add(tx, thread_of(workflow_name), channels_of(wanted), version_id=version_id)

        return copy_once(
            store, f"checkpoint {name!r}", wanted, held=lambda within: read_encoded(within, name), write=write
        )

    def _read(self, id: str) -> dict[str, Any]:
        """Return the encoded checkpoint `id`. Raises FormatError if its file is invalid."""
        file = self._path / f"{id}{_SUFFIX}"
        with reading(str(file)):
            encoded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            WorkflowCheckpoint.from_dict(encoded)  # The object is not needed, but `from_dict` checks the fields.
        odd = [name for name in _TEXTS if not isinstance(encoded.get(name), str)]
        if odd or encoded["checkpoint_id"] != id:
            message = f"{file} does not contain a checkpoint with that name"
            raise FormatError(message, source=str(file))
        return encoded
