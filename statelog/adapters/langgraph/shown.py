"""Finds the checkpoint that LangGraph shows for a thread, and rolls a thread back so that LangGraph sees it.

`statelog.store.frameworks` imports this module by its name. Nothing here imports LangGraph.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph.saver.checkpoint_order import Ordered
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    CheckpointName,
    checkpoint_name,
    fork_name,
    id_after,
    line_name,
)
from statelog.adapters.langgraph.values.own import (
    decode_own,
    is_hidden,
    is_orphan,
    kept_item,
    replace_own,
    writes_state,
)
from statelog.errors import CheckpointNotFoundError, ConflictError, UsageError
from statelog.log.events import NEEDS_KEY
from statelog.log.operations import check_version
from statelog.store.checkpoint import Checkpoint, head_of
from statelog.store.session import StoreSession, session_of
from statelog.store.snapshot import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from statelog.adapters.langgraph.values.own import Own
    from statelog.log.batch import Batch
    from statelog.log.operations import Seen
    from statelog.store.session import AnySession, Holder
    from statelog.store.views import MapView

_ROOT = ""
_COPIED = ("parents", "counters_since_delta_snapshot", NEEDS_KEY)
"""Metadata keys that LangGraph copies from a checkpoint that it forks, or that retention reads."""


def latest(held: Holder[AnySession], thread_id: str) -> Checkpoint[Any] | None:
    """Return the checkpoint that `graph.get_state` shows, or None if it shows none."""
    with _moment(held) as moment:
        lineage = Lineage(moment, thread_id)
        found = next(Ordered(lineage, _ROOT).draw(lineage, 1), None)
    return None if found is None else Checkpoint(session_of(held), thread_id, head_of(found.checkpoint))


@contextmanager
def _moment(held: Holder[AnySession]) -> Iterator[Holder[AnySession]]:
    """Yield a snapshot, so that a concurrent retention removes nothing. A transaction or a snapshot yields itself."""
    session = session_of(held)
    if isinstance(session, StoreSession):
        with snapshot(session.engine) as moment:
            yield moment
    else:
        yield held


def shows(held: Holder[AnySession], thread_id: str) -> Callable[[Checkpoint[Any]], bool]:
    """Return a function that returns False for a checkpoint that LangGraph was told to remove."""
    session = session_of(held)
    if isinstance(session, StoreSession):
        return partial(_is_shown_now, session, thread_id)
    return partial(_is_shown, thread_id, writes_state(Lineage(held, thread_id)))


def _is_shown_now(session: StoreSession, thread_id: str, checkpoint: Checkpoint[Any]) -> bool:
    with snapshot(session.engine) as moment:
        lineage = Lineage(moment, thread_id)
        found = lineage.at(checkpoint.lsn)
        # None: retention has removed the version, or the thread was deleted.
        return found is not None and _is_shown(thread_id, writes_state(lineage), found)


def _is_shown(thread_id: str, pending: MapView | None, checkpoint: Checkpoint[Any]) -> bool:
    item = kept_item(checkpoint.state)
    own = None if item is None else decode_own(item)
    return own is None or not is_hidden(pending, CheckpointName(thread_id, own.namespace, own.id))


def roll_back(
    held: Holder[AnySession],
    thread_id: str,
    target: Checkpoint[Any],
    *,
    metadata: Mapping[str, Any],
    expected: int | Seen | None,
    check: Callable[[Batch], None] | None,
) -> Checkpoint[Any]:
    """Put a copy of a checkpoint with the same parent, as LangGraph's `__copy__` does. The copy's id is the greatest.

    Args:
        held: the store, transaction or thread.
        thread_id: the thread.
        target: a checkpoint of the thread.
        metadata: metadata to keep with the copy.
        expected: the head that the caller expects, or its version.
        check: called in the commit before anything is written.

    Raises:
        ConflictError: the head is not `expected`, or a checkpoint was put during the call.
        CheckpointNotFoundError: the target was removed.
        UsageError: the target cannot be copied. The message explains how to return to it with LangGraph.
    """
    lineage = Lineage(held, thread_id)
    ends = lineage.ends(line_name(_ROOT))
    head = latest(held, thread_id)
    check_version(thread_id, expected, -1 if head is None else head.version, None if head is None else head_of(head))
    source, own = _source(lineage, target)
    last = next(Ordered(lineage, _ROOT).draw(lineage, 1, hidden=True), None)
    if last is None:  # The thread was deleted meanwhile.
        raise _removed(lineage.id, target, own)
    greatest = last.own.id
    id = id_after(greatest)
    if id is None:
        raise _refused(lineage.id, own, f"no checkpoint id can sort after {greatest!r}")
    item = kept_item(source.state)
    assert item is not None

    def before(batch: Batch) -> None:
        if check is not None:
            check(batch)
        if expected is not None and lineage.ends_in(batch.view, line_name(_ROOT)) != ends:
            message = f"thread {thread_id!r}: another checkpoint was written after the head was compared"
            raise ConflictError(message, thread=thread_id, expected_version=expected, actual_version=None)

    step = source.metadata.get("step")
    return lineage.commit(
        [items.put(CHECKPOINT_CHANNEL, replace_own(item, own._replace(id=id, latest=id)))],
        id=id,
        parent=source,
        line=line_name(_ROOT),
        fork=partial(fork_name, _ROOT, id),
        metadata={
            **metadata,
            **{key: value for key, value in source.metadata.items() if key in _COPIED},
            "source": "fork",
            "step": step + 1 if isinstance(step, int) else 0,
        },
        before=before,
    )


def _removed(thread_id: str, target: Checkpoint[Any], own: Own) -> CheckpointNotFoundError:
    message = f"thread {thread_id!r}: checkpoint {own.id} was removed"
    return CheckpointNotFoundError(message, thread=thread_id, branch=target.branch, target=own.id)


def _source(lineage: Lineage, target: Checkpoint[Any]) -> tuple[Checkpoint[Any], Own]:
    """Return the checkpoint to copy, and its place."""
    item = kept_item(target.state)
    own = None if item is None else decode_own(item)
    if own is None:
        message = f"thread {lineage.id!r}: {target.id} is not a checkpoint of LangGraph, but an"
        message += " internal version. history() and `statelog history` list the checkpoints"
        raise UsageError(message, argument="target", value=target.id)
    if own.namespace:
        message = f"thread {lineage.id!r}: {target.id} is a checkpoint of the subgraph {own.namespace!r}; roll back to"
        message += " the checkpoint of the graph that called it"
        raise UsageError(message, argument="target", value=target.id)
    found = lineage.find(checkpoint_name(_ROOT, own.id))  # The newest: older releases rolled back to the same id.
    if found is None or is_hidden(writes_state(lineage), CheckpointName(lineage.id, _ROOT, own.id)):
        raise _removed(lineage.id, target, own)
    if is_orphan(writes_state(lineage), CheckpointName(lineage.id, _ROOT, own.id)):
        own = own._replace(parent=None)
    if METADATA_CHANNEL in found.state:
        raise _refused(lineage.id, own, "its metadata is too large or has types that only LangGraph can read")
    return found, own


def _refused(thread_id: str, own: Own, why: str) -> UsageError:
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": own.id}}
    message = (
        f'thread {thread_id!r}: {why}; go back with graph.update_state({config}, None, as_node="__copy__"),'
        f" or with graph.invoke(None, {config})"
    )
    return UsageError(message, argument="target", value=own.id)
