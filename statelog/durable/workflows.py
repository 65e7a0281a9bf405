"""Declarations of workflows and steps, with the options and retries of steps."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, Protocol, cast, overload

from statelog.durable.keys import check_part
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from typing_extensions import ParamSpec, TypeVar  # Type checkers know this package even if it is not installed.

    P = ParamSpec("P", default=...)
    """The parameters of a step, or the parameters of a workflow after its `Run`."""

    R = TypeVar("R", default=Any)
    """The type of a result."""

    R_co = TypeVar("R_co", covariant=True, default=Any)
    Rest = ParamSpec("Rest")
else:
    from typing import ParamSpec, TypeVar

    P, Rest = ParamSpec("P"), ParamSpec("Rest")
    R, R_co = TypeVar("R"), TypeVar("R_co", covariant=True)

AT_LEAST_ONCE: Final = "at_least_once"
AT_MOST_ONCE: Final = "at_most_once"


_NUMBER_MAX: Final = 1e15


def check_number(argument: str, value: object, *, least: float, is_least_allowed: bool = True) -> float:
    """Return a number as a float. Raises UsageError if it is not a number of at least `least`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (least <= cast("float", value) <= _NUMBER_MAX) or (value == least and not is_least_allowed):
        above = "of at least" if is_least_allowed else "above"
        message = f"{argument} must be a number {above} {least:g} and at most {_NUMBER_MAX:g}, not {value!r}"
        raise UsageError(message, argument=argument, value=value)
    return float(cast("float", value))


def check_classes(argument: str, value: object) -> tuple[Any, ...]:
    """Return a class, or a list of classes, as a tuple. Raises UsageError if the value is neither."""
    if isinstance(value, type):
        return (value,)
    return tuple(check_list(argument, value, "an exception class, or a list of them"))


