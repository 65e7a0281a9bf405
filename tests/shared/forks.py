"""Python processes forked from one that has imported statelog. They start in a tenth of the time that Python takes.

`Popen` and `run` take what those of `subprocess` take. The command is `[sys.executable, ...]`, with `-W`, `-c`, `-m` or
the path of a script, or it begins with the path of `statelog`. Each command runs in a process that is a child
of the caller, so `kill`, `wait` and `returncode` work as for every child. `commands` puts a `python` and
a `statelog` for shells into a folder.

A forked process has imported `PRELOADED` before its first line runs. A test of what an import does starts a real one.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from inspect import signature
from pathlib import Path

PRELOADED = ("statelog", "statelog.aio", "statelog.cli", "statelog.durable", "statelog.storage.store_file")
_STATELOG = str(Path(sys.executable).with_name("statelog"))
_NUMBER = struct.Struct("<q")
_SET_CHILD_SUBREAPER = 36
_SHIM = """#!{python} -IS
import os, sys, _socket
calls = _socket.socket(_socket.AF_UNIX)
calls.connect({address!r})
words = [*{options!r}, *sys.argv[1:]]
variables = [name + "=" + value for name, value in os.environ.items()]
message = b"\\0".join(map(os.fsencode, [os.getcwd(), "", str(len(words)), *words, *variables]))
descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
calls.sendmsg([len(message).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
calls.sendall(message)
code = int.from_bytes(calls.recv(8), "little", signed=True)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class _Server:
    """The process that forks, for this one."""

    def __init__(self):
        self._calls, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._lock = threading.Lock()
        self._control = ctypes.CDLL(None, use_errno=True).prctl

    def fork(self, message, descriptors):
        """Fork a process that runs a command; return its pid. It becomes a child of this process."""
        with self._lock:
            self._adopt(is_adopting=True)
            try:
                socket.send_fds(self._calls, [_NUMBER.pack(len(message))], descriptors)
                self._calls.sendall(message)
                answer = self._calls.recv(_NUMBER.size, socket.MSG_WAITALL)
            finally:
                self._adopt(is_adopting=False)
        assert answer, "the process that forks has ended"
        return _NUMBER.unpack(answer)[0]

    def _adopt(self, *, is_adopting):
        """Become the parent of orphaned processes, or leave them to init again."""
        assert self._control(_SET_CHILD_SUBREAPER, int(is_adopting), 0, 0, 0) == 0

    def end(self):
        self._calls.close()
        self._process.wait()


@cache
def _server_of(_pid):
    server = _Server()
    atexit.register(server.end)
    return server


class _Popen(subprocess.Popen):
    """As `subprocess.Popen`, of a process that is forked."""

    def _execute_child(self, *arguments):
        given = signature(subprocess.Popen._execute_child).bind(self, *arguments).arguments
        if given["preexec_fn"]:  # a started Python would run it before its first line
            super()._execute_child(*arguments)
            return
        assert not any(given[name] for name in ("pass_fds", "shell"))
        name, *words = map(os.fspath, given["args"])
        assert name in (sys.executable, _STATELOG), name
        command = words if name == sys.executable else ["-m", "statelog", *words]
        cwd = os.fspath(given["cwd"] or Path.cwd())
        group = "session" if given["start_new_session"] else "group" if given["process_group"] == 0 else ""
        environment = os.environ if given["env"] is None else given["env"]
        pipes = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [standard if pipe == -1 else pipe for standard, pipe in enumerate(pipes)]
        self.pid = _server_of(os.getpid()).fork(_message(command, cwd, group, environment), descriptors)
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in names))


Popen = _Popen if sys.platform == "linux" else subprocess.Popen


