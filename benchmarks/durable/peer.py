"""Creates a virtual environment with DBOS, runs the script for one row at a time, and parses its output."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Samples
from benchmarks.workload import SkipError

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "DBOS"
REQUIREMENT = "dbos>=3,<4"
_SCRIPT = Path(__file__).with_name("dbos_peer.py")
_HINT = (
    f"make it where there is a network (python -m venv PATH; PATH/bin/pip install '{REQUIREMENT}'), give --peer-venv"
)


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The script's measurements for a row."""

    version: str
    sqlite: str
    times_ns: dict[str, list[int]]
    figures: dict[str, float]

    def samples(self, name: str) -> Samples:
        """Return the times under a name. The written bytes are unknown."""
        return Samples(list(self.times_ns[name]), handed_bytes=None, dirtied_bytes=None)


def parsed(text: str, row: str) -> PeerFigures:
    """Return the measurements in the last line of the script's output. Raises ValueError if it is not that row."""
    document: Any = json.loads(text.strip().rpartition("\n")[2])
    if not isinstance(document, dict) or document.get("row") != row:
        message = f"the answer is not row {row!r}: {text[-200:]!r}"
        raise ValueError(message)
    times = {name: [int(each) for each in taken] for name, taken in document["times_ns"].items()}
    if not times or not all(times.values()):
        message = f"row {row!r} has no times"
        raise ValueError(message)
    figures = {name: float(figure) for name, figure in document.get("figures", {}).items()}
    return PeerFigures(str(document["dbos"]), str(document["sqlite"]), times, figures)


def made(venv: Path) -> Path:
    """Return the Python of a virtual environment with DBOS. Create the environment if it does not exist.

    Raises:
        SkipError: it cannot be created, for example without a network.
    """
    python = venv / "bin" / "python"
    if not _has_dbos(python):
        failure = f"no {NAME} to compare with", f"; {_HINT}"
        _run([sys.executable, "-m", "venv", str(venv)], *failure)
        _run([str(python), "-m", "pip", "install", "--quiet", REQUIREMENT], *failure)
    return python


def _has_dbos(python: Path) -> bool:
    code = "import importlib.metadata as m; raise SystemExit(m.version('dbos').split('.')[0] != '3')"
    if not python.exists():
        return False
    done = subprocess.run([str(python), "-I", "-c", code], capture_output=True, check=False)
    return done.returncode == 0


def _run(command: Sequence[str], failure: str, hint: str = "") -> str:
    """Run a command, and return its output. Raise SkipError with `failure`, its last line and `hint` if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().rpartition("\n")[2]
        message = f"{failure}: {last or error}{hint}"
        raise SkipError(message) from error
    return done.stdout


class DbosPeer:
    """DBOS, with its own folder. Its environment is created for the first row."""

    def __init__(self, venv: Path, directory: Path) -> None:
        self._venv = venv
        self._directory = directory
        self._python: Path | None = None

    def ask(self, row: str, *, size: int, repeats: int, seconds: float = 0.0) -> PeerFigures:
        """Make DBOS measure a row, and return its measurements.

        Args:
            row: the name of the row in `dbos_peer.py`.
            size: the number of steps, messages or runs.
            repeats: the number of repetitions.
            seconds: the time for which a waiting process is watched.

        Raises:
            SkipError: DBOS cannot be installed, or the script fails.
        """
        if self._python is None:
            self._python = made(self._venv)
        directory = self._directory / f"{NAME}, {row}"
        directory.mkdir()
        numbers = "--size", str(size), "--repeats", str(repeats), "--seconds", str(seconds)
        command = [str(self._python), "-I", str(_SCRIPT), row, str(directory), *numbers]
        return parsed(_run(command, f"{NAME} has failed at the row {row}"), row)
