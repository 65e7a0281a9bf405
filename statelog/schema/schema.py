"""The channels of a thread, and the checks of writes to them."""

from __future__ import annotations

import functools
import sys
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_origin

from statelog import reducers
from statelog.errors import ChannelError, CorruptionError, SchemaError, UsageError
from statelog.log.names import OWN_CHANNELS
from statelog.schema.channels import (
    Channel,
    check_names,
    read_dataclass,
    read_mapping,
    read_typed_dict,
)

if typing.TYPE_CHECKING:
    from statelog.schema.models import ModelCheck
    from statelog.schema.plain import PlainCheck
    from statelog.schema.shapes import Shape

Check = Callable[[str, object], object]
"""A function that takes a channel and a value, and returns the value's stored form. None stands for no check.
"""

_CLASSES_REMEMBERED_MAX = 128
"""The maximum number of schemas in the cache. Programs open many threads with few schemas."""

_EMPTY_BY_REDUCER: Mapping[str, type] = {
    "append": list,
    "extend": list,
    "upsert": list,
    "merge": dict,
    "deep_merge": dict,
    "union": set,
}

SCHEMA_ENTRY = "statelog:schema"
"""The key, among a thread's reducer specs, that has the name and the newest version of its versioned schema."""

STEPS_CHANNEL = "statelog:steps"
"""The only one of the library's own channels to which writes append items. The others use `replace`."""

_CHANNELS_SHOWN_MAX = 20
"""The maximum number of channels that a message names. The facts of the error name all of them."""


class SchemaLineage:
    """A schema with a name and a version number: the base class of what `statelog.versioned` returns."""

    name: str
    version: int
    schema: Schema
    """The channels of this version."""


class RememberedSchema(NamedTuple):
    """The name and newest version of a thread's versioned schema, as the thread stores them."""

    name: str
    newest: int
    """The newest version that a commit to the thread has used."""

    @property
    def spec(self) -> str:
        """The string that is stored among the reducer specs."""
        return f"{self.name}:{self.newest}"

    @staticmethod
    def of(stored: Mapping[str, str]) -> RememberedSchema | None:
        """Return the versioned schema among stored reducer specs, or None.

        Raises:
            CorruptionError: the entry is not a name and a number.
        """
        spec = stored.get(SCHEMA_ENTRY)
        if spec is None:
            return None
        name, _, number = spec.rpartition(":")
        if not name or not (number.isascii() and number.isdigit()) or number.startswith("0"):
            message = f"the stored schema of a thread must be a name and a version, not {spec!r:.80}"
            raise CorruptionError(message)
        return RememberedSchema(name, int(number))


