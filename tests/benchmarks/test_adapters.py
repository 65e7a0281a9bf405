import pytest

from benchmarks.adapters.measurement import Stopwatch, size_of, text
from benchmarks.adapters.workload import ADAPTERS, FRAMEWORKS
from benchmarks.workload import Bench, SkipError


@pytest.mark.parametrize(("ours", "is_met"), [(9.0, True), (9.1, False)])
def test_a_row_is_met_up_to_its_bound(monkeypatch, ours, is_met):
    clock = Stopwatch()
    monkeypatch.setattr(clock, "median_s", {"ours": ours, "theirs": 10.0}.get)
    assert clock.check("save", "ours", "theirs", 0.9).is_met == is_met


def test_a_size_includes_sidecar_files(tmp_path):
    for name in ("db", "db-wal", "another"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    assert size_of(tmp_path / "db") == 2 * size_of(tmp_path / "another") > 0


def test_texts_repeat_by_seed_alone():
    assert text(100, 1) == text(100, 1) != text(100, 2)


def test_a_clock_gives_the_median_of_a_name():
    clock = Stopwatch()
    for _ in range(3):
        with clock("ours"):
            pass
    assert clock.median_s("ours") >= 0


def test_without_any_framework_the_rows_are_skipped_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.adapters.workload.is_installed", lambda _: False)
    with pytest.raises(SkipError, match="crewai"):
        ADAPTERS.measure(Bench(tmp_path, scale=0.01, repeats=1))
    assert ADAPTERS.rows == tuple(FRAMEWORKS)
