"""Copies values from one saver to another as unchanged bytes, to move threads without their application.

An application's objects (pydantic models, enums, messages) are not created: none of its modules is imported and none of
its code runs. So a thread can be moved where the application is not installed, nothing is lost if a class no longer
exists, and hostile data does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

_READ: Final = frozenset({"null", "bytes", "bytearray", "json", "msgpack"})


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is not decoded here, because it is pickled or encrypted."""

    type: str
    data: bytes


class UntouchedSerializer(JsonPlusSerializer):
    """LangGraph's serialiser, except that extension types and pickled and encrypted values stay bytes.

    A loaded value is dumped with the same type and bytes. Only a ``DeltaChannel``'s snapshot is decoded, because a
    saver must recognise it. JSON, which old releases wrote, is read by LangGraph's rules.
    """

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value, with ``ormsgpack.Ext`` and ``Opaque`` in place of values that are not decoded.

        Raises:
            ValueError, TypeError, and others: the bytes were not made by a serialiser.
        """
        kind, encoded = data
        if kind == "msgpack":
            return _unpack(encoded)
        if kind in _READ:
            return super().loads_typed(data)
        if not isinstance(kind, str) or not isinstance(encoded, bytes):
            message = f"a serialised value must be a type name and bytes, not {kind!r} and {type(encoded).__name__}"
            raise TypeError(message)
        return Opaque(kind, encoded)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type and bytes from which the value was loaded."""
        return (obj.type, obj.data) if isinstance(obj, Opaque) else super().dumps_typed(obj)


def _unpack(encoded: bytes) -> Any:
    return ormsgpack.unpackb(encoded, ext_hook=_keep, option=ormsgpack.OPT_NON_STR_KEYS)


def _keep(code: int, encoded: bytes) -> Any:
    return _DeltaSnapshot(_unpack(encoded)) if code == EXT_DELTA_SNAPSHOT else ormsgpack.Ext(code, encoded)
