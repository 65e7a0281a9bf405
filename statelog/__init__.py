"""The state of an AI agent in one file, embedded in the agent's process: no server."""

from statelog import errors, reducers
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
from statelog.store.board import Board, Entry
from statelog.store.checkpoint import Checkpoint
from statelog.store.diff import Change, Diff, diff
from statelog.store.encoded import Encoded
from statelog.store.recover import RecoveryReport, recover
from statelog.store.store import Store, open
from statelog.store.thread import Thread

__all__ = [
    "AccessError",
    "Board",
    "Change",
    "Checkpoint",
    "ConflictError",
    "CorruptionError",
    "Diff",
    "Encoded",
    "Entry",
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
