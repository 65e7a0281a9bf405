"""Shapes of annotations, which check values without pydantic, and convert them to their stored form and back.

Plain values and values with codecs are stored unchanged. A dataclass is stored as a dict of its
fields, a named tuple as a tuple, an enum member as its value. A read can restore them, because the
annotation names their class. An annotation that cannot be checked here (a protocol, a type
variable) accepts any value.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import abc
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from typing import Any, Literal, NewType, Union, get_args, get_origin

from statelog.format.cbor import is_storable
from statelog.format.everyday import full_name
from statelog.schema.annotations import (
    RESOLUTION_ERRORS,
    accepts_handles_only,
    classes_named,
    declares_fields,
    field_hints,
    is_alias,
    is_typed_dict,
    peel,
    qualifiers,
)

Dump = Callable[[Any, str], Any]
"""A function that takes a value and its path, and returns the value's stored form. Raises MisfitError."""
Load = Callable[[Any], Any]
"""A function that takes the stored form, and returns the value. Raises MisfitError, or an error of a constructor."""


class MisfitError(Exception):
    """A value does not fit its annotation. The error has the path of the value and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        """Create the error."""
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a type: how its values are stored and read.

    Args:
        dump: returns the stored form of a value.
        load: the inverse of `dump`; None if values are stored as they are.
        items: the shape of the items of a list or set, or of the values of a dict with str keys.
        kind: the container type of a shape with `items`: list, dict, set or frozenset.
        partial: like `dump`, for a value that has only some of the fields.
    """

    dump: Dump
    load: Load | None = None
    items: Shape | None = None
    kind: type | None = None
    partial: Dump | None = None


def _handle(value: Any, path: str) -> Any:
    from statelog.guard.annotations import WANTED, is_handle

    if value is not None and not is_handle(value):
        raise MisfitError(path, f"{WANTED} is required, not the secret itself")
    return value


def _same(value: Any, _path: str) -> Any:
    return value


ANY = Shape(_same)


def needs_loading(annotation: object) -> bool:
    """Return True if values of this annotation are stored in a different form, so that a read must convert them."""
    return any(
        issubclass(cls, Enum) or declares_fields(cls) or (not is_storable(cls) and issubclass(cls, BUILTIN))
        for cls in classes_named(annotation)
        if not is_typed_dict(cls)
    )


BUILTIN: tuple[type[Any], ...] = (str, int, float, bytes, list, dict, tuple, set, frozenset)
"""Instances of subclasses are stored as values of these types. Only the annotation can restore the subclass."""


def shape_of(annotation: object) -> Shape:  # noqa: C901 - a table of cases
    """Return the shape of an annotation. The fields of classes are examined only when the first value arrives."""
    if is_alias(annotation):
        return _of_alias(annotation)
    bare, metadata = peel(annotation)
    if accepts_handles_only(metadata):
        return Shape(_handle)
    if isinstance(bare, NewType):
        return shape_of(bare.__supertype__)
    if bare is None or bare is type(None):
        return _of_class(type(None))
    origin = get_origin(bare)
    arguments = get_args(bare)
    if origin is Literal:
        return _literal(arguments)
    if origin in (Union, types.UnionType):
        return _union([shape_of(each) for each in arguments])
    if origin in _CONTAINERS:
        return _CONTAINERS[origin](arguments)
    if origin in _ABSTRACT:
        return _ABSTRACT[origin](arguments)
    if bare in _CONTAINERS:
        return _CONTAINERS[bare]((Any, ...) if bare is tuple else (Any, Any))
    if isinstance(bare, type) or declares_fields(origin):
        return _of_class(bare)
    return _instance(origin) if isinstance(origin, type) and origin is not type else ANY


_aliases_open: ContextVar[tuple[object, ...]] = ContextVar("aliases_open", default=())
"""The aliases whose shapes are being made.

If such an alias refers to itself, the inner reference looks up the shape later, when it converts a value.
"""


def _of_alias(alias: Any) -> Shape:
    if alias in _aliases_open.get():

        def load(stored: Any) -> Any:
            way = shape_of(alias).load
            return stored if way is None else way(stored)

        return Shape(lambda value, path: shape_of(alias).dump(value, path), load if needs_loading(alias) else None)
    token = _aliases_open.set((*_aliases_open.get(), alias))
    try:
        return shape_of(peel(alias)[0])
    finally:
        _aliases_open.reset(token)


def _refuse(path: str, value: object, wanted: str) -> MisfitError:
    return MisfitError(path, f"Input should be {wanted}, not {full_name(type(value))}")


# --- containers ------------------------------------------------------------------


