"""Stubs: what is called instead of a step."""

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
        """Return the calls of a step's stub, in their order. A step is told by its name or its function.

        Raises:
            UsageError: it is not stubbed.

        """
        name = _name(step)
        if name not in self._calls:
            message = f"step {name!r} is not stubbed; there are {', '.join(sorted(self._calls)) or 'none'}"
            raise UsageError(message, argument="step", value=step)
        return self._calls[name]

    def count(self, step: str | Callable[..., Any]) -> int:
        """Return how often a step's stub was called. Raises UsageError: it is not stubbed."""
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
    """Call other functions instead of steps, and count their calls, within a block; in all threads of this process.

    Compensations are steps. A stub is called as the step would be, within `durable.current_step()`, and what it
    returns is recorded as the step's result. A stub of an async step is async.

    Args:
        replacements: functions, by the name under which a step is recorded, or by the step's function.

    Yields:
        The calls.

    Raises:
        UsageError: a replacement is no function, or a step is no name and no function.

    """
    stubs = Stubs()
    made: dict[object, Callable[..., Any]] = {}
    for step, replacement in replacements.items():
        if not (isinstance(step, str) or callable(step)):
            message = f"a step is told by its name or its function, not by {step!r}"
            raise UsageError(message, argument="replacements", value=step)
        if not callable(replacement):
            message = f"the stub of step {_name(step)!r} is a function, not {replacement!r}"
            raise UsageError(message, argument="replacements", value=replacement)
        stub = stubs._counted(_name(step), replacement)  # noqa: SLF001 - of this file
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