def check_list(argument: str, value: Any, what: str) -> Iterable[Any]:
    """Return the value. Raises UsageError if it is not iterable, or is a str or bytes."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise UsageError(f"{argument} must be {what}, not {value!r}", argument=argument, value=value)
    return value


def check_callable(argument: str, value: object) -> None:
    """Raise UsageError if a value cannot be called."""
    if not callable(value):
        raise UsageError(f"{argument} must be a function, not {value!r}", argument=argument, value=value)


def check_text(argument: str, value: object) -> None:
    """Raise UsageError if a value is not a non-empty str."""
    if not isinstance(value, str) or not value:
        message = f"{argument} must be a non-empty str, not {value!r}"
        raise UsageError(message, argument=argument, value=value)


class Abort(Exception):  # noqa: N818 - it names an action of a workflow, not an error
    """Raised by a workflow to give up. The run fails, and its steps are undone, the last one first."""


class Cancelled(BaseException):
    """Raised in a workflow, at its next operation, when its run was cancelled or its time is up."""


class _Unknown:
    """The type of `UNKNOWN`."""

    def __repr__(self) -> str:
        return "durable.UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = _Unknown()
"""The value that a compensation gets instead of a result if it is not known whether the step had its effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The rules for retries of a step: how often it is tried, and how long to wait after each failure.

    The wait before attempt n + 1 is `first_delay_s * backoff ** (n - 1)`, at most `max_delay_s`. With `jitter`, it is
    a random part of this time, at least half. A long wait suspends the run, so no process waits.

    Args:
        attempts: the maximum number of calls.
        first_delay_s: the wait after the first failure, in seconds.
        backoff: the factor by which each further wait grows.
        max_delay_s: the longest wait, in seconds.
        jitter: whether to make waits random, so that many runs do not retry at the same time.
        give_up_on: classes of exceptions after which the step is not tried again.

    Raises:
        UsageError: an argument is not valid.
    """

    attempts: int = 1
    first_delay_s: float = 1.0
    backoff: float = 2.0
    max_delay_s: float = 60.0
    jitter: bool = True
    give_up_on: Sequence[type[BaseException]] | type[BaseException] = ()

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise UsageError(
                f"attempts must be a positive int, not {self.attempts!r}", argument="attempts", value=self.attempts
            )
        for name in ("first_delay_s", "backoff", "max_delay_s"):
            check_number(name, getattr(self, name), least=0.0)
        for kind in check_classes("give_up_on", self.give_up_on):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                message = f"give_up_on must be exception classes, not {kind!r}"
                raise UsageError(message, argument="give_up_on", value=kind)

    def delay_s(self, attempt: int) -> float:
        """Return the wait after a failed attempt, in seconds. The first attempt is 1."""
        delay_s = min(self.first_delay_s * self.backoff ** (attempt - 1), self.max_delay_s)
        return delay_s * random.uniform(0.5, 1.0) if self.jitter else delay_s  # noqa: S311 - the number is not a secret

    def gives_up(self, error: BaseException) -> bool:
        """Return True if the step is not tried again after this exception."""
        return isinstance(error, check_classes("give_up_on", self.give_up_on))


NO_RETRY: Final = Retry()
COMPENSATION_RETRY: Final = Retry(attempts=5)
"""The default retries of compensations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Options for one call of a step, for `run.step_with`. `step.options(...)` has the same options as arguments.

    Args:
        name: the name under which the call is recorded; by default the name of the function.
        retry: how often the step is tried.
        timeout_s: how long an attempt may take.
        compensate: undoes the step if the run fails later. It is called as `compensate(result, *args, **kwargs)`, or
            with UNKNOWN in place of the result if nobody knows the result.
        commit: called as `commit(result)`. It returns an update of the run's thread, written in the same commit.
        transact: called as `transact(transaction, result)`. It writes to the store in the same commit.
        emit: called as `emit(result)`. It returns a message as (topic, payload), which is emitted with the same commit.
        semantics: "at_least_once", the default, or "at_most_once".

    Raises:
        UsageError: an option is not valid.
    """

    name: str | None = None
    retry: Retry | None = None
    timeout_s: float | None = None
    compensate: Callable[..., object] | None = None
    commit: Callable[[Any], Mapping[str, Any]] | None = None
    transact: Callable[..., object] | None = None
    emit: Callable[[Any], tuple[str, Any]] | None = None
    semantics: Literal["at_least_once", "at_most_once"] | None = None

    def __post_init__(self) -> None:
        if self.semantics not in (None, AT_LEAST_ONCE, AT_MOST_ONCE):
            message = f"semantics must be {AT_LEAST_ONCE!r} or {AT_MOST_ONCE!r}, not {self.semantics!r}"
            raise UsageError(message, argument="semantics", value=self.semantics)
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise UsageError(f"retry must be a durable.Retry, not {self.retry!r}", argument="retry", value=self.retry)
        if self.timeout_s is not None:
            check_number("timeout_s", self.timeout_s, least=0, is_least_allowed=False)
        for argument in ("compensate", "commit", "transact", "emit"):
            if (value := getattr(self, argument)) is not None:
                check_callable(argument, value)

    def over(self, others: StepOptions) -> StepOptions:
        """Return these options. Options that are None are taken from `others`."""
        if others is NO_OPTIONS or self is NO_OPTIONS:
            return self if others is NO_OPTIONS else others
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return StepOptions(**{name: getattr(others, name) if value is None else value for name, value in given.items()})


NO_OPTIONS: Final = StepOptions()


@dataclass(frozen=True, slots=True)
class Declaration:
    """What `@step` declares about a function."""

    options: StepOptions = NO_OPTIONS
    ignore: tuple[str, ...] = ()
    version: int = 1
    upcast: Mapping[int, Callable[[Any], Any]] = field(default_factory=lambda: MappingProxyType({}))

    def recorded(self) -> dict[str, int]:
        """Return the fields of an item that record the version of the result. There are none for version 1."""
        return {} if self.version == 1 else {"v": self.version}

    def missing(self, version: int) -> int | None:
        """Return the first version, from `version` on, that has no `upcast` function. Return None if there is none."""
        return next((each for each in range(version, self.version) if each not in self.upcast), None)


class Step(Protocol[P, R_co]):
    """A function that `@step` has decorated. It is called as before, and has the method `options`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself, not as a step."""

    @overload
    def __get__(self, instance: None, owner: type, /) -> Step[P, R_co]: ...
    @overload
    def __get__(
        self: Step[Concatenate[Any, Rest], R_co], instance: object, owner: type | None = None, /
    ) -> Callable[Rest, R_co]: ...

    def options(
        self,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        compensate: Callable[..., object] | None = None,
        commit: Callable[[Any], Mapping[str, Any]] | None = None,
        transact: Callable[..., object] | None = None,
        emit: Callable[[Any], tuple[str, Any]] | None = None,
        semantics: Literal["at_least_once", "at_most_once"] | None = None,
    ) -> Step[P, R_co]:
        """Return the step with options for a call: `run.step(charge.options(timeout_s=5), 840)`.

        The step itself does not change. If an option is None, the declared option applies. See `StepOptions` for the
        meaning of the options. A bound method does not have `options`; use `run.step_with` for it.

        Raises:
            UsageError: an option is not valid.
        """


class StepWithOptions:
    """A step with options for a call. See `Step.options`."""

    def __init__(self, function: Callable[..., Any], options: StepOptions) -> None:
        self.function = function
        self.given = options
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, not as a step."""
        return self.function(*args, **kwargs)

    def options(self, **options: Any) -> StepWithOptions:
        """Return the step with further options."""
        return StepWithOptions(self.function, StepOptions(**options).over(self.given))


