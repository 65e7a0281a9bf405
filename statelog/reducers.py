"""Reducers: how a write merges with a channel's value.

    class State(TypedDict):
        findings: Annotated[list[str], operator.add]
        notes: Annotated[dict, reducers.merge]
        messages: Annotated[list[dict], reducers.upsert("id")]

A reducer declares its algebra; `statelog.testing` proves the declarations by example:

- associative: f(f(a, b), c) == f(a, f(b, c))
- commutative: f(a, b) == f(b, a)
- idempotent:  f(f(a, b), b) == f(a, b)

Whatever the reducer, `Overwrite(value)` in a write replaces the channel's value, and `DROP` removes the channel:

    thread.commit({"notes": reducers.DROP})

Called as a function, a reducer does in plain Python what the engine does on encoded values.
"""

from __future__ import annotations

import builtins
import operator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from statelog.errors import ReducerTypeError, SchemaError, UsageError
from statelog.format import cbor
from statelog.kernels import STEP_ADD, STEP_APPEND, STEP_PUT, STEP_REMOVE
from statelog.late import listing
from statelog.log.step import STEP_UPSERT
from statelog.tree import reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.log.step import PreparedWrite, Redact
    from statelog.tree.node import ValueSlot, Workspace

__all__ = [
    "DROP",
    "REMOVE_ALL",
    "Overwrite",
    "Reducer",
    "Remove",
    "add",
    "append",
    "deep_merge",
    "extend",
    "from_annotation",
    "from_spec",
    "max",
    "merge",
    "min",
    "replace",
    "union",
    "upsert",
]

__dir__ = listing(__name__)


class _Value:
    """A frozen class with equality by fields, like a frozen dataclass.

    It replaces `dataclasses`, which would load `inspect` at start-up. Its pickles equal a frozen dataclass's pickles.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]
    """All fields, in order."""
    _compared: ClassVar[tuple[str, ...]]

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._compared)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__match_args__)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        from dataclasses import FrozenInstanceError

        message = f"cannot assign to field {name!r}"
        raise FrozenInstanceError(message)

    def __delattr__(self, name: str) -> NoReturn:
        from dataclasses import FrozenInstanceError

        message = f"cannot delete field {name!r}"
        raise FrozenInstanceError(message)

    def __getstate__(self) -> list[Any]:
        return [getattr(self, name) for name in self.__match_args__]

    def __setstate__(self, state: list[Any]) -> None:
        for name, value in zip(self.__match_args__, state, strict=True):
            _set(self, name, value)


_set = object.__setattr__


class Overwrite(_Value):
    """A write that replaces the channel's value, whatever the channel's reducer."""

    __slots__ = __match_args__ = _compared = ("value",)
    value: Any

    def __init__(self, value: Any) -> None:
        _set(self, "value", value)


class Remove(_Value):
    """A part of a write to an `upsert` channel that removes the item with this value under the key."""

    __slots__ = __match_args__ = _compared = ("id",)
    id: Any

    def __init__(self, id: Any) -> None:
        _set(self, "id", id)


class _Drop:
    """The type of `DROP`. Copying or unpickling it returns the same object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "reducers.DROP"

    def __reduce__(self) -> str:
        return "DROP"


DROP = _Drop()
"""A write that removes the channel from the state, whatever its reducer and type.

`thread.commit({"notes": reducers.DROP})`. The channel does not have to exist. A later write creates it again. `DROP`
cannot be stored inside a value, or as the value of a board entry.
"""

REMOVE_ALL = Remove("statelog:all")
"""A part of a write to an `upsert` channel that removes every item. Items after it in the same write are added."""


_STRINGS = (2, 3)
"""The major types of CBOR for byte strings and text strings."""

_new = tuple.__new__
"""A constructor of named tuples that skips their `__new__` in Python."""


