"""What users declare: workflows, steps, and how a step is tried again."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from statelog.durable.naming import check_part
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

F = TypeVar("F", bound="Callable[..., Any]")

AT_LEAST_ONCE: Final = "at_least_once"
AT_MOST_ONCE: Final = "at_most_once"


_NUMBER_MAX: Final = 1e15


def check_number(argument: str, value: object, *, least: float, is_least_allowed: bool = True) -> float:
    """Refuse what is no number from `least` on. Raises UsageError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (least <= cast("float", value) <= _NUMBER_MAX) or (value == least and not is_least_allowed):
        above = "from" if is_least_allowed else "above"
        message = f"{argument} is a number {above} {least:g}, at most {_NUMBER_MAX:g}, not {value!r}"
        raise UsageError(message, argument=argument, value=value)
    return float(cast("float", value))


def check_classes(argument: str, value: object) -> tuple[Any, ...]:
    """Return what is given where one class may be, or several. Raises UsageError: it is neither."""
    if isinstance(value, type):
        return (value,)
    return tuple(check_list(argument, value, "a class of exceptions, or a list of them"))


def check_list(argument: str, value: Any, what: str) -> Iterable[Any]:
    """Refuse what cannot be gone through, and texts. Raises UsageError."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise UsageError(f"{argument} is {what}, not {value!r}", argument=argument, value=value)
    return value


def check_callable(argument: str, value: object) -> None:
    """Refuse what cannot be called. Raises UsageError."""
    if not callable(value):
        raise UsageError(f"{argument} is a function, not {value!r}", argument=argument, value=value)


def check_text(argument: str, value: object) -> None:
    """Refuse what is no text of at least one character. Raises UsageError."""
    if not isinstance(value, str) or not value:
        message = f"{argument} is a text of at least one character, not {value!r}"
        raise UsageError(message, argument=argument, value=value)


class Abort(Exception):  # noqa: N818 - what a workflow does, not what went wrong
    """Raise it in a workflow to give up: what was done is undone, the last step first. The run has failed then."""


class Cancelled(BaseException):
    """Raised in a workflow, at its next operation, when its run was cancelled or its time is up."""


class _Unknown:
    """What a compensation gets for the result of a step that did not return one."""

    def __repr__(self) -> str:
        return "durable.UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = _Unknown()
"""Given to a compensation instead of a result: nobody knows whether the step had its effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a step is tried, and how long after each failure.

    The wait before attempt n + 1 is `first_delay_s * backoff ** (n - 1)`, at most `max_delay_s`; with `jitter` a
    random part of that, at least half. A long wait suspends the run: no process waits for it.

    Args:
        attempts: the calls in all.
        first_delay_s: the wait behind the first failure.
        backoff: what each further wait is multiplied with.
        max_delay_s: the longest wait.
        jitter: whether waits differ by chance, so that many runs do not come at once.
        give_up_on: classes of exceptions after which it is not tried again.

    Raises:
        UsageError: one of the arguments is none.

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
                f"attempts is an int above 0, not {self.attempts!r}", argument="attempts", value=self.attempts
            )
        for name in ("first_delay_s", "backoff", "max_delay_s"):
            check_number(name, getattr(self, name), least=0.0)
        for kind in check_classes("give_up_on", self.give_up_on):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                message = f"give_up_on are classes of exceptions, not {kind!r}"
                raise UsageError(message, argument="give_up_on", value=kind)

    def delay_s(self, attempt: int) -> float:
        """Return the wait behind a failed attempt, the first is 1."""
        delay_s = min(self.first_delay_s * self.backoff ** (attempt - 1), self.max_delay_s)
        return delay_s * random.uniform(0.5, 1.0) if self.jitter else delay_s  # noqa: S311 - no secret

    def gives_up(self, error: BaseException) -> bool:
        """Whether an exception ends the attempts."""
        return isinstance(error, check_classes("give_up_on", self.give_up_on))


NO_RETRY: Final = Retry()
COMPENSATION_RETRY: Final = Retry(attempts=5)
"""How a compensation is tried that says nothing else."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What a step declares of itself."""

    name: str | None = None
    ignore: tuple[str, ...] = ()
    retry: Retry | None = None
    timeout_s: float | None = None
    version: int = 1
    upcast: Mapping[int, Callable[[Any], Any]] = field(default_factory=lambda: MappingProxyType({}))

    def recorded(self) -> dict[str, int]:
        """Return what the record of a result says of its version: nothing, if that is 1."""
        return {} if self.version == 1 else {"v": self.version}

    def missing(self, version: int) -> int | None:
        """Return the first version from `version` on that has no function to the next one; None if there is none."""
        return next((each for each in range(version, self.version) if each not in self.upcast), None)


def options_of(function: object) -> StepOptions:
    """Return what `@step` has said of a function."""
    found = getattr(function, "__statelog_step__", None)
    return found if isinstance(found, StepOptions) else _NO_OPTIONS


_NO_OPTIONS = StepOptions()


