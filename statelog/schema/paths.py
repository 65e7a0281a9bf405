"""Paths of problems in a write, such as ``messages[3].content``."""

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
    """Return the path of a location that pydantic reports, in Python's syntax.

    A location of pydantic also names the branches that pydantic tried (``int``, ``list[Message]``,
    ``[key]``). The path leaves out steps that do not exist in the write.

    Args:
        channel: the channel, which begins the path.
        written: the whole write, in which the positions of the path count.
        location: the steps from the write to the problem.
        is_missing: whether the last step names a missing key. The path then keeps this step.
        places: the positions in the user's write of the items of ``written``, if they differ.
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
    """Return the value one step inside, in a tuple of one, or None if there is no such step."""
    if isinstance(value, Mapping):
        return (value[step],) if step in value else None
    if isinstance(value, list | tuple):
        is_position = isinstance(step, int) and 0 <= step < len(value)
        return (value[step],) if is_position else None  # type: ignore[index] # an int, as checked
    attributes = getattr(value, "__dict__", {})  # The value may be an instance of a model or dataclass.
    return (attributes[step],) if step in attributes else None
