"""Reads the channels of pydantic models, and validates writes to them.

pydantic is optional, so this module is imported only if a schema is a model. It is written for
pydantic 2.12 and later. Earlier versions refuse more writes, but lose no data. For example, 2.10
accepts a nested field with an alias only by that alias, and 2.11 does not convert a model under
``Any``, so the encoder refuses it.

Each channel has a ``TypeAdapter`` with the annotation, constraints, field validators and config of
the model. A write has only some fields, so model validators, which compare fields, do not run. A
field validator that looks at other fields finds none.

Plain values are stored: nested models as dicts (python mode, by field name), enum members by value. A nested *instance*
counts as valid, as in pydantic (``revalidate_instances``). A field with ``exclude=True`` is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import pydantic
import pydantic.dataclasses

from statelog.errors import SchemaError, ValidationError
from statelog.format.everyday import full_name
from statelog.reducers import Overwrite, Remove
from statelog.schema.annotations import classes_named, peel
from statelog.schema.channels import Channel, channel_of
from statelog.schema.enums import EnumCheck
from statelog.schema.losses import aliases_of, fields_of, find_dropped_key, names_lossy_dicts
from statelog.schema.paths import format_path
from statelog.schema.secrets import names_secret, refuse_secrets, with_handles
from statelog.schema.shapes import ANY, SERIES, MisfitError, Shape, load_series, needs_loading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PROBLEMS_MAX = 100
"""The maximum number of problems in an error, because a wrong list of a million items could have a million problems."""

_VALIDATORS: dict[str, Callable[[Any], object]] = {
    "before": pydantic.BeforeValidator,
    "after": pydantic.AfterValidator,
    "wrap": pydantic.WrapValidator,
    "plain": pydantic.PlainValidator,
}

_PARTIAL_REDUCERS = frozenset({"merge", "deep_merge"})
"""Reducers whose writes may have only some keys. In such a write, fields that were not set are left out."""


def _supported(function: Callable[..., object], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that this version of pydantic supports."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in known}


# Accept field names as well as aliases. Stored values use field names, and a value that was read and changed is
# validated again when it is written.
_VALIDATE_OPTIONS = _supported(pydantic.TypeAdapter.validate_python, {"by_alias": True, "by_name": True})
# `round_trip` leaves out computed fields. An instance of a subclass must keep its own fields, which needs
# `serialize_as_any` before pydantic 2.13.
_DUMP_OPTIONS = {"round_trip": True, "warnings": False} | (
    _supported(pydantic.TypeAdapter.dump_python, {"polymorphic_serialization": True}) or {"serialize_as_any": True}
)


def read_model(model: type) -> dict[str, Channel]:
    """Return the channels of a model: its fields by name, including inherited ones.

    Args:
        model: a ``BaseModel`` class, or a dataclass class made by pydantic.

    Raises:
        SchemaError: the model is a root model, has annotations that cannot be resolved, or has deprecated validators.
    """
    name = model.__qualname__
    if issubclass(model, pydantic.RootModel):
        message = f"{name}: a root model has no fields that could be channels"
        raise SchemaError(message, schema=name)
    if model is pydantic.BaseModel:
        return {}  # BaseModel itself declares no fields and is not a complete model.
    try:
        if issubclass(model, pydantic.BaseModel):
            model.model_rebuild()
        else:
            pydantic.dataclasses.rebuild_dataclass(model)  # type: ignore[arg-type] # one of its own
    except (NameError, pydantic.PydanticUserError) as error:
        message = f"{name}: cannot resolve its annotations: {str(error).splitlines()[0]}"
        raise SchemaError(message, schema=name) from error
    if _decorators_of(model).validators:
        message = f"{name}: deprecated @validator methods do not run: use @field_validator"
        raise SchemaError(message, schema=name)
    return {
        channel: channel_of(name, channel, field.annotation, metadata=tuple(field.metadata))
        for channel, field in fields_of(model).items()
    }


def read_aliases(model: type) -> dict[str, str]:
    """Map aliases to channels. Leave out an alias that several channels have, or that is a channel's name."""
    fields = fields_of(model)
    pairs = {(alias, name) for name, field in fields.items() for alias in aliases_of(field)}
    counts = Counter(alias for alias, _name in pairs)
    return {alias: name for alias, name in pairs if counts[alias] == 1 and alias not in fields}


