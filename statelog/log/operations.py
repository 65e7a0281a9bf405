"""The operations that append to the log. Each one first checks everything, and then stages its records in a batch."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.errors import (
    AlreadyExistsError,
    ConflictError,
    LimitError,
    ReducerTypeError,
    SchemaVersionError,
    StatelogError,
    ThreadDeletedError,
    UsageError,
    ValueTypeError,
)
from statelog.format import cbor
from statelog.format.record import NO_NODES, TYPE_CHECKPOINT, TYPE_ROLLBACK, pack_nodes, part_digest
from statelog.limits import METADATA_SIZE_BYTES_MAX, POLICIES_MAX, VERSIONS_MAX
from statelog.log.batch import Head
from statelog.log.care.loans import gives_back
from statelog.log.care.policies import is_one_thread, policy_of_new_thread, says_already, stored_pattern, with_policy
from statelog.log.events import (
    NOTHING_BORROWED,
    NOTHING_WRITTEN,
    SCHEMA_KEY_ITEM,
    CheckpointEvent,
    DeleteEvent,
    ForkEvent,
    PolicyEvent,
    SchemaEvent,
    TagEvent,
    ThreadEvent,
    encode_checkpoint,
    parse_default_id,
    schema_version,
)
from statelog.log.index import apply_checkpoint, apply_nodes, facts_of
from statelog.log.kinds.entries import OWN_IDS
from statelog.log.kinds.table import stage_event, stage_names
from statelog.log.names import OWN_CHANNELS, channel_key, check_name
from statelog.log.step import Line, PreparedWrite, take_rollback, take_step
from statelog.tree import mapping
from statelog.tree.node import ROOT, Node, ValueSlot
from statelog.tree.value import add_root, container_head, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.format.record import Nodes
    from statelog.guard.hook import Redactor
    from statelog.log.batch import Batch, Jump
    from statelog.tree.node import Workspace

METADATA = "metadata"
"""The first name in the path of a metadata value, as guards see it."""

_new = tuple.__new__
"""Constructs a named tuple without calling its `__new__`, which is a slower Python function."""


class Seen(NamedTuple):
    """A checkpoint that a caller expects to be the head. It never matches a re-created thread, whose LSN differs."""

    thread: int
    branch: int
    version: int


def deleted_error(thread_id: str) -> ThreadDeletedError:
    """Return the error for a thread that was deleted."""
    message = f"thread {thread_id!r} was deleted"
    return ThreadDeletedError(message, thread=thread_id)


def delete_thread(batch: Batch, thread: int, thread_id: str) -> None:
    """Stage the deletion of a thread, and the removal events that list its records (R2).

    Its id stays marked as deleted.
    """
    stage_event(batch, DeleteEvent(thread, part_digest(thread_id.encode()), gives_back(batch.view, thread) or None))
    stage_names(batch, thread)
    batch.forget_threads()


def set_policy(batch: Batch, thread: int, policy: dict[str, Any]) -> None:
    """Stage a thread's retention policy. An empty policy removes it."""
    stage_event(batch, PolicyEvent(thread, policy))


def set_store_policy(batch: Batch, pattern: str, policy: dict[str, Any]) -> None:
    """Stage a policy for future threads, unless it changes nothing. An empty policy keeps all versions.

    Raises:
        LimitError: the store has too many policies.
    """
    view = batch.view
    if is_one_thread(pattern) and (view.thread_lsn(pattern) is not None or view.is_deleted(pattern)):
        return
    stored = stored_pattern(pattern)
    rows = view.policies()
    if says_already(rows, stored, policy):
        return
    count = len(with_policy(rows, stored, policy))
    if count > POLICIES_MAX:
        message = f"{count} patterns have a policy for future threads; at most {POLICIES_MAX} are allowed"
        raise LimitError(message, actual=count, limit=POLICIES_MAX)
    stage_event(batch, PolicyEvent(0, policy, stored))


def create_thread(batch: Batch, thread_id: str, specs: dict[str, str], *, anew: bool = False) -> int:
    """Stage the beginning of a thread, and the store's policy for its id. Return the thread's LSN.

    Args:
        batch: the batch.
        thread_id: an id that no thread has.
        specs: the reducer of each channel, by the channel's name.
        anew: begin the thread even if a thread with this id was deleted.

    Raises:
        ThreadDeletedError: a thread with this id was deleted, and `anew` is False.
    """
    is_anew = batch.view.is_deleted(thread_id)
    if is_anew and not anew:
        raise deleted_error(thread_id)
    policy = {} if thread_id in OWN_IDS else policy_of_new_thread(batch.view.policies(), thread_id)
    lsn = stage_event(batch, ThreadEvent(thread_id, specs, is_anew or None))
    if policy:
        set_policy(batch, lsn, policy)
    return lsn


