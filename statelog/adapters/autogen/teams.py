"""States of teams and agents: each save is a version, and stores what is new since the last."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from statelog.adapters.kit.lives import write
from statelog.adapters.kit.naming import thread_id
from statelog.adapters.kit.ordered import Json, of_all
from statelog.adapters.kit.settling import settle
from statelog.aio.running import run
from statelog.errors import CheckpointNotFoundError, NotFoundError, ValueTypeError

if TYPE_CHECKING:
    from statelog import Store, Thread

__all__ = ["load_team", "save_team"]

_STATE = "team"
_ORDER, _MEMBERS = "order", "members"
"""Of a dict as it is kept: its keys in the order in which they stood, and what they hold."""


async def save_team(store: Store, id: str, team: Any) -> int:
    """Keep what a team's, or an agent's, `save_state` returns, in one commit; return the version of it.

    A state that is the same as the last one makes no version: that of the last is returned.

    Raises:
        ValueTypeError: the state is not JSON. Nothing was written.

    """
    thread = _thread_of(id)
    try:
        kept = _kept(await team.save_state())
    except RecursionError as error:
        message = f"the state of team {id!r} is nested too deeply, or holds itself"
        raise ValueTypeError(message, path=_STATE) from error

    def save(of_team: Thread[Any, Any]) -> int:
        version_id = uuid4().hex
        of_team.edit(lambda state: settle(state, _STATE, kept), id=version_id)
        try:
            return of_team.at(version_id).version
        except CheckpointNotFoundError:  # nothing was new
            return of_team.version

    return await run(write, store, thread, None, save)


async def load_team(store: Store, id: str, team: Any, at: int | None = None) -> None:
    """Give a team the state that was saved last, or that of a version: then it goes on from there.

    If the team does not accept the state, or the task is cancelled, the team gets back the state that it had.

    Raises:
        NotFoundError: nothing was saved under this id, or there is no such version.
        Exception: what the team's `load_state` raises. A note says so if the team did not take its own state back.

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
    except BaseException as error:  # a team loads its members one by one
        try:
            await team.load_state(before)
        except Exception as again:  # noqa: BLE001 - the first error is raised
            error.add_note(f"the team did not take its own state back: {again}")
        raise


def _thread_of(id: str) -> str:
    return thread_id("autogen", "team", id)


def _kept(value: Any) -> Any:
    """Return a value as it is kept: dicts with the order of their keys, lists of texts that can grow, texts."""
    if isinstance(value, dict) and value:
        return {_ORDER: Json.of(list(value)), _MEMBERS: {key: _kept(member) for key, member in value.items()}}
    return of_all(value) if isinstance(value, list) else Json.of(value)


def _plain(kept: Any) -> Any:
    if isinstance(kept, Json):
        return kept.value
    if isinstance(kept, list):
        return [item.value for item in kept]
    return {key: _plain(kept[_MEMBERS][key]) for key in kept[_ORDER].value}