def run(command, *, input=None, capture_output=False, timeout=None, check=False, **options):
    """As `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            out, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, errors)
    if check:
        done.check_returncode()
    return done


@contextmanager
def commands(folder, *options):
    """Put a `python` and a `statelog` into a folder: a shell that finds them there forks for each.

    Args:
        folder: a new one.
        options: of Python, as `-W`, `error`.
    """
    address = str(folder / "calls")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        command = [sys.executable, __file__, str(listening.fileno())]
        process = subprocess.Popen(command, pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL)
    for name, more in (("python", options), ("statelog", (*options, "-m", "statelog"))):
        shim = folder / name
        shim.write_text(_SHIM.format(python=sys.executable, address=address, options=more), encoding="utf-8")
        shim.chmod(0o755)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _message(command, cwd, group, environment):
    variables = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()]
    words = [cwd, group, str(len(command)), *command]
    return b"\0".join([*map(os.fsencode, words), *variables])


# --- the process that forks ---------------------------------------------------------------


def _serve(descriptor):
    """Fork for each call. Returns in the forked processes alone, with their messages."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=descriptor) as calls:
        is_listening = calls.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return _serve_shells(calls) if is_listening else _serve_parent(calls)


def _serve_parent(calls):
    while True:
        message, descriptors = _receive(calls)
        if message is None:
            os._exit(0)
        told, tell = os.pipe()
        may_begin, begin = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                for each in (told, tell, begin):
                    os.close(each)
                os.read(may_begin, 1)  # it ends when the process has its other parent
                os.close(may_begin)
                break
            os.write(tell, _NUMBER.pack(pid))
            os._exit(0)
        os.close(tell)
        for each in descriptors:
            os.close(each)
        pid = os.read(told, _NUMBER.size)
        os.close(told)
        os.waitpid(between, 0)  # from here on the process has another parent
        os.close(begin)
        os.close(may_begin)
        calls.sendall(pid)
    return message, descriptors


def _serve_shells(listening):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes in between
    while True:
        calls, _address = listening.accept()
        if os.fork() == 0:
            break
        calls.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, descriptors = _receive(calls)
    pid = os.fork()
    if pid:
        for each in descriptors:
            os.close(each)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            calls.sendall(_NUMBER.pack(code))
        os._exit(0)
    calls.close()
    return message, descriptors


def _receive(calls):
    size, descriptors, _flags, _address = socket.recv_fds(calls, _NUMBER.size, 3)
    return (calls.recv(_NUMBER.unpack(size)[0], socket.MSG_WAITALL), descriptors) if size else (None, ())


# --- the processes that are forked --------------------------------------------------------


def _become(message, descriptors):
    """Make this process one that has just been started, and return the arguments of its Python."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number + 100)
        os.close(descriptor)
    for number in range(3):
        os.dup2(number + 100, number)
        os.close(number + 100)
    cwd, group, count, *words = map(os.fsdecode, message.split(b"\0"))
    command, variables = words[: int(count)], words[int(count) :]
    if group:
        os.setsid() if group == "session" else os.setpgid(0, 0)
    path_before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = [entry for entry in sys.path[1:] if entry not in path_before]
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    _open_streams()
    gc.enable()
    return command


def _open_streams():
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        how = "backslashreplace" if name == "stderr" else errors
        stream = open(number, mode, encoding=encoding, errors=how, closefd=False)  # noqa: SIM115 - used on
        if mode == "w":
            stream.reconfigure(
                line_buffering=name == "stderr" or stream.isatty(), write_through=is_unbuffered and name == "stdout"
            )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(command):
    """Do what Python does with its arguments."""
    while command[0] == "-W":
        warnings.simplefilter(command[1])
        sys.warnoptions.append(command[1])
        command = command[2:]
    how, *rest = command
    if how == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    if how not in ("-c", "-"):
        sys.path.insert(0, str(Path(how).resolve().parent))
        sys.argv[:] = command
        runpy.run_path(how, run_name="__main__")
        return
    sys.path.insert(0, "")
    code = rest.pop(0) if how == "-c" else sys.stdin.read()
    sys.argv[:] = [how, *rest]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    exec(compile(code, "<string>", "exec"), main.__dict__)


def _main():
    command = _become(*_serve(int(sys.argv[1])))
    from statelog.storage import faults

    faults.arm_from_environment()
    _run(command)


if __name__ == "__main__":
    _main()
