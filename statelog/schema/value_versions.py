"""Versioned schemas for single values, such as the values of the board's entries. A value is a dict of fields.

A stored value has a label: the name and the version of its schema, or None for version 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import MigrationError, MissingMigrationError, SchemaError, SchemaVersionError, StatelogError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.reducers import Overwrite
from statelog.schema.updates import normalise_update

if TYPE_CHECKING:
    from statelog.schema.schema import Schema
    from statelog.schema.versions import Versioned


def label_of(schema: Versioned[Any, Any]) -> list[Any] | None:
    """Return the label that values of the declared version are stored with."""
    return None if schema.version == 1 else [schema.name, schema.version]


def stored_version(schema: Versioned[Any, Any], key: str, label: list[Any] | None, namespace: str | None = None) -> int:
    """Return the version of a stored value, or raise if this code cannot read it.

    Args:
        schema: the declared schema.
        key: the key of the entry or item.
        label: the label of the value.
        namespace: the namespace of an item of LangGraph's store, or None for an entry of the board.

    Raises:
        SchemaError: the value has a different schema. SchemaVersionError: its version is newer than the declared one.
            Facts: key, namespace if there is one, stored, and given or declared.
    """
    if label is None:
        return 1
    name, version = label
    if name != schema.name:
        what, facts = _named(key, namespace)
        message = f"the value of {what} has schema {name!r}, and this code declares schema {schema.name!r}"
        raise SchemaError(message, **facts, stored=name, given=schema.name)
    if version > schema.version:
        raise _newer_error(schema, key, version, namespace)
    return int(version)


def check_replaced(
    schema: Versioned[Any, Any] | None, key: str, label: list[Any] | None, namespace: str | None = None
) -> None:
    """Check that code with this declared schema, or without a schema, may replace a stored value.

    Raises:
        SchemaVersionError: the value has a newer version, or no schema is declared. SchemaError: the schemas differ.
    """
    if label is not None:
        if schema is None:
            raise _newer_error(None, key, label[1], namespace)
        stored_version(schema, key, label, namespace)


def upgraded_item(
    schema: Versioned[Any, Any], key: str, value: Any, stored: int, namespace: str | None = None
) -> bytes:
    """Upgrade a stored value to the declared version with the registered steps. Return the encoded result.

    Raises:
        MissingMigrationError: a step is not registered. MigrationError: a step has failed, or the value before or after
            the steps is not a value of its version.
    """
    what, place = _named(key, namespace)
    facts = {**place, "schema": schema.name, "stored": stored, "declared": schema.version}
    if type(value) is not dict or not all(type(name) is str for name in value):
        message = f"schema {schema.name!r}: the value of {what} is not a dict of fields: {value!r:.80}"
        raise MigrationError(message, **facts)
    try:
        made = schema.upgraded(value, stored)
    except (MissingMigrationError, MigrationError) as error:
        raise type(error)(f"{what}: {error.message}", **{**error.facts, **place}) from error.__cause__
    try:
        return cbor.encode(_checked(schema.schema, made), path=key)
    except StatelogError as error:
        message = (
            f"schema {schema.name!r}: the result of the steps for {what} is not a value of version"
            f" {schema.version}: {error.message}"
        )
        raise MigrationError(message, **{**error.facts, **facts}) from error


def declared_value(schema: Versioned[Any, Any], value: Any) -> Any:
    """Validate a value that a caller writes against the fields of the declared version, and return it.

    Raises:
        UsageError: the value is neither a dict of fields nor an object of a class with fields. ChannelError: a field is
            not declared. ValidationError: a field has a value that the schema refuses.
    """
    return _checked(schema.schema, schema.schema.by_channel(normalise_update(value)))


def _checked(schema: Schema, fields: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if type(value) is Quarantined:  # It cannot be checked: its type is unknown.
            made[name] = value
            continue
        checked = schema.validate_write(name, Overwrite(value))
        made[name] = checked.value if isinstance(checked, Overwrite) else checked
    return made


def _named(key: str, namespace: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name of an entry or an item for messages, and its facts for an error."""
    if namespace is None:
        return f"entry {key!r}", {"key": key}
    return f"item {key!r} of {namespace!r}", {"key": key, "namespace": namespace}


def _newer_error(
    schema: Versioned[Any, Any] | None, key: str, stored: int, namespace: str | None
) -> SchemaVersionError:
    """Return the error for a value whose version is newer than the declared one."""
    what, facts = _named(key, namespace)
    declares = "no schema for it" if schema is None else f"version {schema.version} of schema {schema.name!r}"
    message = f"the value of {what} has schema version {stored}, and this code declares {declares}: upgrade the code"
    return SchemaVersionError(message, **facts, stored=stored, declared=1 if schema is None else schema.version)
