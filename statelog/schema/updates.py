"""One write, in the forms a user may give it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from statelog.errors import UsageError

_TEXT_ONLY = frozenset((str,))


def normalise_update(update: object) -> dict[str, object]:
    """A write as a new dict of channel to value.

    Args:
        update: a mapping; a dataclass instance, all of whose fields are written; or an
            instance of a pydantic model, of which only the fields that were set are.

    Returns:
        The values themselves: what is nested in them stays what it is.

    Raises:
        UsageError: it is none of these, or a key is not a str. Facts: type.
    """
    if isinstance(update, (dict, Mapping)):  # dict first: asking an ABC costs more than the rest
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
    message = f"a write is a dict, a dataclass instance or a pydantic model instance, not {what}"
    raise UsageError(message, type=kind)


def _with_text_keys(update: Mapping[object, object]) -> dict[str, object]:
    written: dict[str, object] = {}
    for key, value in update.items():
        if not isinstance(key, str):
            kind = type(key).__qualname__
            message = f"a write names channels by str, not by {kind}: {key!r:.80}"
            raise UsageError(message, type=kind)
        # A str subclass, such as a StrEnum member, has a repr and an encoding of its own.
        written[key if type(key) is str else str.__str__(key)] = value
    return written


def _fields_set(update: object) -> dict[str, object] | None:
    """What was set on an instance of a pydantic model; None if it is not one."""
    pydantic = sys.modules.get("pydantic")  # someone who has a model has imported it
    if pydantic is None or not isinstance(update, pydantic.BaseModel):
        return None
    # In the order of the fields, then extra ones: the set alone has another order each run.
    values = {**update.__dict__, **(update.__pydantic_extra__ or {})}
    return {name: value for name, value in values.items() if name in update.model_fields_set}
