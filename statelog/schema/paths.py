"""Where in a write something is wrong: ``messages[3].content``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def format_path(
    channel: str,
    written: object,
    location: Sequence[str | int],
    *,
    is_missing: bool = False,
    places: Sequence[int] = (),
) -> str:
    """The path of a location that pydantic reports, as one would write it in Python.

    pydantic mixes the branches it tried (``int``, ``list[Message]``, ``[key]``) into a
    location. A step that the write itself does not have at that place is one of those, and
    left out.

    Args:
        channel: where the path begins.
        written: the whole write. Positions in the path count within it.
        location: steps from there.
        is_missing: the last step names a key that should be there: it is kept.
        places: positions in the user's write of the items of ``written``, where they differ.
    """
    path = channel
    value = written
    for number, step in enumerate(location, 1):
        inside = _value_at(value, step)
        if inside:
            value = inside[0]
        elif not (is_missing and number == len(location)):
            continue
        if number == 1 and places and isinstance(step, int):
            step = places[step]
        path += f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"
    return path


def _value_at(value: object, step: str | int) -> tuple[object] | None:
    """The value one step inside, in a tuple; None if there is none."""
    if isinstance(value, Mapping):
        return (value[step],) if step in value else None
    if isinstance(value, list | tuple):
        is_position = isinstance(step, int) and 0 <= step < len(value)
        return (value[step],) if is_position else None  # type: ignore[index] # an int, as checked
    attributes = getattr(value, "__dict__", {})  # of an instance of a model or dataclass
    return (attributes[step],) if step in attributes else None
