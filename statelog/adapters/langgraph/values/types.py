"""Upgrades of classes that were moved, renamed or changed since their instances were stored.

LangGraph's serialiser stores an instance as the names of its module and class, and its fields. For a class that it does
not find, it returns the fields. It notifies listeners of each class that is not its own, and a listener notes classes
that no longer exist. Upgrades are made by a hook around the serialiser's own hook.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
)

from statelog.errors import UsageError

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

Upgrade = Callable[..., Any]

_OF_CLASSES = frozenset(
    [
        EXT_CONSTRUCTOR_SINGLE_ARG,
        EXT_CONSTRUCTOR_POS_ARGS,
        EXT_CONSTRUCTOR_KW_ARGS,
        EXT_PYDANTIC_V1,
        EXT_PYDANTIC_V2,
    ]
)
"""Codes of msgpack extensions that contain a module, a class and the arguments of the class."""
_BY_NAME = frozenset([EXT_CONSTRUCTOR_KW_ARGS, EXT_PYDANTIC_V1, EXT_PYDANTIC_V2])


class LostTypeWarning(UserWarning):
    """A stored instance was read as its plain fields, because its class no longer exists."""


class Types:
    """The upgrades of stored instances whose classes have changed.

    Args:
        upgrades: maps the `module:Class` with which an instance was stored to the present class, or to a function that
            returns the object. Either is called with the fields as keywords, or with the class's stored arguments.

    Raises:
        UsageError: `upgrades` is not a dict of this form.
    """

    def __init__(self, upgrades: Mapping[str, Upgrade] | None = None) -> None:
        self._upgrades = _checked(upgrades or {})
        self._prefixes = tuple(
            bytes([0x90 + count]) + ormsgpack.packb(module) + ormsgpack.packb(name)
            for module, name in (each.split(":") for each in self._upgrades)
            for count in (3, 4)
        )
        self._told: set[str] = set()
        self.lost: dict[str, None] = {}
        """Classes that were not found, and of which no warning was given yet."""

    def loader(self, serde: SerializerProtocol) -> SerializerProtocol:
        """Return a serialiser that deserialises as `serde` does, with the upgrades.

        Raises:
            UsageError: there are upgrades, and the serialiser is not LangGraph's.
        """
        if not self._upgrades:
            return serde
        if isinstance(serde, EncryptedSerializer):
            return EncryptedSerializer(serde.cipher, self.loader(serde.serde))
        if isinstance(serde, JsonPlusSerializer):
            made = copy(serde)
            made._unpack_ext_hook = self._hook(serde)  # noqa: SLF001 - LangGraph has no public way to this hook
            return made
        message = f"types= needs LangGraph's JsonPlusSerializer, but this saver uses {type(serde).__name__}"
        raise UsageError(message, argument="types", value=serde)

    def note(self, module: str, name: str) -> None:
        """Note a class that is being read, if it does not exist."""
        try:
            getattr(importlib.import_module(module), name)
        except Exception:  # noqa: BLE001 - importing a module may raise anything
            self.lost[f"{module}:{name}"] = None

    def warn(self) -> None:
        """Warn of each lost class once."""
        lost, self.lost = self.lost, {}
        for name in lost:
            if name not in self._told:
                self._told.add(name)
                message = (
                    f"{name} is stored in this thread, but no longer exists: its fields are read as plain data."
                    f" Give the class that replaces it: types={{{name!r}: ...}}"
                )
                warnings.warn(message, LostTypeWarning, stacklevel=2)

    def _hook(self, serde: Any) -> Callable[[int, bytes], Any]:
        allowed = serde._allowed_msgpack_modules  # noqa: SLF001 - LangGraph has no public name for it
        if serde._custom_unpack_ext_hook:  # noqa: SLF001 - LangGraph has no public name for it
            inner: Any = serde._unpack_ext_hook  # noqa: SLF001 - LangGraph has no public name for it
        else:  # A separate serializer: its hook is changed below, to call `hook` for nested values.
            inner = JsonPlusSerializer(allowed_msgpack_modules=allowed)._unpack_ext_hook  # noqa: SLF001 - LangGraph has no public name for it
        prefixes = self._prefixes

        def hook(code: int, data: bytes) -> Any:
            if data.startswith(prefixes) and code in _OF_CLASSES:
                return self._upgraded(code, ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS))
            return inner(code, data)

        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
            if name == "ext_hook" and cell.cell_contents is inner:
                cell.cell_contents = hook
        return hook

    def _upgraded(self, code: int, stored: list[Any]) -> Any:
        name, given = f"{stored[0]}:{stored[1]}", stored[2]
        upgrade = self._upgrades[name]
        try:
            if code in _BY_NAME:
                return upgrade(**given)
            return upgrade(*given) if code == EXT_CONSTRUCTOR_POS_ARGS else upgrade(given)
        except Exception as error:
            error.add_note(f"statelog: raised by types[{name!r}]")
            LOADING.get().errors.append(error)  # Keep this error, because ormsgpack and LangGraph suppress it.
            raise


class Loading(NamedTuple):
    """A value that is being deserialised."""

    types: Types | None
    errors: list[Exception]
    """The errors that upgrade functions have raised."""


LOADING: ContextVar[Loading] = ContextVar("loading", default=Loading(None, []))  # noqa: B039 - nobody adds to this list
"""The value that this OS thread or task is deserialising."""


def _note(event: Any) -> None:
    types = LOADING.get().types
    if types is not None and "method" not in event:
        types.note(event["module"], event["name"])


register_serde_event_listener(_note)


def _checked(upgrades: object) -> dict[str, Upgrade]:
    if not isinstance(upgrades, Mapping):
        message = f"types must be a dict from 'module:Class' to a class or a function, not {upgrades!r}"
        raise UsageError(message, argument="types", value=upgrades)
    for name, upgrade in upgrades.items():
        if not isinstance(name, str) or len([part for part in name.split(":") if part]) != 2 or name.count(":") != 1:
            message = f"a key of types must be 'module:Class', not {name!r}"
            raise UsageError(message, argument="types", value=name)
        if not callable(upgrade):
            message = f"types[{name!r}] must be a class or a function, not {upgrade!r}"
            raise UsageError(message, argument="types", value=upgrade)
    return dict(upgrades)