def _is_view(value: object) -> bool:
    """Return True for a view of a state. The encoder refuses such a view with a message that gives advice."""
    return hasattr(type(value), "to_python")


def _list(arguments: tuple[Any, ...]) -> Shape:
    item = shape_of(arguments[0])
    load = item.load

    def dump(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            if _is_view(value):
                return value
            raise _refuse(path, value, "a list")
        return _all(value, [item.dump(each, f"{path}[{place}]") for place, each in enumerate(value)])

    return Shape(dump, None if load is None else lambda stored: [load(each) for each in stored], item, list)


def _all(before: Any, after: list[Any], path: str = "value") -> Any:
    """Return the original value if dumping changed none of its items, or else a copy with the dumped items."""
    if all(old is new for old, new in zip(before, after, strict=True)):
        return before
    try:
        return type(before)(after)
    except TypeError as error:
        raise MisfitError(path, "a set cannot contain a value that is stored as a dict") from error


def _elements(kind: type[set[Any] | frozenset[Any]]) -> Callable[[tuple[Any, ...]], Shape]:
    def make(arguments: tuple[Any, ...]) -> Shape:
        item = shape_of(arguments[0])
        load = item.load

        def dump(value: Any, path: str) -> Any:
            if not isinstance(value, kind):
                raise _refuse(path, value, f"a {kind.__name__}")
            return _all(value, [item.dump(each, f"{path}{{{each!r:.40}}}") for each in value], path)

        return Shape(dump, None if load is None else lambda stored: kind(load(each) for each in stored), item, kind)

    return make


def _tuple(arguments: tuple[Any, ...]) -> Shape:
    is_endless = len(arguments) == 2 and arguments[1] is ...
    shapes = [shape_of(each) for each in arguments if each is not ...]
    loads = [shape.load or (lambda stored: stored) for shape in shapes]

    def dump(value: Any, path: str) -> Any:
        if not isinstance(value, tuple):
            raise _refuse(path, value, "a tuple")
        if not is_endless and len(value) != len(shapes):
            raise MisfitError(path, f"a tuple of {len(shapes)} items, not {len(value)}")
        each = shapes * len(value) if is_endless else shapes
        pairs = enumerate(zip(each, value, strict=True))
        return _all(value, [shape.dump(item, f"{path}[{place}]") for place, (shape, item) in pairs])

    def load(stored: Any) -> tuple[Any, ...]:
        each = loads * len(stored) if is_endless else loads
        return tuple(one(item) for one, item in zip(each, stored, strict=True))

    return Shape(dump, load if any(shape.load for shape in shapes) else None)


def _dict(arguments: tuple[Any, ...]) -> Shape:
    key, item = map(shape_of, arguments)
    load_key, load_item = (shape.load or (lambda stored: stored) for shape in (key, item))

    def dump(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            if _is_view(value):
                return value
            raise _refuse(path, value, "a dict")
        keys = [key.dump(each, f"{path} key {each!r:.40}") for each in value]
        items = [item.dump(each, _inside(path, name)) for name, each in value.items()]
        if all(old is new for old, new in zip((*value, *value.values()), (*keys, *items), strict=True)):
            return value
        try:
            dumped = dict(zip(keys, items, strict=True))
        except TypeError as error:
            raise MisfitError(path, "a value that is stored as a dict cannot be a key") from error
        if len(dumped) != len(value):
            raise MisfitError(path, "an enum member and another key would be stored as the same key")
        return dumped

    def load(stored: Any) -> dict[Any, Any]:
        return {load_key(name): load_item(each) for name, each in stored.items()}

    has_text_keys = key.load is None
    return Shape(
        dump, load if key.load or item.load else None, item if has_text_keys else None, dict if has_text_keys else None
    )


def _inside(path: str, name: object) -> str:
    return f"{path}.{name}" if isinstance(name, str) and name.isidentifier() else f"{path}[{name!r:.40}]"


_CONTAINERS: dict[Any, Callable[[tuple[Any, ...]], Shape]] = {
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: _elements(set),
    frozenset: _elements(frozenset),
}


# --- abstract containers, whose values keep their own class ---------------------------------------------------

_PLAIN_SERIES = (list, tuple, set, frozenset)


def _series(origin: type) -> Callable[[tuple[Any, ...]], Shape]:
    def make(arguments: tuple[Any, ...]) -> Shape:
        item, whole = shape_of(arguments[0]), _instance(origin)
        load_item = item.load
        if load_item is None:
            return whole

        def dump(value: Any, path: str) -> Any:
            fitting = whole.dump(value, path)
            if type(value) not in _PLAIN_SERIES:
                return fitting
            return _all(fitting, [item.dump(each, f"{path}[{place}]") for place, each in enumerate(value)], path)

        def load(stored: Any) -> Any:
            return load_series(whole.dump(stored, "value"), load_item)

        return Shape(dump, load)

    return make


def load_series(stored: Any, load_item: Load) -> Any:
    """Return a list, tuple or set with its items loaded. Other values, such as a str, are returned unchanged."""
    return type(stored)(map(load_item, stored)) if type(stored) in _PLAIN_SERIES else stored


def _mapping(origin: type) -> Callable[[tuple[Any, ...]], Shape]:
    def make(arguments: tuple[Any, ...]) -> Shape:
        inner, whole = _dict(arguments), _instance(origin)
        load_inner = inner.load
        if load_inner is None:
            return whole

        def dump(value: Any, path: str) -> Any:
            return (inner if isinstance(value, dict) else whole).dump(value, path)

        def load(stored: Any) -> Any:
            return load_inner(stored) if isinstance(stored, dict) else whole.dump(stored, "value")

        return Shape(dump, load)

    return make


SERIES: tuple[type, ...] = (
    abc.Sequence,
    abc.MutableSequence,
    abc.Collection,
    abc.Iterable,
    abc.Reversible,
    abc.Container,
    abc.Set,
    abc.MutableSet,
)
_MAPPINGS: tuple[type, ...] = (abc.Mapping, abc.MutableMapping)

_ABSTRACT: dict[Any, Callable[[tuple[Any, ...]], Shape]] = {
    **{each: _series(each) for each in SERIES},
    **{each: _mapping(each) for each in _MAPPINGS},
}


# --- unions ------------------------------------------------------------------------


def _literal(choices: tuple[Any, ...]) -> Shape:
    members = {choice.value: choice for choice in choices if isinstance(choice, Enum)}
    fitting = [*choices, *members]

    def dump(value: Any, path: str) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in fitting):
            raise MisfitError(path, f"Input should be {' or '.join(map(repr, choices))}, not {value!r:.40}")
        return value.value if isinstance(value, Enum) else value

    return Shape(dump, (lambda stored: members.get(stored, stored)) if members else None)


def _union(shapes: list[Shape]) -> Shape:
    def dump(value: Any, path: str) -> Any:
        return _first(shapes, lambda shape: shape.dump(value, path))

    def load(stored: Any) -> Any:
        # Without `load`, call `dump` to check that the value fits, because loading such a shape would accept
        # anything.
        return _first(shapes, lambda shape: shape.load(stored) if shape.load else shape.dump(stored, "value"))

    containers = [shape for shape in shapes if shape.kind is not None]
    found = containers[0] if len(containers) == 1 else ANY
    return Shape(dump, load if any(shape.load for shape in shapes) else None, found.items, found.kind)


def _first(shapes: list[Shape], attempt: Callable[[Shape], Any]) -> Any:
    misfits = []
    for shape in shapes:
        try:
            return attempt(shape)
        except MisfitError as misfit:
            misfits.append(misfit)
    deepest = max(misfits, key=lambda misfit: len(misfit.path))  # Report the deepest partial match.
    reasons = dict.fromkeys(misfit.reason for misfit in misfits if misfit.path == deepest.path)
    raise MisfitError(deepest.path, " / ".join(reasons))


# --- classes -------------------------------------------------------------------------


def _of_class(declaring: Any) -> Shape:
    """Return the shape of a class, or of a generic class with its parameters."""
    cls = get_origin(declaring) or declaring
    if cls in (object, Any):
        return ANY
    if is_typed_dict(cls):
        return _fields(declaring, set(), is_class=False)
    if dataclasses.is_dataclass(cls):
        required = {
            each.name
            for each in dataclasses.fields(cls)
            if each.init and each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        }
        return _fields(declaring, required, is_class=True)
    if issubclass(cls, Enum):
        return _enum(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(declaring)
    return _instance(cls)


_ALSO: dict[type, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}
"""Types for which a type checker also accepts other types."""


def _instance(cls: type) -> Shape:
    wanted = _ALSO.get(cls, cls)
    name = full_name(cls)

    def dump(value: Any, path: str) -> Any:
        try:
            fits = isinstance(value, wanted)
        except TypeError:  # This protocol cannot be checked at run time.
            return value
        if not fits:
            raise _refuse(path, value, "None" if cls is type(None) else f"an instance of {name}")
        return value

    base = next((each for each in BUILTIN if issubclass(cls, each)), None)
    if base is None or is_storable(cls):
        return Shape(dump)
    return Shape(lambda value, path: base(dump(value, path)), cls)


def _enum(cls: type[Enum]) -> Shape:
    def load(stored: Any) -> Any:
        try:
            return cls(stored)
        except ValueError:
            raise MisfitError("value", f"{stored!r:.40} is not a {full_name(cls)}") from None

    def dump(value: Any, path: str) -> Any:
        if isinstance(value, cls):
            return value.value
        try:
            return cls(value).value
        except (ValueError, TypeError):
            choices = ", ".join(repr(each.value) for each in cls)
            raise MisfitError(path, f"Input should be a {full_name(cls)} ({choices:.80}), not {value!r:.40}") from None

    is_open = not len(cls)  # `Enum` itself accepts any member, but cannot restore one.
    return (
        Shape(lambda value, _path: value.value if isinstance(value, Enum) else value) if is_open else Shape(dump, load)
    )


def _named_tuple(declaring: Any) -> Shape:
    cls: Any = get_origin(declaring) or declaring
    hints = _hints(declaring)
    inner = _tuple(tuple(hints.get(name, Any) for name in cls._fields))

    def dump(value: Any, path: str) -> Any:
        plain: Any = tuple(value) if isinstance(value, cls) else value
        return inner.dump(plain, path)

    return Shape(dump, lambda stored: cls(*(inner.load(stored) if inner.load else stored)))


def _hints(declaring: Any) -> dict[str, Any]:
    try:
        return field_hints(declaring)
    except RESOLUTION_ERRORS:  # Some names exist only for type checkers, so the fields are unknown.
        return {}


class _Fields(dict[str, Shape]):
    """The shapes of a class's fields, created on first use, because classes may contain themselves."""

    def __init__(self, declaring: Any) -> None:
        super().__init__()
        self._declaring = declaring
        self._cls = get_origin(declaring) or declaring

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return _hints(self._declaring)

    def __missing__(self, name: str) -> Shape:
        made = self[name] = shape_of(self._hints.get(name, Any))
        return made

    def required(self) -> set[str]:
        """The required keys of a TypedDict. Python does not determine them correctly if annotations are strings."""
        marks = {name: qualifiers(hint) for name, hint in self._hints.items()}
        known: frozenset[str] = self._cls.__required_keys__
        return {
            name for name, mark in marks.items() if "Required" in mark or (name in known and "NotRequired" not in mark)
        }


class _Record:
    """Stores a dataclass or a TypedDict as a dict, and restores it."""

    def __init__(self, declaring: Any, required: set[str], *, is_class: bool) -> None:
        cls = get_origin(declaring) or declaring
        declared = dataclasses.fields(cls) if is_class else ()
        self._cls = cls
        self._is_class = is_class
        self._required = required
        self._shapes = _Fields(declaring)
        self._names = [each.name for each in declared]
        self._of_init = {each.name for each in declared if each.init}

    def _given(self, value: Any, path: str) -> dict[str, Any]:
        """Return the fields of a value, which may be an instance of the class or a dict."""
        cls = self._cls
        if self._is_class and isinstance(value, cls):
            if type(value) is not cls:
                raise MisfitError(path, f"{full_name(type(value))} would be read back as {full_name(cls)}")
            return {name: getattr(value, name) for name in self._names if hasattr(value, name)}
        if not isinstance(value, dict):
            raise _refuse(path, value, f"an instance of {full_name(cls)}" if self._is_class else "a dict")
        unknown = [name for name in value if name not in self._names] if self._is_class else []
        if unknown:
            raise MisfitError(_inside(path, unknown[0]), f"{full_name(cls)} does not have this field")
        return value

    def partial(self, value: Any, path: str) -> Any:
        given = self._given(value, path)
        dumped = {name: self._shapes[name].dump(each, _inside(path, name)) for name, each in given.items()}
        is_same = given is value and all(dumped[name] is each for name, each in given.items())
        return value if is_same else dumped

    def dump(self, value: Any, path: str) -> Any:
        dumped = self.partial(value, path)
        required = self._required if self._is_class else self._shapes.required()
        missing = sorted(required - dumped.keys())
        if missing:
            raise MisfitError(_inside(path, missing[0]), "Field required")
        return dumped

    def load(self, stored: Any) -> Any:
        values = {}
        for name, each in self._given(stored, "value").items():
            way = self._shapes[name].load
            values[name] = each if way is None else way(each)
        if not self._is_class:
            return values
        made = self._cls(**{name: each for name, each in values.items() if name in self._of_init})
        for name in values.keys() - self._of_init:
            object.__setattr__(made, name, values[name])
        return made


def _fields(declaring: Any, required: set[str], *, is_class: bool) -> Shape:
    record = _Record(declaring, required, is_class=is_class)
    has_way_back = is_class or needs_loading(declaring)
    return Shape(record.dump, record.load if has_way_back else None, partial=record.partial)
