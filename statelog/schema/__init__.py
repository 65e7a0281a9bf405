"""Channels from what users declare, and what a schema does with each write."""

from statelog.schema.channels import Channel
from statelog.schema.schema import STEPS_CHANNEL, Schema, reading_of, reconcile
from statelog.schema.updates import normalise_update

__all__ = ["STEPS_CHANNEL", "Channel", "Schema", "normalise_update", "reading_of", "reconcile"]