class Prepared(NamedTuple):
    """A write that was encoded before the commit acquires its lock. It is a tuple, because every commit creates one.

    `payload` is an item, or a list of items (append, extend), or a list of operations (upsert).
    """

    channel: str
    reducer: Reducer
    payload: Any
    is_overwrite: bool = False
    check: Callable[[str, Any], Any] | None = None
    """The function that checks the result of a user's reducer. It gets the channel and the merged value, and returns
    the value to store.
    """
    operation: int | None = None
    """The operation of a step for the write, or None if the write cannot be part of a step."""

    def checked_by(self, check: Callable[[str, Any], Any]) -> Prepared:
        """Return the write with a check of its result, for a user's reducer."""
        return self._replace(check=check)

    @property
    def spec(self) -> str:
        """The spec of the reducer."""
        return self.reducer.spec

    @property
    def parameter(self) -> str:
        """The key that identifies the items of an `upsert` channel. It is empty for other reducers."""
        return self.reducer.parameter

    def encode_result(self, value: Any) -> bytes:
        """Check a merged value, and return its encoding."""
        checked = value if self.check is None else self.check(self.channel, value)
        return cbor.encode(checked, path=self.channel)

    def redacted(self, redact: Redact) -> PreparedWrite:
        """Return the write with redacted items. The result of a user's function is redacted when it is made."""
        payload, path = self.payload, self.channel
        if type(payload) is bytes:
            made: Any = redact(payload, path)
        else:
            made = [_redacted(each, redact, path) for each in payload]
        joins_texts = self.reducer.name == "add" and type(made) is bytes and made[0] >> 5 in _STRINGS
        if (self.reducer.function is not None or joins_texts) and not self.is_overwrite:
            return _MadeInPython(self._replace(payload=made), redact)
        if type(made) is bytes and made is payload:
            return self
        return self._replace(payload=made)

    def merge(
        self, workspace: Workspace, current: ValueSlot | None, identities: dict[bytes, bytes]
    ) -> ValueSlot | None:
        """Merge the write into the channel. Return the channel's new slot."""
        return self.reducer.merge(workspace, current, self, identities)


class _MadeInPython:
    """A write whose result may contain a secret that the write itself does not contain.

    A user's function makes the result, or two strings are joined.
    """

    __slots__ = ("_redact", "_write", "channel", "spec")
    operation: ClassVar[None] = None
    payload: ClassVar[None] = None
    parameter: ClassVar[str] = ""

    def __init__(self, write: Prepared, redact: Redact) -> None:
        self._write = write
        self._redact = redact
        self.channel = write.channel
        self.spec = write.spec

    def merge(self, workspace: Workspace, current: ValueSlot | None, _identities: dict[bytes, bytes]) -> ValueSlot:
        """Merge the write into the channel. Return the channel's new slot."""
        write = self._write
        function = write.reducer.function
        return reduce.custom(workspace, current, write.payload, function or reduce.sum_in_python, self._encode)

    def _encode(self, value: Any) -> bytes:
        return self._redact(self._write.encode_result(value), self.channel)

    def redacted(self, _redact: Redact) -> PreparedWrite:
        """Return the write itself."""
        return self


def _redacted(each: Any, redact: Redact, path: str) -> Any:
    """Return an item or an operation of an upsert without secrets."""
    if type(each) is tuple:
        return (each[0], redact(each[1], path))
    return each if each is None else redact(each, path)


class Removal:
    """A write that removes the channel from the state."""

    __slots__ = ("channel",)
    spec: ClassVar[str] = "remove"
    operation: ClassVar[int] = STEP_REMOVE
    payload: ClassVar[bytes] = b""
    parameter: ClassVar[str] = ""

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def merge(self, workspace: Workspace, _current: ValueSlot | None, _identities: dict[bytes, bytes]) -> None:
        """Return None, which removes the channel."""
        workspace.has_garbage = True

    def redacted(self, _redact: Redact) -> Removal:
        """Return the write itself."""
        return self


