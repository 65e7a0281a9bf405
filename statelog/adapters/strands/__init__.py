"""Strands Agents on a store: storage for sessions, whose snapshots are versions."""

from statelog.adapters.strands.storage import StatelogStorage

__all__ = ["StatelogStorage"]
