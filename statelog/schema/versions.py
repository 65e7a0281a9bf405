"""Versioned schemas: the steps that upgrade a state from each version to the next."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

from statelog.errors import MigrationError, MissingMigrationError, SchemaVersionError, UsageError
from statelog.format import cbor
from statelog.limits import CHANNELS_MAX, SCHEMA_NAME_SIZE_BYTES_MAX, SCHEMA_VERSION_MAX
from statelog.log.names import OWN_CHANNELS, check_name
from statelog.reducers import Overwrite
from statelog.schema.schema import Schema, SchemaLineage
from statelog.schema.typed import S, W, Written

if TYPE_CHECKING:
    from statelog.schema.typed import AnyWrite, D, M, Untyped

Step = TypeVar("Step", bound=Callable[[dict[str, Any]], dict[str, Any]])


class Channels(Protocol):
    """The channels of one state while the steps of a schema change them, without the library's own channels.

    `move`, `put` and `remove` read no value.
    """

    def has(self, channel: str) -> bool:
        """Return True if the state has a channel."""

    def move(self, channel: str, name: str) -> None:
        """Rename a channel. No channel may have the new name yet."""

    def put(self, channel: str, item: bytes) -> None:
        """Set a channel to an encoded value."""

    def remove(self, channel: str) -> None:
        """Remove a channel, if the state has it."""

    def change(self, function: Callable[[dict[str, Any]], object]) -> None:
        """Call a function with a dict of the channels, and replace the channels by the dict that it returns."""


class _ChannelChange(NamedTuple):
    """One change of a step: the channels that it names (none if the change is a function), and the change itself."""

    names: frozenset[str]
    make: Callable[[Channels], None]


class Versioned(SchemaLineage, Written[S, W]):
    """A schema with a name, a version number, and the steps from each version to the next.

    Make it with `statelog.versioned`, register its steps when the module is imported, and pass it as `schema=`.

    Attributes:
        name: the name of the schema. A thread stores this name, and cannot be opened with a schema
            that has a different name.
        version: the version of the declared class.
        schema: the channels of this version (internal).
    """

    def __init__(self, schema: object, *, name: str, version: int) -> None:
        check_name("schema name", name, size_bytes_max=SCHEMA_NAME_SIZE_BYTES_MAX)
        _check_number("version", version, SCHEMA_VERSION_MAX)
        if isinstance(schema, SchemaLineage):
            message = f"schema {name!r}: pass the class of version {version}, not schema {schema.name!r}"
            raise UsageError(message, argument="schema", value=schema)
        declared = Schema.of(schema)
        if declared.is_open:
            message = f"schema {name!r}: pass a class or a dict that declares channels, not {schema!r}"
            raise UsageError(message, argument="schema", value=schema)
        if len(declared.channels) >= CHANNELS_MAX:
            message = (
                f"schema {name!r}: declares {len(declared.channels)} channels; at most {CHANNELS_MAX - 1} are allowed"
            )
            raise UsageError(message, argument="schema", value=schema)
        self.name = name
        self.version = version
        self.schema = declared._replace(lineage=self)
        self._steps: dict[int, list[_ChannelChange]] = {}

    def __repr__(self) -> str:
        return f"<Versioned {self.name!r} version {self.version}>"

    # --- steps ----------------------------------------------------------------------

    def step(self, version: int) -> Callable[[Step], Step]:
        """Register a function that upgrades a state from `version` to the next version.

        Use it as a decorator. The function gets a dict of all channels and returns a dict of all
        channels. It may change and return the dict it gets, and change the lists and dicts in it in
        place. Lists and dicts of a thread are read as a whole when the function looks into them.
        They are not instances of `list` and `dict`, but `to_python` returns a plain copy. A list or
        dict that the function only passes on is not read. Models, dataclasses and enum members of
        older versions appear in their stored form: as dicts and plain values.

        The function runs when a state is read, and within commits while other commits wait. It may
        run more than once for one state. So it must be quick, must return the same result for the
        same state, and must have no side effects.

        Args:
            version: the version that the step starts from, from 1 to one less than the declared version.

        Raises:
            UsageError: the step is already registered, or `version` is out of range.
        """
        self._check_free(version)

        def register(function: Step) -> Step:
            if not callable(function):
                message = f"schema {self.name!r}: a step must be a function of a state, not {function!r:.80}"
                raise UsageError(message, argument="step", value=function)
            self._check_free(version)
            self._steps[version] = [_ChannelChange(frozenset(), lambda channels: channels.change(function))]
            return function

        return register

    def rename(self, version: int, channel: str, name: str) -> None:
        """Register a change of the step from `version`: rename a channel, without reading its value.

        A state without the channel stays unchanged. Upgrading a state that has both channels raises
        MigrationError.

        Raises:
            UsageError: a function is registered as this step, or another change of this step names one of the channels.
        """

        def change(channels: Channels) -> None:
            if channels.has(channel):
                if channels.has(name):
                    message = f"channel {channel!r} cannot be renamed to {name!r}, because the state has both"
                    raise ValueError(message)
                channels.move(channel, name)

        self._register(version, {channel, name}, change)

    def add(self, version: int, channel: str, value: Any) -> None:
        """Register a change of the step from `version`: add a channel with a value, unless the state has the channel.

        Raises:
            UsageError: as `rename`.
            ValidationError, ValueTypeError: the value cannot be stored in the channel.
        """
        declared = self.schema.channels.get(channel)
        checked = Overwrite(value) if declared is None else self.schema.validate_write(channel, Overwrite(value))
        assert isinstance(checked, Overwrite)
        item = cbor.encode(checked.value, path=channel)

        def change(channels: Channels) -> None:
            if not channels.has(channel):
                channels.put(channel, item)

        self._register(version, {channel}, change)

    def drop(self, version: int, channel: str) -> None:
        """Register a change of the step from `version`: remove a channel, without reading its value.

        Stored states of older versions keep the value.

        Raises:
            UsageError: as `rename`.
        """
        self._register(version, {channel}, lambda channels: channels.remove(channel))

    def _register(self, version: int, names: set[str], change: Callable[[Channels], None]) -> None:
        for name in names:
            check_name("channel", name)
            if name.startswith(OWN_CHANNELS):
                message = f"schema {self.name!r}: channel {name!r} is reserved for the library"
                raise UsageError(message, argument="channel", value=name)
        self._check_free(version, names)
        self._steps.setdefault(version, []).append(_ChannelChange(frozenset(names), change))

    def _check_free(self, version: int, names: set[str] | None = None) -> None:
        _check_number("version", version, SCHEMA_VERSION_MAX)
        what = f"schema {self.name!r}: the step from version {version}"
        if version >= self.version:
            message = f"{what} leads beyond the declared version, {self.version}"
            raise UsageError(message, argument="version", value=version)
        for each in self._steps.get(version, ()):
            if names is None or not each.names or each.names & names:
                message = f"{what} is already registered"
                raise UsageError(message, argument="version", value=version)

    @property
    def changed_names(self) -> frozenset[str]:
        """The names of the channels that `rename`, `add` and `drop` refer to."""
        return frozenset(name for step in self._steps.values() for each in step for name in each.names)

    # --- upgrading ------------------------------------------------------------------

    def check(self, stored: int, *, thread: str | None = None) -> None:
        """Raise SchemaVersionError if a stored version is newer than the declared one."""
        if stored > self.version:
            raise newer_error(thread, stored, self.version, self.name)

    def upgrade(self, channels: Channels, stored: int) -> None:
        """Upgrade the channels of a state from a stored version to the declared version.

        Raises:
            MissingMigrationError: a step is not registered. No step has run.
            MigrationError: a step has failed.
        """
        for version in range(stored, self.version):
            if version not in self._steps:
                message = (
                    f"schema {self.name!r}: a state of version {stored} is read as version {self.version},"
                    f" but no step converts version {version} to {version + 1}"
                )
                facts = {"schema": self.name, "stored": stored, "declared": self.version, "missing": version}
                raise MissingMigrationError(message, **facts)
        for version in range(stored, self.version):
            try:
                for each in self._steps[version]:
                    each.make(channels)
            except Exception as error:
                message = (
                    f"schema {self.name!r}: the step from version {version} to {version + 1} has failed:"
                    f" {type(error).__name__}: {error}"
                )
                facts = {"schema": self.name, "stored": stored, "declared": self.version, "step": version}
                raise MigrationError(message, **facts) from error

    def upgraded(self, state: Mapping[str, Any], stored: int) -> dict[str, Any]:
        """Return an upgraded copy of a plain state, from a stored version to the declared version.

        Raises:
            SchemaVersionError: the stored version is newer than the declared one.
            MissingMigrationError, MigrationError: as for a thread.
        """
        self.check(stored)
        channels = PlainChannels(dict(state))
        self.upgrade(channels, stored)
        return channels.values


class PlainChannels:
    """The channels of a state that is a plain dict.

    Attributes:
        values: the dict.
    """

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def has(self, channel: str) -> bool:
        """Return True if the state has a channel."""
        return channel in self.values

    def move(self, channel: str, name: str) -> None:
        """Rename a channel."""
        self.values[name] = self.values.pop(channel)

    def put(self, channel: str, item: bytes) -> None:
        """Set a channel to an encoded value."""
        self.values[channel] = cbor.decode(item)

    def remove(self, channel: str) -> None:
        """Remove a channel, if the state has it."""
        self.values.pop(channel, None)

    def change(self, function: Callable[[dict[str, Any]], object]) -> None:
        """Call a function with a dict of the channels, and replace the channels by the dict that it returns."""
        self.values = result_of(function, dict(self.values))


def result_of(function: Callable[[dict[str, Any]], object], given: dict[str, Any]) -> dict[str, Any]:
    """Call a step's function with a dict of channels, which the function may change. Return the checked result.

    Raises:
        TypeError: the function does not return a dict, or is async. ValueError: a key is not the
            name of a channel.
    """
    result = function(given)
    if isinstance(result, Coroutine):
        result.close()
        message = "a step must not be an async function, because it runs within reads and commits"
        raise TypeError(message)
    if not isinstance(result, dict):
        message = f"a step must return a dict of all channels, not {type(result).__name__}"
        raise TypeError(message)
    for name in result:
        if not isinstance(name, str) or not name or name.startswith(OWN_CHANNELS):
            message = f"a step must return a dict whose keys are channel names, and {name!r:.80} is not one"
            raise ValueError(message)
    return result


def newer_error(thread: str | None, stored: int, declared: int, name: str | None = None) -> SchemaVersionError:
    """Return the error for a state whose version is newer than the declared one."""
    what = "a schema without a version" if name is None else f"schema {name!r}"
    where = "the state" if thread is None else f"the state of thread {thread!r}"
    message = (
        f"{where} has schema version {stored}, and this code declares version {declared} ({what}): upgrade the code"
    )
    return SchemaVersionError(message, thread=thread, stored=stored, declared=declared)


def _check_number(argument: str, number: object, maximum: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= maximum:
        message = f"a schema version must be an int from 1 to {maximum}, not {number!r:.80}"
        raise UsageError(message, argument=argument, value=number)


@overload
def versioned(  # type: ignore[overload-overlap] # the first that fits counts: later ones are for the classes left
    schema: Callable[[], D], *, name: str, version: int
) -> Versioned[D, D]: ...
@overload
def versioned(  # type: ignore[overload-overlap] # likewise
    schema: type[D], *, name: str, version: int
) -> Versioned[D, AnyWrite]: ...
@overload
def versioned(  # type: ignore[overload-overlap] # likewise
    schema: type[M], *, name: str, version: int
) -> Versioned[M, M | AnyWrite]: ...
@overload
def versioned(schema: object, *, name: str, version: int) -> Versioned[Untyped, AnyWrite]: ...
def versioned(schema: object, *, name: str, version: int) -> Versioned[Any, Any]:
    """Return a schema with a name and a version, to pass as `schema=` in place of the class.

    The steps that are registered with `step`, `rename`, `add` and `drop` upgrade a state of an
    older version when it is read or continued. A state that was written without `versioned` has
    version 1.

    Args:
        schema: the class of this version, as for `store.thread(schema=)`.
        name: the name of the schema. Every version of it has the same name.
        version: the number of this version, at least 1. Increase it whenever a channel is renamed or
            removed, or gets a different reducer, type or meaning.

    Raises:
        SchemaError: `schema` is not a schema.
        UsageError, LimitError: the name or the version is not valid.
    """
    return Versioned(schema, name=name, version=version)
