"""Stubs, which replace steps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.durable import probes
from statelog.durable.workflows import name_of
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Call(NamedTuple):
    """A call of a stub."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Stubs:
    """The calls of stubs. See `stub_steps`."""

    def __init__(self) -> None:
        self._calls: dict[str, list[Call]] = {}

    def calls(self, step: str | Callable[..., Any]) -> list[Call]:
        """Return the calls of a step's stub in order. Give the step by name or function.

        Raises:
            UsageError: the step is not stubbed.
        """
        name = _name(step)
        if name not in self._calls:
            message = f"step {name!r} is not stubbed; stubbed steps: {', '.join(sorted(self._calls)) or 'none'}"
            raise UsageError(message, argument="step", value=step)
        return self._calls[name]

    def count(self, step: str | Callable[..., Any]) -> int:
        """Return the number of calls of a step's stub. Raises UsageError if the step is not stubbed."""
        return len(self.calls(step))

    def _counted(self, name: str, replacement: Callable[..., Any]) -> Callable[..., Any]:
        calls = self._calls.setdefault(name, [])

        def stub(*args: Any, **kwargs: Any) -> Any:
            calls.append(Call(args, kwargs))
            return replacement(*args, **kwargs)

        return stub


def _name(step: str | Callable[..., Any]) -> str:
    return step if isinstance(step, str) else name_of(step)


@contextmanager
def stub_steps(replacements: Mapping[str | Callable[..., Any], Callable[..., Any]]) -> Iterator[Stubs]:
    """Replace steps by other functions within a block, in all OS threads of this process, and count the calls.

    Compensations are also steps. A stub is called like the step, within `durable.current_step()`, and its return value
    is recorded as the step's result. The stub of an async step must be async.

    Args:
        replacements: functions to call instead of steps. A key is the recorded name of a step, or the step's function.

    Yields:
        The calls.

    Raises:
        UsageError: a replacement is not a function, or a key is neither a name nor a function.
    """
    stubs = Stubs()
    made: dict[object, Callable[..., Any]] = {}
    for step, replacement in replacements.items():
        if not (isinstance(step, str) or callable(step)):
            message = f"a step must be a name or a function, not {step!r}"
            raise UsageError(message, argument="replacements", value=step)
        if not callable(replacement):
            message = f"the stub of step {_name(step)!r} must be a function, not {replacement!r}"
            raise UsageError(message, argument="replacements", value=replacement)
        stub = stubs._counted(_name(step), replacement)  # noqa: SLF001 - the name belongs to this file
        made[_name(step)] = stub
        if not isinstance(step, str):
            made[step] = stub
    before = dict(probes.stubs)
    probes.stubs.update(made)
    try:
        yield stubs
    finally:
        probes.stubs.clear()
        probes.stubs.update(before)
