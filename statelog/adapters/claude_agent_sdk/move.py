"""Copies Claude Code's transcripts (JSONL files) to a store. A session includes the transcripts of its subagents."""

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
from statelog.adapters.kit.migration import copy_once, reading
from statelog.adapters.kit.ordered import of_all
from statelog.adapters.kit.thread_ids import join_names
from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from claude_agent_sdk.types import SessionKey, SessionStoreEntry

    from statelog import Store
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

_CONFIG = "CLAUDE_CONFIG_DIR"
"""The environment variable that tells Claude Code and the SDK where the folder `projects` is."""

_SUFFIX = ".jsonl"


@contextmanager
def opened(path: Path) -> Iterator[_Projects]:
    """Yield the sessions of Claude Code's folder `projects`, or of one project's folder in it.

    Raises:
        FormatError: the folder has no session.
    """
    files = sorted(_sessions_in(path), key=lambda file: file.stat().st_mtime)
    if not files:
        message = (
            f"{path} is not a projects folder of Claude Code: none of its folders has a transcript that is named"
            " by a session id"
        )
        raise FormatError(message, path=str(path))
    yield _Projects(files)


def _sessions_in(path: Path) -> Iterator[Path]:
    """Yield the transcript file of each session, such as `projects/PROJECT/SESSION.jsonl`."""
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
        """Return the sessions as `project/id`, the most recently changed session last."""
        return list(self._files)

    def copy(self, name: str, store: Store) -> bool:
        """Copy a session with its subagents' transcripts in one transaction, and compare the copy.

        See `statelog.adapters.kit.migration.MigrationSource`.
        """
        file = self._files[name]
        key: SessionKey = {"project_key": file.parent.name, "session_id": file.stem}
        what = f"session {name!r}"
        with reading(what):
            cut = _cut_files(file)
            found = asyncio.run(_read(key, file, cut))
        entries = {subpath: _kept(each) for subpath, each in found.items()}
        wanted = {subpath: _Transcript.of(_array(each)) for subpath, each in entries.items()}
        before: dict[str, _Transcript] = {}

        def held(within: Threads) -> dict[str, _Transcript] | None:
            texts = read_transcripts(within, key)
            return {subpath: _Transcript.of(text) for subpath, text in texts.items()} or None

        def write(tx: Transaction) -> None:
            before.clear()
            before.update(held(tx) or {})
            for subpath, each in entries.items():
                rest = each if subpath not in before else before[subpath].rest_of(each)
                if rest:
                    add_entries({**key, "subpath": subpath}, rest, of_all(rest), tx)

        def is_beginning(there: Mapping[str, _Transcript]) -> bool:
            return all(subpath in wanted and each.begins(wanted[subpath]) for subpath, each in there.items())

        is_new = copy_once(store, what, wanted, held=held, write=write, is_beginning=is_beginning)
        if before:
            self.remarks.append(f"{what} has grown since it was imported: its new entries are added")
        self.remarks += [f"{each}: skipped the last line, which was cut off while it was being written" for each in cut]
        return is_new


class _Transcript(NamedTuple):
    """The parts of a transcript that are compared.

    The SDK imports a subagent's metadata after its entries. So entries that were imported later follow the metadata in
    the store.

    Attributes:
        entries: the entries except metadata, as a JSON array.
        metadata: the last metadata entry, as a JSON array.
    """

    entries: str
    metadata: str

    @classmethod
    def of(cls, text: str) -> _Transcript:
        """Return the parts to compare from a JSON array of entries."""
        if f'"{_METADATA}"' not in text:
            return cls(text, "[]")
        entries = json.loads(text)
        return cls(_array(_without_metadata(entries)), _array(_metadata_of(entries)))

    def begins(self, other: _Transcript) -> bool:
        """Return True if `other` begins with these entries, and has metadata if this transcript has metadata."""
        start = self.entries.removesuffix("]")
        is_first = start == "[" or other.entries.startswith((f"{start},", f"{start}]"))
        return is_first and (other.metadata != "[]" or self.metadata == "[]")

    def rest_of(self, entries: list[SessionStoreEntry]) -> list[SessionStoreEntry]:
        """Return the rest of `entries` after this transcript's entries, and the last metadata entry if it differs."""
        rest = _without_metadata(entries)[len(json.loads(self.entries)) :]
        metadata = _metadata_of(entries)
        return rest if _array(metadata) == self.metadata else [*rest, *metadata]


_METADATA = "agent_metadata"


def _without_metadata(entries: Sequence[SessionStoreEntry]) -> list[SessionStoreEntry]:
    return [each for each in entries if each.get("type") != _METADATA]


def _metadata_of(entries: Sequence[SessionStoreEntry]) -> list[SessionStoreEntry]:
    return [each for each in entries if each.get("type") == _METADATA][-1:]


def _array(entries: Sequence[SessionStoreEntry]) -> str:
    return f"[{','.join(each.text for each in of_all(entries))}]"


def _kept(entries: Sequence[SessionStoreEntry]) -> list[SessionStoreEntry]:
    """Return the entries that a store keeps: the first entry of each uuid, and all entries without a uuid."""
    seen: set[str] = set()
    kept = []
    for entry in entries:
        id = entry.get("uuid")
        if id is None or id not in seen:
            kept.append(entry)
        if id is not None:
            seen.add(id)
    return kept


def _cut_files(file: Path) -> dict[Path, bytes]:
    """Return the session's transcripts whose last line is incomplete, each with its complete lines.

    Claude Code appends a line for each entry. If it is killed during a write, the last line is incomplete. As in
    the SDK, only `subagents` is read in the session's folder, because tools keep other files beside it.

    Raises:
        FormatError: a complete line is not a JSON object, or the session has no complete line. The error names the file
            and the line.
    """
    cut = {}
    for each in (file, *sorted((file.parent / file.stem / "subagents").rglob(f"*{_SUFFIX}"))):
        text = each.read_bytes()
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            try:
                entry = json.loads(line) if line.rstrip(b"\r\n") else {}
            except ValueError as error:
                if not line.endswith(b"\n"):
                    cut[each] = text[: -len(line)]
                    break
                message = f"{each}, line {number}, is not JSON: {error}"
                raise FormatError(message, source=str(each), line=number) from error
            if not isinstance(entry, dict):
                message = f"{each}, line {number}, is not a JSON object"
                raise FormatError(message, source=str(each), line=number)
    if file in cut and not cut[file].strip():
        message = f"{file} has no entries: line 1 was cut off while it was being written"
        raise FormatError(message, source=str(file), line=1)
    return cut


async def _read(key: SessionKey, file: Path, cut: Mapping[Path, bytes]) -> dict[str, list[SessionStoreEntry]]:
    """Return the entries of a session's transcripts, keyed by subpath. The session's own transcript has the key ""."""
    store = InMemorySessionStore()
    with _alone(file, cut):
        await import_session_to_store(file.stem, store)
    subpaths = await store.list_subkeys({"project_key": key["project_key"], "session_id": key["session_id"]})
    found = {each: await store.load({**key, "subpath": each} if each else key) or [] for each in ("", *subpaths)}
    if not found[""]:
        message = f"{file} has no entries"
        raise FormatError(message, source=str(file))
    return found


@contextmanager
def _alone(file: Path, cut: Mapping[Path, bytes]) -> Iterator[None]:
    """Show only this session to the SDK, because several projects may have a session with the same id.

    `cut` maps each file whose last line is incomplete to the contents that the SDK reads instead.
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
