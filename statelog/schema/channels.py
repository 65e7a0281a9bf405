"""Reads the channels of a TypedDict, a dataclass, or a plain dict of reducers.

A channel's reducer is the last reducer in the outermost ``Annotated`` of its annotation, or ``replace`` if there is
none. An inner ``Annotated`` (``Optional[Annotated[...]]``) describes a part of the value, not the channel.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_origin

from statelog import reducers
from statelog.errors import SchemaError
from statelog.limits import CHANNELS_MAX, NAME_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOREIGN_PACKAGES = frozenset({"annotated_types", "pydantic", "pydantic_core", "typing_extensions"})
"""Packages whose metadata only constrains or documents a type, and is never a reducer."""

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


class Channel(NamedTuple):
    """A named field of a state.

    Args:
        name: the name of the channel.
        reducer: the function that merges a write with the current value.
        annotation: the declared type without its metadata, or ``Any`` without a declared type.
    """

    name: str
    reducer: reducers.Reducer
    annotation: object


def read_typed_dict(typed_dict: Any, schema_name: str) -> dict[str, Channel]:
    """Return the channels of a TypedDict class, including inherited ones, in order of declaration."""
    return {name: channel_of(schema_name, name, hint) for name, hint in _hints(typed_dict, schema_name).items()}


def read_dataclass(dataclass: Any, schema_name: str) -> dict[str, Channel]:
    """Return the channels of a dataclass: its fields, without ``ClassVar`` and ``InitVar``."""
    import dataclasses

    hints = _hints(dataclass, schema_name)
    names = [field.name for field in dataclasses.fields(get_origin(dataclass) or dataclass)]
    return {name: channel_of(schema_name, name, hints[name]) for name in names}


def read_mapping(declared: Mapping[Any, Any]) -> dict[str, Channel]:
    """Return the channels of a dict from names to reducers, types, ``Annotated`` or None."""
    for name in declared:
        if not isinstance(name, str):
            message = f"schema: a channel's name must be a str, not {type(name).__name__}: {name!r}"
            raise SchemaError(message, schema="schema", channel=name)
    return {name: _channel_of_entry(name, entry) for name, entry in declared.items()}


def channel_of(schema_name: str, name: str, annotation: object, *, metadata: tuple[object, ...] = ()) -> Channel:
    """Return the channel that an annotation declares.

    Args:
        schema_name: the name of the schema, for error messages.
        name: the name of the channel.
        annotation: the annotation, with ``Annotated`` and qualifiers.
        metadata: the metadata of its outermost ``Annotated``, if it was removed already.

    Raises:
        SchemaError: the metadata has a function that cannot be a reducer.
    """
    from statelog.schema.annotations import accepts_handles_only, peel

    bare, inner_metadata = peel(annotation)
    if secret := [each for each in (*inner_metadata, *metadata) if accepts_handles_only((each,))]:
        bare = Annotated[bare, secret[0]]
    for candidate in reversed((*inner_metadata, *metadata)):
        if _is_foreign(candidate):
            continue
        reducer = _reducer_of(schema_name, name, candidate)
        if reducer is not None:
            return Channel(name, reducer, bare)
    return Channel(name, reducers.replace, bare)


def check_names(schema_name: str, names: Mapping[str, Channel]) -> None:
    """Check that the channels of a schema can be stored.

    Raises:
        SchemaError: there are no channels or too many, or a name is empty, too long or not Unicode.
    """
    if not names:
        message = f"{schema_name}: declares no channels; to allow any channel, pass schema=None"
        raise SchemaError(message, schema=schema_name)
    if len(names) > CHANNELS_MAX:
        message = f"{schema_name}: declares {len(names)} channels; at most {CHANNELS_MAX} are allowed"
        raise SchemaError(message, schema=schema_name)
    for name in names:
        if not _can_be_stored(name):
            message = (
                f"{schema_name}: {name[:40]!r} cannot name a channel:"
                f" names have 1 to {NAME_SIZE_BYTES_MAX} bytes of UTF-8"
            )
            raise SchemaError(message, schema=schema_name, channel=name)


def _can_be_stored(name: str) -> bool:
    try:
        return 0 < len(name.encode()) <= NAME_SIZE_BYTES_MAX
    except UnicodeEncodeError:  # The name contains a lone surrogate.
        return False


def _hints(declaring: Any, name: str) -> dict[str, Any]:
    from statelog.schema.annotations import RESOLUTION_ERRORS, field_hints

    try:
        return field_hints(declaring)
    except RESOLUTION_ERRORS as error:
        message = (
            f"{name}: cannot resolve its annotations: {error} (each name in them must exist in the module of the class)"
        )
        raise SchemaError(message, schema=name) from error


def _channel_of_entry(name: str, entry: object) -> Channel:
    from statelog.schema.annotations import is_annotation

    if entry is None:
        return Channel(name, reducers.replace, Any)
    if is_annotation(entry):
        return channel_of("schema", name, entry)
    reducer = _reducer_of("schema", name, entry)
    if reducer is None:
        message = f"schema.{name}: neither a reducer nor a type: {entry!r:.80}"
        raise SchemaError(message, schema="schema", channel=name)
    return Channel(name, reducer, Any)


def _is_foreign(candidate: object) -> bool:
    # None of these is a reducer. A class is a type or a marker, and an object with this method changes a pydantic
    # schema.
    return (
        isinstance(candidate, type)
        or type(candidate).__module__.partition(".")[0] in _FOREIGN_PACKAGES
        or hasattr(candidate, "__get_pydantic_core_schema__")
    )


def _reducer_of(schema_name: str, name: str, candidate: object) -> reducers.Reducer | None:
    reducer = reducers.from_annotation(candidate)
    if reducer is None and isinstance(candidate, _FUNCTIONS):
        # Do not skip this function as foreign metadata, because then the channel would silently use `replace`.
        function = getattr(candidate, "__qualname__", repr(candidate))
        message = (
            f"{schema_name}.{name}: {function} is not a reducer:"
            " a reducer takes two arguments, the current value and the write"
        )
        raise SchemaError(message, schema=schema_name, channel=name)
    return reducer
