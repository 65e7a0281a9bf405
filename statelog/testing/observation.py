"""The observable content of a store as plain data, to compare a store with its copies."""

from __future__ import annotations

import dataclasses
import hashlib
import marshal
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Final

from statelog import durable
from statelog.errors import NotFoundError, ThreadDeletedError, UsageError
from statelog.format import cbor
from statelog.portable.event_builder import TIME_KEY
from statelog.redaction import names_credential
from statelog.store.session import session_of
from statelog.store.statistics import stored_policies
from statelog.store.store import Store
from statelog.testing.extensions import extension, extension_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from statelog import Board, Entry, Thread
    from statelog.log.reader import LogRecord
    from statelog.store.claims import LeaseInfo
    from statelog.store.thread_info import ThreadInfo

_OWN: Final = "durable/**"
"""The pattern of the keys of durable execution. Only patterns that begin with `durable/` match these keys."""

_ENDS_OF_LINES: Final = 12
"""The maximum number of differences that `differences` lists."""


def observe(store: Store, *, deleted: Iterable[str] = (), lsns: bool = True) -> dict[str, Any]:
    """Return the observable content of a store as plain data: dicts, lists, ints, bytes and strings.

    If two stores have equal observations, each call of the API returns the same for both. Compare observations with
    `==`, and list their differences with `differences`. Expiry is judged by the clock at the time of the call. So
    observe two stores at the same moment, while no process writes to them.

    | key | what it holds |
    |---|---|
    | `log` | each record of the log, with its chain digest |
    | `threads` | each thread: branches with every version, its digests, parent, metadata and time; tags; policy |
    | `deleted` | the deleted threads among the ids in the argument `deleted` |
    | `policies` | retention policies for future threads |
    | `board` | each entry, with its claim and its history; also deleted entries whose history is kept |
    | `leases` | leases that are held |
    | `durable` | runs with steps, mail, events and stream; gates, outbox, schedules, queues |
    | `langgraph` | checkpoints with pending writes, and items; only if LangGraph is installed and has used the store |

    A value of any other type is shown with the name of its type, as `{"float": "1.5"}`. So 1, 1.0 and True are three
    different values. A value with a codec is shown in its stored form, as `{"codec": [name, payload]}`. If the codec's
    name is the name of a secret, a digest replaces the payload.

    Args:
        store: the store. It is only read.
        deleted: ids of threads that may have been deleted. No call of the API lists deleted threads.
        lsns: False leaves out LSNs, tokens, and values derived from them. They differ in a copy that was made by
            `export(threads=...)`.

    Raises:
        CorruptionError: the store is damaged.
        UsageError: this is not an open store. Facts: argument, value.
    """
    if not isinstance(store, Store):
        message = f"observe takes an open Store, not a {type(store).__name__}"
        raise UsageError(message, argument="store", value=store)
    log = [_record(each) for each in store.log()]
    observed: dict[str, Any] = {
        "log": log,
        "threads": [_thread(store, info) for info in store.threads()],
        "deleted": [id for id in sorted(set(deleted)) if is_deleted(store, id)],
        "policies": _policies(store),
        "board": _board(store, {each["body"]["key"] for each in log if "key" in each["body"]}),
        "leases": [_lease(each) for each in store.board().leases()],
        "durable": _durable(store),
    }
    for name in extension_names():
        if _is_used(observed, name) and (adapter := extension(name)) is not None:
            observed[name] = adapter.observe(store)
    return observed if lsns else without_lsns(observed)


def _is_used(observed: dict[str, Any], adapter: str) -> bool:
    """Return True if an adapter has written to the store. The ids of its threads or channels begin with its name."""
    prefix = f"{adapter}:"
    return any(
        thread["id"].startswith(prefix) or any(name.startswith(prefix) for name in version["written"])
        for thread in observed["threads"]
        for branch in thread["branches"]
        for version in branch["versions"]
    )


def differences(first: Any, second: Any, names: tuple[str, str] = ("first", "second")) -> list[str]:
    """Return the differences between two observations, one line for each; an empty list if they are equal.

    The list has at most twelve differences. If there are more, its last line is `...`.
    """
    lines: list[str] = []
    for path, one, other in _differing(first, second, ""):
        if len(lines) == _ENDS_OF_LINES:
            return [*lines, "..."]
        lines.append(f"{path or 'all'}: {names[0]} has {_short(one)}, {names[1]} has {_short(other)}")
    return lines


