"""Every exception statelog raises, grouped by what the caller does next.

``UsageError`` fix the code, ``ConflictError`` re-read and retry, ``LimitError``
shrink, ``FormatError`` upgrade, ``CorruptionError`` restore, ``StorageError``
look at the disk or the operating system, ``AccessError`` not yours.

Each class carries its facts as attributes: they are the keyword arguments it was
raised with, so ``error.thread`` and not a parse of the message.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from statelog.redaction import hidden, redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESSES: Final = ("url", "value", "path", "reason")
"""Facts that may be addresses."""
_NAMES: Final = ("thread", "key", "branch", "run", "name", "channel", "agent", "target")
"""Facts that are names, which programs use. Only secrets that the rules of a guard find are hidden in them."""


class StatelogError(Exception):
    """Root of all statelog errors.

    Passwords of addresses are hidden in the message and in the facts.

    Args:
        message: one line for a person.
        facts: what happened, by name; each becomes an attribute.
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
        """Pickle with the facts, so that an error crosses a process boundary whole."""
        return (_rebuild_error, (type(self), self.message, self.facts))


def _rebuild_error(kind: type[StatelogError], message: str, facts: dict[str, Any]) -> StatelogError:
    return kind(message, **facts)


class UsageError(StatelogError):
    """The calling code is wrong; retrying cannot help. Facts, where it is one argument: argument, value."""

    exit_code = 2


class ClosedError(UsageError):
    """The store was closed. Facts: path."""


class ForkedError(UsageError):
    """The process was forked after the store was opened; open it again in the child."""


class ReadOnlyError(UsageError):
    """The store was opened read-only."""


class GuardError(UsageError):
    """A guard is missing, or cannot do what it is asked for. Facts: path; or rule; or handle, tool, host."""


class CheckError(GuardError):
    """A check of a guard refuses a value, fails, or takes too long. Facts: check, reason, thread, key, path."""


class SecretError(UsageError, ValueError):
    """There is a secret where none can be stored or cut out, or where the guard refuses it. Facts: rule, path."""


class NotFoundError(UsageError, LookupError):
    """A name that does not exist in this store: subclasses say of what."""

    exit_code = 3


class ThreadNotFoundError(NotFoundError):
    """No thread of that id. Facts: thread."""


class ThreadDeletedError(ThreadNotFoundError):
    """The thread was deleted: a late write does not bring it back. Facts: thread."""


class BranchNotFoundError(NotFoundError):
    """No branch of that name. Facts: thread, branch."""


class CheckpointNotFoundError(NotFoundError):
    """No such version, id, tag or time. Facts: thread, branch, target."""


class ExpiredError(NotFoundError):
    """What is asked for belonged to a version that retention let go. Facts: lsn, node."""


class CursorExpiredError(ExpiredError):
    """Some of what is behind a cursor was let go: look at what is there now, and watch from the oldest one on.

    Facts: cursor, oldest.
    """


class StoreNotFoundError(NotFoundError):
    """No file at that path. Facts: path."""

    exit_code = 11


class RunNotFoundError(NotFoundError):
    """No run of that id. Facts: run."""


class GateNotFoundError(NotFoundError):
    """No gate of that id. Facts: gate."""


class NodeNotFoundError(NotFoundError):
    """A thread of LangGraph is paused at a node that its graph does not have. Facts: thread, node, nodes."""


class MessageNotFoundError(NotFoundError):
    """No message of the outbox at that place. Facts: run, place."""


class NondeterminismError(UsageError):
    """A workflow does not do what it did when it was recorded: the code was changed under an open run.

    The run has stopped, and goes on with code that fits. Facts: run, place, recorded, called.
    """


class StepVersionError(NondeterminismError):
    """A run has recorded a result of a step version that this code cannot read.

    It is a later version than that of the code, or `upcast=` of the step lacks a function. Facts: run, place, recorded,
    called, stored and declared (the versions), missing (the version without a function, or None).
    """


class CursorError(UsageError):
    """A cursor of another store, or of a history that a loss of power took back. Facts: cursor."""


class KeyArgumentError(UsageError, ValueError):
    """A value for `key=` is not a valid key. Facts: argument. No fact has the value."""


class AnchorError(UsageError, ValueError):
    """A value for `expect=` that is not an anchor. Facts: argument, value."""


class SchemaError(UsageError):
    """A schema that cannot be one, or differs from the remembered one. Facts: thread, stored, given."""


class SchemaVersionError(SchemaError):
    """A state of a newer schema version than the code declares: upgrade the code. Facts: thread, stored, declared."""


class MissingMigrationError(SchemaError):
    """No step leads from one version of a schema to the next. Facts: schema, stored, declared, missing."""


class MigrationError(SchemaError):
    """A stored state could not be brought to the declared version; nothing was written.

    Facts: schema, stored, declared; step (the version it starts from) if one step has failed; channel if known.
    """


class ChannelError(UsageError):
    """A write to a channel the schema does not have. Facts: channel, channels."""


class ReducerTypeError(UsageError, TypeError):
    """A write its reducer cannot merge with the value there.

    Facts: path (the channel, and where in the write), reducer, and of channel, current and write what is known.
    """


class ValueTypeError(UsageError, TypeError):
    """A value that cannot be stored. Facts: path, type."""


class ValidationError(UsageError, ValueError):
    """A value the schema refuses. Facts: channel, path."""


class ConflictError(StatelogError):
    """Someone else was first: re-read and retry. Facts: thread, expected_version, actual_version."""

    exit_code = 4


class AlreadyExistsError(ConflictError):
    """A name that is taken. Facts: thread, name."""


