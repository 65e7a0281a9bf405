"""Converts LangGraph's values to their stored form: one packed item, or a list of items for a list that is split."""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from statelog.adapters.kit import items
from statelog.adapters.kit.notes import note
from statelog.adapters.kit.packed import CUT, MSGPACK, SNAPSHOT, Packed, Serialised, put_together
from statelog.adapters.langgraph.values.list_items import ARRAYS, CUT_SIZE_BYTES_MIN, cut, hands_on, split_list
from statelog.adapters.langgraph.values.msgpack_items import (
    PREFIX,
    pack,
    pack_bytes,
    pack_item,
    pack_text,
    unpack,
    unpack_bytes,
    unpack_text,
)
from statelog.adapters.langgraph.values.types import LOADING, Loading
from statelog.display.packed import quarantined_text
from statelog.display.short_messages import lengthen_all, shorten
from statelog.errors import StatelogError, ValueTypeError
from statelog.format import cbor
from statelog.format.quarantined import Quarantined
from statelog.guard.packed_texts import hide_texts, restore_texts, show_texts
from statelog.guard.verdicts import Where
from statelog.kernels.msgpack import array_head, split_array
from statelog.log.events import NEEDS_KEY, SCHEMA_KEY, SERVES_KEY
from statelog.log.operations import METADATA
from statelog.schema.handle_fields import refuse_plain_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from statelog.adapters.langgraph.values.migration import Migration
    from statelog.adapters.langgraph.values.renamed_nodes import Renaming
    from statelog.adapters.langgraph.values.types import Types
    from statelog.guard.hook import Redactor


Encoded = bytes | list[bytes]
"""The item for a value, or the items of a list that is split."""


class Joined(NamedTuple):
    """Consecutive items of a list: their number, and their msgpack bytes joined."""

    number: int
    data: bytes


Read = bytes | list[Joined]
"""A value as it was read: its item, or the parts of a list that was split."""


class DecodedItems(Protocol):
    """A cache of decoded items."""

    def items(self, part: Joined) -> list[Any]:
        """Return the values of a part. The caller may change them."""


_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""

_EXTENSIONS = frozenset([0xC7, 0xC8, 0xC9])
_SPLIT = frozenset(bytes([first]) for first in (*ARRAYS, *_EXTENSIONS))
"""The first bytes of values that may be split, even if they are short."""
_SNAPSHOT_TYPE = 7
"""The extension type of the whole value of a DeltaChannel."""

_METADATA_SIZE_BYTES_MAX = 48 * 1024
_MAJOR_LIST = 4


def join(encoded: Sequence[bytes]) -> Joined:
    """Join packed items as msgpack."""
    at = len(PREFIX)
    starts = (1, 2, 3, 5, 9)
    bodies = [item[at + starts[max((item[at] & 31) - 23, 0)] :] for item in encoded]
    return Joined(len(encoded), b"".join(lengthen_all(bodies, split_array)))


def read_whole(stored: items.Stored, known: dict[bytes, Joined] | None = None) -> Read:
    """Return a stored value. Parts of lists are looked up in `known` by digest, or added to it."""
    return stored if isinstance(stored, bytes) else items.gather(stored, {} if known is None else known, join)


def may_be_split(data: bytes) -> bool:
    """Return True if a msgpack value may be worth splitting, judging by its first byte and its size."""
    return len(data) >= CUT_SIZE_BYTES_MIN or data[:1] in _SPLIT


def split(data: bytes) -> list[bytes] | None:
    """Return a msgpack value as the items of a list, or None if splitting is not worth it."""
    parts = split_list(data)
    if parts is None and data and data[0] in _EXTENSIONS:
        parts = _split_snapshot(data)
    if len(data) < CUT_SIZE_BYTES_MIN or not (parts is None or hands_on(parts)):
        return parts
    return cut(data) or parts


