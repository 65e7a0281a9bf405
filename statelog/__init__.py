"""The state of an AI agent in one file, embedded in the agent's process: no server."""

from statelog import errors, reducers
from statelog.checkpoint import Checkpoint
from statelog.diff import Change, Diff, diff
from statelog.errors import (
    AccessError,
    ConflictError,
    CorruptionError,
    FormatError,
    JournalMissingError,
    LimitError,
    NotFoundError,
    StatelogError,
    StorageError,
    StoreFullError,
    ThreadDeletedError,
    UsageError,
)
from statelog.format.cbor import register_codec
from statelog.mutable import Encoded
from statelog.recover import RecoveryReport, recover
from statelog.store import Store, open
from statelog.thread import Thread

__all__ = [
    "AccessError",
    "Change",
    "Checkpoint",
    "ConflictError",
    "CorruptionError",
    "Diff",
    "Encoded",
    "FormatError",
    "JournalMissingError",
    "LimitError",
    "NotFoundError",
    "RecoveryReport",
    "StatelogError",
    "StorageError",
    "Store",
    "StoreFullError",
    "Thread",
    "ThreadDeletedError",
    "UsageError",
    "diff",
    "errors",
    "open",
    "recover",
    "reducers",
    "register_codec",
]
