"""States of teams and agents. Each save is a version that stores only its changes."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from statelog.adapters.kit.lives import write
from statelog.adapters.kit.ordered import Json, of_all
from statelog.adapters.kit.shared_parts import settle
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.errors import CheckpointNotFoundError, NotFoundError, ValueTypeError

if TYPE_CHECKING:
    from statelog import Store, Thread

__all__ = ["load_team", "save_team"]

_STATE = "team"
_ORDER, _MEMBERS = "order", "members"
"""The keys of a stored dict: `order` has the original keys in their order, and `members` has their values."""


async def save_team(store: Store, id: str, team: Any) -> int:
    """Store the state that a team's or an agent's `save_state` returns, in one commit. Return the version.

    If the state is unchanged, no version is created, and the last version is returned.

    Raises:
        ValueTypeError: the state is not JSON. Nothing was written.
    """
    thread = _thread_of(id)
    try:
        kept = _kept(await team.save_state())
    except RecursionError as error:
        message = f"the state of team {id!r} is nested too deeply, or contains itself"
        raise ValueTypeError(message, path=_STATE) from error

    def save(of_team: Thread[Any, Any]) -> int:
        version_id = uuid4().hex
        of_team.edit(lambda state: settle(state, _STATE, kept), id=version_id)
        try:
            return of_team.at(version_id).version
        except CheckpointNotFoundError:  # `edit` made no version, because the state is unchanged.
            return of_team.version

    return await run(write, store, thread, None, save)


async def load_team(store: Store, id: str, team: Any, at: int | None = None) -> None:
    """Load the last saved state, or the state of version `at`, into a team. The team then continues from this state.

    If the team does not accept the state, or the task is cancelled, the team's previous state is restored.

    Raises:
        NotFoundError: no state was saved under this id, or the version does not exist.
        Exception: what the team's `load_state` raises. The exception has a note if the previous state could not be
            restored.
    """
    thread = _thread_of(id)

    def load() -> Any:
        of_team = store.thread(thread)
        checkpoint = of_team.head if at is None else of_team.at(at)
        if checkpoint is None:
            message = f"no team was saved as {id!r}"
            raise NotFoundError(message, thread=thread)
        return _plain(checkpoint.state.to_python()[_STATE])

    saved = await run(load)
    before = deepcopy(await team.save_state())
    try:
        await team.load_state(saved)
    except BaseException as error:  # A team loads its members one by one, so an error may leave some of them loaded.
        try:
            await team.load_state(before)
        except Exception as again:  # noqa: BLE001 - the first error is raised instead
            error.add_note(f"the team's previous state could not be restored: {again}")
        raise


def _thread_of(id: str) -> str:
    return thread_id("autogen", "team", id)


def _kept(value: Any) -> Any:
    """Return a value in stored form.

    A dict becomes a dict with two members: the order of its keys, and its values in stored form. A list becomes a list
    of JSON texts. Any other value, or an empty dict, becomes one JSON text.
    """
    if isinstance(value, dict) and value:
        return {_ORDER: Json.of(list(value)), _MEMBERS: {key: _kept(member) for key, member in value.items()}}
    return of_all(value) if isinstance(value, list) else Json.of(value)


def _plain(kept: Any) -> Any:
    if isinstance(kept, Json):
        return kept.value
    if isinstance(kept, list):
        return [item.value for item in kept]
    return {key: _plain(kept[_MEMBERS][key]) for key in kept[_ORDER].value}
