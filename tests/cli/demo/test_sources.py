from __future__ import annotations

import pytest

from statelog.cli.demo import sources
from statelog.errors import StorageError


def test_there_is_a_package_for_every_step():
    packages = sources.choose_packages()
    assert len(set(packages)) == sources.STEPS
    assert all(sources.package_files(package) for package in packages)


def test_a_library_without_packages_is_reviewed_module_by_module(tmp_path, monkeypatch):
    for number in range(sources.STEPS + 5):
        (tmp_path / f"module{number:02}.py").write_text("def f():\n    pass\n")
    monkeypatch.setattr(sources, "library", lambda: tmp_path)
    packages = sources.choose_packages()
    assert packages[0] == "module00"
    assert sources.package_files("module00") == [tmp_path / "module00.py"]


def test_a_library_without_sources_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "library", lambda: tmp_path)
    with pytest.raises(StorageError, match="has no sources"):
        sources.choose_packages()


def test_findings_follow_from_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "library", lambda: tmp_path)
    (tmp_path / "m.py").write_text('"""Purpose."""\ndef long():\n    try:\n        pass\n    except:\n        pass\n')
    source = sources.parse(tmp_path / "m.py", long_function_lines=5)
    assert [(finding.kind, finding.line) for finding in source.findings] == [("long function", 2), ("bare except", 5)]
    assert (source.lines, source.functions, source.longest_function_lines) == (6, 1, 5)
    assert source.summary == "m.py: Purpose.\n- long, line 2: without a docstring"


def test_a_file_that_does_not_parse_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "library", lambda: tmp_path)
    (tmp_path / "m.py").write_text("def (:\n")
    assert [finding.kind for finding in sources.parse(tmp_path / "m.py", long_function_lines=5).findings] == [
        "does not parse"
    ]
