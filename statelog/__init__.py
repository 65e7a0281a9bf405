"""The state of an AI agent in one file, embedded in the agent's process: no server."""

from typing import TYPE_CHECKING

from statelog import errors, reducers
from statelog.errors import (
    AccessError,
    ConflictError,
    CorruptionError,
    ForgeryError,
    FormatError,
    GuardError,
    JournalMissingError,
    LimitError,
    NotFoundError,
    RollbackError,
    SecretError,
    StatelogError,
    StorageError,
    StoreFullError,
    ThreadDeletedError,
    UsageError,
)
from statelog.format.cbor import register_codec
from statelog.late import late_names
from statelog.store.checkpoint import Checkpoint
from statelog.store.store import Store, open
from statelog.store.thread import Thread

if TYPE_CHECKING:
    from statelog import guard
    from statelog.board.rules import Rules
    from statelog.guard.policy import Guard
    from statelog.memory.memory import Memory
    from statelog.schema.versions import Versioned, versioned
    from statelog.store.board import Board
    from statelog.store.claims import Claim, Lease
    from statelog.store.diff import Change, Diff, diff
    from statelog.store.encoded import Encoded
    from statelog.store.entries import Entry
    from statelog.store.recover import RecoveryReport, recover
    from statelog.store.size_limits import SizeWarning
    from statelog.store.watching import Event
else:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "statelog.board.rules": ("Rules",),
            "statelog.guard": (),
            "statelog.guard.policy": ("Guard",),
            "statelog.memory.memory": ("Memory",),
            "statelog.schema.versions": ("Versioned", "versioned"),
            "statelog.store.board": ("Board",),
            "statelog.store.claims": ("Claim", "Lease"),
            "statelog.store.diff": ("Change", "Diff", "diff"),
            "statelog.store.encoded": ("Encoded",),
            "statelog.store.entries": ("Entry",),
            "statelog.store.recover": ("RecoveryReport", "recover"),
            "statelog.store.size_limits": ("SizeWarning",),
            "statelog.store.watching": ("Event",),
        },
    )

__all__ = [
    "AccessError",
    "Board",
    "Change",
    "Checkpoint",
    "Claim",
    "ConflictError",
    "CorruptionError",
    "Diff",
    "Encoded",
    "Entry",
    "Event",
    "ForgeryError",
    "FormatError",
    "Guard",
    "GuardError",
    "JournalMissingError",
    "Lease",
    "LimitError",
    "Memory",
    "NotFoundError",
    "RecoveryReport",
    "RollbackError",
    "Rules",
    "SecretError",
    "SizeWarning",
    "StatelogError",
    "StorageError",
    "Store",
    "StoreFullError",
    "Thread",
    "ThreadDeletedError",
    "UsageError",
    "Versioned",
    "diff",
    "errors",
    "guard",
    "open",
    "recover",
    "reducers",
    "register_codec",
    "versioned",
]
