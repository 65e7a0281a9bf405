"""Refuses secrets of pydantic in values, even if a serialiser of the model would store them as text."""

from __future__ import annotations

import dataclasses
import functools
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import pydantic

from statelog.errors import ValueTypeError
from statelog.format import cbor
from statelog.format.everyday import full_name
from statelog.guard.annotations import WANTED, is_handle
from statelog.schema.annotations import accepts_handles_only, parts_of, peel
from statelog.schema.losses import fields_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_SECRETS = (pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret)


@functools.lru_cache(maxsize=1024)
def names_secret(annotation: Hashable) -> bool:
    """Return True if an annotation, or a field of a class in it, names a class of secrets or `guard.Secret`."""
    return any(
        issubclass(each, _SECRETS) if isinstance(each, type) else accepts_handles_only((each,))
        for each in parts_of(annotation)
    )


def refuse_secrets(value: object, path: str) -> None:
    """Raise ValueTypeError if a value contains a secret, except in excluded fields.

    A secret is allowed if the user has registered a codec for its class, or if it is a handle.
    """
    if isinstance(value, _SECRETS) and not cbor.is_storable(type(value)) and not is_handle(value.get_secret_value()):
        name = full_name(type(value))
        message = (
            f"{path}: cannot store {name}: the file would hold the secret (exclude the field, or register_codec it)"
        )
        raise ValueTypeError(message, path=path, type=name)
    kind: Any = type(value)
    for name, annotation in _marked_fields(kind):
        _check_handles(annotation, getattr(value, name, None), f"{path}.{name}")
    for name, part in _parts(value):
        refuse_secrets(part, f"{path}{name}")


@functools.lru_cache(maxsize=1024)
def _marked_fields(model: Any) -> list[tuple[str, Any]]:
    """Return the fields of a model whose annotations have `guard.Secret`, outside of other classes."""
    if not (issubclass(model, pydantic.BaseModel) or hasattr(model, "__pydantic_fields__")):
        return []
    found = {
        name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in fields_of(model).items()
        if field.exclude is not True
    }
    return [(name, annotation) for name, annotation in found.items() if _is_marked(annotation)]


def _is_marked(annotation: Any) -> bool:
    bare, metadata = peel(annotation)
    return accepts_handles_only(metadata) or any(map(_is_marked, get_args(bare)))


def _check_handles(annotation: Any, value: Any, path: str) -> None:
    """Refuse a text where an annotation accepts handles only. A model validates its fields, unless they are assigned.

    Raises:
        ValueTypeError: it is not a handle. Facts: path, type.
    """
    bare, metadata = peel(annotation)
    if accepts_handles_only(metadata):
        if value is not None and not is_handle(value):
            message = f"{path}: {WANTED}, is wanted, not the secret itself"
            raise ValueTypeError(message, path=path, type=type(value).__name__)
        return
    arguments = get_args(bare)
    if get_origin(bare) in (Union, UnionType):
        is_text = isinstance(value, str | bytes)
        for each in arguments:
            if is_text or not accepts_handles_only(peel(each)[1]):
                _check_handles(each, value, path)
    elif isinstance(value, dict) and arguments:
        for key, member in value.items():
            _check_handles(arguments[-1], member, f"{path}.{key}")
    elif isinstance(value, list | tuple | set | frozenset) and arguments:
        is_fixed = isinstance(value, tuple) and len(arguments) == len(value) and arguments[-1] is not ...
        for place, member in enumerate(value):
            _check_handles(arguments[place if is_fixed else 0], member, f"{path}[{place}]")


def with_handles(value: Any) -> Any:
    """Return a dumped value with handles as texts where it has secrets of pydantic."""
    if isinstance(value, _SECRETS) and not cbor.is_storable(type(value)) and is_handle(value.get_secret_value()):
        return value.get_secret_value()
    if type(value) is dict:
        return {key: with_handles(member) for key, member in value.items()}
    if type(value) in (list, tuple):
        return type(value)(with_handles(member) for member in value)
    return value


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value, one level deep, with their relative paths."""
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
