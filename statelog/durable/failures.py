"""Encodes exceptions for a record, and re-creates them from the record.

A recorded exception is a dict with its class, message, arguments and attributes. No class is imported because a record
names it (D19).
"""

from __future__ import annotations

import builtins
import functools
import os
import traceback
from contextlib import suppress
from pathlib import Path
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

from statelog import errors
from statelog.durable.values import decode, encode, typed
from statelog.errors import StatelogError, StepFailedError
from statelog.format import cbor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_KEPT_SIZE_MAX: Final = 4096
"""The maximum size of an exception's message in characters, of all its arguments and of all its attributes in bytes."""

_MEMBERS_MAX: Final = 32
"""The maximum number of exceptions that are recorded for a group."""

_GROUPS_MAX: Final = 8
"""The maximum depth to which nested groups of exceptions are recorded."""

_DEPTH: Final = 32
"""The nesting depth that is reserved for the groups, exceptions and attributes around a recorded value."""

TRACEBACK_SIZE_MAX: Final = 16_384
"""The maximum size of a traceback in characters.

The beginning, which shows the call, and the end, which shows the exception, are kept.
"""

CALL_TRACEBACK_SIZE_MAX: Final = 4096
"""The maximum size of a call's traceback in characters."""


class CarriedError(Exception):
    """Wraps a StopIteration, which a coroutine would turn into another exception. Users never see this class.

    Attributes:
        error: the wrapped exception.
    """

    def __init__(self, error: StopIteration) -> None:
        super().__init__(error)
        self.error = error


def carried(error: BaseException) -> BaseException:
    """Return the exception, wrapped if it cannot be raised in a coroutine."""
    return CarriedError(error) if isinstance(error, StopIteration) else error


def bare(error: BaseException) -> BaseException:
    """Return the exception without its wrapper."""
    return error.error if isinstance(error, CarriedError) else error


# --- into a record ----------------------------------------------------------------------------


def error_of(error: BaseException, groups: int = 0) -> dict[str, Any]:
    """Return the record of an exception: its class by name, its text, arguments and attributes.

    The member `lost` of the record names the arguments and attributes that cannot be stored, or are too long.
    """
    error = bare(error)
    kind = type(error)
    found: dict[str, Any] = {"type": kind.__qualname__, "module": kind.__module__, "message": _text_of(error)}
    lost: list[str] = []
    if isinstance(error, StepFailedError):
        found["facts"] = {"type": error.facts.get("type"), "run_message": error.facts.get("text")}
    elif isinstance(error, StatelogError) and kind.__module__ == errors.__name__:
        found["facts"] = _kept(error.facts, lost)
    else:
        if isinstance(error, ExceptionGroup) and groups < _GROUPS_MAX:
            found["args"] = [_storable_text(error.message)]
            found["members"] = [error_of(each, groups + 1) for each in error.exceptions[:_MEMBERS_MAX]]
            if len(error.exceptions) > _MEMBERS_MAX:
                lost.append(f"last {len(error.exceptions) - _MEMBERS_MAX:,} exceptions")
        else:
            found |= _kept({"args": list(error.args)}, lost)
        if attributes := _kept(dict(_attributes(error)), lost):
            found["attributes"] = attributes
        if kind.__module__ != "builtins":
            found["bases"] = [_named(each) for each in kind.__mro__[1:] if each not in _ROOTS]
    if lost:
        found["lost"] = lost
    return found


_ROOTS: Final = (Exception, BaseException, BaseExceptionGroup, object)