class ModelCheck:
    """Validates writes to one channel of a model, and converts them to values that can be stored.

    The annotation is the type of the whole channel. The type of a write depends on the reducer:
    ``append`` takes one item, ``upsert`` takes an item or a list, and other reducers take the type
    of the channel.

    The validator of pydantic is built at the first write.
    """

    __slots__ = (
        "_adapter",
        "_annotation",
        "_channel",
        "_enum_check",
        "_field",
        "_in_dicts",
        "_model",
        "_names_secret",
        "_reducer",
    )

    def __init__(self, model: type, channel: Channel, *, field: str = "") -> None:
        """Create the check of one channel of a model. `field` is the field's name if it differs from the channel's."""
        self._model = model
        self._field = field or channel.name
        self._channel = channel.name
        self._reducer = channel.reducer.name
        self._adapter: pydantic.TypeAdapter[list[Any]] | None = None
        self._enum_check = EnumCheck.of(channel.annotation)
        self._names_secret = names_secret(channel.annotation)
        self._annotation = channel.annotation
        self._in_dicts = names_lossy_dicts(channel.annotation)

    def check_write(self, _channel: str, value: object) -> object:
        """Return the write for the reducer, in a form that can be stored.

        Raises:
            ValidationError: the annotation refuses the write, or some keys would be left out.
        """
        if isinstance(value, Remove):
            return value
        if isinstance(value, Overwrite):
            return Overwrite(self._check(value.value))
        if self._reducer == "append":
            return self._check_items([value])[0]
        if self._reducer == "upsert":
            return self._check_items(list(value) if isinstance(value, list | tuple) else [value])
        return self._check(value, is_partial=self._reducer in _PARTIAL_REDUCERS)

    def check_result(self, _channel: str, value: object) -> object:
        """Return the whole value of the channel, in a form that can be stored.

        Raises:
            ValidationError: the annotation refuses the value, or some keys would be left out.
        """
        return self._check(value)

    def _check_items(self, items: list[object]) -> list[object]:
        """Check the items of a list, and return them in order. Removals are unchanged."""
        places = [place for place, item in enumerate(items) if not isinstance(item, Remove)]
        if not places:
            return items
        accepted: Any = self._check([items[place] for place in places], places=places)
        checked = list(accepted)
        if len(checked) != len(places):
            reason = f"a validator returned {len(checked)} items for {len(places)}"
            raise self._error([(self._channel, reason)])
        for place, item in zip(places, checked, strict=True):
            items[place] = item
        return items

    def _check(self, value: object, *, is_partial: bool = False, places: Sequence[int] = ()) -> object:
        """Validate a value. `places` has the positions of its items in the user's write, if they differ."""
        if self._adapter is None:
            self._adapter = _adapter_of(self._model, self._field)
        try:
            accepted = self._adapter.validate_python([value], **_VALIDATE_OPTIONS)
        except pydantic.ValidationError as error:
            raise self._error(self._problems(error, value, places)) from error
        dropped = find_dropped_key(value, accepted[0], in_dicts=self._in_dicts)
        if dropped is not None:
            path = format_path(self._channel, value, dropped, places=places)
            reason = "not declared, and would be lost: declare it, or set extra='allow' or 'ignore'"
            raise self._error([(path, reason)])
        dumped = self._dump(self._adapter, accepted, is_partial=is_partial)
        if self._names_secret:
            refuse_secrets(accepted[0], self._channel, self._annotation)
            dumped = with_handles(dumped)
        return dumped if self._enum_check is None else self._enum_check(self._channel, dumped)

    def _dump(self, adapter: pydantic.TypeAdapter[list[Any]], accepted: list[Any], *, is_partial: bool) -> object:
        if is_partial and dataclasses.is_dataclass(accepted[0]):
            reason = f"a dataclass does not record which fields were set, which {self._reducer} needs: use a model"
            raise self._error([(self._channel, reason)])
        is_deep = is_partial and self._reducer == "deep_merge"
        try:
            dumped = adapter.dump_python(accepted, exclude_unset=is_deep, **_DUMP_OPTIONS)[0]
            if self._reducer != "merge" or not is_partial or type(accepted[0]) is dict:
                return dumped
            # Write only those fields of the outer model that were set. Nested values are replaced as a whole.
            written = adapter.dump_python(accepted, exclude_unset=True, **_DUMP_OPTIONS)[0]
        except (TypeError, ValueError) as error:
            # A user's serializer has failed, or a set contains models, which would become unhashable dicts.
            raise self._error([(self._channel, f"cannot be converted to plain data: {error}")]) from error
        is_dict = isinstance(dumped, dict)
        return {key: dumped[key] for key in written} if is_dict else dumped

    def _problems(self, error: pydantic.ValidationError, value: object, places: Sequence[int]) -> list[tuple[str, str]]:
        lines = error.errors(include_url=False, include_context=False, include_input=False)
        return [
            (
                format_path(
                    self._channel,
                    value,
                    line["loc"][1:],  # Skip the index in the list around the value.
                    is_missing=line["type"] == "missing",
                    places=places,
                ),
                line["msg"],
            )
            for line in lines[:_PROBLEMS_MAX]
        ]

    def _error(self, problems: list[tuple[str, str]]) -> ValidationError:
        path = problems[0][0]
        reason = " / ".join(dict.fromkeys(why for where, why in problems if where == path))
        more = len({where for where, _ in problems}) - 1
        message = f"{path}: {reason}" + (f" (and {more} more)" if more else "")
        return ValidationError(message, channel=self._channel, path=path, reason=reason, problems=tuple(problems))