class LeaseHeldError(ConflictError):
    """Somebody else has the lease. Facts: name, holder (None if it has no name), expires."""


class LeaseLostError(ConflictError):
    """A claim or a lease has ended, so what it was a fence of was not done. Facts: key or name, token."""


class RunEndedError(ConflictError):
    """The run has ended. Facts: run, status."""


class FencedError(ConflictError):
    """Another owner has taken over the store. This copy does not accept commits any more, but can still be read.

    Facts: path. Also owner (its host, and the path there) and epoch, if the storage could report them.
    """


class LimitError(StatelogError, ValueError):
    """A bound of ``limits.py`` was passed. Facts: limit, actual; of a value, path."""

    exit_code = 5


class StoreFullError(LimitError):
    """The store's quota, or the disk, is used up; reading goes on.

    Facts: path; full ("quota" or "disk"); of the quota: limit, max_size_bytes.
    """


class SizeLimitError(LimitError):
    """A commit would pass a limit of `Store.limit`. Facts: thread, path (the channel, or None), unit, limit, actual."""


class FormatError(StatelogError):
    """Not a statelog file, or one of another format. Facts: path, needed, supported."""

    exit_code = 6


class NewerFormatError(FormatError):
    """A file of a newer format than this release reads. Facts: needed, supported, path where known."""

    exit_code = 12


class CorruptionError(StatelogError):
    """Bytes that are not what was written. Facts: lsn, node where known."""

    exit_code = 7


class JournalMissingError(CorruptionError):
    """A store was not closed, and the journal beside it is gone. Facts: path, journal."""


class HeaderLostError(CorruptionError):
    """The header of a store with a key is lost, so salvage needs an anchor of the store. Facts: path."""


class RollbackError(CorruptionError):
    """The log ends before the LSN of an expected anchor: the file is an earlier copy, or its end was cut off.

    Facts: path, lsn (of the anchor), last_lsn, expected (chain digest in hex), found (None).
    """


class ForgeryError(CorruptionError):
    """Bytes of a store that has a key are damaged or forged, or the log does not have the history of an anchor.

    With a key: the MAC of a record, of a row of the index or of the header does not match. Facts: lsn or key if known.

    With an anchor: records up to its LSN were changed, or commits were made to an earlier copy that was put back.
    Facts: path, lsn (of the anchor), expected, found (chain digests in hex).
    """


class OtherStoreError(ForgeryError):
    """The file is another store than the one of an expected anchor, and does not have its history.

    Facts: path, lsn, expected, found (as of ForgeryError; None if the log ends before `lsn`), expected_store_id,
    found_store_id (in hex).
    """


class StorageError(StatelogError):
    """The disk or the operating system refused; ``__cause__`` is what it said."""

    exit_code = 8


class CommitOutcomeUnknownError(StorageError):
    """A commit failed in a way that leaves open whether it happened: reopen and look."""


class RemoteError(StorageError):
    """The storage of a fleet is away, or refuses for the moment: what was committed here is here."""


class RemoteLagError(RemoteError):
    """Too much was committed that the storage of a fleet does not have yet. Facts: lag_s, lag_bytes."""


class UnsafeStorageError(StorageError):
    """A storage ignores the conditions of requests: two writers would both own a store. Facts: probe."""


class StoreReplacedError(StorageError):
    """Somebody removed or replaced the file of a store in use: close it everywhere, and open it. Facts: path.

    The commit that is the first to notice it may be in the former file.
    """


class StoreLockedError(StorageError):
    """Another process holds the store."""

    exit_code = 9


class AccessError(StatelogError):
    """Not yours: permission of the file, or of the space in it."""

    exit_code = 10


class StoreKeyError(AccessError):
    """The key of a store is missing or wrong. Facts: path."""


class KeyMissingError(StoreKeyError):
    """The store has a key, and none was given. Facts: path, or object for a segment of a fleet."""


class WrongKeyError(StoreKeyError):
    """The given key is not the key of the store. Facts: path."""


class UnkeyedStoreError(StoreKeyError):
    """A key was given, and the store has none: it was replaced by another file, or not rekeyed yet. Facts: path."""


class ExecutionError(StatelogError):
    """A step or a run has failed: look at what it did."""

    exit_code = 13


class StepFailedError(ExecutionError):
    """A step raised an exception that is neither a builtin nor one of `raises=`. Facts: type, text."""


class StepTimeoutError(ExecutionError, TimeoutError):
    """A step took too long. Whether its effect happened is not known. Facts: step, timeout_s."""


class StepInterruptedError(ExecutionError):
    """The process died while a step was called that is to be called once at most. Facts: step.

    Nobody knows whether the effect happened: look, or ask.
    """


class RunFailedError(ExecutionError):
    """A run has failed. Facts: run, error."""


class RunCancelledError(ExecutionError):
    """A run was cancelled. Facts: run."""


class EmbeddingError(ExecutionError, ValueError):
    """The function `embed` raised an exception, or returned something other than the vectors of its texts.

    Facts: text (its first 40 characters); of a vector of another size size and dims.
    """


class WebhookError(ExecutionError):
    """A message was not taken: send it again later, if it is not final.

    Facts: url (without user, password and query), status (None without an answer), reason, retry_after_s (what the
    receiver asked for, or None), is_final (it wants no more messages: 410).
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
        error.add_note(f"statelog: as the block was left, {type(later).__name__} was raised, too: {later}")


def __dir__() -> list[str]:
    return sorted(
        name for name, value in globals().items() if isinstance(value, type) and issubclass(value, StatelogError)
    )
