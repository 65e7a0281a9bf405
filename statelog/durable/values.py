"""Encodes arguments and results for a record, and decodes them. For exceptions, see `failures`."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import sys
import types
import typing
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from statelog.errors import LimitError, StatelogError, ValueTypeError
from statelog.format import cbor
from statelog.limits import DEPTH_MAX
from statelog.schema import reading_of
from statelog.schema.handle_fields import has_handle_fields, refuse_plain
from statelog.schema.shapes import MisfitError
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from statelog.schema.shapes import Shape


def storable(value: Any, depth: int = 0) -> Any:
    """Return a value with its dataclasses and models as dicts, enum members by value, and named tuples as tuples.

    Values that are nested deeper than the maximum depth stay unchanged, and `encode` refuses them.

    Raises:
        ValueTypeError: a set contains a dataclass or a model, or a dict has one as a key; a field with the annotation
            `guard.Secret` has a string that is not a handle. Facts: type.
    """
    kind, below = type(value), depth + 1
    if kind in (str, int, float, bool, bytes, type(None)) or depth > DEPTH_MAX:
        return value
    if kind in (list, tuple, set, frozenset):
        return _made(kind, [storable(item, below) for item in value], value)
    if kind is dict:
        members = [(storable(key, below), storable(member, below)) for key, member in value.items()]
        return _made(dict, members, value)
    if isinstance(value, Enum):
        return value if cbor.is_storable(kind) else storable(value.value, below)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        if has_handle_fields(kind):
            refuse_plain(value, kind, kind.__name__)
        return value if cbor.is_storable(kind) else tuple([storable(item, below) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if has_handle_fields(kind):
            refuse_plain(value, kind, kind.__name__)
        return {field.name: storable(getattr(value, field.name), below) for field in dataclasses.fields(value)}
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return storable(_dumped(value), depth)
    return value


def _made(kind: Callable[[Any], Any], parts: list[Any], value: Any) -> Any:
    try:
        return kind(parts)
    except TypeError as error:
        name = next((type(each).__qualname__ for each in value if not cbor.is_storable(type(each))), "element")
        message = f"an instance of {name} cannot be in a set, or be a key of a dict: it is stored as a dict"
        raise ValueTypeError(message, type=name) from error


def _dumped(model: Any) -> Any:
    # Import late, because this module imports pydantic.
    from statelog.schema.secrets import names_secret, refuse_secrets, with_handles

    try:
        dumped = model.model_dump()
    except (RecursionError, ValueError) as error:
        if isinstance(error, ValueError) and "Circular reference" not in str(error):
            raise
        name = type(model).__name__
        message = f"{name}: nested deeper than {DEPTH_MAX} levels, or part of a cycle"
        raise LimitError(message, path=name, limit=DEPTH_MAX) from error
    if names_secret(model.__class__):
        refuse_secrets(model, type(model).__name__, type(model))
        dumped = with_handles(dumped)
    return dumped


RECORD_DEPTH: Final = 2
"""The depth of a result in a thread: it is a member of an item, which is in a list. Entries use the same depth."""


def encode(value: Any, path: str, *, depth: int = RECORD_DEPTH) -> bytes:
    """Return the encoded form of a value for a record.

    Raises:
        ValueTypeError, LimitError: the value cannot be stored. Facts: path.
    """
    try:
        stored = storable(value)
    except ValueTypeError as error:
        raise ValueTypeError(f"{path}: {error.message}", **{**error.facts, "path": path}) from error
    return cbor.encode(stored, path=path, around=depth)


def guarded(store: Any, item: bytes, path: str) -> bytes:
    """Return an item as it will be stored: without secrets, if the store has a guard.

    Digests and results are computed from this form, because a replay reads this form from the store.
    """
    guard = session_of(store).owner.guard
    return item if guard is None else guard.recorded(item, path)


def recorded(held: Any, value: Any, what: str) -> Any:
    """Return a value as `held`, a store or a transaction, will store it. Raises ValueTypeError, LimitError."""
    guard = session_of(held).owner.guard
    return storable(value) if guard is None else decode(guard.recorded(encode(value, what), what))


def recorded_text(store: Any, text: str) -> str:
    """Return the text of an error as it will be stored."""
    guard = session_of(store).owner.guard
    return text if guard is None else guard.error(text, "error", None)


def check_names(store: Any, *names: str) -> None:
    """Refuse names that contain a secret: a replay could not find a call that is recorded under a redacted name.

    Raises:
        SecretError: a name contains a secret. Facts: rule, path.
    """
    guard = session_of(store).owner.guard
    if guard is not None:
        for name in names:
            guard.check_name(name)


def decode(item: bytes) -> Any:
    """Return the value of an encoded item."""
    return cbor.decode(item)


@functools.lru_cache(maxsize=1024)
def _annotations(function: Callable[..., Any], *, include_extras: bool = False) -> Mapping[str, Any]:
    """Return the annotations of a function or class, except those with names that only type checkers define."""
    with suppress(Exception):
        return typing.get_type_hints(function, include_extras=include_extras)
    found: dict[str, Any] = {}
    bare = inspect.unwrap(function)
    for name, annotation in getattr(bare, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation}, __globals__=getattr(bare, "__globals__", {}))
        with suppress(Exception):
            found |= typing.get_type_hints(holder, include_extras=include_extras)
    return found


@functools.lru_cache(maxsize=1024)
def _shape(function: Callable[..., Any], name: str) -> Shape | None:
    annotation = _annotations(function).get(name)
    return None if annotation is None else reading_of(annotation)


def typed(function: Callable[..., Any], name: str, value: Any) -> Any:
    """Convert a recorded value to the annotated type of the parameter `name`, or of the result if `name` is "return".

    If the value does not fit the annotation, return it as it was recorded.
    """
    try:
        shape = _shape(function, name)
        return value if shape is None or shape.load is None else shape.load(value)
    except (StatelogError, MisfitError, TypeError, ValueError):  # The annotation may be newer.
        return value


def typed_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, skip: int
) -> tuple[list[Any], dict[str, Any]]:
    """Convert recorded arguments to the types that the function declares. Ignore its first `skip` parameters."""
    names, others = _parameters_of(function, len(args), kwargs, skip)
    given = [typed(function, name, value) for name, value in zip(names, args, strict=True)]
    return given, {name: typed(function, others[name], value) for name, value in kwargs.items()}


def _parameters_of(
    function: Callable[..., Any], count: int, kwargs: Iterable[str], skip: int
) -> tuple[list[str], dict[str, str]]:
    """Return the names of the parameters that accept `count` arguments, and those that accept `kwargs`, by keyword.

    The first `skip` parameters are ignored.
    """
    parameters = list(inspect.signature(function).parameters.values())
    by_place = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)][skip:]
    by_name = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")
    others = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")
    names = [each.name for each in by_place[:count]]
    names += [rest] * (count - len(names))
    return names, {name: name if name in by_name else others for name in kwargs}


@functools.lru_cache(maxsize=1024)
def _handle_annotations(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function in which `guard.Secret` occurs."""
    found = _annotations(function, include_extras=True)
    return {name: annotation for name, annotation in found.items() if has_handle_fields(annotation)}


