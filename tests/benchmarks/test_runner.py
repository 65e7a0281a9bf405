import dataclasses
import io
import json
import math

import pytest
from rich.console import Console

from benchmarks import WORKLOADS, run
from statelog.errors import UsageError

SCALE = 0.001
NUMBERS = {"p50_us", "p99_us", "per_second"}


def run_to_text(names, tmp_path, **options):
    console = Console(file=io.StringIO(), width=200)
    code = run(names, directory=tmp_path, scale=SCALE, repeats=1, console=console, **options)
    return code, console.file.getvalue()


def runnable(workload):
    """A parameter: the workload's name, skipped where what it needs is not installed."""
    reason = workload.skip_reason()
    return pytest.param(workload.name, marks=pytest.mark.skipif(reason is not None, reason=reason or ""))


ALONE = [workload for name, workload in WORKLOADS.items() if name not in ("durable", "fleet")]
"""Without the one whose peer has an environment of its own: test_durable.py measures its rows beside a stub; and
without the one that starts servers: test_fleet.py runs its quick rows.
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", [runnable(workload) for workload in ALONE])
def test_every_workload_measures_and_its_json_parses(name, tmp_path):
    code, text = run_to_text([name], tmp_path, as_json=True)
    report = json.loads(text)
    [result] = report["results"]
    assert (code, report["scale"], result["name"]) == (0, SCALE, name)
    assert result["durability"]
    assert all(isinstance(check["met"], bool) and math.isfinite(check["value"]) for check in result["checks"])
    assert result["checks"]
    assert all(side[number] > 0 for side in result["sides"] for number in NUMBERS)
    assert all(side["p50_us"] <= side["p99_us"] for side in result["sides"])
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


@pytest.mark.soak
def test_tables_show_durability_and_missed_targets_and_no_files_are_left(tmp_path):
    _code, text = run_to_text(["file-of-small-messages", "open-after-kill"], tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "durability: commit; SQLite: WAL, synchronous=FULL" in text
    assert "open-after-kill" in text.split("Targets")[1]
    assert "of 4 targets met" in text
    assert "Sizes were shrunk by 0.001" in text


def test_an_unknown_name_is_refused_and_the_known_ones_listed(tmp_path):
    with pytest.raises(UsageError, match=r"no workload 'proceses', did you mean 'processes'\? .*durability"):
        run_to_text(["proceses"], tmp_path)


def test_workloads_that_cannot_be_measured_here_are_skipped_with_a_note(tmp_path, monkeypatch):
    needy = dataclasses.replace(WORKLOADS["open-after-kill"], needs=("json", "no_such_package.inside"), extra="gone")
    monkeypatch.setitem(WORKLOADS, "open-after-kill", needy)
    reason = "open-after-kill skipped: no_such_package.inside not installed (pip install 'statelog[gone]')"
    code, text = run_to_text(["open-after-kill"], tmp_path)
    assert (code, "Targets" in text, text.splitlines()[-1]) == (0, False, reason)
    code, text = run_to_text(["open-after-kill", "file-of-large-messages"], tmp_path, as_json=True)
    assert json.loads(text)["skipped"] == [reason]
    assert [result["name"] for result in json.loads(text)["results"]] == ["file-of-large-messages"]


def test_a_scale_of_zero_is_refused(tmp_path):
    with pytest.raises(UsageError, match="above 0"):
        run(None, directory=tmp_path, scale=0.0, repeats=1, console=Console(file=io.StringIO()))
