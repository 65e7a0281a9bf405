import ast
import dataclasses
import importlib.util
import io
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import WORKLOADS, run
from benchmarks.durable import peer, table
from benchmarks.measure import Samples
from benchmarks.result import Result
from benchmarks.workload import Bench, SkipError
from statelog.errors import UsageError

SCRIPT = Path(peer.__file__).with_name("dbos_peer.py")
MS = 1_000_000
TIMES_MS = {
    "step": {"step": 10},
    "replay": {"recovery": 2000, "replay": 1000},
    "fork": {"fork": 40},
    "send": {"shipped": 500, "polling": 20},
    "queue": {"queue": 40_000},
}
"""What the peer is made to say it took."""


class StubPeer:
    def __init__(self):
        self.asked = []

    def ask(self, row, *, size, repeats, seconds=0.0):
        self.asked.append((row, size, repeats, seconds))
        times = {name: [time_ms * MS] * 3 for name, time_ms in TIMES_MS[row].items()}
        return peer.PeerFigures("3.4.0", "3.40.1", times, {"idle_shipped": 0.01, "idle_polling": 0.08})


def samples(time_ms, count=3):
    return Samples([int(time_ms * MS)] * count, handed_bytes=None, dirtied_bytes=None)


@dataclasses.dataclass
class Suspended:
    memory_bytes: int
    openings_ns: list
    idle: float


@pytest.fixture
def ours(monkeypatch):
    """Our side as it should be: within every bound."""
    stub = types.ModuleType("benchmarks.durable.ours")
    stub.steps = lambda _directory, **_: {
        "alone": samples(1),
        "commit": samples(1.1),
        "event": samples(1.5),
        "board": samples(1.5),
    }
    stub.replays = lambda _directory, **_: {"recovery": samples(100), "replay": samples(50)}
    stub.forks = lambda _directory, **_: (samples(2), 1)
    stub.answers = lambda _directory, **_: samples(5)
    stub.idle = lambda _directory, **_: 0.001
    stub.queued = lambda _directory, **_: samples(1000)
    stub.suspended = lambda _directory, *, size, **_: Suspended(10**7 + size, [MS], 0.001)
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    monkeypatch.setattr("benchmarks.durable.ours", stub, raising=False)
    return stub


def checks_of(row, tmp_path, scale=1.0):
    return table.ROWS[row](Bench(tmp_path, scale, 7), StubPeer()).checks


# --- the table ------------------------------------------------------------------


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    ("row", "values", "targets"),
    [
        ("step", [0.1, 1.1, 1.5, 1.5], [0.2, 1.3, 2.0, 2.0]),
        ("replay", [0.05, 0.05], [0.1, 0.1]),
        ("fork", [0.05, 1], [0.1, 1]),
        ("send", [0.01, 0.25, 5, 0.1], [0.02, 0.5, 10, 0.5]),
        ("queue", [40], [20]),
        ("suspended", [1.0, 1.0, 1.0], [1.5, 1.5, 1.5]),
    ],
)
def test_a_row_holds_our_side_against_the_peers(row, values, targets, tmp_path):
    checks = checks_of(row, tmp_path)
    assert [check.value for check in checks] == pytest.approx(values, rel=0.01)
    assert [check.target for check in checks] == targets
    assert all(check.is_met for check in checks)


def test_a_fork_of_two_commits_and_a_slow_step_are_missed(ours, tmp_path):
    ours.forks = lambda _directory, **_: (samples(2), 2)
    ours.steps = lambda _directory, **_: dict.fromkeys(("alone", "commit", "event", "board"), samples(3))
    assert [check.is_met for check in checks_of("fork", tmp_path)] == [True, False]
    assert [check.is_met for check in checks_of("step", tmp_path)] == [False, True, True, True]


def test_one_slow_answer_in_fifty_misses_the_bound_of_p99_alone(ours, tmp_path):
    ours.answers = lambda _directory, **_: Samples([5 * MS] * 49 + [11 * MS], handed_bytes=None, dirtied_bytes=None)
    assert [check.is_met for check in checks_of("send", tmp_path)] == [True, True, False, True]


@pytest.mark.usefixtures("ours")
def test_sizes_shrink_with_the_scale_on_both_sides(tmp_path):
    asked = StubPeer()
    for scale in (1.0, 0.001):
        for name in TIMES_MS:
            table.ROWS[name](Bench(tmp_path, scale, 2), asked)
    full = [("step", 200, 2, 0.0), ("replay", 2000, 2, 0.0), ("fork", 2000, 2, 0.0)]
    assert asked.asked[:5] == [*full, ("send", 200, 1, 5.0), ("queue", 300, 2, 0.0)]
    assert [size for _, size, *_ in asked.asked[5:]] == [10, 20, 20, 5, 8]


def test_every_row_can_be_chosen():
    assert WORKLOADS["durable"].rows == tuple(table.ROWS)


# --- the peer -------------------------------------------------------------------


def line(**changed):
    document = {"row": "step", "dbos": "3.4.0", "sqlite": "3.40.1", "times_ns": {"step": [3, 1, 2]}}
    return json.dumps({**document, **changed})


