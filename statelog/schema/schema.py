"""A thread's channels, and what a write to each must be."""

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
"""(channel, value) -> the value as it can be stored. None in its place: any value passes."""

_CLASSES_REMEMBERED_MAX = 128
"""Threads are opened often and with few schemas; one more is read again."""

_EMPTY_BY_REDUCER: Mapping[str, type] = {
    "append": list,
    "extend": list,
    "upsert": list,
    "merge": dict,
    "deep_merge": dict,
    "union": set,
}

SCHEMA_ENTRY = "statelog:schema"
"""Among the reducer specs that a thread remembers, the name of its versioned schema and the newest version."""

STEPS_CHANNEL = "statelog:steps"
"""The one of them that is added to; a write to any other replaces it."""

_CHANNELS_SHOWN_MAX = 20
"""In a message; its facts have all."""


class Lineage:
    """A schema with a name and a version number: the base of what `statelog.versioned` returns."""

    name: str
    version: int
    schema: Schema
    """The channels of this version."""


class Remembered(NamedTuple):
    """The versioned schema that a thread remembers."""

    name: str
    newest: int
    """The newest version that a commit to the thread was made with."""

    @property
    def spec(self) -> str:
        """The text that is stored among the reducer specs."""
        return f"{self.name}:{self.newest}"

    @staticmethod
    def of(stored: Mapping[str, str]) -> Remembered | None:
        """Return the versioned schema among stored reducer specs, or None.

        Raises:
            CorruptionError: the entry is not a name and a number.
        """
        spec = stored.get(SCHEMA_ENTRY)
        if spec is None:
            return None
        name, _, number = spec.rpartition(":")
        if not name or not (number.isascii() and number.isdigit()) or number.startswith("0"):
            message = f"a thread remembers {spec!r:.80} as its schema, which is not a name and a version"
            raise CorruptionError(message)
        return Remembered(name, int(number))


class Schema(NamedTuple):
    """The channels of a thread. Immutable; made by ``Schema.of`` or ``Schema.from_specs``.

    Args:
        name: of the class it was read from, for messages.
        channels: by name, in order of declaration; none of them if ``is_open``.
        is_open: any channel may be written, with ``replace``.

    Besides, each has the channels of the library's own (see ``OWN_CHANNELS``), and does not look at their values.
    """

    name: str
    channels: Mapping[str, Channel]
    is_open: bool
    write_checks: Mapping[str, Check | None]
    result_checks: Mapping[str, Check | None]
    check_of_others: Check | None
    part_checks: Mapping[str, Callable[[str, object], bool]]
    aliases: Mapping[str, str]
    """Channels by the other names that writes may give them: the aliases of a pydantic model."""
    readings: Mapping[str, Shape]
    """How the channels are read whose values are stored as others: models, dataclasses, members of an enum."""
    lineage: Lineage | None = None
    """The name and the version of the schema, if it has them."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __repr__(self) -> str:
        return f"Schema(name={self.name!r}, channels={dict(self.channels)!r}, is_open={self.is_open!r})"

    @staticmethod
    def of(user_schema: object) -> Schema:
        """The schema that a user's declaration means.

        Args:
            user_schema: a TypedDict, dataclass or pydantic model class; a dict of channel to
                reducer, type or ``Annotated``; a ``Schema``; or None for any channel.

        Raises:
            SchemaError: it is none of these, or declares what cannot be. Facts: schema, and
                channel where it is one channel's fault.
        """
        if user_schema is None:
            return _OPEN
        if isinstance(user_schema, Schema):
            return user_schema
        if isinstance(user_schema, Lineage):
            return user_schema.schema
        if isinstance(get_origin(user_schema) or user_schema, type):
            try:
                return _without_own(_read_class(user_schema))
            except TypeError:  # It is not hashable, so it cannot be cached.
                return _without_own(_read_class.__wrapped__(user_schema))
        if isinstance(user_schema, Mapping):
            return _without_own(_schema_of_plain_channels("schema", read_mapping(user_schema)))
        cls = type(user_schema)
        what = f"an object of type {cls.__qualname__}"
        is_instance = hasattr(cls, "__dataclass_fields__") or _is_model(cls)
        raise _unreadable(what, ": pass the class, not an instance of it" if is_instance else "")

    @staticmethod
    def from_specs(stored: Mapping[str, str]) -> Schema:
        """The schema of a thread that is opened without one, from what it remembers.

        Built-in reducers work. One of a user is only a name here: using it raises.

        Args:
            stored: reducer spec by channel; none for a thread without schema.

        Raises:
            SchemaError: a spec this version does not know.
        """
        specs = {name: spec for name, spec in stored.items() if name != SCHEMA_ENTRY}
        if not specs:
            return _OPEN
        channels = {name: Channel(name, reducers.from_spec(spec), Any) for name, spec in specs.items()}
        return _schema_of_plain_channels("schema", channels)

    def specs(self) -> dict[str, str]:
        """Reducer spec by channel, and the name and version of a versioned schema: what a thread remembers."""
        specs = {name: channel.reducer.spec for name, channel in self.channels.items()}
        if self.lineage is not None:
            specs[SCHEMA_ENTRY] = Remembered(self.lineage.name, self.lineage.version).spec
        return specs

    def by_channel(self, update: dict[str, object]) -> dict[str, object]:
        """A write with its aliases replaced by the names of the channels.

        Raises:
            UsageError: it gives a channel by two names. Facts: channel.
        """
        if not self.aliases or not self.aliases.keys() & update.keys():
            return update
        named: dict[str, object] = {}
        for name, value in update.items():
            channel = self.aliases.get(name, name)
            if channel in named:
                message = f"a write gives channel {channel!r} twice, once by its alias"
                raise UsageError(message, channel=channel)
            named[channel] = value
        return named

    def reducer(self, channel: str) -> reducers.Reducer:
        """The reducer of a channel.

        Raises:
            ChannelError: the schema has no such channel.
        """
        declared = self.channels.get(channel)
        if declared is not None:
            return declared.reducer
        if self.check_of_others is not None:
            self.check_of_others(channel, None)
        return _reducer_of_others(channel)

    def empty_value(self, channel: str) -> object:
        """The empty list, dict or set that a channel's values are; None if they are none of these.

        By its reducer, where that takes only one kind; for `add` and `replace` by its annotation.
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
        """Whether a write to a channel of the schema is validated, or must be turned into another value."""
        return self.write_checks.get(channel) is not None

    def validate_write(self, channel: str, value: object) -> object:
        """What a write to a channel stores, for its reducer to merge.

        Args:
            channel: to be written.
            value: written; for a channel of a pydantic model with ``upsert``, an item or a list.

        Returns:
            The value itself where the schema asks nothing of it. Otherwise a validated one of
            storable types, in the shape it had; with ``upsert``, always a list.

        Raises:
            ChannelError: the schema has no such channel. Facts: channel, channels.
            ValidationError: the schema refuses the value. Facts: channel, path, reason, and
                problems, all (path, reason) of the write.
        """
        check = self.write_checks.get(channel, self.check_of_others)
        return value if check is None else check(channel, value)

    def validate_part(self, channel: str, path: str, value: object) -> bool:
        """Check what was put into a channel's list or dict; return whether that says all of the channel.

        Raises:
            ValidationError: as ``validate_write``.
        """
        check = self.part_checks.get(channel)
        return check is not None and check(path, value)

    def validate_result(self, channel: str, value: object) -> object:
        """What a channel stores after a user's reducer; of a built-in one, the value itself.

        Raises:
            ChannelError: as ``validate_write``.
            ValidationError: as ``validate_write``.
        """
        check = self.result_checks.get(channel, self.check_of_others)
        return value if check is None else check(channel, value)


