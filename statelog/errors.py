"""All exceptions of statelog, grouped by what the caller should do next.

``UsageError``: fix the code. ``ConflictError``: read again and retry. ``LimitError``: reduce the size or the number.
``FormatError``: upgrade. ``CorruptionError``: restore. ``StorageError``: check the disk or the operating system.
``AccessError``: ask for permission.

Each error has its facts as attributes, such as ``error.thread``, so no program has to parse a message.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from statelog.redaction import hidden, redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESSES: Final = ("url", "value", "path", "reason")
"""The facts that may be URLs."""
_NAMES: Final = ("thread", "key", "branch", "run", "name", "channel", "agent", "target")
"""The facts that are names, which programs use. Only secrets that a guard's rules find are hidden in these facts."""


class StatelogError(Exception):
    """The base class of all errors of statelog.

    The message and the facts hide passwords in URLs.

    Args:
        message: one line for a person.
        facts: the error's facts by name. Each becomes an attribute.
    """

    exit_code = 1

    def __init__(self, message: str, **facts: Any) -> None:
        message = redacted(message)
        super().__init__(message)
        for name in _ADDRESSES:
            if isinstance(facts.get(name), str):
                facts[name] = redacted(facts[name])
        for name in _NAMES:
            if isinstance(facts.get(name), str):
                facts[name] = hidden(facts[name])
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its facts, so that a process that unpickles it also gets the facts."""
        return (_rebuild_error, (type(self), self.message, self.facts))


def _rebuild_error(kind: type[StatelogError], message: str, facts: dict[str, Any]) -> StatelogError:
    return kind(message, **facts)


class UsageError(StatelogError):
    """The calling code is wrong, and retrying cannot help. Facts, for a single argument: argument, value."""

    exit_code = 2


class ClosedError(UsageError):
    """The store was closed. Facts: path."""


class ForkedError(UsageError):
    """The process was forked after the store was opened. Open it again in the child."""


class ReadOnlyError(UsageError):
    """The store was opened read-only."""


class GuardError(UsageError):
    """A guard is missing, or cannot carry out a request. Facts: path; or rule; or handle, tool, host."""


class CheckError(GuardError):
    """A check of a guard refuses a value, fails, or takes too long. Facts: check, reason, thread, key, path."""


class SecretError(UsageError, ValueError):
    """A secret is in a place where it cannot be stored or removed, or the guard refuses it. Facts: rule, path."""


class NotFoundError(UsageError, LookupError):
    """A name does not exist in this store. Each subclass stands for one kind of name."""

    exit_code = 3


class ThreadNotFoundError(NotFoundError):
    """No thread has this id. Facts: thread."""


class ThreadDeletedError(ThreadNotFoundError):
    """The thread was deleted. A late write does not re-create it. Facts: thread."""


class BranchNotFoundError(NotFoundError):
    """The thread has no branch with this name. Facts: thread, branch."""


class CheckpointNotFoundError(NotFoundError):
    """The version, id, tag or time does not exist. Facts: thread, branch, target."""


class ExpiredError(NotFoundError):
    """The requested data belonged to a version that retention has removed. Facts: lsn, node."""


class CursorExpiredError(ExpiredError):
    """Retention has removed some events after a cursor. List the entries again, and watch from the oldest cursor.

    Facts: cursor, oldest.
    """


class StoreNotFoundError(NotFoundError):
    """No file exists at this path. Facts: path."""

    exit_code = 11


class RunNotFoundError(NotFoundError):
    """No run has this id. Facts: run."""


class GateNotFoundError(NotFoundError):
    """No gate has this id. Facts: gate."""


class NodeNotFoundError(NotFoundError):
    """A thread of LangGraph is paused at a node that its graph does not have. Facts: thread, node, nodes."""


class MessageNotFoundError(NotFoundError):
    """The outbox has no message for this place of the run. Facts: run, place."""


class NondeterminismError(UsageError):
    """A workflow differs from its record, because the code was changed during an open run.

    The run has stopped. It continues when a worker has code that matches its record.

    Facts: run, place, recorded, called.
    """


class StepVersionError(NondeterminismError):
    """A run has recorded a result of a step version that this code cannot read.

    The version is later than the code's version, or the step's `upcast=` lacks a function. Facts: run, place, recorded,
    called, stored and declared (the versions), missing (the version without a function, or None).
    """


class CursorError(UsageError):
    """A cursor belongs to a different store, or to a history that a power failure has undone. Facts: cursor."""


class KeyArgumentError(UsageError, ValueError):
    """A value for `key=` is not a valid key. Facts: argument. No fact contains the value."""


class AnchorError(UsageError, ValueError):
    """A value for `expect=` is not an anchor. Facts: argument, value."""


class SchemaError(UsageError):
    """A schema is not valid, or differs from the schema of the thread or the entry.

    Facts: thread or key, stored, given.
    """


class SchemaVersionError(SchemaError):
    """A state, entry or item has a newer schema version than the code. Upgrade the code.

    Facts: thread, or key and for an item namespace; stored, declared.
    """


class MissingMigrationError(SchemaError):
    """No step leads from one version of a schema to the next.

    Facts: schema, stored, declared, missing; key for an entry or item, and namespace for an item.
    """


class MigrationError(SchemaError):
    """A stored state, entry or item could not be migrated to the declared version. Nothing was written.

    Facts: schema, stored, declared; step (the version it starts from) if one step has failed; channel if known; key for
    an entry or item, and namespace for an item.
    """


class ChannelError(UsageError):
    """A write names a channel that the schema does not have. Facts: channel, channels."""


class ReducerTypeError(UsageError, TypeError):
    """A reducer cannot merge a write with the current value.

    Facts: path (the channel, and the place in the write), reducer, and channel, current and write if known.
    """


class ValueTypeError(UsageError, TypeError):
    """A value cannot be stored. Facts: path, type."""


class ValidationError(UsageError, ValueError):
    """The schema refuses a value. Facts: channel, path."""


class ConflictError(StatelogError):
    """Another writer was first. Read again and retry. Facts: thread, expected_version, actual_version."""

    exit_code = 4


class AlreadyExistsError(ConflictError):
    """A name is already in use. Facts: thread, name."""


class LeaseHeldError(ConflictError):
    """Another holder has the lease. Facts: name, holder (None if it has no name), expires."""


class LeaseLostError(ConflictError):
    """A claim or a lease has ended, so the write that it fences was not made. Facts: key or name, token."""


class RunEndedError(ConflictError):
    """The run has ended. Facts: run, status."""


class FencedError(ConflictError):
    """Another owner has taken over the store. This copy no longer accepts commits, but can still be read.

    Facts: path. Also owner (its host, and the path there) and epoch, if the storage could report them.
    """


class LimitError(StatelogError, ValueError):
    """A limit of ``limits.py`` was exceeded. Facts: limit, actual; for a value, path."""

    exit_code = 5


class StoreFullError(LimitError):
    """The store's quota or the disk is used up. Reading still works.

    Facts: path; full ("quota" or "disk"); for the quota: limit, max_size_bytes.
    """


class SizeLimitError(LimitError):
    """A commit would exceed a limit set by `Store.limit`.

    Facts: thread, path (the channel, or None), unit, limit, actual.
    """


class FormatError(StatelogError):
    """A file is not a store, or has an unsupported format. Facts: path, needed, supported."""

    exit_code = 6


class NewerFormatError(FormatError):
    """A file has a newer format than this release supports. Facts: needed, supported, path if known."""

    exit_code = 12


class CorruptionError(StatelogError):
    """Stored bytes differ from the bytes that were written. Facts: lsn and node if known."""

    exit_code = 7


class JournalMissingError(CorruptionError):
    """A store was not closed, and its journal is missing. Facts: path, journal."""


class HeaderLostError(CorruptionError):
    """The header of a store with a key is lost, so salvage needs an anchor of the store. Facts: path."""


class RollbackError(CorruptionError):
    """The log ends before the LSN of an expected anchor: the file is an earlier copy, or its end is missing.

    Facts: path, lsn (of the anchor), last_lsn, expected (chain digest in hex), found (None).
    """


class ForgeryError(CorruptionError):
    """Bytes of a store that has a key are damaged or forged, or the log does not have the history of an anchor.

    With a key: the MAC of a record, a row of the index or the header does not match. Facts: lsn or key if known.

    With an anchor: records up to its LSN were changed, or commits were made to an earlier copy that was put back.
    Facts: path, lsn (of the anchor), expected, found (chain digests in hex).
    """


class OtherStoreError(ForgeryError):
    """The file is not the store of the expected anchor, and does not have the anchor's history.

    Facts: path, lsn, expected, found (as for ForgeryError; None if the log ends before `lsn`), expected_store_id,
    found_store_id (in hex).
    """


class StorageError(StatelogError):
    """The disk or the operating system reported an error. ``__cause__`` is the original error."""

    exit_code = 8


class CommitOutcomeUnknownError(StorageError):
    """A commit failed with an unknown outcome. Open the store again and check whether it was written."""


class RemoteError(StorageError):
    """The storage of a fleet is unreachable, or currently rejects requests. Local commits are kept."""


class RemoteLagError(RemoteError):
    """Too many commits have not reached the storage of a fleet yet. Facts: lag_s, lag_bytes."""


class UnsafeStorageError(StorageError):
    """A storage ignores the conditions of requests, so two writers could own one store. Facts: probe."""


class StoreReplacedError(StorageError):
    """Somebody removed or replaced the file of a store in use. Close the store in all processes, and open it again.

    Facts: path.

    The commit that first detects this may have been written to the old file.
    """


class StoreLockedError(StorageError):
    """Another process holds the store."""

    exit_code = 9


class AccessError(StatelogError):
    """The operating system or a rule does not permit the access."""

    exit_code = 10


class StoreKeyError(AccessError):
    """The key of a store is missing or wrong. Facts: path."""


class KeyMissingError(StoreKeyError):
    """The store has a key, but none was given. Facts: path, or object for a segment of a fleet."""


class WrongKeyError(StoreKeyError):
    """The given key is not the key of the store. Facts: path."""


class UnkeyedStoreError(StoreKeyError):
    """A key was given, but the store has none. Its file was replaced, or the store was not rekeyed yet. Facts: path."""


class ExecutionError(StatelogError):
    """A step or a run has failed. Check its effects."""

    exit_code = 13


class StepFailedError(ExecutionError):
    """A step raised an exception that is neither a builtin nor one of `raises=`. Facts: type, text."""


class StepTimeoutError(ExecutionError, TimeoutError):
    """A step took too long. It is unknown whether its effect happened. Facts: step, timeout_s."""


class StepInterruptedError(ExecutionError):
    """The process died during the call of an at-most-once step. Facts: step.

    It is unknown whether the effect happened. Check it, or ask somebody.
    """


class RunFailedError(ExecutionError):
    """A run has failed. Facts: run, error."""


class RunCancelledError(ExecutionError):
    """A run was cancelled. Facts: run."""


class EmbeddingError(ExecutionError, ValueError):
    """The function `embed` raised an exception, or returned something other than the vectors of its texts.

    Facts: text (its first 40 characters); for a vector of the wrong size: size and dims.
    """


class WebhookError(ExecutionError):
    """A receiver did not accept a message. Send it again later, unless `is_final` is True.

    Facts: url (without user, password and query), status (None without an answer), reason, retry_after_s (as requested
    by the receiver, or None), is_final (the receiver wants no more messages: 410).
    """


@contextmanager
def not_hiding(error: BaseException | None) -> Iterator[None]:
    """Turn an error that is raised within the `with` block into a note of `error`, so that it does not hide `error`.

    If `error` is None, the error within the block is raised.
    """
    try:
        yield
    except Exception as later:
        if error is None:
            raise
        error.add_note(f"statelog: {type(later).__name__} was also raised on leaving the block: {later}")


def __dir__() -> list[str]:
    return sorted(
        name for name, value in globals().items() if isinstance(value, type) and issubclass(value, StatelogError)
    )
