"""Shows items of older schema versions in the declared version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from statelog.adapters.langgraph.memory.items.namespaces import begins, from_text
from statelog.errors import UsageError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.schema.value_versions import label_of, stored_version, upgraded_item
from statelog.schema.versions import Versioned

if TYPE_CHECKING:
    from statelog.adapters.langgraph.memory.items.namespaces import Namespace

LABEL = "schema"
"""The key in an entry of `items` for the name and version of the value's schema. An entry without it has version 1."""


class ItemSchemas:
    """The schemas of items, keyed by the namespaces in and below which they apply.

    Args:
        migrations: see `StatelogStore`.

    Raises:
        UsageError: `migrations` is not a dict from namespaces to schemas. Facts: argument, value.
    """

    def __init__(self, migrations: object) -> None:
        if not isinstance(migrations, Mapping):
            message = f"migrations must be a dict from namespaces to schemas, not {migrations!r:.80}"
            raise UsageError(message, argument="migrations", value=migrations)
        for prefix, schema in migrations.items():
            if type(prefix) is not tuple or not all(type(label) is str for label in prefix):
                message = f"migrations: a namespace must be a tuple of str, not {prefix!r:.80}"
                raise UsageError(message, argument="migrations", value=prefix)
            if not isinstance(schema, Versioned):
                message = (
                    f"migrations: the schema of {prefix!r:.80} must be made with statelog.versioned, not {schema!r:.80}"
                )
                raise UsageError(message, argument="migrations", value=schema)
        self._declared: list[tuple[Namespace, Versioned[Any, Any]]] = sorted(
            migrations.items(), key=lambda each: len(each[0]), reverse=True
        )

    def of(self, namespace: str) -> Versioned[Any, Any] | None:
        """Return the schema that is declared for items in a namespace, or None."""
        path = from_text(namespace)
        return next((schema for prefix, schema in self._declared if begins(path, prefix)), None)

    def is_older(self, namespace: str, key: str, entry: Mapping[str, Any]) -> bool:
        """Return True if an item has an older version than the declared one. Raises SchemaVersionError, SchemaError."""
        schema = self.of(namespace)
        return schema is not None and stored_version(schema, key, stored_label(entry), namespace) < schema.version

    def shown(self, namespace: str, key: str, entry: Mapping[str, Any]) -> Any:
        """Return the value of an item in the declared version.

        Args:
            namespace: the namespace.
            key: the key.
            entry: the entry of `items`.

        Raises:
            SchemaVersionError, MissingMigrationError, MigrationError, SchemaError: the item cannot be shown in that
                version.
        """
        value, schema = entry["value"], self.of(namespace)
        if schema is None or type(value) is Quarantined:
            return value
        stored = stored_version(schema, key, stored_label(entry), namespace)
        if stored == schema.version:
            return value
        plain = value if type(value) is dict else value.to_python()
        return cbor.decode(upgraded_item(schema, key, plain, stored, namespace))


def stored_label(entry: Mapping[str, Any]) -> list[Any] | None:
    """Return the schema name and version that are stored with an item, or None for version 1."""
    label = entry.get(LABEL)
    return None if label is None else list(*label.items())


def label_entry(schema: Versioned[Any, Any] | None) -> dict[str, Any]:
    """Return the part of an entry of `items` that names the schema of the entry's value."""
    label = None if schema is None else label_of(schema)
    return {} if label is None else {LABEL: {label[0]: label[1]}}