def declaration_of(function: object) -> Declaration:
    """Return what `@step` declares about a function, or an empty declaration."""
    found = getattr(function, "__statelog_step__", None)
    return found if isinstance(found, Declaration) else _UNDECLARED


_UNDECLARED = Declaration()


def options_of(function: object) -> StepOptions:
    """Return the options of a step. Options from `Step.options` take precedence over those from `@step`."""
    if isinstance(function, StepWithOptions):
        return function.given.over(declaration_of(function.function).options)
    return declaration_of(function).options


def versions_of(function: object) -> Declaration:
    """Return the declaration of a function, or of the function that a `partial` calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return declaration_of(function)


def name_of(function: Any) -> str:
    """Return the name under which a call of a function is recorded."""
    declared = declaration_of(function).options.name
    if declared is not None:
        return declared
    if isinstance(function, functools.partial):
        return name_of(function.func)
    if isinstance(function, StepWithOptions):
        return options_of(function).name or name_of(function.function)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__).replace("<locals>.", "")


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    ignore: Iterable[str] = (),
    retry: Retry | None = None,
    timeout_s: float | None = None,
    version: int = 1,
    upcast: Mapping[int, Callable[[Any], Any]] | None = None,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    ignore: Iterable[str] = (),
    retry: Retry | None = None,
    timeout_s: float | None = None,
    version: int = 1,
    upcast: Mapping[int, Callable[[Any], Any]] | None = None,
) -> Any:
    """Declare options for the calls of a function as a step. A function without options does not need this decorator.

    The function is returned unchanged, with a new attribute `options`: `run.step(charge.options(timeout_s=5), 840)`
    calls it with further options. See `Step.options`.

    Args:
        function: the step, if the decorator is used without parentheses.
        name: the name under which its calls are recorded. The default is the name of the function.
        ignore: parameters that are not compared on replay, and need not be storable, such as a client.
        retry: how often the step is tried.
        timeout_s: how long an attempt may take, in seconds.
        version: the version of the result. Increase it when the meaning or the shape of the result changes.
        upcast: for each earlier version, a function that converts a result to the next version. On replay, a result of
            an earlier version passes through these functions; the record does not change. The functions must be
            deterministic and have no effects. If one is missing, or the recorded version is later than `version`, the
            run stops with StepVersionError, and continues with code that fits.

    Raises:
        UsageError: an argument is not valid.
    """
    check_list("ignore", ignore, "a list of parameters")
    if name is not None:
        check_part("step", name)
    options = StepOptions(name=name, retry=retry, timeout_s=timeout_s)
    declared = Declaration(options, tuple(ignore), version, _checked_upcast(version, upcast))

    def declare(made: Any) -> Any:
        if not callable(made):
            raise UsageError(f"a step must be a function, not {made!r}", argument="step", value=made)
        for each in declared.ignore:
            if each not in inspect.signature(made).parameters:
                message = f"step {name_of(made)!r} has no parameter {each!r} to ignore"
                raise UsageError(message, argument="ignore", value=each)
        made.__statelog_step__ = declared  # `declaration_of` reads this attribute.
        made.options = StepWithOptions(made, NO_OPTIONS).options
        return made

    return declare if function is None else declare(function)


def _checked_upcast(version: object, upcast: object) -> Mapping[int, Callable[[Any], Any]]:
    """Return the `upcast` functions, keyed by version, after a check. Raises UsageError."""
    if type(version) is not int or version < 1:
        raise UsageError(f"version must be a positive int, not {version!r}", argument="version", value=version)
    if upcast is None:
        return MappingProxyType({})
    if not isinstance(upcast, Mapping):
        raise UsageError(f"upcast must be a dict of functions, not {upcast!r}", argument="upcast", value=upcast)
    for each, function in upcast.items():
        if type(each) is not int or not 1 <= each < version:
            message = f"upcast must have functions for versions 1 to {version - 1} only, not for {each!r}"
            raise UsageError(message, argument="upcast", value=each)
        check_callable(f"upcast[{each}]", function)
    return MappingProxyType(dict(upcast))


@dataclass(frozen=True, slots=True, eq=False)
class Workflow(Generic[P, R]):
    """A workflow that `@workflow` has declared: `Workflow[parameters without the run, result]`.

    A test can call it like the function itself.
    """

    function: Callable[..., Any]
    name: str
    raises: tuple[type[BaseException], ...] = ()
    is_async: bool = False
    schema: object = None
    aliases: tuple[str, ...] = ()
    """Former names. Runs that began under one of them are runs of this workflow."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the former names."""
        return (self.name, *self.aliases)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function itself, for `inspect.signature` and similar tools."""
        return self.function

    def __call__(self, run: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function itself."""
        return self.function(run, *args, **kwargs)


