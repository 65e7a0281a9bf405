"""Opens, verifies and reads one damaged file. Each check runs in its own process, because the process may die.

The truth is the content of a sound copy of the file.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from statelog.errors import CorruptionError, FormatError, NotFoundError, StatelogError
from statelog.testing.identity import exact_form
from statelog.testing.powerloss.recorder import log_directory

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator

    from statelog.store.store import Store

MAX_SIZE_BYTES = 1 << 26
_LOOK_TIMEOUT_S = 60
_MEMORY_BYTES_MAX = 8 << 30
_COMMITS_AFTER = 12
"""Enough for every free page there is to be taken once."""

Truth = dict[str, Any]
"""Everything that can be read, by name, in exact form."""

_Function = Callable[[Path, Truth], "Look"]


@dataclass(frozen=True, slots=True)
class Patch:
    """Damage: bytes put at an offset, or the file cut off there."""

    offset: int
    data: bytes
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """The findings of one process.

    Attributes:
        end: "done", or the cause of death.
        refused: the exception with which opening refused the file.
        problems: the number of problems that `verify` found.
        first: the first problem.
        same: reads that returned the truth.
        damaged: reads that raised CorruptionError.
        placed: those of them that named a record and node, a key, or a file.
        absent: reads that found something missing.
        wrong: reads that returned something else.
        misnamed: reads that raised another error of statelog.
        leaked: reads that raised any other error.
    """

    end: str = "done"
    refused: str = ""
    problems: int = 0
    first: str = ""
    same: int = 0
    damaged: int = 0
    placed: int = 0
    absent: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    misnamed: tuple[str, ...] = ()
    leaked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DamageResult:
    """The result of one damage.

    Attributes:
        verifying: opening and `verify`.
        reading: opening and reading everything.
        later: `verify` and reads after some commits, for damage that neither has noticed; else None.
    """

    verifying: Look
    reading: Look
    later: Look | None = None

    @property
    def is_found(self) -> bool:
        """Whether opening or `verify` found the damage or died, which `statelog verify` reports as damage."""
        look = self.verifying
        return bool(look.refused or look.problems or look.end != "done")

    @property
    def is_visible(self) -> bool:
        """Whether a reader sees anything but the truth."""
        look = self.reading
        return bool(
            look.refused
            or look.end != "done"
            or look.damaged
            or look.absent
            or look.wrong
            or look.misnamed
            or look.leaked
        )


# --- truth ------------------------------------------------------------------------


def read_truth(store: Store) -> Truth:
    """Return everything that can be read in a sound store."""
    truth: Truth = {}
    for name, read in _reads(store, None):
        truth[name] = read()
    return truth


def _reads(store: Store, truth: Truth | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a name and a function for everything that can be read.

    Args:
        store: the store to read.
        truth: the truth about a damaged store, which names what to read. None yields those names, too.
    """
    known = truth if truth is not None else {_OUTLINE: _outline(store)}
    if truth is None:
        yield _OUTLINE, lambda: known[_OUTLINE]
    yield "threads", lambda: exact_form([info.id for info in store.threads()])
    for thread, branches in known[_OUTLINE].items():
        yield f"branches of {thread}", partial(_branches, store, thread)
        yield f"tags of {thread}", partial(_tags, store, thread)
        for branch, versions in branches.items():
            yield f"history of {thread}, {branch}", partial(_history, store, thread, branch)
            for version in versions:
                where = f"{thread}, {branch}, {version}"
                yield f"version {where}", partial(_version, store, thread, branch, version)
                yield f"state {where}", partial(_state, store, thread, branch, version)
    yield "log", partial(_log, store)


_OUTLINE = "outline"


def _outline(store: Store) -> dict[str, dict[str, list[int]]]:
    """Return the versions there are, by thread and branch."""
    threads = [store.thread(info.id) for info in store.threads()]
    return {
        thread.id: {
            branch.name: [each.version for each in thread.checkout(branch.name).history()]
            for branch in thread.branches()
        }
        for thread in threads
    }


def _branches(store: Store, thread: str) -> Hashable:
    found = store.thread(thread).branches()
    return exact_form([(each.name, each.parent, each.base_version, each.head_version) for each in found])


def _tags(store: Store, thread: str) -> Hashable:
    return exact_form({name: each.id for name, each in store.thread(thread).tags().items()})


def _history(store: Store, thread: str, branch: str) -> Hashable:
    return exact_form([each.id for each in store.thread(thread, branch=branch).history()])


def _version(store: Store, thread: str, branch: str, version: int) -> Hashable:
    found = store.thread(thread, branch=branch).at(version)
    return exact_form(
        [found.id, found.version, found.time, found.metadata, found.kind, found.digest, list(found.channels_written)]
    )


def _state(store: Store, thread: str, branch: str, version: int) -> Hashable:
    return exact_form(store.thread(thread, branch=branch).at(version).state)


def _log(store: Store) -> Hashable:
    return exact_form(
        [
            [each.lsn, each.type, each.time, each.thread_id, each.body, each.digest, each.continues]
            for each in store.log()
        ]
    )


# --- looking ----------------------------------------------------------------------


