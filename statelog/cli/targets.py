"""From what a person types to stores, threads and checkpoints."""

from __future__ import annotations

import difflib
import json
import re
import sys
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from statelog.cli.values import from_json
from statelog.errors import CheckpointNotFoundError, NotFoundError, ThreadDeletedError, ThreadNotFoundError, UsageError
from statelog.store.session import session_of

if TYPE_CHECKING:
    from statelog import Checkpoint, Store, Thread

_THREADS_COMPARED_MAX = 1000
_KINDS = ("version", "tag", "id", "time")
_DATE = re.compile(r"\d{4}-?\d\d-?\d\d")


def open_for_reading(path: Path) -> Store:
    """Open a store that must exist; nothing is written to it."""
    return statelog.open(path, read_only=True)


def open_for_writing(path: Path) -> Store:
    """Open a store that must exist."""
    return statelog.open(path, create=False)


def find_thread(store: Store, thread_id: str, branch: str) -> Thread:
    """Return a thread that must exist, on a branch that must.

    Raises:
        ThreadNotFoundError: there is none; the message has the most similar name.
        ThreadDeletedError: there is none any more.
        BranchNotFoundError: as it says.

    """
    thread = store.thread(thread_id)
    if thread.branches():
        return thread if branch == "main" else thread.checkout(branch)
    with session_of(store).read() as view:
        if view.is_deleted(thread_id):
            message = f"thread {thread_id!r} in {store.path} was deleted"
            raise ThreadDeletedError(message, thread=thread_id)
    ids = [info.id for info in islice(store.threads(), _THREADS_COMPARED_MAX)]
    similar = difflib.get_close_matches(thread_id, ids, n=1)
    hint = f": did you mean {similar[0]!r}?" if similar else f" (`statelog threads {store.path}` lists them)"
    message = f"no thread {thread_id!r} in {store.path}{hint}"
    raise ThreadNotFoundError(message, thread=thread_id)


def find_checkpoint(thread: Thread, text: str | None) -> Checkpoint:
    """Return the checkpoint that a text names, the head for None.

    A text without a kind before it is a version if it is a number, else a tag or id, else
    a time. A time without offset is local.

    Raises:
        CheckpointNotFoundError: there is none.
        UsageError: a time or version that cannot be one.

    """
    if text is None:
        head = thread.head
        assert head is not None, "a thread comes to be with its first checkpoint"
        return head
    kind, _, rest = text.partition(":")
    if kind in _KINDS and rest:
        return _find_kind(thread, kind, rest)
    if re.fullmatch(r"-?\d+", text, re.ASCII):
        return _find_kind(thread, "version", text)
    try:
        return thread.at(text)
    except CheckpointNotFoundError:
        if _DATE.match(text) is None:
            raise
        return _find_kind(thread, "time", text)


def _find_kind(thread: Thread, kind: str, text: str) -> Checkpoint:
    if kind in ("tag", "id"):
        return thread.at(text)
    try:
        return thread.at(int(text) if kind == "version" else datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        message = f"{text!r} is no {kind}: {error}"
        raise UsageError(message) from error


def find_side(thread: Thread, text: str) -> Checkpoint:
    """Return one side of a comparison: `TARGET`, `BRANCH` (its head) or `BRANCH@TARGET`."""
    names = {branch.name for branch in thread.branches()}
    branch, mark, target = text.rpartition("@")
    if mark and branch in names:
        return find_checkpoint(thread.checkout(branch), None if target in ("", "head") else target)
    if text == "head":
        return find_checkpoint(thread, None)
    try:
        return find_checkpoint(thread, text)
    except NotFoundError as error:
        if text in names:
            return find_checkpoint(thread.checkout(text), None)
        message = f"{error.message}; no branch of that name either (there is {', '.join(sorted(names))})"
        raise CheckpointNotFoundError(message, **error.facts) from None


def parse_object(text: str | None, what: str) -> dict[str, Any] | None:
    """Return the JSON object of an option: the text itself, `@FILE`, or `-` for stdin.

    Raises:
        UsageError: it is no JSON object. StatelogError: the file cannot be read.

    """
    if text is None:
        return None
    source = text
    try:
        if text == "-":
            source = sys.stdin.read()
        elif text.startswith("@"):
            source = Path(text[1:]).read_text(encoding="utf-8")
        document = from_json(json.loads(source))
    except OSError as error:
        message = f"{what}: cannot read {text[1:]!r}: {error.strerror}"
        raise UsageError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"{what} is no JSON: {error}"
        raise UsageError(message) from error
    if not isinstance(document, dict):
        message = f"{what} must be a JSON object, not {source.strip():.40}"
        raise UsageError(message)
    return document