_DUMPED_AS_TEXT = frozenset({"fractions.Fraction", "pydantic.types.Json"})
_ENCODERS = frozenset({"EncodedBytes", "EncodedStr", "Json"})
"""Metadata of pydantic that makes validation decode a value, and dumping encode it."""


def readings_of(model: type) -> dict[str, Shape]:
    """Return the shapes that restore the stored fields of a model."""
    found = {}
    for name, field in fields_of(model).items():
        encoders = [each for each in field.metadata if type(each).__name__ in _ENCODERS]
        annotation = field.annotation
        whole: Any = Annotated[annotation, *encoders] if encoders else annotation
        found[name] = Shape(ANY.dump, _Loader(whole)) if encoders else reading_of(whole)
    return found


def is_dumped_as_another(annotation: object) -> bool:
    """Return True if a pydantic model dumps values of this type in a different form."""
    return needs_loading(annotation) or not _DUMPED_AS_TEXT.isdisjoint(map(full_name, classes_named(annotation)))


def reading_of(annotation: object) -> Shape:
    """Return the shape that restores a model's field: lists and dicts item by item, other values through pydantic.

    The field's own validators do not run again. Validators of nested models run again, as always when a model is
    created from a dump.
    """
    bare, _metadata = peel(annotation)
    origin, arguments = get_origin(bare), get_args(bare)
    if not is_dumped_as_another(bare):
        return ANY
    if origin is list:
        items = reading_of(arguments[0])
        each = items.load or _unchanged
        return Shape(ANY.dump, lambda stored: list(map(each, stored)), items, list)
    if origin is dict and arguments[0] is str:
        items = reading_of(arguments[1])
        value = items.load or _unchanged
        return Shape(ANY.dump, lambda stored: {key: value(part) for key, part in stored.items()}, items, dict)
    if origin in SERIES:  # pydantic does not preserve other sequence types.
        return Shape(ANY.dump, functools.partial(load_series, load_item=reading_of(arguments[0]).load or _unchanged))
    if origin in (Union, types.UnionType) and len(arguments) == 2 and arguments[1] is type(None):
        load = reading_of(arguments[0]).load or _unchanged
        return Shape(ANY.dump, lambda stored: None if stored is None else load(stored))
    return Shape(ANY.dump, _Loader(bare))