def look_at(data: bytes, path: Path, patches: tuple[Patch, ...], *, use: bool = True) -> DamageResult:
    """Damage a copy of a file and look at it, as verifier, as reader, and if neither saw it and `use`, as writer."""
    damaged = bytearray(data)
    for patch in patches:
        if patch.cut:
            del damaged[patch.offset :]
        else:
            damaged[patch.offset : patch.offset + len(patch.data)] = patch.data
    truth = _truth(data)

    def look(*functions: _Function) -> list[Look]:
        for suffix in ("", "-lock", "-journal"):  # the case before may have been killed
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(damaged)
        return _contained(functions, path, truth)

    looks = look(_verify, _read)
    if len(looks) == 1:  # it died while verifying
        looks += look(_read)
    result = DamageResult(*looks)
    if result.is_found or result.is_visible or not use:
        return result
    return DamageResult(*looks, *look(_use))


@cache
def _truth(data: bytes) -> Truth:
    with tempfile.TemporaryDirectory(dir=log_directory()) as temporary:
        path = Path(temporary) / "sound.state"
        path.write_bytes(data)
        with statelog.open(path, max_size_bytes=MAX_SIZE_BYTES) as store:
            assert store.verify().ok
            return read_truth(store)


def _contained(functions: tuple[_Function, ...], path: Path, truth: Truth) -> list[Look]:
    """Call functions in a forked child, and return their findings. For the one that killed it, return the cause."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _look_and_exit(functions, path, truth, writable)
    os.close(writable)
    looks: list[Look] = []
    with suppress(EOFError, pickle.UnpicklingError), os.fdopen(readable, "rb") as pipe:
        while True:
            looks.append(pickle.load(pipe))
    _child, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        looks.append(Look(end="hung" if name == "SIGALRM" else name))
    return looks


def _look_and_exit(functions: tuple[_Function, ...], path: Path, truth: Truth, writable: int) -> None:
    code = 1
    try:
        faulthandler.disable()  # dying is expected here
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LOOK_TIMEOUT_S)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
        with os.fdopen(writable, "wb", buffering=0) as pipe:
            for function in functions:
                pipe.write(pickle.dumps(function(path, truth)))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _open(path: Path, *, read_only: bool) -> Store | Look:
    """Open a store, or return how it was refused."""
    try:
        return statelog.open(path, read_only=read_only, max_size_bytes=MAX_SIZE_BYTES)
    except (CorruptionError, FormatError) as error:
        return Look(refused=type(error).__name__)
    except StatelogError as error:
        message = f"{type(error).__name__}: {error}"
        return Look(refused=message, misnamed=(f"open: {message}",))
    except Exception as error:  # noqa: BLE001 - a finding
        message = f"{type(error).__name__}: {error}"
        return Look(refused=message, leaked=(f"open: {message}",))


def _verify(path: Path, _truth: Truth) -> Look:
    store = _open(path, read_only=True)
    if isinstance(store, Look):
        return store
    with store:
        return _verify_all(store)


def _verify_all(store: Store) -> Look:
    try:
        problems = store.verify().problems
    except CorruptionError as error:
        return Look(problems=1, first=str(error))
    except StatelogError as error:
        return Look(misnamed=(f"verify: {type(error).__name__}: {error}",), problems=1)
    except Exception as error:  # noqa: BLE001 - a finding
        return Look(leaked=(f"verify: {type(error).__name__}: {error}",), problems=1)
    return Look(problems=len(problems), first=problems[0].message if problems else "")


@dataclass(slots=True)
class _Counts:
    same: int = 0
    damaged: int = 0
    placed: int = 0
    absent: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    misnamed: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)


def _read(path: Path, truth: Truth) -> Look:
    store = _open(path, read_only=True)
    if isinstance(store, Look):
        return store
    with store:
        return _read_all(store, truth)


def _read_all(store: Store, truth: Truth, *, skipped: Collection[str] = ()) -> Look:
    counts = _Counts()
    for name, read in _reads(store, truth):
        if name in skipped:
            continue
        try:
            found = read()
        except CorruptionError as error:
            counts.damaged += 1
            counts.placed += bool({"lsn", "node", "key", "path"} & error.facts.keys())
        except NotFoundError:
            counts.absent.append(name)
        except StatelogError as error:
            counts.misnamed.append(f"{name}: {type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - a finding
            counts.leaked.append(f"{name}: {type(error).__name__}: {error}")
        else:
            if found == truth[name]:
                counts.same += 1
            elif _is_part(found, truth[name]):
                counts.absent.append(name)
            else:
                counts.wrong.append(f"{name}: {str(found)[:3000]}, not {str(truth[name])[:3000]}")
    return Look(
        same=counts.same,
        damaged=counts.damaged,
        placed=counts.placed,
        absent=tuple(counts.absent),
        wrong=tuple(counts.wrong),
        misnamed=tuple(counts.misnamed),
        leaked=tuple(counts.leaked),
    )


def _is_part(found: Any, true: Any) -> bool:
    """Return whether a listing is a part of the truth."""
    return (
        isinstance(found, tuple)
        and found[0] in {"list", "dict"}
        and found[0] == true[0]
        and len(found[1]) < len(true[1])
        and set(found[1]) <= set(true[1])
    )


def _use(path: Path, truth: Truth) -> Look:
    """Commit some times and check again, because unnoticed damage may spread."""
    store = _open(path, read_only=False)
    if isinstance(store, Look):
        return store
    try:
        for number in range(_COMMITS_AFTER):
            store.thread("later").commit({"n": number, "text": f"{number}" * 3000})
        problems = store.verify().problems
    except StatelogError as error:
        return Look(refused=f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - a finding
        return Look(leaked=(f"{type(error).__name__}: {error}",))
    if problems:
        return Look(problems=len(problems), first=problems[0].message)
    return _read_all(store, truth, skipped=("threads", "log"))  # these have grown