class _Declare(Protocol):
    """The type of the decorator that `workflow` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Workflow[P, R]: ...


@overload
def workflow(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(function: Callable[Concatenate[Any, P], R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    raises: Iterable[type[BaseException]] = (),
    schema: object = None,
    aliases: Iterable[str] = (),
) -> _Declare: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    raises: Iterable[type[BaseException]] = (),
    schema: object = None,
    aliases: Iterable[str] = (),
) -> Any:
    """Declare a workflow: a function whose first parameter is its `Run`.

    Put each effect into a step (`run.step`). The rest of the function may depend only on its arguments and the results
    of its steps. To resume a run, the function is called again, and each recorded step returns its recorded result.

    Args:
        function: the workflow, if the decorator is used without parentheses.
        name: the name under which its runs are stored. The default is the name of the function.
        raises: classes of exceptions that steps raise and the workflow handles. Exceptions of these classes and of
            builtin classes keep their class. All others become StepFailedError.
        schema: the schema of the run's thread, as for `Store.thread`.
        aliases: former names of the workflow. Runs that began under one of them are runs of this workflow.

    Raises:
        UsageError: an argument is not valid.
    """
    kinds = check_classes("raises", raises)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise UsageError(f"raises must be exception classes, not {kind!r}", argument="raises", value=kind)
    former = tuple(check_list("aliases", aliases, "a list of old names"))
    for each in former:
        check_part("alias", each)

    def declare(made: Callable[..., Any]) -> Workflow:
        if not callable(made):
            raise UsageError(f"a workflow must be a function, not {made!r}", argument="workflow", value=made)
        called = name or made.__qualname__.replace("<locals>.", "")
        check_part("workflow", called)
        if called in former:
            message = f"workflow {called!r} has its own name among its aliases"
            raise UsageError(message, argument="aliases", value=called)
        return Workflow(made, called, kinds, inspect.iscoroutinefunction(made), schema, former)

    return declare if function is None else declare(function)


def check_workflow(value: object) -> Workflow:
    """Return the value. Raises UsageError if it is not a workflow."""
    if not isinstance(value, Workflow):
        message = f"{value!r} is not a workflow: declare it with @durable.workflow"
        raise UsageError(message, argument="workflow", value=value)
    return value


def check_arguments(workflow: Workflow, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UsageError if a workflow cannot be called with these arguments."""
    try:
        signature = inspect.signature(workflow.function)
    except (TypeError, ValueError):  # Some callables do not have a signature.
        return
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        message = f"workflow {workflow.name!r} cannot be called with these arguments: {error}"
        raise UsageError(message, argument="args", value=tuple(args)) from None


def by_name(workflows: Iterable[Workflow]) -> dict[str, Workflow]:
    """Return workflows, keyed by their names and former names.

    Raises:
        UsageError: an element is not a workflow, or two workflows have the same name.
    """
    found: dict[str, Workflow] = {}
    if isinstance(workflows, Workflow):
        workflows = (workflows,)
    for each in check_list("workflows", workflows, "a list of workflows"):
        made = check_workflow(each)
        for name in made.names:
            if found.setdefault(name, made) is not made:
                message = (
                    f"two workflows have the name {name!r}: give one of them a different name with name= or aliases="
                )
                raise UsageError(message, argument="workflows", value=name)
    return found
