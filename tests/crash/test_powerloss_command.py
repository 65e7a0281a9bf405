"""`statelog crashtest` shows its cases, and fails if anything was lost or wrong."""

import json

import pytest

from statelog.cli import main, output
from statelog.cli.output import Output
from statelog.testing import crashtest
from statelog.testing.crashtest import CrashTestReport, crashtest_steps
from statelog.testing.kills import KillReport
from statelog.testing.powerloss.campaign import PowerLossReport
from statelog.testing.powerloss.examine import BadImage
from statelog.testing.powerloss.shim import is_supported


def good():
    return CrashTestReport(
        controls={"sync=False": True},
        power_loss=PowerLossReport(
            cuts=10, cuts_all=80, images=2000, by_workload={"commit": 2000}, bad_by_workload={"commit": 0}
        ),
        killed=KillReport(kills=5, commits=600),
    )


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command with parts that return the given results at once."""

    def run_command(outcome, *arguments):
        given = {}

        def steps(report, **options):
            given.update(options)

            def fill(progress):
                progress(1, 1)
                for name in ("controls", "power_loss", "killed"):
                    setattr(report, name, getattr(outcome, name))

            yield "everything", fill

        monkeypatch.setattr(crashtest, "crashtest_steps", steps)
        with pytest.raises(SystemExit) as ended:
            main(["crashtest", *arguments])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err, given

    return run_command


def test_a_table_shows_cuts_images_kills_and_that_nothing_was_lost(run):
    code, out, _err, _given = run(good())
    assert code == 0
    counts = {line[:15].strip(): line[15:].split()[0] for line in out.splitlines()[1:] if line.split()[-1:]}
    assert counts["cuts"] == "10"
    assert counts["images"] == "2,000"
    assert counts["kills"] == "5"
    assert counts["lost"] == counts["wrong"] == "0"


def test_the_table_has_the_number_of_tested_and_of_all_cuts(run):
    remarks = [line.split(maxsplit=2)[-1] for line in run(good())[1].splitlines()]
    assert any("of 80 possible power cuts" in remark for remark in remarks)


def test_without_a_terminal_each_part_is_one_line(run):
    err = run(good())[2]
    assert err.splitlines()[0] == "everything ..."
    assert err.splitlines()[-1].startswith("everything: done in ")
    assert run(good(), "--json")[2] == ""


def test_without_a_terminal_progress_lines_are_printed_at_intervals(capsys, monkeypatch):
    monkeypatch.setattr(output, "_LINE_INTERVAL_S", 0.0)
    with Output(as_json=False).progress_in_lines("power cuts") as progress:
        progress(1200, 20_000)
    assert capsys.readouterr().err.splitlines()[1].startswith("power cuts: 1,200 of 20,000 after ")


@pytest.mark.skipif(not is_supported(), reason="of the parts that this machine cannot do")
@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (200, {"images": 200, "share": 0.002}),
        (1, {"images": 1, "share": 0.00001}),
        (20_000, {"images": 20_000, "share": 0.2}),
        (10**6, {"images": 10**6, "share": 1.0}),
    ],
)
def test_a_small_budget_bounds_the_cuts_and_a_large_one_does_not(monkeypatch, images, expected):
    given = {}
    for name in ("run_controls", "check_power_loss", "check_kills"):
        monkeypatch.setattr(crashtest, name, lambda *_arguments, **options: given.update(options))
    for _name, run_part in crashtest_steps(CrashTestReport(), images=images, seconds=5):
        run_part(lambda _done, _whole: None)
    assert {name: given[name] for name in expected} == expected
    assert given["seconds"] == 5


def test_a_lost_commit_is_reported_and_fails(run):
    outcome = good()
    outcome.power_loss.lost = 1
    outcome.power_loss.bad.append(
        BadImage("commit", 7, "", "", lost=True, message="the contents are those after step 3", evidence=None)
    )
    code, out, err, _given = run(outcome)
    assert code == 1
    assert "commit, cut 7: the contents are those after step 3" in out
    assert "lost 1, wrong 0" in err


@pytest.mark.parametrize(
    "spoil",
    [
        lambda report: report.controls.update({"sync=False": False}),
        lambda report: setattr(report.power_loss, "wrong", 1),
        lambda report: setattr(report.killed, "wrong", 1),
    ],
)
def test_wrong_data_or_an_undetected_control_fails(run, spoil):
    outcome = good()
    spoil(outcome)
    assert run(outcome)[0] == 1
    assert outcome.wrong == 1


def test_each_part_can_show_its_faults():
    outcome = good()
    outcome.power_loss.bad.extend(
        BadImage("commit", n, "", "", lost=False, message="", evidence=None) for n in range(100)
    )
    outcome.killed.bad.append("half a commit")
    assert any("half a commit" in line for line in outcome.bad())


def test_faults_are_described_in_readable_lines():
    outcome = good()
    outcome.killed.bad.append("x" * 100_000)
    assert [len(line) for line in outcome.bad()] == [400]


def test_json_has_all_results(run):
    code, out, _err, _given = run(good(), "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["ok"], document["lost"], document["wrong"]) == (True, 0, 0)
    assert document["power_loss"]["images"] == 2000
    assert document["killed"]["kills"] == 5


def test_options_reach_the_parts(run, tmp_path):
    given = run(good(), "--seconds", "3", "--images", "7", "--directory", str(tmp_path))[3]
    assert (given["seconds"], given["images"], given["directory"]) == (3, 7, tmp_path)


def test_only_parts_that_this_machine_supports_are_run():
    report = CrashTestReport()
    names = [name for name, _run in crashtest_steps(report)]
    assert names[-1] == "killed processes"
    assert (len(names) == 3) == is_supported()
    assert bool(report.left_out) != is_supported()
