"""The calls of processes and their answers, in one file for each process."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field
from typing import Any

NEVER = math.inf
"""When a killed call came back."""


@dataclass(slots=True, eq=False)
class Call:
    """A call of the board: its beginning and end by the clock of the machine, and its answer."""

    caller: str
    """Process and number: the agent that its records name."""
    name: str
    about: dict[str, Any]
    """The key, the value and the other arguments."""
    invoked: int
    responded: float = NEVER
    """NEVER: the process was killed, and the call may have happened."""
    result: dict[str, Any] = field(default_factory=dict)
    """Empty of a killed call; `refused` has the name of an error."""

    @property
    def is_known(self):
        return self.responded != NEVER

    @property
    def key(self):
        return self.about.get("key")

    def __repr__(self):
        back = self.result if self.is_known else "killed"
        return f"{self.caller} {self.name}{self.about} -> {back} [{self.invoked}, {self.responded}]"


class Diary:
    """The file in which a process records each call before it begins, and its answer."""

    def __init__(self, path, process):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process, self._count = process, 0

    def next_caller(self):
        """Return the name of the next call."""
        return f"{self._process}.{self._count}"

    def invoke(self, name, about):
        self._write({"name": name, "about": about})

    def respond(self, result):
        self._write({"result": result})
        self._count += 1

    def _write(self, line):
        place, text = 0, json.dumps({"at": time.monotonic_ns(), **line}).encode() + b"\n"
        while place < len(text):
            place += os.write(self._file, text[place:])


def read_diary(path, process):
    """Return the calls of a process. A line that a kill cut off is left out."""
    calls = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
        said = json.loads(line)
        if "name" in said:
            assert number % 2 == 0
            calls.append(Call(f"{process}.{len(calls)}", said["name"], said["about"], said["at"]))
        else:
            calls[-1].responded, calls[-1].result = said["at"], said["result"]
    return calls
