"""Old names of the public API. Each works for one more release and gives a DeprecationWarning.

To remove a name, delete it here, and where this file is imported. Nothing else in the package knows the old names.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from warnings import warn

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    from typing_extensions import deprecated  # Editors strike the name through.
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
    """Call the method that does what `retain` did."""
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
    """Old names of `statelog.Store` and `statelog.aio.Store`."""

    @deprecated("retain is now prune, and with as_policy=True it is set_retention")
    def retain(self, *, as_policy: bool = False, **rules: Any) -> Any:
        """Call `prune`, or with `as_policy` call `set_retention`."""
        return _split(self, (), as_policy, rules)

    @deprecated("fence is now shut_off")
    def fence(self: Any, error: Exception) -> Any:
        """Call `shut_off`."""
        return self.shut_off(error)


class OldBoardNames:
    """Old names of `statelog.Board` and `statelog.aio.board.Board`."""

    @deprecated("retain is now prune, and with as_policy=True it is set_retention")
    def retain(self, pattern: str = "**", *, as_policy: bool = False, **rules: Any) -> Any:
        """Call `prune`, or with `as_policy` call `set_retention`."""
        return _split(self, (pattern,), as_policy, rules)
