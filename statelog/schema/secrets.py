"""Refuses pydantic's secret types in values, even if a serialiser of the model would store them as strings."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, get_origin

import pydantic

from statelog.errors import ValueTypeError
from statelog.format import cbor
from statelog.format.everyday import full_name
from statelog.guard.annotations import is_handle
from statelog.schema.annotations import accepts_handles_only
from statelog.schema.handle_fields import parts_with_fields, refuse_plain
from statelog.schema.losses import fields_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_SECRETS = (pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret)


@functools.lru_cache(maxsize=1024)
def names_secret(annotation: Hashable) -> bool:
    """Return True if an annotation, or a field of a class in it, names a secret type of pydantic or `guard.Secret`."""
    return any(
        (isinstance(bare, type) and issubclass(get_origin(bare) or bare, _SECRETS)) or accepts_handles_only(metadata)
        for bare, metadata in parts_with_fields(annotation)
    )


def refuse_secrets(value: object, path: str, annotation: Any = Any) -> None:
    """Raise ValueTypeError if a value contains a secret, except in excluded fields.

    A secret is allowed if the user has registered a codec for its class, or if it is a handle.
    """
    refuse_plain(value, annotation, path)
    _refuse_classes(value, path)


def _refuse_classes(value: object, path: str) -> None:
    """Raise ValueTypeError if a value contains an instance of one of pydantic's secret types."""
    if isinstance(value, _SECRETS) and not cbor.is_storable(type(value)) and not is_handle(value.get_secret_value()):
        name = full_name(type(value))
        message = (
            f"{path}: cannot store {name}: the file would hold the secret (exclude the field, or register_codec it)"
        )
        raise ValueTypeError(message, path=path, type=name)
    for name, part in _parts(value):
        _refuse_classes(part, f"{path}{name}")


def with_handles(value: Any) -> Any:
    """Return a dumped value in which pydantic's secrets that hold handles are replaced by the handles as strings."""
    if isinstance(value, _SECRETS) and not cbor.is_storable(type(value)) and is_handle(value.get_secret_value()):
        return value.get_secret_value()
    if type(value) is dict:
        return {key: with_handles(member) for key, member in value.items()}
    if type(value) in (list, tuple):
        return type(value)(with_handles(member) for member in value)
    return value


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the parts one level inside a value, each with its relative path."""
    if isinstance(value, dict):
        yield from ((f".{key}", part) for key, part in value.items())
        yield from (("", key) for key in value)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, pydantic.BaseModel) or hasattr(value, "__pydantic_fields__"):
        fields = fields_of(type(value)).items()
        yield from ((f".{name}", getattr(value, name, None)) for name, field in fields if field.exclude is not True)
        yield from ((f".{name}", part) for name, part in (getattr(value, "__pydantic_extra__", None) or {}).items())
    elif dataclasses.is_dataclass(value):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))