def reconcile(thread_id: str, stored: Mapping[str, str], given: Schema) -> dict[str, str]:
    """Compare the reducers a thread remembers with those of the schema it is opened with.

    A newer version of the remembered schema may have other reducers, which the thread then remembers. An older version
    is not compared: the versions of the states tell whether it can be used.

    Args:
        thread_id: for the error.
        stored: reducer spec by channel, as remembered.
        given: the schema. It may lack channels the thread has.

    Returns:
        The specs that the thread is to remember.

    Raises:
        SchemaError: a channel's reducer, or the name of the schema, is another one. Facts: thread, stored, given (both
            reducer spec by channel).
    """
    specs, lineage, remembered = given.specs(), given.lineage, Remembered.of(stored)
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
        hint = "" if lineage is None else f"; other reducers need another version than {declared}"
        message = (
            f"thread {thread_id!r}: the schema's reducers differ from those remembered"
            f" (- remembered, + given): {changes}{hint}"
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
            raise _unreadable(name, ": make a class of a generic dataclass of pydantic, and give it")
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
    pydantic = sys.modules.get("pydantic")  # someone who has a model has imported it
    if pydantic is None:
        return False
    return issubclass(cls, pydantic.BaseModel) or "__pydantic_fields__" in vars(cls)


def _schema_of_plain_channels(name: str, channels: dict[str, Channel]) -> Schema:
    """A schema that needs no pydantic, but for channels whose annotations name models."""
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
    """How values of an annotation are read that are stored as others; None where they are read as they are stored."""
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
    """A closed schema. A user's reducer takes writes of any type: its results are checked."""
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
    """The check for what no reducer will see."""
    if check is None:
        return None
    return lambda channel, value: check(channel, value) if isinstance(value, reducers.Overwrite) else value


def _without_own(schema: Schema) -> Schema:
    """The schema, if it declares no channel of the library's own."""
    for name in (*schema.channels, *schema.aliases):
        if name.startswith(OWN_CHANNELS):
            message = (
                f"{schema.name}: declares {name!r}: channels that begin with {OWN_CHANNELS!r} are the library's own"
            )
            raise SchemaError(message, schema=schema.name, channel=name)
    return schema


def _reducer_of_others(channel: str) -> reducers.Reducer:
    return reducers.extend if channel == STEPS_CHANNEL else reducers.replace


def _check_other(channels: tuple[str, ...], channel: str, value: object) -> object:
    """The value of a channel that the schema does not declare, if it is one of the library's own."""
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
        f"{what} is not a schema{hint}; one is a TypedDict, dataclass or pydantic model class,"
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
