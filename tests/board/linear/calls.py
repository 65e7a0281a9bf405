"""What processes called and what came back, a file for each, as the checkers read it."""

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
    """A call of the board: when it began and ended by the one clock of the machine, and what came back."""

    caller: str
    """Process and number: the agent that its records name."""
    name: str
    about: dict[str, Any]
    """Key, value and what else it was called with."""
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
    """Where a process writes down each call before it begins, and what came back."""

    def __init__(self, path, process):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process, self._count = process, 0

    def next_caller(self):
        """Return what the next call is known by."""
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
    """Return the calls of a process; what it was killed in the middle of writing did not get written."""
    calls = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
        said = json.loads(line)
        if "name" in said:
            assert number % 2 == 0
            calls.append(Call(f"{process}.{len(calls)}", said["name"], said["about"], said["at"]))
        else:
            calls[-1].responded, calls[-1].result = said["at"], said["result"]
    return calls