def _named(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an exception: in its `__dict__`, in its slots, and of its builtin classes."""
    for kind in type(error).__mro__:
        if kind in _ROOTS:
            continue
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):
                value = _member_of(error, member)
                if value is not None and (kind, name) != (AttributeError, "obj"):  # Skip `obj`, the program's object.
                    yield name, value
    yield from ((name, value) for name, value in vars(error).items() if name not in _OURS)


def _member_of(error: BaseException, member: MemberDescriptorType) -> Any:
    """Return the value of a slot, or None if it was never set. A `__getattr__` of the class is not called."""
    try:
        return member.__get__(error, type(error))
    except AttributeError:
        return None


def _kept(given: Mapping[str, Any], lost: list[str]) -> dict[str, Any]:
    """Return the values that can be stored and are small enough. Append the names of the other values to `lost`."""
    found: dict[str, Any] = {}
    room = _KEPT_SIZE_MAX
    for name, value in given.items():
        item, is_plain = _item_of(value)
        if item is None or len(item) + len(name) > room:
            lost.append(_storable_text(name))
            continue
        found[name] = decode(item)
        room -= len(item) + len(name)
        if is_plain:
            lost.append(_TYPE_OF + _storable_text(name))
    return found


_TYPE_OF: Final = "type of "


def _item_of(value: Any) -> tuple[bytes | None, bool]:
    """Return the encoded value, or None if it cannot be encoded, and whether encoding changes the type of the value."""
    for is_plain, encoded in ((False, cbor.encode), (True, encode)):
        try:
            return encoded(value, path="exception", depth=_DEPTH), is_plain
        except (StatelogError, ValueError, TypeError, RecursionError):
            continue
    return None, False


def _text_of(error: BaseException) -> str:
    """Return the text of an exception in a form that can be stored, or an empty string if its `__str__` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - `__str__` may need an attribute that is not set
        return ""
    return _storable_text(text)


def _storable_text(text: str) -> str:
    return text[:_KEPT_SIZE_MAX].encode(errors="backslashreplace").decode()


def error_text(recorded: Mapping[str, Any]) -> str:
    """Return a recorded exception as one line."""
    return f"{recorded['type']}: {recorded['message']}" if recorded["message"] else str(recorded["type"])


_ROOMS: Final = tuple(str(Path(__file__).parent.parent / room) + os.sep for room in ("durable", "aio"))
"""Directories with modules whose frames are left out of tracebacks."""


def traceback_of(error: BaseException, size_max: int = TRACEBACK_SIZE_MAX) -> str:
    """Return the traceback of an exception as about `size_max` characters, without frames in `_ROOMS`.

    If a step has failed in another process, the result begins with the recorded traceback of the step.
    """
    error = bare(error)
    try:
        made = traceback.TracebackException(type(error), error, error.__traceback__)
        if vars(error).get(_RECORDED) is not None:
            _leave_out_step(made, vars(error).get(_STEP_FRAMES, 0))
        _leave_out_frames(made)
        _show_recorded_members(made, error)
        text = "".join(made.format())
    except Exception:  # noqa: BLE001 - attributes of its class may raise
        text = "".join(traceback.format_tb(error.__traceback__)) + type(error).__qualname__
    recorded = vars(error).get(_RECORDED)
    if recorded is not None and error.__cause__ is None:
        text = f"{recorded}\nThe above exception was recorded, and was raised again from the record:\n\n{text}"
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= size_max:
        return text
    head, tail = text[: size_max // 4], text[-(size_max // 2) :]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters are left out ...]\n{tail}"


def _leave_out_step(made: traceback.TracebackException, count: int) -> None:
    """Remove the innermost frames, which belong to a step. The recorded traceback of the step contains them."""
    if 0 < count < len(made.stack):
        made.stack = traceback.StackSummary.from_list(made.stack[:-count])


def _show_recorded_members(made: traceback.TracebackException, error: BaseException) -> None:
    """Add the recorded traceback to each member of an exception group that came from the record."""
    if not isinstance(error, BaseExceptionGroup):
        return
    for shown, member in zip(made.exceptions or (), error.exceptions, strict=False):
        recorded = vars(member).get(_RECORDED)
        if recorded is not None and not vars(member).get(_STEP_FRAMES):
            shown.__notes__ = [*(shown.__notes__ or ()), f"It was raised again from the record:\n\n{recorded}"]
        _show_recorded_members(shown, member)


def _leave_out_frames(made: traceback.TracebackException) -> None:
    """Remove the frames in `_ROOMS`. The outermost exception keeps its frames if it has no others."""
    todo, seen = [made], set()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        frames = [frame for frame in each.stack if not frame.filename.startswith(_ROOMS)]
        if frames or each is not made:
            each.stack = traceback.StackSummary.from_list(frames)
        todo += [origin for origin in (each.__cause__, each.__context__) if origin is not None]
        todo += each.exceptions or ()


# --- the calls that made a run fail ---------------------------------------------------------------

_FAILED: Final = "_statelog_failed"
_FAILED_MAX: Final = 100
_RECORDED: Final = "_statelog_traceback"
_STEP_FRAMES: Final = "_statelog_step_frames"
_OURS: Final = (_FAILED, _RECORDED, _STEP_FRAMES)


def note_failed(error: BaseException, calls: Sequence[Mapping[str, Any]], recorded: str | None = None) -> None:
    """Attach to an exception the calls that raised it, and its recorded traceback.

    Each call is noted with its place, and with the numbers of the next calls at the time of the failure.
    """
    vars(bare(error))[_FAILED] = list(calls)
    if recorded is not None:
        vars(bare(error))[_RECORDED] = recorded


def show_step(error: BaseException, origin: BaseException) -> None:
    """Add the traceback of `origin`, which the step has just raised, to an exception decoded from the record.

    A decoded exception never has a cause, so that a live run and a replay do not differ (D7). The traceback shows a
    developer the line that failed.
    """
    found = bare(error)
    BaseException.with_traceback(found, origin.__traceback__)
    vars(found)[_STEP_FRAMES] = sum(1 for _ in traceback.walk_tb(origin.__traceback__))


def noted_failed(error: BaseException) -> list[Mapping[str, Any]]:
    """Return the calls that are attached to an exception by `note_failed`."""
    return list(vars(bare(error)).get(_FAILED, ()))


def failed_calls(error: BaseException) -> list[Mapping[str, Any]]:
    """Return the calls that led to an exception: those attached to it, or to its causes, contexts and members."""
    found: dict[str, Mapping[str, Any]] = {}
    todo, seen = [error], set()
    while todo and len(found) < _FAILED_MAX:
        each = bare(todo.pop())
        if id(each) in seen:
            continue
        seen.add(id(each))
        found |= {call["p"]: call for call in noted_failed(each)}
        todo += [origin for origin in (each.__cause__, each.__context__) if origin is not None]
        todo += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    return list(found.values())[:_FAILED_MAX]


# --- from a record ------------------------------------------------------------------------------


def exception_of(recorded: Mapping[str, Any], known: Sequence[type[BaseException]]) -> BaseException:
    """Make an exception from its record. Return StepFailedError if its class is not available.

    A class is available if it is builtin, belongs to this library, or is in `known`. A note names the arguments and
    attributes that were not kept. A StopIteration is wrapped in `CarriedError`.
    """
    lost = list(recorded.get("lost", ()))
    made = _exception_of(recorded, known, lost)
    if lost:  # `add_note` may call a `__getattr__` of the class, which may fail if an attribute is missing.
        notes = vars(made).get("__notes__")
        note = f"statelog could not keep its {', '.join(lost)}"
        vars(made)["__notes__"] = [*(notes if isinstance(notes, list) else ()), note]
    return carried(made)


def _exception_of(recorded: Mapping[str, Any], known: Sequence[type[BaseException]], lost: list[str]) -> BaseException:
    name, module, message = recorded["type"], recorded["module"], recorded["message"]
    if module == errors.__name__:
        ours = getattr(errors, name, None)
        facts = recorded.get("facts", {})
        if ours is StepFailedError:
            return StepFailedError(message, type=facts.get("type"), text=facts.get("run_message"))
        if isinstance(ours, type) and issubclass(ours, StatelogError):
            return ours(message, **facts)
    named = getattr(builtins, name, None) if module == "builtins" else None
    is_builtin = isinstance(named, type) and issubclass(named, Exception)
    kind: Any = named if is_builtin else _known_class(recorded, known)
    if kind is None:
        return _step_failed(recorded)
    members = [bare(exception_of(each, known)) for each in recorded.get("members", ())]
    try:
        made = _made(kind, recorded, members, lost)
        if members or _says(made, message) or not _can_say(kind):
            return made
        return _made(_saying(kind), recorded, members, lost)
    except Exception:  # noqa: BLE001 - no instance of the class can be made
        return _step_failed(recorded)


def _known_class(recorded: Mapping[str, Any], known: Sequence[type[BaseException]]) -> type[BaseException] | None:
    """Return the recorded class if it is in `known`, or a loaded subclass. Else return its nearest base in `known`."""
    named = f"{recorded['module']}:{recorded['type']}"
    by_name = {_named(kind): kind for kind in known}
    if named in by_name:
        return by_name[named]
    bases = [by_name[base] for base in recorded.get("bases", ()) if base in by_name]
    found = [kind for base in bases for kind in _subclasses(base) if _named(kind) == named]
    return next(iter((*reversed(found), *bases)), None)


def _subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in type.__subclasses__(kind):
        if _TEXT not in vars(each):
            yield each
            yield from _subclasses(each)


def _step_failed(recorded: Mapping[str, Any]) -> StepFailedError:
    return StepFailedError(error_text(recorded), type=recorded["type"], text=recorded["message"])


def _made(
    kind: type[BaseException], recorded: Mapping[str, Any], members: Sequence[BaseException], lost: list[str]
) -> BaseException:
    """Make an exception with its recorded arguments and attributes.

    If the class is not builtin, its `__init__` and `__new__` are not called, because their arguments may differ from
    `args`. So an attribute that is not in the record is not set.
    """
    args = recorded.get("args", [recorded["message"]])
    base: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    made: BaseException
    if members:
        made = base.__new__(kind, args[0], [each for each in members if isinstance(each, Exception)])
    else:
        made = _new(base, kind, args)
        _set(made, "args", tuple(args))
    for name, value in recorded.get("attributes", {}).items():
        given = typed(kind, name, value)
        _set(made, name, given)
        if given is not value and _TYPE_OF + name in lost:
            lost.remove(_TYPE_OF + name)
    if _TEXT in vars(kind):
        _set(made, _TEXT, recorded["message"])
    return made


def _new(base: Any, kind: Any, args: Sequence[Any]) -> BaseException:
    make = kind if base is kind else functools.partial(base.__new__, kind)
    made: BaseException
    with suppress(Exception):
        made = make(*args)
        return made
    with suppress(Exception):  # The parameters of some builtin classes differ from their `args`.
        made = base.__new__(kind)
        return made
    made = kind(*args)  # A class of an extension module may not allow `__new__` of a builtin class.
    return made


def _set(error: BaseException, name: str, value: Any) -> None:
    """Set an attribute, bypassing the class's own `__setattr__`, which may raise (as in a frozen dataclass)."""
    with suppress(Exception):  # In the current class, the attribute may be a read-only property.
        BaseException.__setattr__(error, name, value)


# --- texts of exceptions --------------------------------------------------------------------------

_TEXT: Final = "_statelog_text"


def _says(error: BaseException, message: str) -> bool:
    """Return True if the text of an exception contains its recorded text."""
    try:
        return message in _storable_text(str(error))
    except Exception:  # noqa: BLE001 - an attribute may be missing
        return not message


def _can_say(kind: type[BaseException]) -> bool:
    """Return True if a subclass of `kind` can be made without running code of `kind`."""
    return type(kind) is type and not hasattr(kind.__init_subclass__, "__func__")


@functools.lru_cache(maxsize=128)
def _saying(kind: type[BaseException]) -> type[BaseException]:
    """Return a subclass of `kind` with the same name, whose `__str__` returns the recorded text.

    A UnicodeDecodeError whose data was too long to keep, for example, cannot compute its text.
    """

    def text(self: BaseException) -> str:
        return str(vars(self)[_TEXT])

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": text, _TEXT: None}
    return type(kind.__name__, (kind,), names)