def versions_of(function: object) -> StepOptions:
    """Return what `@step` has said of a function, or of the function that a `partial` calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return options_of(function)


def name_of(function: Any) -> str:
    """Return the name under which a call of a function is recorded."""
    declared = options_of(function).name
    if declared is not None:
        return declared
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__).replace("<locals>.", "")


@overload
def step(function: F, /) -> F: ...
@overload
def step(
    *,
    name: str | None = None,
    ignore: Iterable[str] = (),
    retry: Retry | None = None,
    timeout_s: float | None = None,
    version: int = 1,
    upcast: Mapping[int, Callable[[Any], Any]] | None = None,
) -> Callable[[F], F]: ...
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
    """Say of a function how it is called as a step. A function that needs none of this needs no decorator.

    Args:
        function: the step, where the decorator stands without parentheses.
        name: under which its calls are recorded; that of the function, if left out.
        ignore: parameters that are not compared on replay, and need not be storable: a client, a connection.
        retry: how often it is tried.
        timeout_s: how long an attempt may take.
        version: of the result. Raise it when the meaning or the shape of the result changes.
        upcast: for each earlier version a function that returns a result of the next one. A result that was recorded
            by an earlier version passes through them on replay; the record stays as it is. The functions must return
            the same for the same, and do nothing else. If one is missing, or the recorded version is a later one, the
            run stops with StepVersionError, and continues with code that fits.

    Raises:
        UsageError: one of the arguments is none.

    """
    check_list("ignore", ignore, "a list of parameters")
    if name is not None:
        check_part("step", name)
    if retry is not None and not isinstance(retry, Retry):
        raise UsageError(f"retry is a durable.Retry, not {retry!r}", argument="retry", value=retry)
    if timeout_s is not None:
        check_number("timeout_s", timeout_s, least=0, is_least_allowed=False)
    options = StepOptions(name, tuple(ignore), retry, timeout_s, version, _checked_upcast(version, upcast))

    def declare(made: F) -> F:
        if not callable(made):
            raise UsageError(f"a step is a function, not {made!r}", argument="step", value=made)
        for each in options.ignore:
            if each not in inspect.signature(made).parameters:
                message = f"step {name_of(made)!r} has no parameter {each!r} to ignore"
                raise UsageError(message, argument="ignore", value=each)
        made.__statelog_step__ = options  # type: ignore[attr-defined]  # read by options_of
        return made

    return declare if function is None else declare(function)


def _checked_upcast(version: object, upcast: object) -> Mapping[int, Callable[[Any], Any]]:
    """Return the functions by version. Raises UsageError."""
    if type(version) is not int or version < 1:
        raise UsageError(f"version is an int above 0, not {version!r}", argument="version", value=version)
    if upcast is None:
        return MappingProxyType({})
    if not isinstance(upcast, Mapping):
        raise UsageError(f"upcast is a dict of functions, not {upcast!r}", argument="upcast", value=upcast)
    for each, function in upcast.items():
        if type(each) is not int or not 1 <= each < version:
            message = f"upcast has functions for the versions from 1 to {version - 1}, not for {each!r}"
            raise UsageError(message, argument="upcast", value=each)
        check_callable(f"upcast[{each}]", function)
    return MappingProxyType(dict(upcast))


@dataclass(frozen=True, slots=True, eq=False)
class Workflow:
    """A function that a run executes, as `@workflow` declares it. Call it as the function itself in a test."""

    function: Callable[..., Any]
    name: str
    raises: tuple[type[BaseException], ...] = ()
    is_async: bool = False
    schema: object = None
    aliases: tuple[str, ...] = ()
    """Former names, whose runs it takes up."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name, and the former ones."""
        return (self.name, *self.aliases)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function itself, for `inspect.signature` and others."""
        return self.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)


@overload
def workflow(function: Callable[..., Any], /) -> Workflow: ...
@overload
def workflow(
    *,
    name: str | None = None,
    raises: Iterable[type[BaseException]] = (),
    schema: object = None,
    aliases: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Workflow]: ...
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

    It does what has effects in steps (`run.step`), and is otherwise a function of its arguments and of what its steps
    return: when it is resumed it is called anew, and every step that was recorded returns what it returned.

    Args:
        function: the workflow, where the decorator stands without parentheses.
        name: under which its runs are found again; that of the function, if left out.
        raises: classes of exceptions that steps raise and the workflow handles. They come back as themselves, as
            builtins do. Others are StepFailedError.
        schema: of the thread, as for `Store.thread`, for what the workflow commits.
        aliases: former names of the workflow. Runs that were begun under one of them are its runs.

    Raises:
        UsageError: one of the arguments is none.

    """
    kinds = check_classes("raises", raises)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise UsageError(f"raises are classes of exceptions, not {kind!r}", argument="raises", value=kind)
    former = tuple(check_list("aliases", aliases, "a list of former names"))
    for each in former:
        check_part("alias", each)

    def declare(made: Callable[..., Any]) -> Workflow:
        if not callable(made):
            raise UsageError(f"a workflow is a function, not {made!r}", argument="workflow", value=made)
        called = name or made.__qualname__.replace("<locals>.", "")
        check_part("workflow", called)
        if called in former:
            message = f"workflow {called!r} has its own name among its aliases"
            raise UsageError(message, argument="aliases", value=called)
        return Workflow(made, called, kinds, inspect.iscoroutinefunction(made), schema, former)

    return declare if function is None else declare(function)


def check_workflow(value: object) -> Workflow:
    """Refuse what is no workflow. Raises UsageError."""
    if not isinstance(value, Workflow):
        message = f"{value!r} is no workflow: declare it with @durable.workflow"
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
    """Return workflows by their names and former names. Raises UsageError: one is none, or two have one name."""
    found: dict[str, Workflow] = {}
    if isinstance(workflows, Workflow):
        workflows = (workflows,)
    for each in check_list("workflows", workflows, "a list of workflows"):
        made = check_workflow(each)
        for name in made.names:
            if found.setdefault(name, made) is not made:
                message = f"two workflows have the name {name!r}: give one of them another with name= or aliases="
                raise UsageError(message, argument="workflows", value=name)
    return found