def test_the_output_of_the_peer_is_read_from_its_last_line():
    found = peer.parsed(f"it may say something before\n{line(figures={'idle': 0.08})}\n", "step")
    assert (found.version, found.times_ns, found.figures) == ("3.4.0", {"step": [3, 1, 2]}, {"idle": 0.08})
    assert found.samples("step").p50_us == 0.002
    assert peer.parsed(line(), "step").figures == {}


@pytest.mark.parametrize(
    "text", ["", "not JSON", "[]", line(row="fork"), line(times_ns={}), line(times_ns={"step": []})]
)
def test_output_for_another_row_is_refused(text):
    with pytest.raises(ValueError, match=r"row|Expecting value"):
        peer.parsed(text, "step")


def test_the_script_knows_the_rows_that_it_is_asked_for_and_imports_nothing_of_statelog():
    tree = ast.parse(SCRIPT.read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [module for module in modules if module.startswith("statelog")]
    [rows] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "_ROWS"
    ]
    assert [key.value for key in rows.keys] == list(TIMES_MS)


def test_a_peer_that_cannot_be_made_is_said(tmp_path, monkeypatch):
    def fail(command, **_options):
        raise subprocess.CalledProcessError(1, command, stderr="a warning\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(SkipError, match=r"no DBOS to compare with: ERROR: no network; .*--peer-venv"):
        peer.DbosPeer(tmp_path / "venv", tmp_path).ask("step", size=1, repeats=1)


def test_a_peer_that_fails_is_said_without_a_word_of_how_to_make_it(tmp_path, monkeypatch):
    def fail(command, **_options):
        raise subprocess.CalledProcessError(1, command, stderr="Traceback\nAssertionError: a part has ended early\n")

    side = peer.DbosPeer(tmp_path / "venv", tmp_path)
    monkeypatch.setattr(peer, "made", lambda venv: venv / "bin" / "python")
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(SkipError, match=r"^DBOS has failed at the row step: AssertionError: a part has ended early$"):
        side.ask("step", size=1, repeats=1)


def test_an_environment_that_has_the_peer_is_used_as_it_is(tmp_path, monkeypatch):
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    commands = []

    def answer(command, **_options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=line())

    monkeypatch.setattr(subprocess, "run", answer)
    side = peer.DbosPeer(tmp_path / "venv", tmp_path)
    assert side.ask("step", size=7, repeats=2).version == "3.4.0"
    [looked, asked] = commands
    assert (looked[0], asked[:5]) == (
        str(python),
        [str(python), "-I", str(SCRIPT), "step", str(tmp_path / "DBOS, step")],
    )
    assert asked[5:9] == ["--size", "7", "--repeats", "2"]


# --- the command ----------------------------------------------------------------


def run_to_text(tmp_path, **options):
    console = Console(file=io.StringIO(), width=200)
    code = run(["durable"], directory=tmp_path, scale=0.001, repeats=1, console=console, **options)
    return code, console.file.getvalue()


@pytest.fixture
def runnable(monkeypatch, ours):
    monkeypatch.setattr("benchmarks.durable.workload.DbosPeer", lambda _venv, _directory: StubPeer())
    monkeypatch.setitem(WORKLOADS, "durable", dataclasses.replace(WORKLOADS["durable"], needs=()))
    return ours


@pytest.mark.usefixtures("runnable")
def test_all_rows_are_measured_or_the_ones_that_are_named(tmp_path):
    code, text = run_to_text(tmp_path)
    assert (code, "16 of 16 targets met" in text) == (0, True)
    code, text = run_to_text(tmp_path, rows=["fork", "step"])
    assert (code, "6 of 6 targets met" in text, "DBOS 3.4.0, SQLite 3.40.1" in text) == (0, True, True)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_row_is_refused_and_the_known_ones_listed(tmp_path):
    with pytest.raises(UsageError, match=r"no row 'steps' \(there are step, replay, fork, send, queue, suspended\)"):
        run_to_text(tmp_path, rows=["steps"])
    with pytest.raises(UsageError, match=r"no row 'step' \(there are none\)"):
        run(["board"], directory=tmp_path, rows=["step"], console=Console(file=io.StringIO()))


def test_a_workload_that_turns_out_not_to_be_measurable_is_skipped_and_said(tmp_path, monkeypatch):
    def measure(bench):
        assert bench.peer_venv == Path("there")
        raise SkipError("no DBOS to compare with")

    needless = dataclasses.replace(WORKLOADS["durable"], measure=measure, needs=())
    monkeypatch.setitem(WORKLOADS, "durable", needless)
    code, text = run_to_text(tmp_path, peer_venv=Path("there"))
    assert (code, text.splitlines()[-1]) == (0, "durable skipped: no DBOS to compare with")
    assert json.loads(run_to_text(tmp_path, peer_venv=Path("there"), as_json=True)[1])["skipped"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
@pytest.mark.skipif(importlib.util.find_spec("statelog.durable") is None, reason="there is no statelog.durable")
@pytest.mark.parametrize("row", table.ROWS)
def test_our_side_of_every_row_measures(row, tmp_path):
    result = table.ROWS[row](Bench(tmp_path, 0.001, 1), StubPeer())
    assert isinstance(result, Result)
    assert all(side.p50_us > 0 for side in result.sides)
