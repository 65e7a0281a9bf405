"""Schemas: the channels that users declare, and the checks of writes to them."""

from statelog.schema.channels import Channel
from statelog.schema.schema import (
    SCHEMA_ENTRY,
    STEPS_CHANNEL,
    RememberedSchema,
    Schema,
    SchemaLineage,
    reading_of,
    reconcile,
)
from statelog.schema.updates import normalise_update

__all__ = [
    "SCHEMA_ENTRY",
    "STEPS_CHANNEL",
    "Channel",
    "RememberedSchema",
    "Schema",
    "SchemaLineage",
    "normalise_update",
    "reading_of",
    "reconcile",
]
