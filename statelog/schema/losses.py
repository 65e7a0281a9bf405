"""Finds keys of a write that pydantic's validation would leave out.

By default, a pydantic model ignores undeclared keys. This is convenient for a web request, but a
state would lose written data. So this module refuses such keys, unless the model has
``extra="ignore"``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from statelog.schema.annotations import classes_named, is_typed_dict

_CLASSES_REMEMBERED_MAX = 1024
"""The maximum number of nested models in the cache. If a program has more, some are examined again."""


def names_lossy_dicts(annotation: object) -> bool:
    """Return True if the annotation names a TypedDict, whose undeclared keys would be left out."""
    return any(is_typed_dict(cls) and not _decides_itself(cls) for cls in classes_named(annotation))


def fields_of(model: type[Any]) -> dict[str, Any]:
    """Return the ``FieldInfo`` of each field of a model class, or of a dataclass made by pydantic."""
    is_model = issubclass(model, pydantic.BaseModel)
    fields: dict[str, Any] = model.model_fields if is_model else model.__pydantic_fields__
    return fields


def find_dropped_key(written: object, accepted: object, *, in_dicts: bool) -> tuple[str | int, ...] | None:
    """Return the path of the first key in the write that validation left out, or None if it kept all keys.

    Args:
        written: the write.
        accepted: the result of its validation.
        in_dicts: also compare dicts that became dicts, because the annotation names lossy dicts. Without such dicts,
            only a user's validator removes keys from a dict, on purpose.
    """
    if written is accepted:
        return None
    if isinstance(accepted, pydantic.RootModel):
        return find_dropped_key(written, accepted.root, in_dicts=in_dicts)
    if isinstance(written, Mapping):
        dropped = _dropped_keys(written, accepted, in_dicts=in_dicts)
        if dropped:
            return (dropped[0],)
    for place, part, accepted_part in _parts(written, accepted):
        found = find_dropped_key(part, accepted_part, in_dicts=in_dicts)
        if found is not None:
            return (place, *found)
    return None


def _dropped_keys(written: Mapping[Any, object], accepted: object, *, in_dicts: bool) -> list[str | int]:
    if isinstance(accepted, dict):
        # Comparing keys is not enough: {"1": x} may have become {1: x}, which loses nothing.
        is_lossy = in_dicts and len(accepted) < len(written)
        return [key for key in written if key not in accepted] if is_lossy else []
    kind = _kind_of(accepted)
    return [key for key in written if key not in kind.fields_by_key] if kind.is_lossy else []


def _parts(written: object, accepted: object) -> Iterator[tuple[str | int, object, object]]:
    """Yield (key or index, part written, part accepted) one level inside, if both values have the same shape."""
    if isinstance(written, list | tuple):
        if isinstance(accepted, list | tuple) and len(written) == len(accepted):
            pairs = zip(written, accepted, strict=True)
            yield from ((place, *pair) for place, pair in enumerate(pairs))
    elif isinstance(written, Mapping):
        inside = accepted if isinstance(accepted, dict) else _values_by_key(accepted)
        yield from ((key, part, inside[key]) for key, part in written.items() if key in inside)


def _values_by_key(accepted: object) -> dict[str, object]:
    names = _kind_of(accepted).fields_by_key.items()
    return {key: getattr(accepted, name) for key, name in names if hasattr(accepted, name)}


@dataclasses.dataclass(frozen=True, slots=True)
class _ValidatedClass:
    """Describes how validation turns a dict into an instance of a class.

    Args:
        fields_by_key: for each key that the dict may have, the name of its field.
        is_lossy: whether validation leaves out all other keys.
    """

    fields_by_key: Mapping[str, str]
    is_lossy: bool


_UNKNOWN_KIND = _ValidatedClass(fields_by_key={}, is_lossy=False)


def _kind_of(accepted: object) -> _ValidatedClass:
    return _kind_of_class(type(accepted))  # type: ignore[arg-type] # every class is hashable


@functools.lru_cache(maxsize=_CLASSES_REMEMBERED_MAX)
def _kind_of_class(cls: type) -> _ValidatedClass:
    decorators = getattr(cls, "__pydantic_decorators__", None)
    validators = decorators.model_validators.values() if decorators else ()
    if any(validator.info.mode != "after" for validator in validators):
        return _UNKNOWN_KIND  # Such a validator may read fields from any part of the dict.
    if decorators:
        fields = fields_of(cls).items()
        names = {key: name for name, field in fields for key in _keys_of(name, field)}
    elif dataclasses.is_dataclass(cls):
        names = {field.name: field.name for field in dataclasses.fields(cls)}
    else:
        return _UNKNOWN_KIND
    return _ValidatedClass(names, is_lossy=not _decides_itself(cls))


def aliases_of(field: Any) -> list[str]:
    """Return the aliases under which validation accepts a whole field."""
    aliases = [field.alias, field.validation_alias, *getattr(field.validation_alias, "choices", ())]
    return [alias for alias in aliases if isinstance(alias, str)]


def _keys_of(name: str, field: Any) -> Iterator[str]:
    yield name
    yield from aliases_of(field)
    for alias in (field.validation_alias, *getattr(field.validation_alias, "choices", ())):
        if isinstance(alias, pydantic.AliasPath):
            yield str(alias.path[0])


def _decides_itself(cls: type) -> bool:
    config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    return "extra" in config
