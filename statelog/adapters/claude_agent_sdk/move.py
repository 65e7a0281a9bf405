"""Transcripts that Claude Code keeps as JSONL files, copied into a store: a session with those of its subagents."""

from __future__ import annotations

import asyncio
import json
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
    from collections.abc import Iterator, Mapping, Sequence

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
        self.remarks: list[str] = []
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
            cut = _cut_files(file)
            found = asyncio.run(_read(key, file, cut))
        transcripts = {subpath: _Transcript.of(entries) for subpath, entries in found.items()}
        wanted = {subpath: transcript.text for subpath, transcript in transcripts.items()}

        def write(tx: Transaction) -> None:
            for subpath, (entries, _text) in transcripts.items():
                add_entries({**key, "subpath": subpath}, entries, of_all(entries), tx)

        is_new = copy_once(store, what, wanted, held=lambda within: read_transcripts(within, key) or None, write=write)
        self.remarks += [f"{each}: the last line was cut off while it was written, and is left out" for each in cut]
        return is_new


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


def _cut_files(file: Path) -> dict[Path, bytes]:
    """Return the transcripts of a session whose last line was cut off, each with its whole lines.

    Claude Code appends a line for each entry. If it is killed while it writes, the last line has no end.

    Raises:
        FormatError: another line is not a JSON object. It names the file and the line.

    """
    cut = {}
    for each in (file, *sorted((file.parent / file.stem).rglob(f"*{_SUFFIX}"))):
        text = each.read_bytes()
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            try:
                entry = json.loads(line) if line.strip() else {}
            except ValueError as error:
                if not line.endswith(b"\n"):
                    cut[each] = text[: -len(line)]
                    break
                message = f"{each}, line {number}, is not JSON: {error}"
                raise FormatError(message, source=str(each), line=number) from error
            if not isinstance(entry, dict):
                message = f"{each}, line {number}, is not a JSON object"
                raise FormatError(message, source=str(each), line=number)
    return cut


async def _read(key: SessionKey, file: Path, cut: Mapping[Path, bytes]) -> dict[str, list[SessionStoreEntry]]:
    """Return the entries of a session's transcripts by subpath. The subpath of the session's own transcript is ""."""
    store = InMemorySessionStore()
    with _alone(file, cut):
        await import_session_to_store(file.stem, store)
    subpaths = await store.list_subkeys({"project_key": key["project_key"], "session_id": key["session_id"]})
    found = {each: await store.load({**key, "subpath": each} if each else key) or [] for each in ("", *subpaths)}
    if not found[""]:
        message = f"{file} has no entry"
        raise FormatError(message, source=str(file))
    return found


@contextmanager
def _alone(file: Path, cut: Mapping[Path, bytes]) -> Iterator[None]:
    """Show the SDK a single session, because several projects may have one of its id.

    `cut` has the contents that the SDK reads in place of those files.
    """
    before = os.environ.get(_CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "projects", file.parent.name)
        project.mkdir(parents=True)
        below = file.parent / file.stem
        for each in (file, *(each for each in below.rglob("*") if each.is_file())):
            shown = project / each.relative_to(file.parent)
            shown.parent.mkdir(parents=True, exist_ok=True)
            if each in cut:
                shown.write_bytes(cut[each])
            else:
                shown.symlink_to(each)
        os.environ[_CONFIG] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_CONFIG]
            else:
                os.environ[_CONFIG] = before
