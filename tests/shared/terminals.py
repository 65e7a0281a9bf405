"""A command that writes to a terminal."""

import os
import pty
import subprocess
import sys


def on_terminal(*arguments, **environment):
    """Return what a command writes to a terminal of 80 columns."""
    reader, writer = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "statelog", *map(str, arguments)],
        stdout=writer,
        stderr=writer,
        stdin=subprocess.DEVNULL,
        env={**inherited, **environment},
    )
    os.close(writer)
    told = b""
    while chunk := _read(reader):
        told += chunk
    os.close(reader)
    assert process.wait(300) == 0
    return told.decode().replace("\r\n", "\n")


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux raises it when the other side has closed
        return b""
