"""Refuses plain text where an annotation has `guard.Secret`, which accepts only handles.

A schema validates writes, but pydantic does not validate assigned fields and instances of
dataclasses, and durable runs have no schema. So this module walks a value together with its
annotation. It does not import pydantic.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

from statelog.errors import ValueTypeError
from statelog.guard.annotations import WANTED, is_handle
from statelog.limits import DEPTH_MAX
from statelog.schema.annotations import (
    RESOLUTION_ERRORS,
    accepts_handles_only,
    declares_fields,
    field_hints,
    is_typed_dict,
    peel,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_SERIES = (list, tuple, set, frozenset, deque)
_PAIR = 2
_EXTRA = "__pydantic_extra__"


def parts_with_fields(annotation: object) -> Iterator[tuple[object, tuple[object, ...]]]:
    """Yield the types in an annotation, at any depth and in the fields of classes, each with its metadata.

    The fields of a generic model have the type arguments of the model.
    """
    pending = [annotation]
    seen: dict[int, object] = {}  # The dict keeps the parts alive, because Python reuses the id of a freed object.
    while pending:
        current: Any = pending.pop()
        if id(current) in seen:
            continue
        seen[id(current)] = current
        bare, metadata = peel(current)
        yield bare, metadata
        if isinstance(bare, NewType):
            pending.append(bare.__supertype__)
        pending.extend(get_args(bare))
        cls: Any = get_origin(bare) or bare
        if _has_fields(cls) or is_typed_dict(cls):
            pending.extend(_annotations_of(bare).values())


@functools.lru_cache(maxsize=1024)
def _has_handle_fields(annotation: Hashable) -> bool:
    return any(accepts_handles_only(metadata) for _bare, metadata in parts_with_fields(annotation))


def has_handle_fields(annotation: Any) -> bool:
    """Return True if an annotation, or a field of a class in it, has `guard.Secret`."""
    try:
        return _has_handle_fields(annotation)
    except TypeError:  # The annotation is not hashable, so it cannot be cached.
        return _has_handle_fields.__wrapped__(annotation)


def refuse_plain(value: Any, annotation: Any, path: str, *, in_union: bool = False, depth: int = 0) -> None:
    """Raise ValueTypeError if a value has plain text where its annotation accepts only handles.

    Args:
        value: the value. Instances of dataclasses, named tuples and models are walked by the fields of their class.
        annotation: the type of the value, or Any.
        path: the path of the value, for the message.
        in_union: whether the annotation is one alternative of a union. Then any value except a str or
            bytes is allowed.
        depth: the number of levels above the value. The walk ends at the maximum depth of stored values.

    Raises:
        ValueTypeError: a string is not a handle. Facts: path, type.
    """
    bare, metadata = peel(annotation)
    if accepts_handles_only(metadata):
        is_other = value is None or (in_union and not isinstance(value, str | bytes))
        if not is_other and not is_handle(value):
            message = f"{path}: {WANTED} is required, not the secret itself"
            raise ValueTypeError(message, path=path, type=type(value).__name__)
        return
    if isinstance(bare, NewType):
        refuse_plain(value, bare.__supertype__, path, in_union=in_union, depth=depth)
    elif get_origin(bare) in (Union, UnionType):
        for each in get_args(bare):
            refuse_plain(value, each, path, in_union=True, depth=depth)
    elif depth <= DEPTH_MAX:
        for name, part, below in _members(value, bare):
            refuse_plain(part, below, f"{path}{name}", in_union=in_union, depth=depth + 1)


def refuse_plain_objects(value: Any, path: str, *, depth: int = 0) -> None:
    """Raise ValueTypeError if an object inside a value of undeclared type has plain text in a field for handles.

    Raises:
        ValueTypeError: a string is not a handle. Facts: path, type.
    """
    kind: Any = type(value)
    if depth > DEPTH_MAX:
        return
    if kind is dict:
        for key, part in value.items():
            refuse_plain_objects(part, f"{path}.{key}", depth=depth + 1)
    elif kind in _SERIES:
        for place, part in enumerate(value):
            refuse_plain_objects(part, f"{path}[{place}]", depth=depth + 1)
    elif _is_class_with_handles(kind):
        refuse_plain(value, kind, path)


@functools.lru_cache(maxsize=1024)
def _is_class_with_handles(kind: Any) -> bool:
    return _has_fields(kind) and has_handle_fields(kind)


def _members(value: Any, bare: Any) -> Iterator[tuple[str, object, object]]:
    """Yield the parts one level inside a value: the last step of the path, the part, and its annotation."""
    kind: Any = type(value)
    cls, arguments = get_origin(bare) or bare, get_args(bare)
    is_mapping = isinstance(cls, type) and issubclass(cls, Mapping)
    if _has_fields(kind):
        declared = bare if cls is kind else kind
        for name, annotation in _annotations_of(declared).items():
            if name != _EXTRA:
                yield f".{name}", getattr(value, name, None), annotation
        of_extra = get_args(_annotations_of(declared).get(_EXTRA))
        for name, part in (getattr(value, _EXTRA, None) or {}).items():
            yield f".{name}", part, of_extra[-1] if of_extra else Any
    elif isinstance(value, dict):
        hints = _annotations_of(bare) if is_typed_dict(cls) else {}
        of_key, of_value = arguments if is_mapping and len(arguments) == _PAIR and not hints else (Any, Any)
        for key, part in value.items():
            yield f".{key}", part, hints.get(key, of_value)
            yield "", key, of_key
    elif isinstance(value, _SERIES):
        arguments = () if is_mapping else arguments
        is_fixed = isinstance(value, tuple) and len(arguments) == len(value) and arguments[-1] is not ...
        for place, part in enumerate(value):
            yield f"[{place}]", part, arguments[place if is_fixed else 0] if arguments else Any


def _has_fields(cls: Any) -> bool:
    """Return True for a class with declared fields that is not a TypedDict."""
    is_model = isinstance(getattr(cls, "__pydantic_fields__", None), dict)
    return isinstance(cls, type) and (is_model or (declares_fields(cls) and not is_typed_dict(cls)))


@functools.lru_cache(maxsize=1024)
def _annotations_of(declaring: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a class, except those that a model does not store.

    The annotation of a model's undeclared fields has the name `__pydantic_extra__`.
    """
    cls = get_origin(declaring) or declaring
    fields = getattr(cls, "__pydantic_fields__", None)
    if not isinstance(fields, dict):
        try:
            return field_hints(declaring)
        except RESOLUTION_ERRORS:
            return {}
    found = {
        name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in fields.items()
        if field.exclude is not True
    }
    with suppress(Exception):  # An annotation may have names that only a type checker knows.
        found |= {name: hint for name, hint in get_type_hints(cls, include_extras=True).items() if name == _EXTRA}
    return found