class Schema(NamedTuple):
    """The channels of a thread. A schema is immutable. ``Schema.of`` and ``Schema.from_specs`` create one.

    Args:
        name: the name of the declaring class, for messages.
        channels: the channels by name, in order of declaration; empty if ``is_open``.
        is_open: whether any channel may be written, with ``replace``.

    Each schema also has the library's own channels (see ``OWN_CHANNELS``), whose values it does not check.
    """

    name: str
    channels: Mapping[str, Channel]
    is_open: bool
    write_checks: Mapping[str, Check | None]
    result_checks: Mapping[str, Check | None]
    check_of_others: Check | None
    part_checks: Mapping[str, Callable[[str, object], bool]]
    aliases: Mapping[str, str]
    """The channels of a pydantic model, keyed by the aliases that writes may use."""
    readings: Mapping[str, Shape]
    """The shapes of channels whose values are stored in a different form: models, dataclasses, enum members."""
    lineage: SchemaLineage | None = None
    """The name and the version of the schema, if it has them."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __repr__(self) -> str:
        return f"Schema(name={self.name!r}, channels={dict(self.channels)!r}, is_open={self.is_open!r})"

    @staticmethod
    def of(user_schema: object) -> Schema:
        """Return the schema for a user's declaration.

        Args:
            user_schema: a TypedDict, dataclass or pydantic model class; a dict from channels to reducers, types or
                ``Annotated``; a ``Schema``; or None for any channel.

        Raises:
            SchemaError: the argument is none of these, or the declaration is invalid. Facts:
                schema, and channel if one channel is invalid.
        """
        if user_schema is None:
            return _OPEN
        if isinstance(user_schema, Schema):
            return user_schema
        if isinstance(user_schema, SchemaLineage):
            return user_schema.schema
        if isinstance(get_origin(user_schema) or user_schema, type):
            try:
                return _without_own(_read_class(user_schema))
            except TypeError:  # The class is not hashable, so the result cannot be cached.
                return _without_own(_read_class.__wrapped__(user_schema))
        if isinstance(user_schema, Mapping):
            return _without_own(_schema_of_plain_channels("schema", read_mapping(user_schema)))
        cls = type(user_schema)
        what = f"an object of type {cls.__qualname__}"
        is_instance = hasattr(cls, "__dataclass_fields__") or _is_model(cls)
        raise _unreadable(what, ": pass the class, not an instance of it" if is_instance else "")

    @staticmethod
    def from_specs(stored: Mapping[str, str]) -> Schema:
        """Return the schema of a thread that is opened without one, from its stored reducers.

        Built-in reducers work. A user's reducer is known only by its name, so a write that needs the
        reducer raises an error.

        Args:
            stored: the reducer specs by channel; empty for a thread without a schema.

        Raises:
            SchemaError: this release does not know a spec.
        """
        specs = {name: spec for name, spec in stored.items() if name != SCHEMA_ENTRY}
        if not specs:
            return _OPEN
        channels = {name: Channel(name, reducers.from_spec(spec), Any) for name, spec in specs.items()}
        return _schema_of_plain_channels("schema", channels)

    def specs(self) -> dict[str, str]:
        """The specs that a thread stores: the reducers by channel, and the name and version of a versioned schema."""
        specs = {name: channel.reducer.spec for name, channel in self.channels.items()}
        if self.lineage is not None:
            specs[SCHEMA_ENTRY] = RememberedSchema(self.lineage.name, self.lineage.version).spec
        return specs

    def by_channel(self, update: dict[str, object]) -> dict[str, object]:
        """Return a write with its aliases replaced by the names of the channels.

        Raises:
            UsageError: the write names a channel twice. Facts: channel.
        """
        if not self.aliases or not self.aliases.keys() & update.keys():
            return update
        named: dict[str, object] = {}
        for name, value in update.items():
            channel = self.aliases.get(name, name)
            if channel in named:
                message = f"a write sets channel {channel!r} twice, once by its alias"
                raise UsageError(message, channel=channel)
            named[channel] = value
        return named

    def reducer(self, channel: str) -> reducers.Reducer:
        """Return the reducer of a channel.

        Raises:
            ChannelError: the schema does not have the channel.
        """
        declared = self.channels.get(channel)
        if declared is not None:
            return declared.reducer
        if self.check_of_others is not None:
            self.check_of_others(channel, None)
        return _reducer_of_others(channel)

    def empty_value(self, channel: str) -> object:
        """Return the empty list, dict or set of a channel's type, or None for other types.

        The reducer determines the type if it accepts only one type. With `add` and `replace`, the
        annotation does.
        """
        declared = self.channels.get(channel)
        if declared is None:
            return None
        made = _EMPTY_BY_REDUCER.get(declared.reducer.name)
        if made is None:
            kind = typing.get_origin(declared.annotation) or declared.annotation
            made = kind if kind in (list, dict, set) else None
        return None if made is None else made()

    def is_checked(self, channel: str) -> bool:
        """Return True if a write to a channel is validated or converted."""
        return self.write_checks.get(channel) is not None

    def validate_write(self, channel: str, value: object) -> object:
        """Return the stored form of a write to a channel, for its reducer.

        Args:
            channel: the channel.
            value: the value. For ``upsert`` in a pydantic model, an item or a list.

        Returns:
            The value itself if the schema does not restrict it. Otherwise a validated value of the
            same shape with storable types. With ``upsert``, the result is always a list.

        Raises:
            ChannelError: the schema does not have the channel. Facts: channel, channels.
            ValidationError: the schema refuses the value. Facts: channel, path, reason, and
                problems, which lists every (path, reason) of the write.
        """
        check = self.write_checks.get(channel, self.check_of_others)
        return value if check is None else check(channel, value)

    def validate_part(self, channel: str, path: str, value: object) -> bool:
        """Check a value in a channel's list or dict. Return False if the whole channel must be checked.

        Raises:
            ValidationError: as ``validate_write``.
        """
        check = self.part_checks.get(channel)
        return check is not None and check(path, value)

    def validate_result(self, channel: str, value: object) -> object:
        """Check the result of a user's reducer, and return its stored form. A built-in reducer's result is unchanged.

        Raises:
            ChannelError: as ``validate_write``.
            ValidationError: as ``validate_write``.
        """
        check = self.result_checks.get(channel, self.check_of_others)
        return value if check is None else check(channel, value)


def reconcile(thread_id: str, stored: Mapping[str, str], given: Schema) -> dict[str, str]:
    """Check that a thread's stored reducers fit the schema with which the thread is opened.

    If the given schema has a newer version than the stored one, its reducers may differ, and replace
    the stored reducers. If it has an older version, its reducers are not compared: the version that
    is stored with each state decides whether the given schema can read the state.

    Args:
        thread_id: the id of the thread, for the error.
        stored: the stored reducer specs by channel.
        given: the schema. It may lack channels of the thread.

    Returns:
        The specs that the thread must store.

    Raises:
        SchemaError: the reducer of a channel or the name of the schema differs. Facts: thread,
            stored, given (both are reducer specs by channel).
    """
    specs, lineage, remembered = given.specs(), given.lineage, RememberedSchema.of(stored)
    newest = 1 if remembered is None else remembered.newest
    if lineage is not None and remembered is not None and remembered.name != lineage.name:
        message = f"thread {thread_id!r} has schema {remembered.name!r}, and was opened with schema {lineage.name!r}"
        raise SchemaError(message, thread=thread_id, stored=dict(stored), given=specs)
    declared = 1 if lineage is None else lineage.version
    if declared < newest:
        return {}
    differing = [name for name, spec in specs.items() if name != SCHEMA_ENTRY and stored.get(name, spec) != spec]
    if differing and declared == newest:
        changes = ", ".join(f"{name}: -{stored[name]} +{specs[name]}" for name in differing)
        hint = "" if lineage is None else f"; changed reducers need a version other than {declared}"
        message = (
            f"thread {thread_id!r}: the schema's reducers differ from the stored ones"
            f" (- stored, + given): {changes}{hint}"
        )
        raise SchemaError(message, thread=thread_id, stored=dict(stored), given=specs)
    return {name: spec for name, spec in specs.items() if stored.get(name) != spec}


@functools.lru_cache(maxsize=_CLASSES_REMEMBERED_MAX)
def _read_class(declaring: Any) -> Schema:
    from statelog.schema.annotations import is_typed_dict

    cls = get_origin(declaring) or declaring
    name = cls.__qualname__ if cls is declaring else f"{cls.__qualname__}[{', '.join(map(_name, get_args(declaring)))}]"
    if _is_model(cls):
        if cls is not declaring:
            raise _unreadable(name, ": give a concrete class of the generic pydantic dataclass")
        from statelog.schema import models

        channels = models.read_model(cls)
        checks = {each.name: models.ModelCheck(cls, each) for each in channels.values()}
        return _schema(
            name,
            channels,
            writes={channel: check.check_write for channel, check in checks.items()},
            results={channel: check.check_result for channel, check in checks.items()},
            aliases=models.read_aliases(cls),
            readings={each: shape for each, shape in models.readings_of(cls).items() if shape.load is not None},
        )
    if is_typed_dict(cls):
        return _schema_of_plain_channels(name, read_typed_dict(declaring, name))
    if hasattr(cls, "__dataclass_fields__"):
        return _schema_of_plain_channels(name, read_dataclass(declaring, name))
    is_of_pydantic_1 = hasattr(cls, "__fields__") and hasattr(cls, "__validators__")
    raise _unreadable(name, ": models of pydantic 1 are not supported" if is_of_pydantic_1 else "")


def _name(argument: Any) -> str:
    return argument.__qualname__ if isinstance(argument, type) and get_origin(argument) is None else repr(argument)


def _is_model(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")  # A program that declares a model has imported it.
    if pydantic is None:
        return False
    return issubclass(cls, pydantic.BaseModel) or "__pydantic_fields__" in vars(cls)


def _schema_of_plain_channels(name: str, channels: dict[str, Channel]) -> Schema:
    """Return a schema that uses pydantic only for channels whose annotations name models."""
    from statelog.schema.plain import PlainCheck

    checks = {each.name: _check_of(each) for each in channels.values()}
    return _schema(
        name,
        channels,
        writes={channel: None if check is None else check.check_write for channel, check in checks.items()},
        results={channel: None if check is None else check.check_result for channel, check in checks.items()},
        parts={channel: check.check_part for channel, check in checks.items() if isinstance(check, PlainCheck)},
        readings=_readings(channels),
    )


def _readings(channels: Mapping[str, Channel]) -> dict[str, Shape]:
    found = {each.name: reading_of(each.annotation) for each in channels.values()}
    return {name: shape for name, shape in found.items() if shape is not None}


def reading_of(annotation: object) -> Shape | None:
    """Return the shape that restores stored values of an annotation, or None if they need no conversion."""
    from statelog.schema.shapes import needs_loading, shape_of

    if _names_model(annotation):
        from statelog.schema import models

        shape = models.reading_of(annotation)
    elif needs_loading(annotation):
        shape = shape_of(annotation)
    else:
        return None
    return None if shape.load is None else shape


def _names_model(annotation: object) -> bool:
    from statelog.schema.annotations import classes_named

    return any(_is_model(cls) for cls in classes_named(annotation))


def _check_of(channel: Channel) -> PlainCheck | ModelCheck | None:
    from statelog.schema.plain import PlainCheck

    if not _names_model(channel.annotation):
        return PlainCheck.of(channel)
    from statelog.schema import models

    return models.check_of(channel)


def _schema(
    name: str,
    channels: dict[str, Channel],
    *,
    writes: Mapping[str, Check | None],
    results: Mapping[str, Check | None],
    parts: Mapping[str, Callable[[str, object], bool]] = MappingProxyType({}),
    aliases: Mapping[str, str] = MappingProxyType({}),
    readings: Mapping[str, Shape] | None = None,
) -> Schema:
    """Return a schema that accepts only its channels. For a user's reducer, the results are checked, not the writes."""
    check_names(name, channels)
    users = {each.name for each in channels.values() if each.reducer.name == "python"}
    return Schema(
        name=name,
        channels=MappingProxyType(channels),
        is_open=False,
        write_checks={name: _only_overwrites(check) if name in users else check for name, check in writes.items()},
        result_checks={name: check if name in users else None for name, check in results.items()},
        check_of_others=functools.partial(_check_other, tuple(channels)),
        part_checks=parts,
        aliases=MappingProxyType(dict(aliases)),
        readings=MappingProxyType({} if readings is None else readings),
    )


