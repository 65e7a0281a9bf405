"""Artifacts of ADK. Each artifact is stored as a thread, and its versions as versions of the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.genai import types

import statelog
from statelog import reducers
from statelog.adapters.kit import lives
from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.errors import CheckpointNotFoundError, ConflictError, ThreadDeletedError
from statelog.schema import Schema

if TYPE_CHECKING:
    import os
    from typing import Self

    from statelog import Checkpoint, Store, Thread
    from statelog.store.transaction import Transaction

PREFIX = "adk-artifacts"
PART, DATA, ABOUT = "part", "data", "metadata"
SCHEMA = Schema.of({PART: reducers.replace, DATA: reducers.replace, ABOUT: reducers.replace})
_OF_USER = "user:"


class StatelogArtifactService(BaseArtifactService):
    """ADK's artifact service on a store. Bytes are stored unchanged. Versions are numbered from 0.

    Args:
        store: an open store. The caller closes it. `StatelogArtifactService.open(path)` opens a store itself.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store for this service. Options are as for `statelog.open`."""
        return cls(statelog.open(path, **options))

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Store a new version of an artifact and return its number."""
        part = ensure_part(artifact)
        place = _ArtifactLocation(app_name, user_id, session_id, filename)
        return await run(self._save, place, part, Json.of(custom_metadata or {}))

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Return a version of an artifact, by default the last one. Return None if it does not exist."""
        found = await run(self._find, _ArtifactLocation(app_name, user_id, session_id, filename), version)
        return None if found is None else await run(_part_of, found)

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """Return the names of a user's artifacts, and of a session's artifacts if `session_id` is given."""

        def read() -> list[str]:
            names = {*_ArtifactLocation(app_name, user_id, None, "").directory.all(self.store)}
            if session_id is not None:
                names |= {*_ArtifactLocation(app_name, user_id, session_id, "").directory.all(self.store)}
            return sorted(names)

        return await run(read)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all its versions."""
        place = _ArtifactLocation(app_name, user_id, session_id, filename)

        def delete(tx: Transaction) -> None:
            lives.gone(tx, place.thread)
            place.directory.remove(tx, filename)

        await run(lives.transact, self.store, delete)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the version numbers of an artifact."""
        place = _ArtifactLocation(app_name, user_id, session_id, filename)
        return list(range(await run(lambda: self.store.thread(place.thread).version + 1)))

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return the metadata of an artifact's versions, oldest first."""
        place = _ArtifactLocation(app_name, user_id, session_id, filename)

        def read() -> list[ArtifactVersion]:
            thread = self.store.thread(place.thread, schema=SCHEMA)
            return [_version_of(made, place) for made in thread.history()][::-1]

        return await run(read)

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return the metadata of a version, by default the last one. Return None if it does not exist."""
        place = _ArtifactLocation(app_name, user_id, session_id, filename)

        def read() -> ArtifactVersion | None:
            found = self._find(place, version)
            return None if found is None else _version_of(found, place)

        return await run(read)

    def _save(self, place: _ArtifactLocation, part: types.Part, about: Json) -> int:
        data = part.inline_data.data if part.inline_data is not None else None
        if part.inline_data is not None and data is not None:
            part = part.model_copy(update={"inline_data": part.inline_data.model_copy(update={"data": None})})
        write = {PART: Json(part.model_dump_json(exclude_none=True)), DATA: data, ABOUT: about}
        while True:
            # Read the head first: inside the transaction, the new version's number is not known yet.
            head = self.store.thread(place.thread).head
            expected = -1 if head is None else head

            def commit(thread: Thread[Any, Any], expected: int | Checkpoint[Any] = expected) -> None:
                thread.commit(write, expected_version=expected)

            try:
                with self.store.transaction() as tx:
                    lives.write(tx, place.thread, SCHEMA, commit)
                    if place.directory.get(tx, place.filename) is None:
                        place.directory.put(tx, {place.filename: True})
            except (ConflictError, ThreadDeletedError):  # The head has changed: retry.
                continue
            return 0 if head is None else head.version + 1

    def _find(self, place: _ArtifactLocation, version: int | None) -> Checkpoint[Any] | None:
        thread = self.store.thread(place.thread, schema=SCHEMA)
        head = thread.head
        if head is None or version is None:
            return head
        try:
            return thread.at(version) if 0 <= version <= head.version else None
        except CheckpointNotFoundError:
            return None


class _ArtifactLocation:
    """Says where an artifact is stored: with its session, or with its user."""

    def __init__(self, app_name: str, user_id: str, session_id: str | None, filename: str) -> None:
        is_of_user = session_id is None or filename.startswith(_OF_USER)
        scope = (app_name, user_id) if is_of_user else (app_name, user_id, str(session_id))
        self.filename = filename
        self.thread = thread_id(PREFIX, *scope, filename) if is_of_user else thread_id(PREFIX, *scope, "s", filename)
        self.directory = Directory(thread_id(f"{PREFIX}-names", *scope))


def _part_of(made: Checkpoint[Any]) -> types.Part:
    part = types.Part.model_validate_json(made.state[PART].text)
    if part.inline_data is not None and made.state[DATA] is not None:
        part.inline_data.data = bytes(made.state[DATA])
    return part


def _version_of(made: Checkpoint[Any], place: _ArtifactLocation) -> ArtifactVersion:
    part = made.state[PART].value
    kind = part.get("inline_data") or part.get("inlineData") or {}
    return ArtifactVersion(
        version=made.version,
        canonical_uri=f"statelog:///{place.thread}?version={made.version}",
        custom_metadata=made.state[ABOUT].value,
        create_time=made.time.timestamp(),
        mime_type=kind.get("mime_type") or kind.get("mimeType") or ("text/plain" if part.get("text") else None),
    )
