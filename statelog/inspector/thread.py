"""The screen of one thread: its branches and versions, the state and changes of a version, rollback and fork."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from statelog.adapters.langgraph.deltas import delta_channels_left_out, delta_items, find_changes
from statelog.display.graphs import GRAPH_COLUMNS, graph_cells, is_graph, is_inner
from statelog.errors import (
    CheckpointNotFoundError,
    CorruptionError,
    ExpiredError,
    NotFoundError,
    StatelogError,
    ThreadNotFoundError,
    UsageError,
)
from statelog.inspector.answers import error_document, page_limit, reading, whole_number, writing
from statelog.inspector.conversation import conversation
from statelog.inspector.values import AnswerLimits, display, keys_to, path_of, rest
from statelog.store.frameworks import is_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.requests import Request

    from statelog import Change, Checkpoint, Store, Thread
    from statelog.inspector.opened import Inspected

PARTS = ("state", "messages", "changes")
"""The parts of a version. An answer contains the part whose tab is open."""
_BRANCHES_MAX = 500
_TAGS_MAX = 500
_CHANGES_MAX = 200
_VERSIONS_OPENED = 50
MESSAGES_SHOWN = 50
_CHANGE_NODES = 40
"""The maximum number of nodes shown for the old and for the new value of a change."""


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screen."""
    reads = {"": _thread, "/open": _open, "/versions": _versions, "/version": _version, "/value": _value}
    reads |= {"/diff": _diff, "/messages": _messages}
    writes = {"/rollback": _roll_back, "/fork": _fork, "/tag": _tag, "/untag": _untag}
    store = inspected.store
    return [
        *(Route(f"/api/thread{path}", reading(partial(answer, store))) for path, answer in reads.items()),
        *(
            Route(f"/api/thread{path}", writing(partial(answer, store)), methods=["POST"])
            for path, answer in writes.items()
        ),
    ]


def _thread(store: Store, request: Request) -> Any:
    return describe(_thread_of(store, request.query_params))


def _open(store: Store, request: Request) -> Any:
    """Return everything that the screen shows first."""
    query = request.query_params
    found = _thread_of(store, query)
    try:
        checkpoint = read_version(found, query.get("version"))
    except CheckpointNotFoundError as error:  # A bookmark may name a version that retention has removed.
        if not query.get("version"):
            raise
        checkpoint = Unreadable(int(query["version"]), error)
    return describe_opened(store, found, checkpoint, query.get("part", ""), AnswerLimits())


def _versions(store: Store, request: Request) -> Any:
    found = _thread_of(store, request.query_params)
    before = whole_number(request, "before", last_version(found) + 1)
    return {"versions": describe_versions(found, page_limit(request), before)}


def _version(store: Store, request: Request) -> Any:
    query = request.query_params
    checkpoint, part = read_version(_thread_of(store, query), query.get("version")), query.get("part", "state")
    if part not in PARTS:
        message = f"a part of a version must be one of {', '.join(PARTS)}, not {part[:40]!r}"
        raise UsageError(message, argument="part", value=part[:40])
    if isinstance(checkpoint, Unreadable):
        return describe_version(checkpoint)
    old = _against(store, query) if part == "changes" and "against_version" in query else None
    return describe_part(store, checkpoint, part, AnswerLimits(), against=old)


class Unreadable(NamedTuple):
    """A version whose record is damaged, or was removed by retention."""

    version: int
    error: StatelogError


def read_version(thread: Thread, version: Any = None) -> Checkpoint | Unreadable:
    """Return a version of a thread, or the head if `version` is None, even if its record is damaged."""
    try:
        return _checkpoint(thread, version)
    except CorruptionError as error:
        return Unreadable(int(version or last_version(thread)), error)


def readable(thread: Thread) -> Thread:
    """Return the thread. If its head is damaged, return a thread on the same branch that does not read the head."""
    try:
        _ = thread.head
    except CorruptionError:
        return thread.checkout(thread.branch)
    return thread


def last_version(thread: Thread) -> int:
    """Return the number of the last version, even if its record is damaged; -1 if there is none."""
    try:
        return thread.version
    except CorruptionError:
        return next(each.head_version for each in thread.branches() if each.name == thread.branch)


def read_versions(thread: Thread, limit: int, before: int) -> Iterator[Checkpoint | Unreadable]:
    """Yield up to `limit` versions below `before`, newest first. A damaged version does not hide the others."""
    try:
        yield from list(thread.history(limit, before=before))
    except CorruptionError:
        yield from islice(_read_one_by_one(thread, before), limit)