_ABSENT: Final = object()


def _differing(first: Any, second: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if first == second:
        return
    if isinstance(first, dict) and isinstance(second, dict):
        for key in {**first, **second}:
            yield from _differing(first.get(key, _ABSENT), second.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(first, list) and isinstance(second, list):
        by_name = [{_name_of(each, at): each for at, each in enumerate(some)} for some in (first, second)]
        for name in {**by_name[0], **by_name[1]}:
            yield from _differing(by_name[0].get(name, _ABSENT), by_name[1].get(name, _ABSENT), f"{path}[{name}]")
    else:
        yield path, first, second


def _name_of(item: Any, at: int) -> str:
    """Return a name that identifies an item of a list, so that one missing item is reported as one difference."""
    if isinstance(item, dict):
        for field in ("id", "key", "name", "version", "place", "lsn"):
            if field in item:
                return str(item[field])
    return str(at)


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to write very long ints in decimal.
        shown = hex(value) if type(value) is int else f"a {type(value).__name__} with a very long int"
    return shown if len(shown) <= 300 else f"{shown[:297]}..."


# --- values ---------------------------------------------------------------------------

_PLAIN: Final = (str, int, bytes)
_WRAPPED: Final = frozenset({"codec", "bool", "float", "NoneType", "tuple", "set", "frozenset", "dict", "datetime"})


def plain(value: Any) -> Any:
    """Return a value as dicts, lists, ints, bytes and strings. Results are equal only if the values are identical."""
    if type(value) in _PLAIN:
        return value
    coded = cbor.payload_of(value)
    if coded is not None:
        return {"codec": [coded[0], _payload(*coded)]}
    if hasattr(value, "to_python"):
        value = value.to_python()
    if type(value) is list:
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    kind = type(value).__name__
    if isinstance(value, datetime | date | time):
        return {kind: value.isoformat()}
    if isinstance(value, AbstractSet):
        return {kind: sorted((plain(each) for each in value), key=_order)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {kind: {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return {kind: [plain(each) for each in value]}
    return {kind: repr(value)}


def _payload(codec: str, payload: Any) -> Any:
    """Return the payload that a codec made of a value, or only its digest if the value is a secret."""
    if names_credential(codec):
        return hashlib.blake2b(cbor.encode(payload), digest_size=16).digest()
    return plain(payload)


def _order(shown: Any) -> bytes:
    """Return a sort key for plain data. This is not the repr, because Python refuses the repr of a very long int."""
    return marshal.dumps(shown, 0)


def _plain_mapping(value: Mapping[Any, Any]) -> Any:
    if all(type(key) is str for key in value):
        shown = {key: plain(each) for key, each in value.items()}
        is_ambiguous = len(shown) == 1 and next(iter(shown)) in _WRAPPED
        return {"dict": shown} if is_ambiguous else shown
    return {"dict": sorted(([plain(key), plain(each)] for key, each in value.items()), key=_order)}


def _times(item: Any, *names: str) -> dict[str, str | None]:
    return {name: None if (moment := getattr(item, name)) is None else moment.isoformat() for name in names}


# --- threads ----------------------------------------------------------------------------


def _record(record: LogRecord) -> dict[str, Any]:
    return {
        "lsn": record.lsn,
        "type": record.type,
        "thread": record.thread_id,
        "body": plain(record.body),
        "digest": record.digest,
        "time": record.time.isoformat(),
    }


def _thread(store: Store, info: ThreadInfo) -> dict[str, Any]:
    thread = store.thread(info.id)
    return {
        "id": info.id,
        "created": info.created.isoformat(),
        "channels": dict(info.channels),
        "schema": info.schema,
        "policy": plain(dict(info.policy)),
        "branches": [
            {
                "name": each.name,
                "parent": each.parent,
                "base_version": each.base_version,
                "head_version": each.head_version,
                "versions": _versions(thread.checkout(each.name), each.base_version),
            }
            for each in thread.branches()
        ],
        "tags": {name: [each.branch, each.version] for name, each in sorted(thread.tags().items())},
    }


def _versions(thread: Thread[Any, Any], base_version: int) -> list[dict[str, Any]]:
    versions: list[dict[str, Any]] = []
    for checkpoint in thread.history():
        if checkpoint.version <= base_version:
            break  # This version belongs to the parent branch, which lists it.
        parent = checkpoint.parent
        versions.append(
            {
                "version": checkpoint.version,
                "id": checkpoint.id,
                "kind": checkpoint.kind,
                "state": checkpoint.state_digest,
                "digest": checkpoint.digest,
                "parent": None if parent is None else [parent.branch, parent.version],
                "has_parent": int(checkpoint.has_parent),
                "metadata": plain(checkpoint.metadata),
                "schema_version": checkpoint.schema_version,
                "written": list(checkpoint.channels_written),
                "time": checkpoint.time.isoformat(),
                "lsn": checkpoint.lsn,
            }
        )
        if len(versions) == 1:
            versions[0]["value"] = plain(checkpoint.state)
    return versions


def is_deleted(held: Any, id: str) -> bool:
    """Return True if a thread was deleted and has not been re-created.

    Args:
        held: a store, a snapshot or a transaction.
        id: the id of the thread.
    """
    try:
        held.thread(id).at(0)
    except ThreadDeletedError:
        return True
    except NotFoundError:
        return False
    return False


def _policies(store: Store) -> list[Any]:
    with session_of(store).read() as view:  # `Store.statistics` would measure the whole store.
        return [plain(each) for each in stored_policies(view)]


# --- the board ----------------------------------------------------------------------------


def _board(store: Store, kept: Iterable[str]) -> list[dict[str, Any]]:
    """Return the entries, and the kept history of deleted entries. Only the log has the keys of deleted entries."""
    board = store.board()
    entries = {entry.key: entry for pattern in ("**", _OWN) for entry in board.list(pattern)}
    return [_board_key(board, key, entries.get(key)) for key in sorted({*entries, *kept})]


def _lease(lease: LeaseInfo) -> dict[str, Any]:
    shown = {"name": lease.name, "token": lease.token, "holder": lease.holder}
    return {**shown, **_times(lease, "acquired", "expires")}


def _board_key(board: Board, key: str, entry: Entry | None) -> dict[str, Any]:
    history = [_entry(each) for each in board.history(key)]
    return {"key": key, "entry": None if entry is None else _entry(entry), "history": history}


def _entry(entry: Entry) -> dict[str, Any]:
    claim = entry.claim
    return {
        "version": entry.version,
        "kind": entry.kind,
        "value": plain(entry.value),
        "agent": entry.agent,
        "priority": entry.priority,
        "attempts": entry.attempts,
        "error": entry.error,
        "schema_version": entry.schema_version,
        "claim": claim and {"token": claim.token, "holder": claim.holder, **_times(claim, "expires")},
        **_times(entry, "created", "time", "expires", "ready"),
    }


# --- durable execution ----------------------------------------------------------------------


def _durable(store: Store) -> dict[str, Any]:
    runs = durable.runs(store)
    return {
        "runs": [_run(store, info) for info in runs],
        "gates": [_fields(each) for each in durable.gates(store)],
        "mail": _values(store, "durable/mail/**"),
        "events": _values(store, "durable/events/**"),
        "outbox": [_fields(each) for each in durable.outbox(store)],
        "schedules": [_fields(each) for each in durable.schedules(store)],
        "queues": [_fields(each) for each in durable.queues(store)],
    }


def _run(store: Store, info: durable.RunInfo) -> dict[str, Any]:
    shown = _fields(info)
    shown["steps"] = [_fields(each) for each in durable.steps(store, info.id)]
    shown["stream"] = [_fields(each) for each in durable.stream(store, info.id, follow=False)]
    return shown


def _values(store: Store, pattern: str) -> dict[str, Any]:
    return {entry.key: plain(entry.value) for entry in store.board().list(pattern)}


def _fields(item: Any) -> dict[str, Any]:
    return {each.name: plain(getattr(item, each.name)) for each in dataclasses.fields(item)}


# --- without LSNs -----------------------------------------------------------------------------

_MADE_OF_LSNS: Final = frozenset({"lsn", "token", "digest", "log", "time", "created", TIME_KEY})
"""Keys of LSNs and of values derived from LSNs. An import sets `TIME_KEY` for a version whose time is in the future."""


def without_lsns(observed: dict[str, Any]) -> dict[str, Any]:
    """Return an observation without LSNs and the values derived from them. See the argument `lsns` of `observe`."""
    stripped: dict[str, Any] = _stripped({**observed, "log": []})
    return stripped


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(each) for key, each in value.items() if key not in _MADE_OF_LSNS}
    return [_stripped(each) for each in value] if isinstance(value, list) else value
