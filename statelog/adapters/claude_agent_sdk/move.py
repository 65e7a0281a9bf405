"""Transcripts that Claude Code keeps as JSONL files, copied into a store: a session with those of its subagents."""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from claude_agent_sdk import InMemorySessionStore, import_session_to_store

from statelog.adapters.claude_agent_sdk.sessions import add_entries, read_transcripts
from statelog.adapters.kit.moving import copy_once, reading
from statelog.adapters.kit.naming import join_names
from statelog.adapters.kit.ordered import of_all
from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from claude_agent_sdk.types import SessionKey, SessionStoreEntry

    from statelog import Store
    from statelog.store.transaction import Transaction

_CONFIG = "CLAUDE_CONFIG_DIR"
"""The variable by which the SDK, as Claude Code, is told where the folder `projects` stands."""

_SUFFIX = ".jsonl"


@contextmanager
def opened(path: Path) -> Iterator[_Projects]:
    """Yield what a folder holds: Claude Code's `projects`, or one folder of it.

    Raises:
        FormatError: it holds no session.

    """
    files = sorted(_sessions_in(path), key=lambda file: file.stat().st_mtime)
    if not files:
        message = (
            f"{path} is no folder of Claude Code's projects: it holds no folder with transcripts named by a session"
        )
        raise FormatError(message, path=str(path))
    yield _Projects(files)


def _sessions_in(path: Path) -> Iterator[Path]:
    """Yield the files of sessions, as `projects/PROJECT/SESSION.jsonl`."""
    for folder in (path, *(each for each in path.glob("*") if each.is_dir())):
        for file in folder.glob(f"*{_SUFFIX}"):
            if _is_session_id(file.stem) and file.stat().st_size > 0:
                yield file.absolute()


def _is_session_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


class _Projects:
    unit = "session"

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = {join_names(file.parent.name, file.stem): file for file in files}

    def names(self) -> Sequence[str]:
        """Return projects and ids of sessions, as `project/id`: what was changed last comes last."""
        return list(self._files)

    def copy(self, name: str, store: Store) -> bool:
        """Copy a session with its subagents' transcripts in one transaction, and compare.

        See `statelog.adapters.kit.moving.Source`.
        """
        file = self._files[name]
        key: SessionKey = {"project_key": file.parent.name, "session_id": file.stem}
        what = f"session {name!r}"
        with reading(what):
            found = asyncio.run(_read(key, file))
        transcripts = {subpath: _Transcript.of(entries) for subpath, entries in found.items()}
        wanted = {subpath: transcript.text for subpath, transcript in transcripts.items()}

        def write(tx: Transaction) -> None:
            for subpath, (entries, _text) in transcripts.items():
                add_entries({**key, "subpath": subpath}, entries, of_all(entries), tx)

        return copy_once(store, what, wanted, held=lambda within: read_transcripts(within, key) or None, write=write)


class _Transcript(NamedTuple):
    entries: list[SessionStoreEntry]
    text: str

    @classmethod
    def of(cls, entries: Sequence[SessionStoreEntry]) -> _Transcript:
        """Return what a store keeps of entries: of those with one uuid the first."""
        seen: set[str] = set()
        kept = []
        for entry in entries:
            id = entry.get("uuid")
            if id is None or id not in seen:
                kept.append(entry)
            if id is not None:
                seen.add(id)
        return cls(kept, f"[{','.join(each.text for each in of_all(kept))}]")


async def _read(key: SessionKey, file: Path) -> dict[str, list[SessionStoreEntry]]:
    """Return the entries of a session's transcripts by subpath; "" is its own."""
    store = InMemorySessionStore()
    with _alone(file.parent):
        await import_session_to_store(file.stem, store)
    subpaths = await store.list_subkeys({"project_key": key["project_key"], "session_id": key["session_id"]})
    found = {each: await store.load({**key, "subpath": each} if each else key) or [] for each in ("", *subpaths)}
    if not found[""]:
        message = f"{file} has no entry"
        raise FormatError(message, source=str(file))
    if not all(isinstance(entry, dict) for entries in found.values() for entry in entries):
        message = f"an entry in {file} is no object"
        raise FormatError(message, source=str(file))
    return found


@contextmanager
def _alone(project: Path) -> Iterator[None]:
    """Have the SDK see one project alone: a session's id may stand in several."""
    before = os.environ.get(_CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "projects").mkdir()
        (Path(folder) / "projects" / project.name).symlink_to(project, target_is_directory=True)
        os.environ[_CONFIG] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_CONFIG]
            else:
                os.environ[_CONFIG] = before
