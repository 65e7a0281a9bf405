"""Finds the threads and checkpoints that a command line names."""

from __future__ import annotations

import difflib
import json
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.cli.text import parse_age
from statelog.cli.values import from_json
from statelog.errors import (
    BranchNotFoundError,
    CheckpointNotFoundError,
    NotFoundError,
    ThreadDeletedError,
    ThreadNotFoundError,
    UsageError,
)
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from statelog import Checkpoint, Store, Thread

_THREADS_COMPARED_MAX = 1000
_KINDS = ("version", "tag", "id", "time")
_NAMES_TOLD_MAX = 20
_VERSION = re.compile(r"-?\d+", re.ASCII)
_AGO = " ago"


def find_thread(
    store: Store, thread_id: str, branch: str | None = None, *, include_quarantined: bool = False
) -> Thread:
    """Return an existing thread on an existing branch. The default is the branch that the thread shows.

    A branch of a LangGraph thread may be named by the id of a checkpoint on it.

    Raises:
        ThreadNotFoundError: the thread does not exist. The message has the most similar id.
        ThreadDeletedError: the thread was deleted.
        BranchNotFoundError: the branch does not exist. The message has the most similar name, or all names.
    """
    thread = store.thread(thread_id, include_quarantined=include_quarantined)
    if branches := thread.branches():
        if branch is None:
            return thread
        try:
            return thread.checkout(branch)
        except BranchNotFoundError as error:
            names = [info.name for info in branches]
            message = f"{error.message}{_suggest(branch, names) or _enumerate(names)}"
            raise BranchNotFoundError(message, **error.facts) from None
    with session_of(store).read() as view:
        if view.is_deleted(thread_id):
            message = f"thread {thread_id!r} in {store.path} was deleted"
            raise ThreadDeletedError(message, thread=thread_id)
    ids = [info.id for info in islice(store.threads(), _THREADS_COMPARED_MAX)]
    hint = _suggest(thread_id, ids) or f" (`statelog threads {store.path}` lists them)"
    message = f"no thread {thread_id!r} in {store.path}{hint}"
    raise ThreadNotFoundError(message, thread=thread_id)


def _suggest(name: str, names: Collection[str]) -> str:
    """Return a question with the most similar name, or an empty string if no name is similar."""
    similar = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {similar[0]!r}?" if similar else ""


def _enumerate(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_TOLD_MAX:,} more" if len(names) > _NAMES_TOLD_MAX else ""
    return f" (there is {', '.join(names[:_NAMES_TOLD_MAX])}{more})"


def find_checkpoint(thread: Thread, text: str | None) -> Checkpoint:
    """Return the checkpoint that `text` names, or the head for None.

    Without a prefix such as `tag:`, a number is a version, and a string such as `3m ago` is an age. Any other string is
    a tag, an id or a time. A time without an offset is local.

    Raises:
        CheckpointNotFoundError: there is no such checkpoint. The message has the most similar tag.
        UsageError: the time or version is not valid.
    """
    if text is None:
        head = thread.head
        if head is None:  # Every thread has a checkpoint when it is created, but LangGraph may remove all of them.
            message = f"thread {thread.id!r}: LangGraph has removed all of its checkpoints"
            raise CheckpointNotFoundError(message, thread=thread.id, branch=thread.branch, target=None)
        return head
    kind, _, rest = text.partition(":")
    if kind not in _KINDS or not rest:
        kind, rest = "version" if _VERSION.fullmatch(text) else "", text
    try:
        return _find_kind(thread, kind, rest)
    except CheckpointNotFoundError as error:
        if kind not in ("", "tag"):
            raise
        message = f"{error.message}{_suggest(rest, thread.tags())}"
        raise CheckpointNotFoundError(message, **error.facts) from None


def _find_kind(thread: Thread, kind: str, text: str) -> Checkpoint:
    try:
        if kind == "version":
            return thread.at(int(text))
        if kind in ("", "time") and text.endswith(_AGO) and (age_s := parse_age(text.removesuffix(_AGO))) is not None:
            return thread.at(datetime.now(UTC) - timedelta(seconds=age_s))
        if kind == "time":
            return thread.at(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        message = f"{text!r} is not a valid {kind or 'age'}: {error}"
        raise UsageError(message) from error
    found = thread.tags().get(text) if kind == "tag" else thread.at(text)
    if found is None or (kind == "id" and found.id != text):
        message = f"thread {thread.id!r} has no {kind} {text!r}"
        raise CheckpointNotFoundError(message, thread=thread.id, branch=thread.branch, target=text)
    return found


def find_side(thread: Thread, text: str) -> Checkpoint:
    """Return one side of a comparison: `TARGET`, `BRANCH` (its head) or `BRANCH@TARGET`."""
    names = [branch.name for branch in thread.branches()]
    branch, mark, target = text.rpartition("@")
    line = None
    if mark and branch:
        with suppress(BranchNotFoundError, UsageError):  # If this fails, the @ is part of a name.
            line = thread.checkout(branch)
    if line is not None:
        return find_checkpoint(line, None if target in ("", "head") else target)
    if text == "head":
        return find_checkpoint(thread, None)
    try:
        return find_checkpoint(thread, text)
    except NotFoundError as error:
        if text in names:
            return find_checkpoint(thread.checkout(text), None)
        hint = "" if error.message.endswith("?") else _suggest(branch if mark else text, names) or _enumerate(names)
        message = f"{error.message}{hint and '; no branch of that name either'}{hint}"
        raise CheckpointNotFoundError(message, **error.facts) from None


def parse_object(text: str | None, what: str) -> dict[str, Any] | None:
    """Return the JSON object of an option: the text itself, `@FILE`, or `-` for stdin.

    Raises:
        UsageError: the string is not a JSON object. StatelogError: the file cannot be read.
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
        message = f"{what} is not valid JSON: {error}"
        raise UsageError(message) from error
    if not isinstance(document, dict):
        message = f"{what} must be a JSON object, not {source.strip():.40}"
        raise UsageError(message)
    return document
