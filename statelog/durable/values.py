"""Values on their way into a record and back: arguments, results and exceptions."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import hashlib
import inspect
import sys
import typing
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from statelog import errors
from statelog.errors import LimitError, StatelogError, StepFailedError, ValueTypeError
from statelog.format import cbor
from statelog.limits import DEPTH_MAX
from statelog.schema import reading_of
from statelog.schema.shapes import MisfitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from statelog.schema.shapes import Shape

_MESSAGE_SIZE_MAX = 4096


def storable(value: Any, depth: int = 0) -> Any:
    """Return a value with its dataclasses and models as dicts, as deep as values may nest."""
    kind, below = type(value), depth + 1
    if kind in (str, int, float, bool, bytes, type(None)) or depth > DEPTH_MAX:
        return value
    if kind in (list, tuple):
        return kind([storable(item, below) for item in value])
    if kind is dict:
        return {key: storable(member, below) for key, member in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: storable(getattr(value, field.name), below) for field in dataclasses.fields(value)}
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return storable(_dumped(value), depth)
    return value


def _dumped(model: Any) -> Any:
    try:
        return model.model_dump()
    except (RecursionError, ValueError) as error:
        if isinstance(error, ValueError) and "Circular reference" not in str(error):
            raise
        name = type(model).__name__
        message = f"{name}: nested deeper than {DEPTH_MAX} levels, or a cycle"
        raise LimitError(message, path=name, limit=DEPTH_MAX) from error


def encode(value: Any, path: str) -> bytes:
    """Return the item of a value. Raises ValueTypeError, LimitError: it cannot be stored."""
    return cbor.encode(storable(value), path=path)


def decode(item: bytes) -> Any:
    """Return a value as it was recorded."""
    return cbor.decode(item)


@functools.lru_cache(maxsize=1024)
def _annotations(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - names that only a type checker knows
        return {}


@functools.lru_cache(maxsize=1024)
def _shape(function: Callable[..., Any], name: str) -> Shape | None:
    annotation = _annotations(function).get(name)
    return None if annotation is None else reading_of(annotation)


def typed(function: Callable[..., Any], name: str, value: Any) -> Any:
    """Return a recorded value as the annotation of a function says, of its parameter or of its `return`."""
    try:
        shape = _shape(function, name)
        return value if shape is None or shape.load is None else shape.load(value)
    except (StatelogError, MisfitError, TypeError, ValueError):  # recorded under another declaration
        return value


def typed_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, skip: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return recorded arguments as the annotations of a function say. The first `skip` parameters are not recorded."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    given = [
        typed(function, parameter.name, value)
        if (parameter := parameters[min(at, len(parameters) - 1)] if parameters else None) is not None
        else value
        for at, value in enumerate(args)
    ]
    return given, {name: typed(function, name, value) for name, value in kwargs.items()}


def digest_of(item: bytes) -> bytes:
    """Return the digest of arguments."""
    return hashlib.blake2b(item, digest_size=12).digest()


def arguments_item(
    what: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], ignore: Sequence[str]
) -> bytes:
    """Return the item of the arguments of a call, but for those to be ignored.

    Raises:
        ValueTypeError, LimitError: one of them cannot be stored. Facts: path.

    """
    if ignore:
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except (TypeError, ValueError):
            kwargs = {name: value for name, value in kwargs.items() if name not in ignore}
        else:
            kwargs = {name: value for name, value in bound.arguments.items() if name not in ignore}
            args = ()
    return encode([list(args), dict(kwargs)], f"arguments of {what}")


# --- exceptions -------------------------------------------------------------------------------


def error_of(error: BaseException) -> dict[str, Any]:
    """Return an exception as it is recorded: its class by name, what it was made with, and its text."""
    kind = type(error)
    message = _text_of(error)
    found: dict[str, Any] = {"type": kind.__qualname__, "module": kind.__module__, "message": message}
    if isinstance(error, StepFailedError):
        found["facts"] = {"type": error.facts.get("type"), "run_message": error.facts.get("text")}
    elif not isinstance(error, StatelogError):
        try:
            item = encode(list(error.args), "exception")
        except (ValueTypeError, LimitError, ValueError, RecursionError):
            pass
        else:
            if len(item) <= _MESSAGE_SIZE_MAX:
                found["args"] = decode(item)
    return found


def _text_of(error: BaseException) -> str:
    """Return what an exception says, as it can be stored; nothing, if it cannot say it."""
    try:
        text = str(error)[:_MESSAGE_SIZE_MAX]
    except Exception:  # noqa: BLE001 - of a class that has not made what it shows
        return ""
    return text.encode(errors="backslashreplace").decode()


def error_text(recorded: Mapping[str, Any]) -> str:
    """Return a recorded exception as one line."""
    return f"{recorded['type']}: {recorded['message']}" if recorded["message"] else str(recorded["type"])


def exception_of(recorded: Mapping[str, Any], known: Sequence[type[BaseException]]) -> BaseException:
    """Return a recorded exception: a builtin, one of this library, one that is known here; else StepFailedError.

    No class is imported because a file names it.
    """
    name, module, message = recorded["type"], recorded["module"], recorded["message"]
    args = recorded.get("args", [message])
    if module == "builtins":
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return _made(kind, args, recorded)
    if module == errors.__name__:
        kind = getattr(errors, name, None)
        if kind is StepFailedError:
            facts = recorded.get("facts", {})
            return StepFailedError(message, type=facts.get("type"), text=facts.get("run_message"))
        if isinstance(kind, type) and issubclass(kind, StatelogError):
            return kind(message)
    for kind in known:
        if kind.__qualname__ == name and kind.__module__ == module:
            return _made(kind, args, recorded)
    return _step_failed(recorded)


def _step_failed(recorded: Mapping[str, Any]) -> StepFailedError:
    return StepFailedError(error_text(recorded), type=recorded["type"], text=recorded["message"])


def _made(kind: type[BaseException], args: Sequence[Any], recorded: Mapping[str, Any]) -> BaseException:
    with suppress(Exception):  # a class that takes other arguments than it keeps
        return kind(*args)
    try:
        made = kind.__new__(kind)
    except Exception:  # noqa: BLE001 - a group of exceptions, or one that cannot be made without arguments
        return _step_failed(recorded)
    made.args = (recorded["message"],)
    return made