def extend_schema(batch: Batch, thread: int, specs: dict[str, str]) -> None:
    """Stage the addition of channels to a thread's schema."""
    stage_event(batch, SchemaEvent(thread, specs))
    batch.forget_threads()


def parent_links(batch: Batch, thread: int, branch: int, version: int, parent: Head | None) -> Line:
    """Return the first fields of the event of a child of `parent`, with the parent link, jump pointer and depths.

    Jump pointers are those of a skew-binary list (Myers 1983): the jump of a checkpoint leads to its parent, or to the
    jump target of the parent's jump target. If retention has removed a checkpoint that is needed to find the jump
    target, the jump leads to the parent, because any ancestor is correct.

    In a thread with one branch, the version grows by as much as the depth from each checkpoint to the next, or by more
    after a rollback. So if the version of a checkpoint equals its depth, the same is true of all its ancestors.

    Raises:
        LimitError: too many versions.
    """
    if version > VERSIONS_MAX:
        message = f"a branch can have at most {VERSIONS_MAX} versions"
        raise LimitError(message, actual=version, limit=VERSIONS_MAX)
    if parent is None:
        return thread, branch, version, None, None, None, None, None, 0, 0
    event = parent.event
    parent_branch, parent_version, parent_depth = event.branch, event.version, event.depth
    jump: Jump = (parent_branch, parent_version, parent_depth)
    depth = parent_depth + 1
    jump_depth = kernels.jump_depth(depth)
    row = None if batch.index else batch.memory.rows.get(thread)
    has_one_branch = batch.has_one_branch(thread) if row is None else row.branch_count == 1
    jump_branch, jump_version = event.jump_branch, event.jump_version
    if jump_depth < parent_depth and jump_branch is not None and jump_version is not None:
        if has_one_branch and jump_version == event.jump_depth:
            jump = (jump_branch, jump_depth, jump_depth)
        else:
            far = batch.jump(thread, jump_branch, jump_version)
            if far is not None and far[0] is not None and far[2] == jump_depth:
                jump = far
    return (
        thread, branch, version, parent_branch, parent_version, parent.digest, jump[0], jump[1], depth, jump[2]
    )  # fmt: skip


def commit(  # noqa: C901, PLR0912 - it has the step and the general path
    batch: Batch,
    thread_id: str,
    thread: int,
    branch: int,
    writes: Sequence[PreparedWrite],
    *,
    metadata: bytes,
    written: bytes,
    expected_version: int | Seen | None,
    checkpoint_id: str | None,
    known: Sequence[tuple[bytes, int, int]] = (),
    parts: Sequence[tuple[bytes, int, int]] = (),
    is_guarded: bool = False,
    declared: int | None = None,
) -> Head:
    """Stage a checkpoint: the channels of the head, merged with the writes in order.

    `known`: leaves of the thread, as (digest, LSN, number). A write that contains such a leaf refers to it. `parts`:
    nodes of any type, used like `known`. A commit with `parts` cannot be a step. `is_guarded`: whether the writes and
    the metadata have already passed the guard. `declared`: the schema version of the merged state. None keeps the
    head's version. A caller that does not use schema versions passes 1.

    Raises:
        SchemaVersionError: `declared` is 1, the head has a newer version, and a write is to a user's channel.
        ConflictError: the head is not at `expected_version` (-1 for no checkpoint yet), or is not the expected
            checkpoint.
        AlreadyExistsError: the id is taken in this thread.
        ReducerTypeError: a write does not fit the channel's value.
    """
    if batch.guard is not None and not is_guarded:
        writes, metadata = guarded(batch.guard, thread_id, writes, metadata)
    head = batch.head(thread, branch)
    if head is None and not batch.view.is_alive(thread):
        raise deleted_error(thread_id)
    if (declared or 1) > 1 or (head is not None and SCHEMA_KEY_ITEM in head.event.metadata):
        metadata = _with_version(metadata, head, declared, thread_id, writes)
    # If the base version of the branch has expired, there is no head, but the branch still has a version number.
    version = head.event.version if head else batch.view.head_version(thread, branch)
    if not (expected_version is None and checkpoint_id is None):
        check_version(thread_id, expected_version, version, head)
        _check_id(batch, thread_id, thread, checkpoint_id)
    line = parent_links(batch, thread, branch, version + 1, head)
    if head is not None and writes and not parts:
        stepped = take_step(batch, head, writes, line, checkpoint_id, metadata, written, known)
        if stepped is not None:
            return stepped
    borrowed: list[bytes] = []
    workspace = batch.workspace(thread, borrowed, [*known, *parts])
    if head is None:
        root = mapping.empty_root(kernels.KIND_DICT)
    else:
        workspace.know(head.event.root_digest, head.event.root_lsn, head.event.root_node)
        root = workspace.read(ROOT, head.event.root_digest, head.event.root_lsn, head.event.root_node)
    changes = _merge_writes(batch, thread_id, workspace, root, writes) if writes else []
    if changes or head is None:
        merged = mapping.merge_batch(workspace, root, changes, kind=kernels.KIND_DICT) if changes else root
        slot = add_root(workspace, merged)
        if workspace.has_garbage:
            slot = workspace.collect(slot)
        located = (slot.data[1:], slot.lsn or batch.next_lsn(), slot.number)
    else:
        assert head is not None
        located = (head.event.root_digest, head.event.root_lsn, head.event.root_node)
    event = _checkpoint_event(batch, line, located, checkpoint_id, metadata, written, 0)
    if borrowed:
        event = event._replace(borrowed=cbor.encode(sorted(set(borrowed))))
    if workspace.has_shared:
        apply_nodes(batch, event.lsn, thread, facts_of(workspace.rows))
    return _stage_checkpoint(batch, TYPE_CHECKPOINT, event, head, pack_nodes(workspace.rows))


