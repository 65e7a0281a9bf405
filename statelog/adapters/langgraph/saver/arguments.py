"""Checks the arguments of a saver's methods before anything is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from statelog import Store
from statelog.adapters.langgraph.values.paths import check_keys
from statelog.errors import ClosedError, UsageError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


def check_options(serde: Any, conflict: object, cache_size_bytes: Any) -> None:
    """Check the options of a saver."""
    if serde is not None and not (hasattr(serde, "dumps_typed") or hasattr(serde, "dumps")):
        message = f"serde must be a serialiser with dumps_typed and loads_typed, not {serde!r}"
        raise UsageError(message, argument="serde", value=serde)
    if conflict not in ("fork", "raise"):
        message = f'conflict must be "fork" or "raise", not {conflict!r}'
        raise UsageError(message, argument="conflict", value=conflict)
    if type(cache_size_bytes) is not int or cache_size_bytes < 0:
        message = f"cache_size_bytes must be a non-negative int, not {cache_size_bytes!r}"
        raise UsageError(message, argument="cache_size_bytes", value=cache_size_bytes)


def check_store(store: object) -> None:
    """Check the type of a saver's store."""
    if not isinstance(store, Store):
        message = f"a saver needs an open store (or call StatelogSaver.open), not {store!r}"
        raise UsageError(message, argument="store", value=store)


def check_listing(filter: object, limit: object) -> None:
    """Check the filter and the limit of `list`."""
    if filter is not None and not isinstance(filter, Mapping):
        message = f"filter must be a dict of metadata to match, not {filter!r}"
        raise UsageError(message, argument="filter", value=filter)
    check_keys(filter or ())
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        message = f"limit must be an int, not {limit!r}"
        raise UsageError(message, argument="limit", value=limit)


def check_open(store: Store) -> None:
    """Check that a store is open, even if there is nothing to do."""
    if store.closed:
        message = f"{store.path} is closed"
        raise ClosedError(message, path=str(store.path))


_TEXTS = {str}


def check_put(checkpoint: Any, metadata: object, new_versions: object) -> None:
    """Check that a checkpoint could be read back after it is stored."""
    if type(checkpoint) is type(metadata) is type(new_versions) is dict:  # LangGraph passes plain dicts.
        id: Any = checkpoint.get("id")
        versions: Any = checkpoint.get("channel_versions")
        is_whole = type(id) is str and id and type(versions) is type(checkpoint.get("channel_values")) is dict
        if is_whole and {*map(type, versions)} <= _TEXTS:
            return
    for argument, value in (("checkpoint", checkpoint), ("metadata", metadata), ("new_versions", new_versions)):
        _check_dict(argument, value)
    id = checkpoint.get("id")
    if not isinstance(id, str) or not id:
        message = f"a checkpoint's id must be a non-empty str, not {id!r}"
        raise UsageError(message, argument="checkpoint.id", value=id)
    for part in ("channel_values", "channel_versions"):
        _check_dict(f"checkpoint.{part}", checkpoint.get(part))
    for channel in checkpoint["channel_versions"]:
        if not isinstance(channel, str):
            message = f"a channel of channel_versions must be a str, not {channel!r}"
            raise UsageError(message, argument="checkpoint.channel_versions", value=channel)


def _check_dict(argument: str, value: object) -> None:
    if type(value) is not dict and not isinstance(value, Mapping):
        message = f"{argument} must be a dict, not {value!r}"
        raise UsageError(message, argument=argument, value=value)


def pair_of(write: Any) -> tuple[str, Any]:
    """Return the channel and value of a pending write. A str of two letters is not a pair."""
    if not isinstance(write, tuple | list) or len(write) != 2 or not isinstance(write[0], str):
        message = f"a write must be a pair of a channel (a str) and a value, not {write!r}"
        raise UsageError(message, argument="writes", value=write)
    channel, value = write
    return channel, value


def number_of(version: str | float | None) -> int:
    """Return the number at the beginning of a channel's version."""
    try:
        return int(version.split(".")[0]) if isinstance(version, str) else int(version or 0)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"a channel's version must be a number, or a str that begins with one, not {version!r}"
        raise UsageError(message, argument="current", value=version) from error


def id_before(before: RunnableConfig | None) -> str:
    """Return the id of the checkpoint that a config names, or an empty string."""
    if before is None:
        return ""
    configurable = before.get("configurable") if hasattr(before, "get") else None
    id = configurable.get("checkpoint_id") or "" if isinstance(configurable, Mapping) else None
    if not isinstance(id, str):
        message = f"before must be a config with a str as configurable.checkpoint_id, not {before!r}"
        raise UsageError(message, argument="before", value=before)
    return id


def several(argument: str, ids: Iterable[Any]) -> list[Any]:
    """Return ids or writes as a list. A single str is refused, because each letter would be taken for one."""
    if type(ids) is not deque and (isinstance(ids, str | bytes) or not isinstance(ids, Iterable)):
        message = f"{argument} must be a list, not {ids!r}"
        raise UsageError(message, argument=argument, value=ids)
    return list(ids)
