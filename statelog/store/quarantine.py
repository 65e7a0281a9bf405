"""Lists and releases the values of a store that a guard's checks have quarantined."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.board import writes
from statelog.display.packed import MSGPACK, Coded
from statelog.display.short_messages import lengthen
from statelog.errors import ConflictError, UsageError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.guard.packed_texts import hidden_in
from statelog.kernels.msgpack import split_array
from statelog.log.kinds.entries import OWN_IDS
from statelog.store.board import Board
from statelog.store.mount import mountable, open_mount, writes_of
from statelog.store.snapshot import snapshot
from statelog.store.thread import Thread
from statelog.store.views import MapView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.session import StoreSession

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class QuarantinedPlace:
    """The place of a value that a check hides, in the head of a branch or in an entry of the board.

    Attributes:
        thread: the id of the thread, or None.
        branch: the branch, or None.
        key: the key of the entry, or None.
        path: the channel of a thread, then dict keys and list positions down to the value.
        check: the name of the check.
        reason: the reason that the check gave.
    """

    thread: str | None
    branch: str | None
    key: str | None
    path: Path
    check: str
    reason: str
    placeholder: Quarantined | None = field(default=None, repr=False, compare=False)
    """The placeholder, or None for a text in a value of LangGraph (internal)."""


def list_quarantined(session: StoreSession) -> list[QuarantinedPlace]:
    """Return the places of quarantined values in the heads of all branches and in the board.

    This reads all heads and entries.
    """
    found: list[QuarantinedPlace] = []
    with cbor.reading_unregistered():
        with session.read() as view:
            ids = [row.id for row in view.threads() if row.id not in OWN_IDS]
        for id in ids:
            with snapshot(session.engine) as moment:  # Other processes may delete the thread, or remove versions.
                for branch in moment.thread(id).branches():
                    head = moment.thread(id, branch=branch.name).head
                    tree = None if head is None else head.state.tree
                    # Read the values in their stored form.
                    for channel, value in () if tree is None else MapView(tree).items():
                        hidden = _walk(value, (channel,))
                        found += [_place(id, branch.name, None, path, each) for path, each in hidden]
        for entry in Board(session).list():
            found += [_place(None, None, entry.key, path, hidden) for path, hidden in _walk(entry.value, ())]
    return found


def _place(
    thread: str | None, branch: str | None, key: str | None, path: Path, hidden: Quarantined | tuple[str, str]
) -> QuarantinedPlace:
    if isinstance(hidden, Quarantined):
        return QuarantinedPlace(thread, branch, key, path, hidden.check, hidden.reason, hidden)
    return QuarantinedPlace(thread, branch, key, path, *hidden)


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Quarantined | tuple[str, str]]]:
    """Yield (path, placeholder) of each hidden part.

    For a value of LangGraph, (check, reason) replaces the placeholder.
    """
    if isinstance(value, Quarantined):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _walk(each, (*path, key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _walk(each, (*path, number))
    elif isinstance(value, Coded) and value.stored[0] == MSGPACK:
        yield from ((path, each) for each in hidden_in(lengthen(value.stored[1], split_array)))


def release_quarantined(session: StoreSession, place: QuarantinedPlace) -> None:
    """Store a quarantined value as an ordinary value, in a new version. No check is called.

    Raises:
        ConflictError: a different value is now at the place. Facts: thread, key, path.
        UsageError: the place is in a thread of LangGraph, or in a record of a durable run.
    """
    if not isinstance(place, QuarantinedPlace):
        message = f"place must be an item from Store.quarantined, not {type(place).__name__}"
        raise UsageError(message, argument="place", value=place)
    if place.placeholder is None or (place.key or "").startswith("durable/"):
        message = "a value in a thread of LangGraph, or in a record of a durable run, cannot be released"
        raise UsageError(message, thread=place.thread, key=place.key, path=place.path)
    if place.key is not None:
        _release_entry(Board(session, "statelog"), place, place.key)
        return
    assert place.thread is not None
    thread: Thread[Any, Any] = Thread(session, place.thread, branch=place.branch)
    thread._declared_version = None  # noqa: SLF001 - of this package: a value goes back as it was stored
    mount = open_mount(mountable(thread))
    channel = str(place.path[0])
    mount[channel] = _released(mount.get(channel), place.path[1:], place)
    released = {"statelog:released": f"{'.'.join(map(str, place.path))} by {place.check}"}
    thread._commit_writes(  # noqa: SLF001 - of this package
        writes_of(mountable(thread), mount), released, expected_version=mount.base_version, is_guarded=True
    )


def _release_entry(board: Board, place: QuarantinedPlace, key: str) -> None:
    entry = board.get(key)
    if entry is None:
        raise _changed(place)
    value, check = _released(entry.value, place.path, place), partial(writes.check_version, key, entry.version)
    board._put(key, reducers.replace, value, None, check, None, is_guarded=True)  # noqa: SLF001 - of this package


def _released(value: Any, path: Path, place: QuarantinedPlace) -> Any:
    """Return a value in which the hidden part at a path is revealed. Raises ConflictError if the part has changed."""
    if not path:
        if not isinstance(value, Quarantined) or value != place.placeholder:
            raise _changed(place)
        return value.reveal()
    try:
        below = _released(value[path[0]], path[1:], place)
    except (LookupError, TypeError):
        raise _changed(place) from None
    if isinstance(value, dict):
        return {**value, path[0]: below}
    return type(value)([below if number == path[0] else each for number, each in enumerate(value)])


def _changed(place: QuarantinedPlace) -> ConflictError:
    message = "a different value is now at this place: call Store.quarantined again"
    return ConflictError(message, thread=place.thread, key=place.key, path=place.path)