def with_schema_version(metadata: bytes, version: int) -> bytes:
    """Return encoded metadata that names the schema version of the state, which is above 1.

    Raises:
        LimitError: the metadata is too large.
    """
    parts = split(metadata)
    pairs = dict(zip(parts[::2], parts[1::2], strict=True))
    pairs[SCHEMA_KEY_ITEM] = _version_item(version)
    made = container_head(kernels.KIND_DICT, len(pairs)) + b"".join([key + pairs[key] for key in sorted(pairs)])
    if len(made) > METADATA_SIZE_BYTES_MAX:
        message = f"metadata has {len(made)} bytes; at most {METADATA_SIZE_BYTES_MAX} are allowed"
        raise LimitError(message, path=METADATA, actual=len(made), limit=METADATA_SIZE_BYTES_MAX)
    return made


_version_item = lru_cache(maxsize=64)(cbor.encode)


def _with_version(
    metadata: bytes, before: Head | None, declared: int | None, thread_id: str, writes: Sequence[PreparedWrite]
) -> bytes:
    """Return encoded metadata with a state's schema version: the declared version, or the previous state's version.

    Raises:
        SchemaVersionError: see `commit`.
    """
    if declared is not None and declared > 1:
        return with_schema_version(metadata, declared)
    stored = 1 if before is None else schema_version(before.event.metadata)
    if stored == 1:
        return metadata
    for each in writes if declared == 1 else ():
        if not each.channel.startswith(OWN_CHANNELS):
            message = (
                f"the state of thread {thread_id!r} has schema version {stored}:"
                f" to write channel {each.channel!r}, open the thread with a versioned schema"
            )
            raise SchemaVersionError(message, thread=thread_id, stored=stored, declared=1)
    return with_schema_version(metadata, stored)


def guarded(
    guard: Redactor, thread: str, writes: Sequence[PreparedWrite], metadata: bytes
) -> tuple[list[PreparedWrite], bytes]:
    """Return writes and metadata after redaction by a guard. Raises SecretError, CheckError."""
    return guard.writes(writes, thread), guard.metadata(metadata, METADATA, thread)


def _merge_writes(
    batch: Batch, thread_id: str, workspace: Workspace, root: Node, writes: Sequence[PreparedWrite]
) -> mapping.Batch:
    slots: dict[bytes, ValueSlot | None] = {}
    for write in writes:
        key = channel_key(write.channel)
        if key in slots:
            current = slots[key]
            workspace.has_garbage = True
        else:
            current = mapping.find_in_root(workspace, root, key)
        try:
            slots[key] = write.merge(workspace, current, batch.memory.identities)
        except (ReducerTypeError, ValueTypeError, LimitError) as error:
            if "channel" in error.facts:
                raise
            message = f"channel {write.channel!r} ({write.spec}): {error.message}"
            facts = {**error.facts, "path": write.channel, "channel": write.channel, "reducer": write.spec}
            raise type(error)(message, **facts) from error
        except StatelogError:
            raise
        except Exception as error:  # A user's reducer may raise any exception.
            error.add_note(f"statelog: raised by {write.spec} of channel {write.channel!r} of thread {thread_id!r}")
            raise
    return sorted(slots.items()) if len(slots) > 1 else list(slots.items())