def describe_versions(thread: Thread, limit: int, before: int) -> list[dict[str, Any]]:
    """Return the rows of up to `limit` versions below `before`, newest first.

    Versions that retention removes meanwhile are left out.
    """
    rows = []
    for each in read_versions(thread, limit, before):
        with suppress(ExpiredError):
            rows.append(describe_version(each))
    return rows


def _read_one_by_one(thread: Thread, before: int) -> Iterator[Checkpoint | Unreadable]:
    for version in range(min(before, last_version(thread) + 1) - 1, -1, -1):
        try:
            yield thread.at(version)
        except CorruptionError as error:
            yield Unreadable(version, error)
        except NotFoundError:  # Retention has removed the version.
            continue


def _against(store: Store, query: Mapping[str, Any]) -> Checkpoint:
    """Return the version that a request compares with the shown version."""
    return _checkpoint(_thread_named(store, _text(query, "id"), query.get("against_branch")), query["against_version"])


def _value(store: Store, request: Request) -> Any:
    value = _channel(store, _checkpoint_of(store, request.query_params), request.query_params.get("channel", ""))
    room = AnswerLimits(nodes=3000, items=200, characters=200_000)
    return rest(value, path_of(request), whole_number(request, "start", 0), room)


def _diff(store: Store, request: Request) -> Any:
    query = request.query_params
    new = _checkpoint_of(store, query)
    old = _against(store, query) if "against_version" in query else new.parent
    return describe_changes(old, new, find_changes(store, old, new))


def _messages(store: Store, request: Request) -> Any:
    found = _checkpoint_of(store, request.query_params)
    return conversation(store, found, before=whole_number(request, "before", 2**40), limit=page_limit(request))


# --- what a request names ------------------------------------------------------------


def _text(given: Mapping[str, Any], name: str) -> str:
    text = given.get(name)
    if not isinstance(text, str):
        message = f"{name} must be a str, not {text!r}"
        raise UsageError(message, argument=name, value=text)
    return text


def _thread_of(store: Store, given: Mapping[str, Any]) -> Thread:
    """Return the thread that a request names, on the named branch. The default is the branch that the thread shows."""
    return _thread_named(store, _text(given, "id"), _text(given, "branch") if given.get("branch") else None)


def _thread_named(store: Store, id: str, branch: str | None) -> Thread:
    thread = store.thread(id, branch=branch)
    if not thread.branches():
        message = f"no thread {id!r} in {store.path}"
        raise ThreadNotFoundError(message, thread=id)
    return readable(thread)


def _checkpoint_of(store: Store, given: Mapping[str, Any]) -> Checkpoint:
    return _checkpoint(_thread_of(store, given), given.get("version"))


def _checkpoint(thread: Thread, version: Any) -> Checkpoint:
    """Return a version of a thread, or the head if `version` is None."""
    if version is None or version == "":
        head = thread.head
        if head is None:
            message = f"thread {thread.id!r} has no version on branch {thread.branch!r} yet"
            raise CheckpointNotFoundError(message, thread=thread.id, branch=thread.branch, target=None)
        return head
    text = str(version)
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        message = f"a version must be a whole number from 0, not {text[:40]!r}"
        raise UsageError(message, argument="version", value=text[:40])
    return thread.at(int(text))


def _channel(store: Store, checkpoint: Checkpoint, name: str) -> Any:
    state = checkpoint.state.lazy
    if name not in state:
        if is_graph(state) and name in delta_channels_left_out(checkpoint):
            return delta_items(store, checkpoint, name)
        message = f"version {checkpoint.version} of thread {checkpoint.thread_id!r} has no channel {name!r}"
        raise UsageError(message, argument="channel", value=name)
    return state[name]


# --- what the screen shows -----------------------------------------------------------


def describe(thread: Thread) -> dict[str, Any]:
    """Return a thread's branches and tags, and the branch and version that it shows."""
    branches = thread.branches()
    try:
        head = thread.head
    except CorruptionError:  # The other versions may be readable.
        head = None
    is_of_graph = head is not None and is_graph(head.state)
    tags = thread.tags()
    return {
        "id": thread.id,
        "branch": thread.branch if head is None or thread.branch != "main" else head.branch,
        "version": last_version(thread),
        "is_graph": is_of_graph,
        "branches": [
            {
                "name": each.name,
                "parent": each.parent,
                "base": each.base_version,
                "head": each.head_version,
                "is_inner": is_of_graph and is_line(each.name) and not each.name.startswith("main"),
            }
            for each in branches[:_BRANCHES_MAX]
        ],
        "branches_total": len(branches),
        "tags": [
            {"name": name, "branch": each.branch, "version": each.version}
            for name, each in islice(tags.items(), _TAGS_MAX)
        ],
        "columns": list(GRAPH_COLUMNS) if is_of_graph else ["metadata", "channels"],
    }