def _snapshot_head(size: int) -> bytes:
    """Return the shortest msgpack extension header for a DeltaChannel snapshot of `size` bytes."""
    width = 1 if size < 1 << 8 else 2 if size < 1 << 16 else 4
    return bytes([0xC6 + width.bit_length()]) + size.to_bytes(width) + bytes([_SNAPSHOT_TYPE])


def _split_snapshot(data: bytes) -> list[bytes] | None:
    """Return `SNAPSHOT` and the items of a DeltaChannel's list if it is worth splitting, else None."""
    at = 2 + (1 << (data[0] - 0xC7))
    if data[at - 1 : at] != bytes([_SNAPSHOT_TYPE]) or data[:at] != _snapshot_head(len(data) - at):
        return None
    parts = split_list(data[at:])
    return [SNAPSHOT, *parts] if parts else None


def is_cut(encoded: Encoded) -> bool:
    """Return True if a value was cut (`list_items.cut`)."""
    return isinstance(encoded, list) and len(encoded) > 0 and unpack(encoded[0]).startswith(CUT)


def is_snapshot(encoded: Encoded) -> bool:
    """Return True if a value is the whole value of a DeltaChannel that was split."""
    return isinstance(encoded, list) and encoded[:1] == [_SNAPSHOT_ITEM]


_SNAPSHOT_ITEM = pack(SNAPSHOT)
_NIL = b"\xc0"
_NOTHING = b"\xf6"
"""The item of None."""


@lru_cache(maxsize=16)
def _empty(kind: str) -> bytes:
    """Return the item for a value that is serialised to no bytes, such as None."""
    return _NOTHING if kind == "null" else cbor.encode(Serialised(kind, b""))


def _in_one(parts: list[Joined]) -> bytes:
    return b"".join([array_head(sum(part.number for part in parts)), *[part.data for part in parts]])


def _hide_nothing(data: bytes, _replace: object) -> bytes:
    """Return pickled or encrypted bytes as they are. Their texts cannot be hidden, so a check refuses the value."""
    return data


_OWN_PATH = ("langgraph:checkpoint",)
"""The path of LangGraph's own record of a checkpoint: versions and ids."""

_REFUSALS = (TypeError, PicklingError, RecursionError, UnicodeError)
"""Errors that a serialiser raises for a value that has an unknown type, is cyclic, or has a lone surrogate."""

_WHOLE_STATES = frozenset([("__start__",), ("__root__",)])
"""LangGraph's channels whose value is a whole state. A path into such a value begins with a key of the state."""

_METHODS = frozenset(["dumps_typed", "loads_typed"])
_GLOBALS = vars(jsonplus)