def refuse_plain_result(function: Callable[..., Any], result: Any, path: str) -> None:
    """Raise ValueTypeError if the result has plain text where the function's annotation accepts only handles."""
    annotation = _handle_annotations(function).get("return")
    if annotation is not None:
        refuse_plain(result, annotation, path)


def _refuse_plain_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], skip: int, path: str
) -> None:
    declared = _handle_annotations(function)
    if not declared:
        return
    names, others = _parameters_of(function, len(args), kwargs, skip)
    for name, value in [*zip(names, args, strict=True), *((others[name], value) for name, value in kwargs.items())]:
        refuse_plain(value, declared.get(name, Any), f"{path}: {name}")


def digest_of(item: bytes) -> bytes:
    """Return the BLAKE2b-96 digest of encoded arguments."""
    return hashlib.blake2b(item, digest_size=12).digest()


def arguments_item(
    what: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    ignore: Sequence[str],
    *,
    skip: int = 0,
) -> bytes:
    """Return the encoded arguments of a call, without those in `ignore`.

    `args` does not contain the first `skip` parameters of the function, such as the run.

    Raises:
        ValueTypeError, LimitError: an argument cannot be stored. Facts: path.
    """
    _refuse_plain_arguments(function, args, kwargs, skip, f"arguments of {what}")
    if ignore:
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except (TypeError, ValueError):
            kwargs = {name: value for name, value in kwargs.items() if name not in ignore}
        else:
            kwargs = {name: value for name, value in bound.arguments.items() if name not in ignore}
            args = ()
    return encode([list(args), dict(kwargs)], f"arguments of {what}", depth=0)
