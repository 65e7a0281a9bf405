"""Strands Agents on a store: snapshots of sessions, and pauses that can be resumed only once."""

from statelog.adapters.strands.pauses import pause_of, resume
from statelog.adapters.strands.storage import StatelogStorage

__all__ = ["StatelogStorage", "pause_of", "resume"]