class Reducer(_Value):
    """A reducer, which defines how writes merge with a channel's value.

    Attributes:
        name: one of the built-in names, or "python".
        parameter: the key of `upsert`; otherwise empty.
        function: a user's function of (current, write), for "python".
    """

    __match_args__ = ("name", "parameter", "function", "label", "associative", "commutative", "idempotent")
    __slots__ = __match_args__
    _compared = ("name", "parameter", "label", "associative", "commutative", "idempotent")
    name: str
    parameter: str
    function: Callable[[Any, Any], Any] | None
    label: str
    associative: bool
    commutative: bool
    idempotent: bool

    def __init__(
        self,
        name: str,
        parameter: str = "",
        function: Callable[[Any, Any], Any] | None = None,
        label: str = "",
        *,
        associative: bool = False,
        commutative: bool = False,
        idempotent: bool = False,
    ) -> None:
        for field, value in zip(
            self.__match_args__, (name, parameter, function, label, associative, commutative, idempotent), strict=True
        ):
            _set(self, field, value)

    @property
    def spec(self) -> str:
        """The string that a store keeps for the reducer, such as `add`, `upsert:id` or `python:module.name`."""
        if self.name == "python":
            return f"python:{self.label}"
        return f"{self.name}:{self.parameter}" if self.parameter else self.name

    def __call__(self, current: Any, write: Any) -> Any:
        """Merge a write into a value in plain Python."""
        if self.function is not None:
            return self.function(current, write)
        if self.name == "upsert":
            return _upsert_plain(self.parameter, current, write)
        return _PLAIN[self.name](current, write)

    # --- the engine's side ---------------------------------------------------

    def prepare(self, channel: str, value: Any, *, path: str) -> Prepared:
        """Encode a write to a channel. Raises the errors of `cbor.encode`, and ReducerTypeError."""
        if isinstance(value, Overwrite):
            if self.name == "upsert":  # The items are checked and merged as in an ordinary write.
                held = value.value
                if type(held) not in (list, tuple) or any(isinstance(item, Remove) for item in held):
                    raise _mismatch(self, held, path, "a list of dicts, in Overwrite")
                return Prepared(channel, self, [None, *_shape_upsert(self, held, path)], operation=STEP_UPSERT)
            item = cbor.encode(value.value, path=path)
            return Prepared(channel, self, item, is_overwrite=True, operation=STEP_PUT)
        shape = _SHAPED.get(self.name)
        payload = cbor.encode(value, path=path) if shape is None else shape(self, value, path)
        return _new(Prepared, (channel, self, payload, False, None, _OPERATIONS.get(self.name)))

    def merge(
        self, workspace: Workspace, current: ValueSlot | None, write: Prepared, cache: dict[bytes, bytes]
    ) -> ValueSlot:
        """Merge a write into the channel. Return the channel's new slot.

        Raises ReducerTypeError, or the error of a user's function.
        """
        key = self.parameter.encode()
        if write.is_overwrite or self.name == "replace":
            return reduce.replace(workspace, current, write.payload, key=key)
        if self.name == "upsert":
            operations = write.payload
            if operations and operations[0] is None:
                workspace.has_garbage = True
                current, operations = None, operations[1:]
            return reduce.upsert(workspace, current, operations, key=key, cache=cache)
        if self.name in ("max", "min"):
            return reduce.extreme(workspace, current, write.payload, largest=self.name == "max")
        if self.name == "python":
            if self.function is None:
                message = f"channel {write.channel!r} merges with {self.label}: pass schema= with that function"
                raise SchemaError(message, channel=write.channel, reducer=self.spec)
            return reduce.custom(workspace, current, write.payload, self.function, write.encode_result)
        return _ENGINE[self.name](workspace, current, write.payload)


_ENGINE: dict[str, Callable[[Workspace, ValueSlot | None, Any], ValueSlot]] = {
    "add": reduce.add,
    "append": reduce.extend,
    "extend": reduce.extend,
    "union": reduce.union,
    "merge": reduce.merge,
    "deep_merge": reduce.deep_merge,
}