def describe_version(checkpoint: Checkpoint | Unreadable) -> dict[str, Any]:
    """Return the row of a version in a list. The row of a damaged version has the error as `problem`."""
    if isinstance(checkpoint, Unreadable):
        return {"version": checkpoint.version, "problem": error_document(checkpoint.error)}
    try:
        parent = checkpoint.parent
    except CorruptionError:
        parent = None
    row: dict[str, Any] = {
        "version": checkpoint.version,
        "branch": checkpoint.branch,
        "id": checkpoint.id,
        "time": checkpoint.time.isoformat(),
        "kind": checkpoint.kind,
        "channels": list(checkpoint.channels_written)[:50],
        "parent": None if parent is None else {"branch": parent.branch, "version": parent.version},
    }
    if checkpoint.schema_version > 1:
        row["schema_version"] = checkpoint.schema_version
    if is_graph(checkpoint.state):
        row["channels"] = [name for name in row["channels"] if not is_inner(name)]
        row["graph"] = [cell[:300] for cell in graph_cells(checkpoint, parent)]
    else:
        row["metadata"] = display(checkpoint.metadata, AnswerLimits(nodes=12, items=8, characters=80, depth=1))
    return row


def describe_opened(
    store: Store, thread: Thread, checkpoint: Checkpoint | Unreadable, part: str, room: AnswerLimits
) -> dict[str, Any]:
    """Return a thread, the versions around `checkpoint`, and `checkpoint` with one part; by default, its messages.

    A version without messages has its state instead.
    """
    if isinstance(checkpoint, Unreadable):
        version = describe_version(checkpoint)
    else:
        version = describe_part(store, checkpoint, part if part in PARTS else "messages", room)
        if part not in PARTS and not version.get("messages", {}).get("channels"):
            version = describe_part(store, checkpoint, "state", room)
    before = min(checkpoint.version + _VERSIONS_OPENED // 2, last_version(thread) + 1)
    return {
        "thread": describe(thread),
        "versions": describe_versions(thread, _VERSIONS_OPENED, before),
        "version": version,
    }


def describe_part(
    store: Store, checkpoint: Checkpoint, part: str, room: AnswerLimits, *, against: Checkpoint | None = None
) -> dict[str, Any]:
    """Return a version with one of `PARTS`, or with `problem` if damage makes the part unreadable.

    Args:
        store: the store.
        checkpoint: the version.
        part: "state", "messages" or "changes".
        room: the limits of the state.
        against: the version to compare with. By default, the parent.
    """
    answer = {**describe_head(checkpoint), "python": python_of(store, checkpoint)}
    try:
        if part == "state":
            answer["state"] = describe_state(store, checkpoint, room)
        elif part == "messages":
            answer["messages"] = conversation(store, checkpoint, before=2**40, limit=MESSAGES_SHOWN)
        else:
            old = checkpoint.parent if against is None else against
            answer["changes"] = describe_changes(old, checkpoint, find_changes(store, old, checkpoint))
    except CorruptionError as error:
        answer["problem"] = error_document(error)
    return answer


def describe_head(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the facts of a version that are shown above its parts."""
    return {**describe_version(checkpoint), "digest": checkpoint.digest, "metadata": display(checkpoint.metadata)}


def describe_state(
    store: Store, checkpoint: Checkpoint, room: AnswerLimits, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the channels of a version. They share the limits `room`.

    `inner` names LangGraph's own channels. `deltas` names channels that the checkpoint does not store: their values are
    computed from writes of earlier steps. `known` is a cache of channels.
    """
    known = {} if known is None else known
    state = checkpoint.state.lazy
    is_of_graph = is_graph(state)
    deltas = delta_channels_left_out(checkpoint) if is_of_graph else []
    names = sorted([*state, *deltas], key=lambda name: (is_inner(name), name)) if is_of_graph else list(state)
    shown = names[: room.items]
    for name in shown:
        if name not in known or name in deltas:
            room_of_one = replace(room, nodes=max(room.nodes // len(shown), 20))
            known[name] = display(_channel(store, checkpoint, name), room_of_one)
    return {
        "t": "dict",
        "size": len(names),
        "items": [[name, known[name]] for name in shown],
        "inner": [name for name in shown if is_inner(name)] if is_of_graph else [],
        "deltas": deltas,
        "written": list(checkpoint.channels_written),
    }


def describe_changes(old: Checkpoint | None, new: Checkpoint, found: Iterable[Change]) -> dict[str, Any]:
    """Return the first of the changes `found` between two versions, and their number. Leave out inner channels."""
    hides = is_graph(new.state)
    changes = [each for each in found if not (hides and is_inner(str(each.path[0])))]

    def side(value: Any) -> dict[str, Any]:
        return display(value, AnswerLimits(nodes=_CHANGE_NODES, items=20, characters=4000))

    return {
        "old": None if old is None else {"branch": old.branch, "version": old.version},
        "new": {"branch": new.branch, "version": new.version},
        "total": len(changes),
        "changes": [
            {
                "path": [step if isinstance(step, str | int) else repr(step) for step in each.path],
                "kind": each.kind,
                "old": None if each.kind == "added" else side(each.old),
                "new": None if each.kind == "removed" else side(each.new),
            }
            for each in changes[:_CHANGES_MAX]
        ],
    }


def python_of(store: Store, checkpoint: Checkpoint) -> str:
    """Return Python code that opens a version."""
    path, id = str(store.path), checkpoint.thread_id
    if is_graph(checkpoint.state) and checkpoint.branch.startswith("main"):
        return (
            "from statelog.adapters.langgraph import StatelogSaver\n\n"
            f"with StatelogSaver.open({path!r}) as saver:\n"
            f'    config = {{"configurable": {{"thread_id": {id!r}, "checkpoint_id": {checkpoint.id!r}}}}}\n'
            "    graph = builder.compile(checkpointer=saver)\n"
            "    print(graph.get_state(config).values)\n"
        )
    return (
        "import statelog\n\n"
        f"with statelog.open({path!r}, read_only=True) as store:\n"
        f"    checkpoint = store.thread({id!r}, branch={checkpoint.branch!r}).at({checkpoint.version})\n"
        "    print(checkpoint.state)\n"
    )


# --- writes --------------------------------------------------------------------------


def _roll_back(store: Store, _request: Request, given: Mapping[str, Any]) -> Any:
    """Append a version with an earlier state. `expected_version` in the request is the head that the page shows."""
    target = _checkpoint_of(store, given)
    made = _thread_of(store, given).rollback(target.id, expected_version=given.get("expected_version"))
    return {"branch": made.branch, "version": made.version}


def _tag(store: Store, _request: Request, given: Mapping[str, Any]) -> Any:
    tagged = _thread_of(store, given).tag(_text(given, "name"), _checkpoint_of(store, given).id)
    return {"branch": tagged.branch, "version": tagged.version}


def _untag(store: Store, _request: Request, given: Mapping[str, Any]) -> Any:
    _thread_of(store, given).untag(_text(given, "name"))
    return {}


def _fork(store: Store, _request: Request, given: Mapping[str, Any]) -> Any:
    """Begin a branch at a version. With `edit`, its first commit changes one value.

    `edit` is {channel, path, json}: `path` has the positions that lead to the value, and `json` is the new value.
    """
    thread, base = _thread_of(store, given), _checkpoint_of(store, given)
    name, edit = _text(given, "name"), given.get("edit")
    if edit is None:
        made = thread.fork(name, at=base.id)
        return {"branch": name, "version": made.version}
    if not isinstance(edit, Mapping) or not isinstance(edit.get("path"), list):
        message = "edit must be an object with channel, path and json"
        raise UsageError(message, argument="edit")
    if is_graph(base.state):
        message = (
            f"thread {thread.id!r} belongs to LangGraph, which would not see an edited value: "
            "call graph.update_state(config, values) instead"
        )
        raise UsageError(message, thread=thread.id)
    channel, value = _text(edit, "channel"), _decode(_text(edit, "json"))
    *outer, last = [channel, *keys_to(_channel(store, base, channel), edit["path"])]

    def change(state: Any) -> None:
        for key in outer:
            state = state[key]
        state[last] = value

    with store.transaction() as transaction:
        forked = transaction.thread(thread.id, branch=thread.branch).fork(name, at=base.id)
        forked.edit(change, metadata={"edited": channel})
    return {"branch": name, "version": store.thread(thread.id, branch=name).version}


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"the new value is not JSON: {error}"
        raise UsageError(message, argument="json") from None
