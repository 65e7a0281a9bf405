"""What each event does to the index. Commits and rebuilds both come through here (L4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from statelog import kernels
from statelog.format import keys
from statelog.kernels import VersionEntry
from statelog.log.events import (
    MAIN,
    NONE_U32,
    CheckpointEvent,
    Event,
    ForkEvent,
    SchemaEvent,
    TagEvent,
    ThreadEvent,
)
from statelog.log.view import BranchRow, ThreadRow, View, encode_branch, encode_thread
from statelog.tree.node import is_shared_widely

if TYPE_CHECKING:
    from collections.abc import Iterable


class IndexWriter(Protocol):
    """Where index changes go."""

    view: View

    def get_index(self, key: bytes) -> bytes | None:
        """Return a payload."""

    def entry(self, thread: int, branch: int, version: int) -> VersionEntry:
        """Return a version's entry, which must exist."""

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Put a payload."""

    def delete_index(self, key: bytes) -> None:
        """Delete a key."""


def apply_event(index: IndexWriter, event: Event, lsn: int) -> None:
    """Bring the index up to date with one event."""
    if isinstance(event, CheckpointEvent):
        apply_checkpoint(index, event, _parent_entry(index.view, event))
    elif isinstance(event, ThreadEvent):
        index.put_index(keys.encode_thread_id_key(event.thread_id), keys.encode_lsn(lsn))
        index.put_index(keys.encode_thread_key(lsn), encode_thread(ThreadRow(lsn, event.thread_id, event.specs, 1)))
        _put_branch(index, lsn, BranchRow(0, MAIN, None, -1, lsn))
    elif isinstance(event, SchemaEvent):
        row = index.view.thread(event.thread)
        specs = {**row.specs, **event.specs}
        index.put_index(keys.encode_thread_key(event.thread), encode_thread(row._replace(specs=specs)))
    elif isinstance(event, ForkEvent):
        row = index.view.thread(event.thread)
        index.put_index(
            keys.encode_thread_key(event.thread), encode_thread(row._replace(branch_count=row.branch_count + 1))
        )
        branch = BranchRow(event.branch, event.name, event.parent_branch, event.base_version, lsn)
        _put_branch(index, event.thread, branch)
    else:
        _apply_tag(index, event)


def _apply_tag(index: IndexWriter, event: TagEvent) -> None:
    key = keys.encode_tag_key(event.thread, event.name)
    if event.target:
        index.put_index(key, keys.encode_lsn(event.target))
    else:
        index.delete_index(key)


def _put_branch(index: IndexWriter, thread: int, row: BranchRow) -> None:
    index.put_index(keys.encode_branch_name_key(thread, row.name), keys.encode_u32(row.number))
    index.put_index(keys.encode_branch_key(thread, row.number), encode_branch(row))


def _parent_entry(view: View, event: CheckpointEvent) -> VersionEntry | None:
    if event.parent_branch is None or event.parent_version is None:
        return None
    return view.require_entry(event.thread, event.parent_branch, event.parent_version)


def apply_checkpoint(
    index: IndexWriter, event: CheckpointEvent, parent: VersionEntry | None
) -> VersionEntry:
    """Enter a checkpoint; `parent` is the entry of its parent."""
    entry = make_entry(index, event, parent)
    key = keys.encode_page_key(event.thread, event.branch, event.version)
    page = index.get_index(key) or b""
    index.put_index(key, kernels.page_append(page, event.version, entry))
    if event.id is not None:
        index.put_index(keys.encode_checkpoint_id_key(event.thread, event.id), keys.encode_lsn(event.lsn))
    return entry


def make_entry(index: IndexWriter, event: CheckpointEvent, parent: VersionEntry | None) -> VersionEntry:
    """Return the version entry, its jump pointer as in a skew-binary list (Myers 1983)."""
    if parent is None or event.parent_branch is None or event.parent_version is None:
        return VersionEntry(event.lsn, event.time_us, NONE_U32, NONE_U32, NONE_U32, NONE_U32, 0, 0)
    jump = (event.parent_branch, event.parent_version, parent.depth)
    if parent.jump_branch != NONE_U32:
        far = index.entry(event.thread, parent.jump_branch, parent.jump_version)
        if parent.depth - parent.jump_depth == parent.jump_depth - far.jump_depth:
            jump = (
                (far.jump_branch, far.jump_version, far.jump_depth)
                if far.jump_branch != NONE_U32
                else (parent.jump_branch, parent.jump_version, parent.jump_depth)
            )
    return VersionEntry(
        event.lsn, event.time_us, event.parent_branch, event.parent_version, *jump[:2], parent.depth + 1, jump[2]
    )


def apply_nodes(index: IndexWriter, lsn: int, nodes: Iterable[tuple[int, bytes, int, int]]) -> None:
    """Enter the widely shared nodes of a record, given as (type, digest, content size, first byte) in order."""
    for number, (type_, digest, content_size, first_byte) in enumerate(nodes):
        if is_shared_widely(type_, content_size, first_byte):
            index.put_index(keys.encode_digest_key(digest), keys.encode_locator(lsn, number))


def node_facts(data: bytes | memoryview) -> list[tuple[int, bytes, int, int]]:
    """Return what `apply_nodes` takes, of a record."""
    return [
        (type_, digest, size, data[at] if size else 0)
        for type_, digest, at, size, _total in kernels.record_nodes(data)
    ]
