"""Old names of the public API. Each works for one more release and gives a DeprecationWarning.

To remove a name, delete it here, and where this file is imported. Nothing else in the package knows the old names.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from warnings import warn

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
T = TypeVar("T")


def _warning(message: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator like `warnings.deprecated` of Python 3.13."""

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return call

    return mark


if TYPE_CHECKING:
    from typing_extensions import deprecated  # With this decorator, editors strike the old name through.
else:
    deprecated = _warning


def renamed_keyword(old: str, new: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that passes the argument of an old keyword to a new one."""

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if old in kwargs:
                warn(f"{old}= is now {new}=", DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return mark


def _split(held: Any, args: tuple[Any, ...], as_policy: object, rules: dict[str, Any]) -> Any:
    """Call `set_retention` or `prune`, which have replaced `retain`."""
    if not isinstance(as_policy, bool):
        message = f"as_policy must be True or False, not {as_policy!r}"
        raise UsageError(message, argument="as_policy", value=as_policy)
    if not as_policy:
        return held.prune(*args, **rules)
    pinned = rules.pop("pinned", ())
    if pinned:
        message = "pinned= cannot be part of a policy: tag the checkpoints instead"
        raise UsageError(message, argument="pinned", value=pinned)
    return held.set_retention(*args, **rules)


class OldStoreNames:
    """The old method names of `statelog.Store` and `statelog.aio.Store`."""

    @deprecated("retain is now prune, and with as_policy=True it is set_retention")
    def retain(self, *, as_policy: bool = False, **rules: Any) -> Any:
        """Call `prune`, or with `as_policy` call `set_retention`."""
        return _split(self, (), as_policy, rules)

    @deprecated("fence is now shut_off")
    def fence(self: Any, error: Exception) -> Any:
        """Call `shut_off`."""
        return self.shut_off(error)


class OldBoardNames:
    """The old method names of `statelog.Board` and `statelog.aio.board.Board`."""

    @deprecated("retain is now prune, and with as_policy=True it is set_retention")
    def retain(self, pattern: str = "**", *, as_policy: bool = False, **rules: Any) -> Any:
        """Call `prune`, or with `as_policy` call `set_retention`."""
        return _split(self, (pattern,), as_policy, rules)


_STEP_OPTIONS = frozenset(
    ("name", "retry", "timeout_s", "compensate", "commit", "transact", "emit", "semantics"),
)


def step_options(
    function: Any, kwargs: Mapping[str, Any], *, stacklevel: int = 4
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keywords of `Run.step` into the options that it once accepted, and the arguments of the function.

    A keyword with the name of an option belongs to the function if the function has a parameter of this name or
    `**kwargs`.
    """
    named = _STEP_OPTIONS.intersection(kwargs)
    if not named:
        return {}, dict(kwargs)
    from inspect import Parameter, signature

    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # Some builtins do not have a signature.
        parameters = []
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return {}, dict(kwargs)
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    options = named - {each.name for each in parameters if each.kind in by_name}
    if options:
        given = ", ".join(f"{name}=" for name in sorted(options))
        message = f"{given}: pass options with step.options(...) or run.step_with(StepOptions(...), ...)"
        warn(message, DeprecationWarning, stacklevel=stacklevel)
    kept = {name: value for name, value in kwargs.items() if name not in options}
    return {name: kwargs[name] for name in sorted(options)}, kept


def old_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module in which some names have changed.

    Args:
        module: the name of the module.
        names: maps old names to new names.
    """

    def get(name: str) -> Any:
        if name not in names:
            message = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[module])
        warn(f"{module}.{name} is now {names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return get


DURABLE_NAMES = {
    "check": "check_replay",
    "compare": "compare_runs",
    "get": "get_run",
    "purge": "purge_run",
    "work": "run_worker",
}
"""The old names of functions of `statelog.durable` and `statelog.aio.durable`."""
