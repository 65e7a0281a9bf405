from __future__ import annotations

import statelog


def test_benchmarks_run_and_report_as_json(run, tmp_path):
    answer = run("bench", "file-of-large-messages", "--scale", 0.01, "--repeats", 1, "--directory", tmp_path, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.document
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_benchmark_is_refused_with_the_known_ones(run):
    answer = run("bench", "nope")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "file-of-large-messages" in answer.err


def test_an_installed_wheel_names_the_sources_of_the_benchmarks(run, tmp_path, monkeypatch):
    monkeypatch.setattr(statelog, "__file__", str(tmp_path / "statelog" / "__init__.py"))
    answer = run("bench", "small")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "pip download --no-deps --no-binary statelog statelog`" in answer.err