_OPERATIONS = {
    "replace": STEP_PUT,
    "add": STEP_ADD,
    "append": STEP_APPEND,
    "extend": STEP_APPEND,
    "upsert": STEP_UPSERT,
}


def _shape_add(_reducer: Reducer, value: Any, path: str) -> bytes | list[bytes]:
    if type(value) is list:  # The items are encoded one by one, because the list is merged item by item.
        return [cbor.encode(item, path=f"{path}[{index}]", depth=1) for index, item in enumerate(value)]
    return cbor.encode(value, path=path)


def _shape_append(_reducer: Reducer, value: Any, path: str) -> list[bytes]:
    return [cbor.encode(value, path=path, depth=1)]


def _shape_extend(reducer: Reducer, value: Any, path: str) -> list[bytes]:
    if type(value) not in (list, tuple):
        raise _mismatch(reducer, value, path, "a list")
    return [cbor.encode(item, path=f"{path}[{index}]", depth=1) for index, item in enumerate(value)]


def _shape_union(reducer: Reducer, value: Any, path: str) -> bytes:
    if type(value) in (list, tuple):
        try:
            value = set(value)
        except TypeError as error:
            raise _mismatch(reducer, value, path, f"elements that can be in a set ({error})") from None
    if type(value) not in (set, frozenset):
        raise _mismatch(reducer, value, path, "a set")
    return cbor.encode(value, path=path)


def _shape_dict(reducer: Reducer, value: Any, path: str) -> bytes:
    if type(value) is not dict:
        raise _mismatch(reducer, value, path, "a dict")
    return cbor.encode(value, path=path)


def _shape_upsert(reducer: Reducer, value: Any, path: str) -> list[tuple[bool, bytes] | None]:
    operations: list[tuple[bool, bytes] | None] = []
    for index, item in enumerate(_as_items(value)):
        where = f"{path}[{index}]"
        if type(item) is dict:
            operations.append((False, cbor.encode(_identified(item, reducer.parameter), path=where, depth=1)))
        elif item == REMOVE_ALL:
            operations = [None]
        elif isinstance(item, Remove):
            operations.append((True, cbor.encode(item.id, path=where)))
        else:
            raise _mismatch(reducer, item, where, "a dict or Remove")
    return operations


def _as_items(value: Any) -> Iterable[Any]:
    return value if type(value) in (list, tuple) else [value]


def _identified(item: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the item. Give it a random identity if it has none, as LangGraph's `add_messages` does."""
    from uuid import uuid4

    return item if item.get(key) is not None else {**item, key: str(uuid4())}


def _mismatch(reducer: Reducer, value: object, path: str, wanted: str) -> ReducerTypeError:
    message = f"{path}: {reducer.spec} takes {wanted}, not {type(value).__name__}"
    return ReducerTypeError(message, path=path, reducer=reducer.spec, write=type(value).__name__)


_SHAPED: dict[str, Callable[[Reducer, Any, str], Any]] = {
    "add": _shape_add,
    "append": _shape_append,
    "extend": _shape_extend,
    "union": _shape_union,
    "merge": _shape_dict,
    "deep_merge": _shape_dict,
    "upsert": _shape_upsert,
}


# --- plain Python -------------------------------------------------------------


def _upsert_plain(key: str, current: list[dict[str, Any]], write: Any) -> list[dict[str, Any]]:
    merged = {cbor.encode(item[key]): item for item in current}
    for item in _as_items(write):
        if item == REMOVE_ALL:
            merged = {}
        elif isinstance(item, Remove):
            if merged.pop(cbor.encode(item.id), None) is None:
                message = f"cannot remove {item.id!r}: no item has this identity"
                raise ReducerTypeError(message, write=item.id)
        else:
            identified = _identified(item, key)
            merged[cbor.encode(identified[key])] = identified
    return list(merged.values())


_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "replace": lambda _current, write: write,
    "add": operator.add,
    "append": lambda current, write: [*current, write],
    "extend": lambda current, write: [*current, *write],
    "union": lambda current, write: current | set(write),
    "merge": lambda current, write: {**current, **write},
    "deep_merge": reduce.merge_plain,
    "max": builtins.max,
    "min": builtins.min,
}