def _unchanged(stored: Any) -> Any:
    return stored


class _Loader:
    """Converts stored values to values of a type. It builds the validator of pydantic when it gets the first value."""

    __slots__ = ("_adapter", "_annotation")

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._adapter: pydantic.TypeAdapter[list[Any]] | None = None

    def __call__(self, stored: object) -> object:
        if self._adapter is None:
            annotation: Any = self._annotation
            config = pydantic.ConfigDict(arbitrary_types_allowed=True)
            self._adapter = pydantic.TypeAdapter(list[annotation], config=config)
        try:
            return self._adapter.validate_python([stored], strict=False, **_VALIDATE_OPTIONS)[0]
        except pydantic.ValidationError as error:
            line = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise MisfitError(format_path("value", stored, line["loc"][1:], is_missing=True), line["msg"]) from error


def check_of(channel: Channel) -> ModelCheck:
    """Return the check of a channel whose annotation names a model, although its schema is not a model."""
    config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    fields: Any = {"value": (channel.annotation, ...)}
    model = pydantic.create_model("schema", __config__=config, **fields)
    return ModelCheck(model, channel, field="value")


def _decorators_of(model: type) -> Any:
    return model.__pydantic_decorators__  # type: ignore[attr-defined] # documented for models


def _adapter_of(model: type, channel: str) -> pydantic.TypeAdapter[list[Any]]:
    """Return an adapter that validates a list with the channel's value as its only item.

    The list is needed because an adapter accepts no config for a type that may have its own config, such as a model.
    """
    field = fields_of(model)[channel]
    metadata = [*field.metadata, *_field_validators(model, channel)]
    if field.discriminator is not None:
        metadata.insert(0, pydantic.Field(discriminator=field.discriminator))
    annotation: Any = field.annotation
    if metadata:
        annotation = Annotated[annotation, *metadata]
    config = getattr(model, "model_config", None) or getattr(model, "__pydantic_config__", None)
    return pydantic.TypeAdapter(list[annotation], config=config)


def _field_validators(model: type, channel: str) -> list[object]:
    """Return the model's ``@field_validator`` methods for a channel as metadata, in order."""
    return [
        _VALIDATORS[decorator.info.mode](_with_info(decorator.func, channel, decorator.info.mode))
        for decorator in _decorators_of(model).field_validators.values()
        if channel in decorator.info.fields or "*" in decorator.info.fields
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _FieldInfo:
    """Replaces pydantic's ``ValidationInfo``, as if the field were the first of its model."""

    config: Any
    context: Any
    field_name: str
    mode: str
    data: dict[str, Any] = dataclasses.field(default_factory=dict)


def _with_info(function: Callable[..., Any], channel: str, mode: str) -> Callable[..., Any]:
    """Return the validator, wrapped if it takes ``info``, so that it gets the info of the model's field.

    The info that an adapter passes has neither the field's name nor a dict of other fields.
    """
    parameters = inspect.signature(function).parameters.values()
    required = [each for each in parameters if each.default is each.empty]
    if len(required) == (2 if mode == "wrap" else 1):
        return function

    def info_of(info: pydantic.ValidationInfo) -> _FieldInfo:
        return _FieldInfo(info.config, info.context, channel, info.mode)

    if mode == "wrap":
        return lambda value, handler, info: function(value, handler, info_of(info))
    return lambda value, info: function(value, info_of(info))
