"""Work in processes that are forked from one that has imported a test module: killed at each fault point, or at once.

A framework takes seconds to import, and work passes two dozen fault points: so a process imports once, and forks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import statelog
from statelog.storage import faults

_SERVE = "import sys; sys.path[:] = sys.argv[2:]; import {}; forked._serve(sys.argv[1])"
BEFORE, AFTER = "before", "after"
_NEVER = 1 << 30
_MEETING_S_MAX = 120.0
_TIMES_MAX = 4
"""The maximum number of passes of a point to test. Of more, an even choice with the last one is tested."""


@dataclass(frozen=True)
class Death:
    """The remains of a killed process.

    Attributes:
        where: the fault point, and the number of its pass.
        path: the path of the store of the process.
        is_acknowledged: whether the work was acknowledged before.
    """

    where: str
    path: Path
    is_acknowledged: bool


class Nursery:
    """A process that has imported a test module, and forks to call its functions; a context manager.

    Args:
        file: of the module.
        modules: the names of further modules to import, because a forked process would take seconds for them.
    """

    def __init__(self, file, *modules):
        program = _SERVE.format(", ".join(["forked", *modules]))
        command = [sys.executable, "-W", "ignore", "-c", program, str(file), *sys.path]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def together(self, *calls):
        """Call functions by name at once, each in a process. Return the end and the report of each.

        Args:
            calls: for each call the name of the function and its arguments, which JSON can represent.
        """
        print(json.dumps(calls), file=self._process.stdin, flush=True)
        told = self._process.stdout.readline()
        assert told, "the process that forks has ended"
        return json.loads(told)

    def call(self, *call):
        """Call one function, and return its report."""
        [[code, told]] = self.together(call)
        assert code == 0, told
        return told

    def deaths(self, work, folder, *, before=None, before_arguments=(), arguments=()):
        """Yield the remains of work that is killed at each fault point it passes, each time on a new store.

        Args:
            work: the name of a function of a path, `arguments` and two functions. It calls the first function when the
                kill may begin, and the second one when the work is done.
            folder: the folder of the stores.
            before: the name of a function that creates the store.
            before_arguments: the arguments of this function, after the path.
            arguments: the arguments of the function.
        """
        made = Path(folder) / BEFORE
        made.mkdir()
        if before is not None:
            self.call(before, str(made / "s"), *before_arguments)
        for where in _chosen(self.call(*_anew(made, folder, AFTER), work, None, *arguments)):
            call = _anew(made, folder, where)
            [[code, told]] = self.together((*call, work, where, *arguments))
            assert code == -signal.SIGKILL, f"{where}: {code}, {told}"
            yield Death(where, Path(call[1]), _told_at(call[1]).exists())

    def check_whole(self, work, folder, look, *, before, before_arguments=(), arguments=()):
        """Check that each death leaves the state before the work or the state after it.

        Args:
            work: as for `deaths`.
            folder: as for `deaths`.
            look: returns the content of an open store. Threads and their versions are always compared.
            before: as for `deaths`.
            before_arguments: as for `deaths`.
            arguments: as for `deaths`.

        Returns:
            The numbers of deaths that left the state before and the state after.
        """
        lost = kept = 0
        was = done = None
        for death in self.deaths(work, folder, before=before, before_arguments=before_arguments, arguments=arguments):
            if was is None:
                was, done = (_seen(folder / name / "s", look) for name in (BEFORE, AFTER))
                assert was != done
            found = _seen(death.path, look)
            assert found in (was, done), f"{death}: {found}"
            assert found == done or not death.is_acknowledged, death
            lost += found == was
            kept += found == done
        return lost, kept


def _seen(path, look):
    with statelog.open(path) as store:
        assert store.verify().ok
        return {info.id: info.versions for info in store.threads()}, look(store)


def _begin(where):
    """Let this process be killed at a fault point from here on; without one count the passes."""
    if where is not None:
        point, _, count = where.rpartition(":")
        faults.arm(point, count=int(count))
        return
    for point in faults.POINTS:
        faults.arm(point, count=_NEVER, action=lambda: None)


def meet(path, mine, others):
    """Wait until other processes have reached this meeting. Each meeting has its own names.

    Args:
        path: the path of the store. The files of the meeting are beside it.
        mine: the name of this process in this meeting.
        others: the names of the others.
    """
    _met_at(path, mine).touch()
    until = time.monotonic() + _MEETING_S_MAX
    while not all(_met_at(path, other).exists() for other in others):
        assert time.monotonic() < until, f"{others} have not come"
        time.sleep(0.0005)


def _met_at(path, name):
    return Path(f"{path}.{name}.met")


def _told_at(path):
    return Path(f"{path}.told")


def _anew(made, folder, name):
    """Return a call of `_work` on a copy of the store that is there before."""
    copy = Path(folder) / name.replace(":", "-")
    shutil.copytree(made, copy)
    return "_work", str(copy / "s")


def _chosen(passes):
    for point, count in passes.items():
        step = -(-count // _TIMES_MAX)
        yield from (f"{point}:{number}" for number in range(count, 0, -step))


# --- the process that forks ---------------------------------------------------------------


def _serve(file):
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for line in sys.stdin:
        running = [_fork(module, *call) for call in json.loads(line)]
        sys.stdout.write(json.dumps([_await(*each) for each in running]) + "\n")
        sys.stdout.flush()


def _fork(module, name, *arguments):
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    os.dup2(2, 1)  # the other one is for answers
    code = 1
    try:
        told = _work(module, *arguments) if name == "_work" else getattr(module, name)(*arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - told to the process that waits
        told = traceback.format_exc()
    os.write(theirs, json.dumps(told).encode())
    os._exit(code)


def _await(pid, told):
    with open(told, encoding="utf-8") as words:  # noqa: PTH123 - a descriptor
        said = words.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), json.loads(said or "null")


def _work(module, path, name, where, *arguments):
    getattr(module, name)(path, *arguments, lambda: _begin(where), _told_at(path).touch)
    return {point: _NEVER - fault.passes_left for point, fault in faults.armed.items() if fault.passes_left < _NEVER}
