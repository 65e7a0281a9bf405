"""The state of an AI agent in one file, embedded in the agent's process: no server."""

from statelog import errors, reducers
from statelog.checkpoint import Checkpoint
from statelog.diff import Change, Diff, diff
from statelog.format.cbor import register_codec
from statelog.store import Store, open
from statelog.thread import Thread

__all__ = [
    "Change",
    "Checkpoint",
    "Diff",
    "Store",
    "Thread",
    "diff",
    "errors",
    "open",
    "reducers",
    "register_codec",
]
