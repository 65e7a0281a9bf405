"""Reads the metadata of annotations, and the classes that annotations name.

typing and typing_extensions each have their own ``Required``, ``TypeAliasType`` and ``TypedDict``, and typing has some
of them only since Python 3.12. Both variants mean the same, so this module recognises them by name and attributes, and
never imports typing_extensions.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NewType, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOLUTION_ERRORS = (NameError, AttributeError, TypeError, SyntaxError)
"""The errors that evaluating a string annotation may raise if a name in it does not exist."""

_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})


def is_annotation(thing: object) -> bool:
    """Return True if an object is a type or an alias. Test this before callability, because types are callable."""
    return (
        isinstance(thing, type | TypeVar | NewType) or thing is Any or get_origin(thing) is not None or is_alias(thing)
    )


def is_typed_dict(thing: object) -> TypeGuard[type]:
    """Return True for a TypedDict class of typing or typing_extensions."""
    return isinstance(thing, type) and issubclass(thing, dict) and hasattr(thing, "__required_keys__")


def peel(annotation: object) -> tuple[object, tuple[object, ...]]:
    """Remove ``Annotated``, qualifiers and aliases. Return the type and the metadata, the innermost first.

    ``Required[Annotated[list, a]]`` and ``Annotated[Required[list], a]`` are both ``(list, (a,))``.
    ``Optional[Annotated[list, a]]`` is returned unchanged, without metadata.
    """
    metadata: tuple[object, ...] = ()
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *outer = get_args(annotation)
            metadata = (*outer, *metadata)
        elif repr(origin).rpartition(".")[2] in _QUALIFIERS:
            annotation = get_args(annotation)[0]
        elif is_alias(annotation):
            annotation = _value_of_alias(annotation)
        else:
            return annotation, metadata


def accepts_handles_only(metadata: tuple[object, ...]) -> bool:
    """Return True if `statelog.guard.Secret` is in the metadata of an annotation."""
    return any(getattr(type(each), "accepts_handles_only", False) for each in metadata)


def qualifiers(annotation: object) -> set[str]:
    """Return the qualifiers around a type: ``Required`` for ``Annotated[Required[int], ...]``."""
    found = set()
    while True:
        origin = get_origin(annotation)
        name = repr(origin).rpartition(".")[2]
        if name in _QUALIFIERS:
            found.add(name)
        elif origin is not Annotated:
            return found
        annotation = get_args(annotation)[0]


def classes_named(annotation: object) -> list[type]:
    """Return the classes that an annotation names, at any depth, including the fields of these classes.

    A member of an Enum inside ``Literal`` names its class.
    """
    found: dict[type, None] = {}
    for each in parts_of(annotation):
        if isinstance(each, Enum):
            found[type(each)] = None
        elif isinstance(each, type):
            found[each] = None
    return list(found)


def parts_of(annotation: object) -> list[object]:
    """Return an annotation, and all annotations and metadata inside it, including the annotations of fields."""
    pending = [annotation]
    seen: dict[int, object] = {}  # The dict keeps the parts alive, because Python reuses the id of a freed object.
    while pending:
        current = pending.pop()
        if id(current) not in seen:
            seen[id(current)] = current
            pending.extend(_parts(current))
    return list(seen.values())


def _parts(annotation: Any) -> list[object]:
    """Return the annotations one level inside an annotation."""
    parts: list[object] = [*get_args(annotation)]
    if isinstance(get_origin(annotation), type):
        parts.append(get_origin(annotation))
    if isinstance(annotation, NewType):
        parts.append(annotation.__supertype__)
    elif is_alias(annotation):
        parts.append(_value_of_alias(annotation))
    elif declares_fields(get_origin(annotation) or annotation):
        parts.extend(_field_types(annotation))
    return parts


def declares_fields(cls: object) -> TypeGuard[type]:
    """Return True for a dataclass, a TypedDict, a named tuple, or a model of pydantic."""
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls)
        or is_typed_dict(cls)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or "__pydantic_decorators__" in vars(cls)  # Pydantic models have this attribute.
    )


def field_hints(declaring: Any) -> dict[str, Any]:
    """Return the annotations of a class's fields, including inherited fields, with type parameters replaced.

    For example, ``class Page(TypedDict, Generic[X])`` declares ``items: list[X]``. Then
    ``Page[int]`` and ``class IntPage(Page[int])`` have ``items: list[int]``.

    Raises:
        One of ``RESOLUTION_ERRORS``: an annotation is a string with an unknown name.
    """
    cls = get_origin(declaring) or declaring
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(declaring), strict=False))
    hints = get_type_hints(cls, include_extras=True)
    own = {name: _replaced(hint, given) for name, hint in hints.items()}
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and declares_fields(origin):
            before = get_type_hints(origin, include_extras=True)
            inherited = {
                name for name in before if name in hints and hints[name] == before[name]
            }  # A field that the class declares again is not inherited.
            own |= {name: hint for name, hint in field_hints(_replaced(base, given)).items() if name in inherited}
    return own


def _replaced(annotation: Any, given: Mapping[Any, Any]) -> Any:
    """Return the annotation with its type parameters replaced by the given types."""
    if isinstance(annotation, TypeVar):
        return given.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not any(each in given for each in parameters):
        return annotation
    return annotation[tuple(given.get(each, each) for each in parameters)]


def _field_types(declaring: Any) -> list[object]:
    try:
        return list(field_hints(declaring).values())
    except RESOLUTION_ERRORS:
        # Only type checkers can resolve the annotations of this foreign class, so the classes they name stay unknown.
        # The encoder refuses enum members in such fields, so nothing is lost.
        return []


def is_alias(annotation: object) -> bool:
    """Return True for an alias made by a `type` statement or by `TypeAliasType`."""
    return type(get_origin(annotation) or annotation).__name__ == "TypeAliasType"


def _value_of_alias(alias: Any) -> object:
    return alias.__value__
