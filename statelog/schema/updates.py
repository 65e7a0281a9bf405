"""Normalises the forms of an update that users may pass."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from statelog.errors import UsageError

_TEXT_ONLY = frozenset((str,))


def normalise_update(update: object) -> dict[str, object]:
    """Return an update as a new dict from channels to values. Nested values are not converted.

    Args:
        update: a mapping; a dataclass instance, of which all fields are written; or an instance of a pydantic model, of
            which only the set fields are written.

    Raises:
        UsageError: the update is none of these, or a key is not a str. Facts: type.
    """
    if isinstance(update, (dict, Mapping)):  # Check for dict first, because a check against an ABC is slow.
        return dict(update) if _TEXT_ONLY.issuperset(map(type, update)) else _with_text_keys(update)
    fields_set = _fields_set(update)
    if fields_set is not None:
        return fields_set
    if hasattr(update, "__dataclass_fields__") and not isinstance(update, type):
        from dataclasses import fields

        names = (field.name for field in fields(update))  # type: ignore[arg-type] # it is asked for just above
        return {name: getattr(update, name) for name in names if hasattr(update, name)}
    kind = type(update).__qualname__
    what = f"the class {update.__qualname__}" if isinstance(update, type) else kind
    message = f"a write must be a dict, a dataclass instance or a pydantic model instance, not {what}"
    raise UsageError(message, type=kind)


def _with_text_keys(update: Mapping[object, object]) -> dict[str, object]:
    written: dict[str, object] = {}
    for key, value in update.items():
        if not isinstance(key, str):
            kind = type(key).__qualname__
            message = f"a write must name channels by str, not by {kind}: {key!r:.80}"
            raise UsageError(message, type=kind)
        # Convert instances of str subclasses, such as StrEnum members, because they may have a different repr and
        # encoding.
        written[key if type(key) is str else str.__str__(key)] = value
    return written


def _fields_set(update: object) -> dict[str, object] | None:
    """Return the set fields of an instance of a pydantic model, or None for other objects."""
    pydantic = sys.modules.get("pydantic")  # A program that passes a model has imported pydantic.
    if pydantic is None or not isinstance(update, pydantic.BaseModel):
        return None
    # Use the order of the fields, because the order of a set differs in each run.
    values = {**update.__dict__, **(update.__pydantic_extra__ or {})}
    return {name: value for name, value in values.items() if name in update.model_fields_set}