class ValueCodec:
    """Converts values to stored bytes and back with a serialiser. A guard of the store examines the bytes first.

    Args:
        serde: the serialiser.
        guard: the guard of the store, or None.
        include_quarantined: whether hidden texts are decoded. If False, a placeholder replaces a hidden text.
        types: upgrades of classes that have changed. With it, lost classes are reported.
        renaming: the renamed nodes.
        migration: the steps of a schema that has changed.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        guard: Redactor | None = None,
        *,
        include_quarantined: bool = False,
        types: Types | None = None,
        renaming: Renaming | None = None,
        migration: Migration | None = None,
    ) -> None:
        self.serde = serde
        self._types = types
        self._loader = serde if types is None else types.loader(serde)
        self.renaming = renaming
        self.migration = migration
        self._guard = guard
        self._include_quarantined = include_quarantined
        self._thread: str | None = None
        self.proves = self.is_plain()
        """Whether equal frozen values (`frozen`) are serialised to equal bytes, and lists item by item."""
        self._copies = self.proves and not getattr(serde, "_custom_unpack_ext_hook", True)
        """Whether decoding a message has no side effects."""

    def is_plain(self) -> bool:
        """Return whether the serialiser is LangGraph's own, without replaced methods."""
        serde = self.serde
        if type(serde) is not JsonPlusSerializer or not _METHODS.isdisjoint(serde.__dict__):
            return False
        return getattr(JsonPlusSerializer.dumps_typed, "__globals__", None) is _GLOBALS

    def of(self, thread_id: str) -> ValueCodec:
        """Return a codec for writes to a thread. The checks of a guard see the thread's id."""
        if self._guard is None or self._guard.on_write is None:
            return self
        made = copy(self)
        made._thread = thread_id  # noqa: SLF001 - this object is a copy of the codec
        return made

    def dump(self, value: Any, what: str, path: tuple[str, ...] = ()) -> tuple[str, bytes]:
        """Serialise a value.

        Args:
            value: the value.
            what: the name of the value in messages.
            path: the names that lead to the value, for a guard. The first one is the channel.

        Raises:
            ValueTypeError: the serialiser refuses its type, or does not return a str and bytes. Facts: path, type.
            Exception: other errors of the serialiser, with `what` as a note.
        """
        try:
            kind, data = self.serde.dumps_typed(value)
        except StatelogError:
            raise
        except _REFUSALS as error:
            what, value = self._refused(value, what)
            message = f"{what}: the serialiser does not accept {type(value).__name__}: {error}"
            raise ValueTypeError(message, path=what, type=type(value).__name__) from error
        except Exception as error:
            note(error, f"raised by the serialiser for {what}")
            raise
        if type(kind) is not str:
            message = f"{what}: the serialiser returned {kind!r} as the name of a type; it must be a str"
            raise ValueTypeError(message, path=what, type=type(kind).__name__)
        try:
            data = data if type(data) is bytes else bytes(memoryview(data))
        except TypeError as error:
            message = f"{what}: the serialiser returned {type(data).__name__} for {kind}, not bytes"
            raise ValueTypeError(message, path=what, type=type(data).__name__) from error
        # Guard the value before it is cut, because a guard cannot walk a part of a value.
        return kind, data if self._guard is None else self._guarded(
            self._guard, value, kind, data, path[path[:1] in _WHOLE_STATES :]
        )

    def _guarded(self, guard: Redactor, value: Any, kind: str, data: bytes, path: tuple[str, ...]) -> bytes:
        """Return serialised bytes after the guard has changed or allowed them.

        Raises:
            SecretError, CheckError, ValueTypeError: the guard refuses the value.
        """
        refuse_plain_objects(value, ".".join(path) or "a value")
        made = guard.serialised(kind, data, path)
        if guard.on_write is not None and path != _OWN_PATH:
            if made is not data:
                value = self.load(kind, made)
            where = Where("write", "langgraph", ".".join(path), self._thread)
            made = guard.on_write.texts(value, made, where, hide_texts if kind == MSGPACK else _hide_nothing)
        return restore_texts(made) if kind == MSGPACK else made

    def _loads(self, kind: str, data: bytes) -> Any:
        """Decode a value, with hidden texts replaced. Raises CheckError, and errors of the serialiser."""
        if kind == MSGPACK:
            data = show_texts(data, include_quarantined=self._include_quarantined)
        types = self._types
        errors: list[Exception] = []
        token = LOADING.set(_new(Loading, (types, errors)))
        try:
            value = self._loader.loads_typed((kind, data))
            if self._guard is not None and self._guard.on_read is not None:
                where = Where("read", "langgraph", "")
                shown = self._guard.on_read.texts(value, data, where, self._shown if kind == MSGPACK else _hide_nothing)
                value = value if shown is data else self._loader.loads_typed((kind, shown))
        finally:
            LOADING.reset(token)
            if errors:
                raise errors[0]
        if types is not None and types.lost:
            types.warn()
        return value

    def _shown(self, data: bytes, replace: Callable[[str, tuple[str, ...]], str | Quarantined]) -> bytes:
        return show_texts(hide_texts(data, replace), include_quarantined=self._include_quarantined)

    def _refused(self, value: Any, what: str) -> tuple[str, Any]:
        """Return the member of a dict or list that the serialiser refuses, with its path."""
        for _ in range(_DEPTH_MAX):
            members: Iterable[tuple[Any, Any]] = ()
            if type(value) is dict:
                members = value.items()
            elif type(value) is list:
                members = enumerate(value)
            for key, member in members:
                if not self._takes({key: member}):
                    what += f"[{key!r}]"
                    break
            else:
                return what, value
            if not self._takes({key: None}):  # The serialiser refuses the key.
                return what, key
            value = member
        return what, value

    def _takes(self, value: Any) -> bool:
        try:
            self.serde.dumps_typed(value)
        except Exception:  # noqa: BLE001 - the error of the whole value is reported instead
            return False
        return True

    def is_one_value(self, kind: str, data: bytes) -> bool:
        """Return whether bytes are one value in msgpack, as `kind` says. A foreign serialiser may return any bytes."""
        return kind == MSGPACK and (self.proves or split_array(array_head(1) + data) == [data])

    def load(self, kind: str, data: bytes) -> Any:
        """Return the value that `dump` has serialised. Raises errors of the serialiser."""
        return self._loads(kind, data)

    def encode(self, value: Any, what: str, path: tuple[str, ...] = ()) -> Encoded:
        """Return the item for a value, or the items of a list. The arguments are as for `dump`."""
        kind, data = self.dump(value, what, path)
        if kind != MSGPACK:
            return cbor.encode(Serialised(kind, data), path=what) if data else _empty(kind)
        parts = split(data) if may_be_split(data) else None
        return pack(data) if parts is None else [pack_item(part) for part in parts]

    def encode_items(self, values: Sequence[Any], what: str, path: tuple[str, ...]) -> list[bytes] | None:
        """Return the items for some values of a list, or None if they are inseparable. Arguments are as for `dump`."""
        if not values:
            return []
        kind, data = self.dump(list(values), what, path)
        if len(values) == 1 and self.proves and kind == MSGPACK:  # A plain list is serialised item by item.
            return [pack(shorten(data[1:], split_array))]
        parts = split_array(data) if kind == MSGPACK else None
        return None if parts is None or len(parts) != len(values) else [pack_item(part) for part in parts]

    def decode_items(self, part: Joined) -> list[Any]:
        """Decode consecutive items of a list."""
        values: list[Any] = self._loads(MSGPACK, array_head(part.number) + part.data)
        return values

    def decode(self, read: Read, decoded: DecodedItems | None = None) -> Any:
        """Return a value. With `decoded`, known lists are copied, not decoded. Raises errors of the serialiser."""
        if isinstance(read, list):
            if read and read[0].data.startswith(CUT):
                return self._loads(MSGPACK, put_together(b"".join([part.data for part in read])))
            if read and read[0].data.startswith(SNAPSHOT):
                first = Joined(read[0].number - 1, read[0].data[len(SNAPSHOT) :])
                return self._decode_snapshot([first, *read[1:]], decoded)
            if decoded is not None and self._copies:
                return [value for part in read for value in decoded.items(part)]
            return self._loads(MSGPACK, _in_one(read))
        if read.startswith(PREFIX):
            return self._loads(MSGPACK, items.unwrap(PREFIX, read))
        if read[0] >> 5 == _MAJOR_LIST:
            return self.decode([join(items.read_list(read))])
        if read == _NOTHING:
            return self._loads("null", b"")
        serialised = cbor.decode(read)
        return self._loads(serialised.type, serialised.data)

    def _decode_snapshot(self, read: list[Joined], decoded: DecodedItems | None) -> Any:
        if not self.proves:
            data = _in_one(read)
            return self._loads(MSGPACK, _snapshot_head(len(data)) + data)
        kind = type(self._loads(MSGPACK, _snapshot_head(len(_NIL)) + _NIL))
        return kind(self.decode(read, decoded))

    # --- stored parts of a checkpoint -------------------------------------------------

    def dump_part(self, value: Any, what: str, path: tuple[str, ...] = ()) -> list[bytes]:
        """Return a value as one part of a msgpack array, or as two: its kind and bytes. All else is as for `dump`."""
        kind, data = self.dump(value, what, path)
        is_one = kind == MSGPACK and (self.proves or self.is_one_value(kind, data))
        return [data] if is_one else [pack_text(kind), pack_bytes(data)]

    def load_part(self, parts: Sequence[bytes]) -> Any:
        """Return the value that `dump_part` has serialised. Raises errors of the serialiser."""
        if len(parts) == 1:
            return self._loads(MSGPACK, parts[0])
        kind = unpack_text(parts[0])
        assert kind is not None
        return self._loads(kind, unpack_bytes(parts[1]))

    # --- metadata -----------------------------------------------------------------------

    def encode_metadata(
        self, metadata: Mapping[str, Any], thread_id: str, needs: Sequence[str] = (), serves: str | None = None
    ) -> tuple[bytes, bytes | None]:
        """Return the item for the checkpoint's metadata, and None or a second item.

        If the first item cannot hold all the metadata, the second item holds all of it.

        Args:
            metadata: LangGraph's metadata.
            thread_id: the id of the thread, for messages.
            needs: the DeltaChannels whose values need ancestors.
            serves: the name (`checkpoint_name`) of the checkpoint that called this checkpoint's graph.
        """
        of = f"of thread {thread_id!r}"
        more: dict[str, Any] = {NEEDS_KEY: [*needs]} if needs else {}
        if serves is not None:
            more[SERVES_KEY] = serves
        found = {
            key: value
            if (kind := type(value)) in _ALWAYS_PLAIN
            or (kind is int and 0 <= value < 1 << 64)
            or (kind is dict and not value)
            else self._plain_metadata(key, value, of)
            for key, value in metadata.items()
        }
        try:
            item = cbor.encode(found | more)
            if len(item) <= _METADATA_SIZE_BYTES_MAX and metadata.keys().isdisjoint(_NATIVE):
                return item, None
        except StatelogError:
            pass  # A key is not a str, or a str has a lone surrogate: store all metadata serialised.
        encoded = self.encode(dict(metadata), f"metadata {of}", (METADATA,))
        names = ("source", "step", "run_id")
        small: dict[str, Any] = {key: found[key] for key in names if key in found and _is_plain(found[key], 1)}
        return cbor.encode(small | more), encoded if isinstance(encoded, bytes) else items.pack_list(encoded)

    def _plain_metadata(self, key: str, value: Any, of: str) -> Any:
        if _is_plain(value, 0):
            return value
        if type(value) is tuple and _is_plain(list(value), 0):
            return list(value)
        kind, data = self.dump(value, f"metadata {key!r} {of}", (METADATA, key))
        return Packed(data) if kind == MSGPACK else Serialised(kind, data)

    def decode_metadata(self, metadata: dict[str, Any], whole: Read | None) -> dict[str, Any]:
        """Return the metadata. This is the inverse of `encode_metadata`."""
        if whole is not None:
            decoded: dict[str, Any] = self.decode(whole)
            return decoded
        return {
            key: self._load(value) if isinstance(value, _NOT_PLAIN) else value
            for key, value in metadata.items()
            if key not in _NATIVE
        }

    def _load(self, value: Packed | Serialised | Quarantined) -> Any:
        if isinstance(value, Quarantined):
            return value.reveal() if self._include_quarantined else quarantined_text(value.check, value.reason)
        return self._loads(MSGPACK if isinstance(value, Packed) else value.type, value.data)


_NATIVE = (NEEDS_KEY, SERVES_KEY, SCHEMA_KEY)
"""Keys of the store, not of LangGraph."""
_NOT_PLAIN = (Packed, Serialised, Quarantined)
_SCALARS = frozenset([type(None), bool, int, float, str])
_ALWAYS_PLAIN = frozenset([type(None), bool, float, str])
_DEPTH_MAX = 32


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether a store can keep a value as JSON and return it equal."""
    kind = type(value)
    if kind in _SCALARS:
        return kind is not int or -(1 << 63) <= value < 1 << 64
    if depth > _DEPTH_MAX:
        return False
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)
    return kind is dict and all(type(key) is str and _is_plain(member, depth + 1) for key, member in value.items())