# --- the built-in ones --------------------------------------------------------

replace = Reducer("replace", associative=True, idempotent=True)
add = Reducer("add", associative=True)
"""The reducer of `operator.add`. It is associative except on floats, whose sums are rounded."""
append = Reducer("append")
extend = Reducer("extend", associative=True)
union = Reducer("union", associative=True, commutative=True, idempotent=True)
merge = Reducer("merge", associative=True, idempotent=True)
deep_merge = Reducer("deep_merge", idempotent=True)
"""The reducer that merges dicts recursively. It is not associative: if a key gets a dict, a number and a dict, the
grouping decides whether the two dicts are merged.
"""
max = Reducer("max", associative=True, commutative=True, idempotent=True)
min = Reducer("min", associative=True, commutative=True, idempotent=True)

_BUILT_IN = {reducer.name: reducer for reducer in (replace, add, append, extend, union, merge, deep_merge, max, min)}
_KNOWN_CALLABLES: dict[Any, Reducer] = {operator.add: add, operator.concat: add, builtins.max: max, builtins.min: min}


def upsert(key: str = "id") -> Reducer:
    """Return the reducer of a list of dicts that are identified by their value under `key`.

    A written item replaces the item with the same identity, at the same position. Other items are appended.
    `Remove(value)` removes an item, and `REMOVE_ALL` removes all items. An item without the key gets a random identity,
    as with LangGraph's `add_messages`.
    """
    if not isinstance(key, str) or not 0 < len(key.encode()) <= 255:
        message = f"the key of upsert must be a str of 1 to 255 bytes, not {key!r}"
        raise UsageError(message, argument="key", value=key)
    return Reducer("upsert", key, associative=True, idempotent=True)


def custom(
    function: Callable[[Any, Any], Any],
    *,
    associative: bool = False,
    commutative: bool = False,
    idempotent: bool = False,
) -> Reducer:
    """Return a reducer that calls a user's function with (current, write).

    Args:
        function: called with decoded values within the commit. It must not use the store.
        associative: whether f(f(a, b), c) == f(a, f(b, c)).
        commutative: whether f(a, b) == f(b, a).
        idempotent: whether f(f(a, b), b) == f(a, b).
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", type(function).__module__)
    return Reducer(
        "python",
        function=function,
        label=f"{module}.{name}",
        associative=associative,
        commutative=commutative,
        idempotent=idempotent,
    )


def from_annotation(candidate: object) -> Reducer | None:
    """Return the reducer that an annotation names, or None if it names none."""
    if isinstance(candidate, Reducer):
        return candidate
    if candidate is upsert:
        return upsert("id")
    try:
        known = _KNOWN_CALLABLES.get(candidate)
    except TypeError:
        known = None
    if known is not None:
        return known
    if isinstance(candidate, type) or not callable(candidate):
        return None
    import inspect

    try:
        parameters = inspect.signature(candidate).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    takes_two = len(required) <= 2 <= len(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return custom(candidate) if takes_two and not keyword_only else None


def from_spec(spec: str) -> Reducer:
    """Return the reducer for the `spec` that a store keeps. For a user's reducer, the result lacks the function."""
    name, _, parameter = spec.partition(":")
    if name == "python":
        return Reducer("python", label=parameter)
    if name == "upsert":
        return upsert(parameter)
    try:
        return _BUILT_IN[name]
    except KeyError:
        message = f"unknown reducer {spec!r}: written by a newer statelog?"
        raise SchemaError(message, stored=spec) from None