def _only_overwrites(check: Check | None) -> Check | None:
    """Return a check that examines only ``Overwrite`` values and accepts all others."""
    if check is None:
        return None
    return lambda channel, value: check(channel, value) if isinstance(value, reducers.Overwrite) else value


def _without_own(schema: Schema) -> Schema:
    """Return the schema unchanged. Raise SchemaError if it declares one of the library's own channels."""
    for name in (*schema.channels, *schema.aliases):
        if name.startswith(OWN_CHANNELS):
            message = (
                f"{schema.name}: declares {name!r}: channels that begin with {OWN_CHANNELS!r} are reserved for"
                " the library"
            )
            raise SchemaError(message, schema=schema.name, channel=name)
    return schema


def _reducer_of_others(channel: str) -> reducers.Reducer:
    return reducers.extend if channel == STEPS_CHANNEL else reducers.replace


def _check_other(channels: tuple[str, ...], channel: str, value: object) -> object:
    """Return a value for one of the library's own channels unchanged. Raise ChannelError for any other channel."""
    if channel.startswith(OWN_CHANNELS):
        return value
    import difflib

    similar = difflib.get_close_matches(channel, channels, n=1)
    hint = f": did you mean {similar[0]!r}?" if similar else ""
    message = f"the schema has no channel {channel!r}{hint} (it has {_listing(channels)})"
    raise ChannelError(message, channel=channel, channels=channels)


def _listing(channels: tuple[str, ...]) -> str:
    shown = ", ".join(channels[:_CHANNELS_SHOWN_MAX])
    more = len(channels) - _CHANNELS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _unreadable(what: str, hint: str) -> SchemaError:
    message = (
        f"{what} is not a schema{hint}; a schema is a TypedDict, dataclass or pydantic model class,"
        " or a dict of channel to reducer or type"
    )
    return SchemaError(message, schema=what)


_OPEN = Schema(
    name="any channel",
    channels=MappingProxyType({}),
    is_open=True,
    write_checks={},
    result_checks={},
    check_of_others=None,
    part_checks={},
    aliases={},
    readings={},
)
