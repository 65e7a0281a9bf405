from __future__ import annotations


def test_benchmarks_run_and_report_as_json(run, tmp_path):
    answer = run("bench", "file-of-large-messages", "--scale", 0.01, "--repeats", 1, "--directory", tmp_path, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.document
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_benchmark_names_the_known(run):
    answer = run("bench", "nope")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "file-of-large-messages" in answer.err