def check_version(thread_id: str, expected: int | Seen | None, actual: int, head: Head | None) -> None:
    """Raise ConflictError if the head is not the expected one, or UsageError if `expected` has a wrong type."""
    if expected is None:
        return
    if isinstance(expected, Seen):
        if head is not None and seen(head.event) == expected:
            return
        message = f"thread {thread_id!r} is at version {actual}, not at the expected checkpoint ({expected.version})"
        raise ConflictError(message, thread=thread_id, expected_version=expected.version, actual_version=actual)
    if isinstance(expected, bool) or not isinstance(expected, int):
        message = f"thread {thread_id!r}: the expected version must be an int, not {expected!r}"
        raise UsageError(message, thread=thread_id, argument="expected_version", value=expected)
    if expected != actual:
        message = f"thread {thread_id!r} is at version {actual}, not at {expected}"
        raise ConflictError(message, thread=thread_id, expected_version=expected, actual_version=actual)


def seen(event: CheckpointEvent) -> Seen:
    """Return the value of `expected_version` that names a checkpoint."""
    return Seen(event.thread, event.branch, event.version)


def _check_id(batch: Batch, thread_id: str, thread: int, checkpoint_id: str | None) -> None:
    if checkpoint_id is None:
        return
    check_name("checkpoint id", checkpoint_id)
    if parse_default_id(checkpoint_id) is not None:
        message = f"checkpoint id {checkpoint_id!r}: ids of this form are reserved for the store"
        raise UsageError(message, thread=thread_id, argument="id", value=checkpoint_id)
    if batch.has_id(thread, checkpoint_id):
        message = f"thread {thread_id!r} already has a checkpoint with id {checkpoint_id!r}"
        raise AlreadyExistsError(message, thread=thread_id, name=checkpoint_id)
    batch.note_id(thread, checkpoint_id)


def _checkpoint_event(
    batch: Batch,
    line: Line,
    root: tuple[bytes, int, int],
    checkpoint_id: str | None,
    metadata: bytes,
    written: bytes,
    target: int,
) -> CheckpointEvent:
    made = batch.next_place(*line[:2])[:2]
    return _new(CheckpointEvent, (*line, *root, checkpoint_id, metadata, written, NOTHING_BORROWED, target, *made))


def _stage_checkpoint(
    batch: Batch, type_: int, event: CheckpointEvent, head: Head | None, nodes: Nodes = NO_NODES
) -> Head:
    body, digest = encode_checkpoint(event, event.lsn)
    batch.append(type_, event.time_us, body, nodes)
    page = apply_checkpoint(batch, event, None if head is None else head.page_before(event.branch, event.version))
    made = Head(event, digest, page)
    batch.set_head(event.thread, event.branch, made)
    return made


def rollback(
    batch: Batch,
    thread_id: str,
    thread: int,
    branch: int,
    target: Head,
    *,
    metadata: bytes,
    expected_version: int | Seen | None = None,
) -> Head:
    """Stage a checkpoint that points at the root of `target`. This costs one record."""
    if batch.guard is not None:
        metadata = batch.guard.metadata(metadata, METADATA, thread_id)
    head = batch.head(thread, branch)
    version = head.event.version if head else -1
    check_version(thread_id, expected_version, version, head)
    old = target.event
    if SCHEMA_KEY_ITEM in old.metadata:
        metadata = _with_version(metadata, target, None, thread_id, ())
    line = parent_links(batch, thread, branch, version + 1, target)
    made = None if head is None else take_rollback(batch, head, line, target, metadata, NOTHING_WRITTEN)
    if made is not None:
        return made
    root = (old.root_digest, old.root_lsn, old.root_node)
    event = _checkpoint_event(batch, line, root, None, metadata, NOTHING_WRITTEN, old.lsn)
    return _stage_checkpoint(batch, TYPE_ROLLBACK, event, head)


def fork(batch: Batch, thread_id: str, thread: int, name: str, base: tuple[int, int]) -> int:
    """Stage a branch that shares versions 0..base[1] of branch base[0], and return its number."""
    check_name("branch", name)
    if batch.view.branch_number(thread, name) is not None:
        message = f"thread {thread_id!r} already has a branch {name!r}"
        raise AlreadyExistsError(message, thread=thread_id, name=name)
    number = batch.view.thread(thread).branch_count
    stage_event(batch, ForkEvent(thread, number, name, base[0], base[1]))
    return number


def tag(batch: Batch, thread: int, name: str, target: int) -> None:
    """Stage a tag for the checkpoint with the LSN `target`. 0 removes the tag."""
    check_name("tag", name)
    if parse_default_id(name) is not None:
        message = f"tag {name!r}: names of this form are reserved for checkpoint ids"
        raise UsageError(message, argument="tag", value=name)
    stage_event(batch, TagEvent(thread, name, target))
