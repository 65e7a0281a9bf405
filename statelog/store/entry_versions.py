"""Converts entry values from older schema versions to the declared version, in reads and in writes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from statelog.board import entry_writer
from statelog.board.names import RESERVED
from statelog.board.reads import VALUE
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.log.kinds.entries import EntryAct
from statelog.schema.value_versions import check_replaced, declared_value, label_of, stored_version, upgraded_item
from statelog.tree.value import encode_slot, read_item

if TYPE_CHECKING:
    from statelog.board.entry_writer import EntryFields, Value
    from statelog.board.names import KeyPattern
    from statelog.board.reads import EntryRecord
    from statelog.log.kinds.entries import EntryEvent
    from statelog.log.step import PreparedWrite, Redact
    from statelog.schema.versions import Versioned
    from statelog.tree.node import ValueSlot, Workspace


class EntrySchemas:
    """The schemas that are declared for entries of one open store. Several OS threads may use it."""

    def __init__(self) -> None:
        self._declared: tuple[tuple[KeyPattern, Versioned[Any, Any]], ...] = ()
        """Patterns and their declared schemas. The pattern with the most characters before a wildcard comes first."""
        self._lock = threading.Lock()

    def declare(self, pattern: KeyPattern, schema: Versioned[Any, Any]) -> None:
        """Declare the schema of the keys that match a pattern. This replaces an earlier schema of the same pattern."""
        with self._lock:
            declared = [each for each in self._declared if each[0].text != pattern.text]
            declared.append((pattern, schema))
            declared.sort(key=lambda each: (len(each[0].prefix), len(each[0].text)), reverse=True)
            self._declared = tuple(declared)

    def of(self, key: str) -> Versioned[Any, Any] | None:
        """Return the schema that is declared for a key, or None."""
        if not key.startswith(RESERVED):
            for pattern, schema in self._declared:
                if pattern.fits(key):
                    return schema
        return None

    def checked(self, key: str, value: Any, *, replaces: bool) -> tuple[Versioned[Any, Any] | None, Any]:
        """Return the schema that is declared for a key, and the checked value to write to the key.

        If `replaces`, the value replaces the whole entry value, and the schema validates it. Raises the errors of
        `declared_value`.
        """
        schema = self.of(key)
        return schema, value if schema is None or not replaces else declared_value(schema, value)

    def shown(self, key: str, label: list[Any] | None, value: Any) -> Any:
        """Convert a stored value to the declared version.

        Args:
            key: the key of the entry.
            label: name and version of the stored value's schema, or None for version 1.
            value: the stored value.

        Raises:
            SchemaVersionError, MissingMigrationError, MigrationError, SchemaError: the value cannot be converted.
                Facts: also key.
        """
        schema = self.of(key)
        if schema is None or type(value) is Quarantined:
            return value
        stored = stored_version(schema, key, label)
        return value if stored == schema.version else cbor.decode(upgraded_item(schema, key, value, stored))

    def shown_of(self, event: EntryEvent, value: Any) -> Any:
        """Convert the value of a record, like `shown`.

        The value of a record that ends an entry is returned unchanged.
        """
        is_result = event.root_digest is None or event.act == EntryAct.COMPLETE
        return value if is_result else self.shown(event.key, event.schema, value)


def versioned_write(
    schema: Versioned[Any, Any] | None,
    key: str,
    found: EntryRecord | None,
    kept: EntryFields,
    value: Value,
    *,
    replaces: bool,
) -> tuple[EntryFields, Value]:
    """Return the fields and the write for an entry that has a schema, within a commit.

    Args:
        schema: the schema that is declared for the key, or None.
        key: the key of the entry.
        found: the entry, or None if it does not exist.
        kept: the fields of the entry other than its value.
        value: the write, which has passed the guard.
        replaces: whether the write replaces the whole value.

    Raises:
        SchemaVersionError: the entry has a newer version than the declared one, or no schema is declared.
        SchemaError: the entry has a different schema.
    """
    label = None if found is None else found.event.schema
    check_replaced(schema, key, label)
    if schema is None:
        return kept, value
    stored = stored_version(schema, key, label)
    kept = kept._replace(schema=label_of(schema))
    return kept, value if replaces else entry_writer.prepare(_UpgradingWrite(schema, key, stored, value.write))


def upgrade_of(schema: Versioned[Any, Any], found: EntryRecord) -> tuple[EntryFields, Value]:
    """Return the fields and the write that migrate an entry to the declared version.

    Raises the errors of `versioned_write`.
    """
    key = found.event.key
    stored = stored_version(schema, key, found.event.schema)
    kept = entry_writer.kept_of(found)._replace(schema=label_of(schema))
    return kept, entry_writer.prepare(_UpgradingWrite(schema, key, stored, None))


class _UpgradingWrite:
    """A write to an entry that may have an older version.

    It first migrates the entry's value to the declared version.
    """

    operation: ClassVar[None] = None
    payload: ClassVar[None] = None
    parameter: ClassVar[str] = ""
    channel: ClassVar[str] = VALUE

    def __init__(
        self,
        schema: Versioned[Any, Any],
        key: str,
        stored: int,
        write: PreparedWrite | None,
        redact: Redact | None = None,
    ) -> None:
        self.spec = "migration" if write is None else write.spec
        self._schema = schema
        self._key = key
        self._stored = stored
        self._write = write
        self._redact = redact

    def merge(
        self, workspace: Workspace, current: ValueSlot | None, identities: dict[bytes, bytes]
    ) -> ValueSlot | None:
        """Return the new value.

        Raises:
            MissingMigrationError, MigrationError: the value cannot be migrated.
            ChannelError, ValidationError: the result of the write is not a value of the declared version.
        """
        if current is not None and self._stored != self._schema.version:
            item = upgraded_item(self._schema, self._key, cbor.decode(read_item(workspace, current)), self._stored)
            current = encode_slot(workspace, item if self._redact is None else self._redact(item, VALUE), top=True)
        if self._write is None:
            return current
        merged = self._write.merge(workspace, current, identities)
        assert merged is not None
        declared_value(self._schema, cbor.decode(read_item(workspace, merged)))
        return merged

    def redacted(self, redact: Redact) -> _UpgradingWrite:
        """Return a write that passes the migrated value to `redact`. `_write` itself was checked earlier."""
        return _UpgradingWrite(self._schema, self._key, self._stored, self._write, redact)
