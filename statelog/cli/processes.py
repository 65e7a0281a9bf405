"""Python child processes that run a module of statelog."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import statelog

# -P and the order of sys.path keep a file in the working directory or beside the statelog package
# from replacing a module of the standard library.
_BOOT = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def start_module(module: str, *arguments: str, errors: IO[bytes]) -> subprocess.Popen[str]:
    """Start `python -m module arguments` with the same interpreter and the same statelog.

    The child has its own process group: Ctrl-C reaches only the parent, which ends the child.

    Args:
        module: the module to run.
        arguments: the command line of the module.
        errors: a file for the child's stderr.
    """
    root = str(Path(statelog.__file__).resolve().parents[1])
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, root, module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        encoding="utf-8",
        process_group=0,
    )


def signal_name(returncode: int) -> str:
    """Return the name of the signal that killed a process, from its negative return code."""
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def last_line(errors: IO[bytes]) -> str:
    """Return the last line that a child wrote to stderr."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a message"
