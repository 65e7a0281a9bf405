"""Paths into a state: `messages[3].content`, `notes["a.b"]`, `messages[-5:]`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from statelog.cli.values import describe
from statelog.display.packed import Constructed, unpacked
from statelog.errors import NotFoundError, UsageError
from statelog.store.views import ListView

Step = str | int | slice

_STEP = re.compile(
    r"""
    (?P<dot>\.)? (?P<name>[^.\[\]"]+)
    | \[ (?P<index>-?\d+) \]
    | \[ (?P<start>-?\d*) : (?P<stop>-?\d*) \]
    | \[ (?P<quoted>"(?:[^"\\]|\\.)*") \]
    """,
    re.VERBOSE,
)


def parse_path(text: str) -> list[Step]:
    """Return the steps of a path: keys, positions, and slices.

    Raises:
        UsageError: `text` is not a path. The message has the position of the error.
    """
    steps: list[Step] = []
    at = 0
    while at < len(text) or not steps:
        match = _STEP.match(text, at)
        if match is None or (match["name"] is not None and (match["dot"] is None) is bool(steps)):
            message = f'{text!r} is not a path such as messages[3].content or notes["a.b"]: see character {at + 1}'
            raise UsageError(message, path=text)
        steps.append(_step(match, text))
        at = match.end()
    return steps


def _step(match: re.Match[str], text: str) -> Step:
    if match["name"] is not None:
        return match["name"]
    if match["index"] is not None:
        return int(match["index"])
    if match["quoted"] is None:
        return slice(*(int(bound) if bound else None for bound in (match["start"], match["stop"])))
    try:
        key = json.loads(match["quoted"])
    except ValueError as error:
        message = f"{text!r} is not a path: {match['quoted']} is not a JSON string"
        raise UsageError(message, path=text) from error
    assert isinstance(key, str)
    return key


def format_path(steps: tuple[str | int, ...]) -> str:
    """Return the path of `steps` as a string. `parse_path` is the inverse."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _STEP.fullmatch(step) and not step.startswith((".", "[")):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def follow_path(state: Mapping[str, Any], text: str) -> Any:
    """Return the value at a path. Only values on the path are read.

    Raises:
        NotFoundError: there is no value at the path. The message shows the nearest existing value.
        UsageError: `text` is not a path.
    """
    value: Any = state
    done: tuple[str | int, ...] = ()
    for step in parse_path(text):
        value = _follow(value, step, format_path(done) or "the state", text)
        done = (*done, step if isinstance(step, str | int) else 0)
    return value


def _follow(value: Any, step: Step, where: str, path: str) -> Any:
    value = unpacked(value)
    kind = describe(value)
    if isinstance(value, Constructed):
        value = value.fields
    if isinstance(value, Mapping):
        if isinstance(step, str) and step in value:
            return value[step]
        what = f"key {step!r}" if isinstance(step, str) else "position"
    elif isinstance(value, ListView | list | tuple | str | bytes):
        if isinstance(step, slice):
            return value[step]
        if isinstance(step, int) and -len(value) <= step < len(value):
            return value[step]
        what = f"position {step}" if isinstance(step, int) else f"key {step!r}"
    else:
        what = "members"
    message = f"no {path}: {where} ({kind}) has no {what}{_keys(value)}"
    raise NotFoundError(message, path=path)


def _keys(value: object) -> str:
    if not isinstance(value, Mapping) or not 0 < len(value) <= 20:
        return ""
    return f"; its keys are {', '.join(value)}"
